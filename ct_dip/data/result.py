"""`Result`: what a reconstruction found, and its file::

/                attributes: format "ct_dip.result", version, method, pixel_size [mm], scan_digest,
                 and as JSON: settings, metrics, seconds, versions
/mean            (rows, columns) float32, 1/mm: the image
/std             (rows, columns) float32, 1/mm: standard deviation of every pixel   (optional)
/arrays/NAME     float32, what else the method found, see `Result.arrays`           (optional)
/traces/NAME     (n,) float64, one per curve that the method recorded            (optional)
"""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from ct_dip.arrays import Floats
from ct_dip.data.hdf5 import add_array, read_hdf5, write_hdf5
from ct_dip.data.plain_hdf5 import get_dataset, read_array
from ct_dip.errors import ResultError
from ct_dip.text import shortened

VERSION = 1
_IMAGES = {"truth", "reference", "mask", "fbp", "dip", "linear", "samples"}  # of `Result.arrays`
_CERTIFIED = {  # numbers of ``metrics["certificate"]`` that are shown
    *("rank", "discarded_trace", "evidence_error", "mean_error", "sample_error"),
    *("residual", "samples", "passes"),
}
_JSON = ("settings", "metrics", "seconds", "versions")


@dataclass(frozen=True, kw_only=True)
class Result:
    """One reconstruction.

    Args:
        method: ``fbp``, ``cgls``, ``tv``, …
        mean: the image in 1/mm, (rows, columns); the posterior mean of a method that has one.
        pixel_size: mm.
        scan_digest: of the scan that was reconstructed.
        settings: everything that the method was told, resolved.
        metrics: numbers that came out: iterations, gap, …; PSNR and SSIM where there is an image to compare
            with, which ``compared_with`` calls ``truth`` or ``reference``; ``reference_std``: its noise.
        seconds: wall time by stage, in the order of execution.
        versions: of the libraries.
        traces: curves, by name.
        std: standard deviation of every pixel in 1/mm, of a method that has one.
        arrays: by name, in 1/mm: ``truth`` if the scan has one, or the ``reference`` that was given in its
            place; of ``lin-dip`` the images ``fbp``, ``dip`` and ``linear``, ``samples`` (n, rows, columns)
            of the posterior, ``sinogram_mean``, ``sinogram_std`` and ``sinogram_standardised`` of its
            predictive check, and ``patch_ROW_COLUMN``, in 1/mm², the covariance of the patch with that
            first pixel.
    """

    method: str
    mean: Floats
    pixel_size: float
    scan_digest: str
    settings: dict[str, Any] = field(default_factory=dict)
    metrics: dict[str, Any] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    traces: dict[str, Floats] = field(default_factory=dict)
    std: Floats | None = None
    arrays: dict[str, Floats] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.mean.ndim != 2 or self.mean.dtype.kind != "f":
            raise ResultError(
                f"mean has shape {self.mean.shape} and type {self.mean.dtype}, expected an image"
            )
        if self.std is not None and self.std.shape != self.mean.shape:
            raise ResultError(f"std has shape {self.std.shape}, the image {self.mean.shape}")
        mask = self.arrays.get("mask")
        if mask is not None and not (np.isfinite(mask).all() and np.any(mask > 0)):
            raise ResultError("mask must be positive for one pixel at least, and finite; reconstruct again")
        for name in _JSON:
            if not isinstance(getattr(self, name), dict):
                raise ResultError(f"{name} must be a mapping, got {shortened(repr(getattr(self, name)))}")
        _check_certificate(self.metrics.get("certificate") or {})
        if not all(isinstance(value, int | float) for value in self.seconds.values()):
            raise ResultError("seconds must be numbers")


def _check_certificate(certificate: Any) -> None:
    """Whether the certificate of a result has what pages and summaries say of it."""
    if not isinstance(certificate, dict):
        raise ResultError(
            f"metrics.certificate must be a mapping, got {shortened(repr(certificate))}; reconstruct again"
        )
    needed = {"sample_error"} if "mean_error" in certificate else set()
    if not certificate.get("closed_form", True):
        needed.add("samples")
    for name in sorted(needed | (_CERTIFIED & certificate.keys())):
        value = certificate.get(name)
        if (
            isinstance(value, bool)
            or not isinstance(value, int | float)
            or (name == "samples" and value <= 0)
        ):
            raise ResultError(
                f"metrics.certificate.{name} is {shortened(repr(value))}, not a number of its kind; "
                "reconstruct again"
            )


def write_result(path: str | Path, result: Result) -> None:
    """Write a result file atomically."""

    def fill(file: h5py.File) -> None:
        file.attrs["method"] = result.method
        file.attrs["pixel_size"] = result.pixel_size
        file.attrs["scan_digest"] = result.scan_digest
        for name in _JSON:
            # Stages are kept in the order in which they ran.
            text = json.dumps(getattr(result, name), sort_keys=name != "seconds", allow_nan=False)
            file.attrs[name] = text
        add_array(file, "mean", result.mean.astype(np.float32), unit="1/mm")
        if result.std is not None:
            add_array(file, "std", result.std.astype(np.float32), unit="1/mm")
        for name, values in result.arrays.items():
            add_array(file, f"arrays/{name}", np.asarray(values, dtype=np.float32))
        for name, values in result.traces.items():
            add_array(file, f"traces/{name}", np.asarray(values, dtype=np.float64))

    write_hdf5(path, "result", VERSION, fill)


def read_result(path: str | Path) -> Result:
    """Read a result file.

    Raises:
        ResultError: with the file, the field and the fix.
    """
    with read_hdf5(path, "result", VERSION, ResultError) as file:
        try:
            parts = {name: json.loads(file.attrs[name]) for name in _JSON}
        except (json.JSONDecodeError, RecursionError) as error:
            raise ResultError(f"{path} is damaged ({error}); reconstruct again") from error
        traces, arrays = file.get("traces", {}), file.get("arrays", {})
        image = get_dataset(file, "mean").shape
        for name in _IMAGES & set(arrays):
            shape = get_dataset(arrays, name).shape
            if shape[name == "samples" :] != image:
                raise ResultError(
                    f"{path}: arrays/{name} has shape {shape}, the image {image}; reconstruct again"
                )
        return Result(
            method=str(file.attrs["method"]),
            mean=read_array(file, "mean", dimensions=2, kinds="f"),
            pixel_size=float(file.attrs["pixel_size"]),
            scan_digest=str(file.attrs["scan_digest"]),
            traces={name: read_array(traces, name, dimensions=1, kinds="f") for name in traces},
            std=read_array(file, "std", dimensions=2, kinds="f") if "std" in file else None,
            arrays={name: read_array(arrays, name, kinds="f") for name in arrays},
            **parts,
        )
