"""The file of a `Prediction`::

/                attributes: format "ct_dip.result", version, method, pixel_size [mm], scan_digest,
                 degrees of freedom of single pixels (infinite if Gaussian),
                 detector_row and row_spacing [mm] as of the scan                              (optional)
                 and as JSON: settings, metrics (diagnostics, warnings), scores, heldout, seconds, versions
/mean            (rows, columns) float32, 1/mm: the image
/std             (rows, columns) float32, 1/mm: standard deviation of every pixel                  (optional)
/arrays/NAME     float32                                                                           (optional)
    truth, reference      the image that it is compared with; metrics have the reference_std of the latter
    mask                  pixels that count in a comparison
    samples               (n, rows, columns), 1/mm
    std_error             Monte-Carlo standard error of std
    sinogram_mean, sinogram_std, sinogram_standardised      predictive of the sinogram
    patch_ROW_COLUMN      covariance, 1/mm², of the patch with that first pixel; attribute shape
    fbp, dip, linear, …   further images
/traces/NAME     (n,) float64, one per curve that the method recorded                              (optional)
"""

import json
import math
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from ct_dip.arrays import Bools, Floats
from ct_dip.data.comparison import Comparison
from ct_dip.data.hdf5 import add_array, read_hdf5, read_row, write_hdf5, write_row
from ct_dip.data.plain_hdf5 import get_dataset, read_array
from ct_dip.data.prediction import RESERVED, Patch, Prediction, SinogramPredictive
from ct_dip.data.scores import HeldoutScores, Scores
from ct_dip.errors import InputError, ResultError
from ct_dip.text import shortened

VERSION = 1
AnyResult = Prediction | str | Path
_SINOGRAM = tuple(f"sinogram_{name}" for name in SinogramPredictive._fields)


def write_result(result: Prediction, path: str | Path) -> None:
    """Write a result file atomically."""
    if isinstance(result, str | Path):
        raise InputError("write_result takes the result first, then the path")
    metrics, compared = dict(result.diagnostics), result.comparison
    if result.warnings:
        metrics["warnings"] = list(result.warnings)
    if compared is not None and compared.noise_std:
        metrics["reference_std"] = compared.noise_std
    parts = {
        "settings": result.settings,
        "metrics": metrics,
        "versions": result.versions,
        "seconds": result.seconds,
        "scores": None if result.scores is None else result.scores.to_dict(),
        "heldout": None if result.heldout is None else result.heldout.to_dict(),
    }
    arrays: dict[str, Any] = dict(result.images)
    if compared is not None:
        arrays[compared.name] = compared.image
    if result.sinogram is not None:
        fields = zip(_SINOGRAM, result.sinogram, strict=True)
        arrays |= {name: values for name, values in fields if values is not None}
    for name in ("mask", "samples", "std_error"):
        if (values := getattr(result, name)) is not None:
            arrays[name] = values

    def fill(file: h5py.File) -> None:
        file.attrs["method"] = result.method
        file.attrs["pixel_size"] = result.pixel_size
        file.attrs["scan_digest"] = result.scan_digest
        file.attrs["degrees"] = result.degrees
        write_row(file, result)
        for name, part in parts.items():
            # Stages are kept in the order in which they ran.
            file.attrs[name] = json.dumps(part, sort_keys=name != "seconds", allow_nan=False)
        add_array(file, "mean", result.mean.astype(np.float32), unit="1/mm")
        if result.std is not None:
            add_array(file, "std", result.std.astype(np.float32), unit="1/mm")
        for name, values in arrays.items():
            add_array(file, f"arrays/{name}", np.asarray(values, dtype=np.float32))
        for rows, columns, covariance in result.patches:
            shape = rows.stop - rows.start, columns.stop - columns.start
            name = f"arrays/patch_{rows.start}_{columns.start}"
            add_array(file, name, covariance.astype(np.float32), shape=shape)
        for name, values in result.traces.items():
            add_array(file, f"traces/{name}", np.asarray(values, dtype=np.float64))

    write_hdf5(path, "result", VERSION, fill)


def load_result(result: AnyResult) -> Prediction:
    """Return a result as it is, or read it where the path of its file is given."""
    return result if isinstance(result, Prediction) else read_result(result)


def read_result(path: str | Path) -> Prediction:
    """Read a result file.

    Raises:
        ResultError: with the file, the field and the fix.
    """
    with read_hdf5(path, "result", VERSION, ResultError) as file:
        metrics = _read_json(file, "metrics")
        warnings = metrics.pop("warnings", [])
        scores, heldout = (
            _read_json(file, name) if file.attrs.get(name, "null") != "null" else None
            for name in ("scores", "heldout")
        )
        seconds = _read_json(file, "seconds")
        if not all(isinstance(value, int | float) for value in seconds.values()):
            raise ResultError("seconds must be numbers; reconstruct again")
        if not isinstance(warnings, list):
            raise ResultError(
                f"metrics.warnings must be a list, got {shortened(repr(warnings))}; reconstruct again"
            )
        stored, traces = file.get("arrays", {}), file.get("traces", {})
        _check_shapes(stored, get_dataset(file, "mean").shape)
        patches = tuple(_read_patch(stored, name) for name in stored if name.startswith("patch_"))
        arrays = {name: read_array(stored, name, kinds="f") for name in stored if name[:6] != "patch_"}
        *needed, measured = _SINOGRAM  # results of earlier versions do not hold what was measured
        predictive = None
        if all(name in arrays for name in needed):
            predictive = SinogramPredictive(*(arrays[name] for name in needed))
            predictive = predictive._replace(measured=arrays.get(measured))
        return Prediction(
            mean=read_array(file, "mean", dimensions=2, kinds="f"),
            std=read_array(file, "std", dimensions=2, kinds="f") if "std" in file else None,
            std_error=arrays.get("std_error"),
            degrees=float(file.attrs.get("degrees", math.inf)),
            samples=arrays.get("samples"),
            images={name: values for name, values in arrays.items() if name not in RESERVED},
            sinogram=predictive,
            patches=tuple(patch for patch in patches if patch is not None),
            diagnostics=metrics,
            warnings=tuple(str(warning) for warning in warnings),
            traces={name: read_array(traces, name, dimensions=1, kinds="f") for name in traces},
            method=str(file.attrs["method"]),
            pixel_size=float(file.attrs["pixel_size"]),
            scan_digest=str(file.attrs["scan_digest"]),
            **read_row(file),
            settings=_read_json(file, "settings"),
            seconds=seconds,
            versions=_read_json(file, "versions"),
            comparison=_comparison(arrays, metrics.pop("reference_std", 0.0)),
            mask=_mask(arrays),
            scores=None if scores is None else Scores.from_dict(scores),
            heldout=None if heldout is None else HeldoutScores.from_dict(heldout),
        )


def _read_json(file: h5py.File, name: str) -> dict[str, Any]:
    try:
        values = json.loads(file.attrs[name])
    except (json.JSONDecodeError, RecursionError) as error:
        raise ResultError(f"{name} is damaged ({error}); reconstruct again") from error
    if not isinstance(values, dict):
        raise ResultError(f"{name} must be a mapping, got {shortened(repr(values))}; reconstruct again")
    return values


def _check_shapes(stored: h5py.Group, image: tuple[int, ...]) -> None:
    """Refuse images and samples of another shape than the mean's, before they are read."""
    for name in stored:
        shape = get_dataset(stored, name).shape
        if name in _SINOGRAM:
            if len(shape) != 2:
                raise ResultError(
                    f"arrays/{name} has shape {shape}, expected 2 dimensions; reconstruct again"
                )
        elif not name.startswith("patch_") and shape[name == "samples" :] != image:
            raise ResultError(f"arrays/{name} has shape {shape}, the image {image}; reconstruct again")


def _read_patch(group: h5py.Group, name: str) -> Patch | None:
    """Read a patch, if its file says what shape it has."""
    if "shape" not in group[name].attrs:
        return None
    top, left = (int(word) for word in name.split("_")[1:])
    rows, columns = (int(side) for side in group[name].attrs["shape"])
    covariance = read_array(group, name, dimensions=2, kinds="f")
    if covariance.shape != (rows * columns, rows * columns):
        raise ResultError(
            f"arrays/{name} has shape {covariance.shape}, the covariance of {rows} × {columns} pixels has "
            f"{(rows * columns, rows * columns)}; reconstruct again"
        )
    return Patch(slice(top, top + rows), slice(left, left + columns), covariance)


def _comparison(arrays: dict[str, Floats], noise: Any) -> Comparison | None:
    if "truth" in arrays:
        return Comparison(name="truth", image=arrays["truth"])
    if "reference" not in arrays:
        return None
    if not isinstance(noise, int | float) or not 0 <= noise < math.inf:
        raise ResultError(f"the result's reference_std {noise!r} is not a number in 1/mm; reconstruct again")
    return Comparison(name="reference", image=arrays["reference"], noise_std=float(noise))


def _mask(arrays: dict[str, Floats]) -> Bools | None:
    mask = arrays.get("mask")
    if mask is not None and not np.isfinite(mask).all():
        raise ResultError("mask must be finite; reconstruct again")
    return None if mask is None else mask > 0
