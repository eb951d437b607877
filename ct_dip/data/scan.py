"""`Scan`: a sinogram with everything that is needed to reconstruct it."""

import dataclasses
import hashlib
import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from ct_dip.arrays import Bools, Floats
from ct_dip.checks import check_positive, check_type
from ct_dip.data.noise import NoiseModel, estimate_white_std
from ct_dip.data.thumbnail import thumbnails
from ct_dip.errors import ScanError
from ct_dip.geometry import FanBeam, Geometry, ParallelBeam, ViewIndex
from ct_dip.text import shortened

_SOURCE = 500  # characters
_LINE, _MOST_LINES = 300, 40  # of steps and of warnings: all of them fit into an attribute of HDF5


def check_shapes(geometry: Geometry, shapes: Mapping[str, tuple[int, ...]]) -> None:
    """Refuse a ``sinogram`` that does not fit the rays, and images, by any other name, that miss the grid."""
    views, detectors = geometry.range_shape
    for name, shape in shapes.items():
        expected, meaning = geometry.domain_shape, "the volume's rows × columns"
        if name == "sinogram":
            expected, meaning = geometry.range_shape, f"{views} views × {detectors} detectors"
        if shape != expected:
            hint = "; transpose it?" if shape == expected[::-1] else ""
            raise ScanError(f"{name} has shape {shape}, expected {expected}: {meaning}{hint}")


@dataclass(frozen=True, kw_only=True, eq=False)
class Scan:
    """One measured or simulated scan. Arrays are float32 and read-only.

    Args:
        sinogram: line integrals of the attenuation, dimensionless, (views, detectors).
        geometry: where the rays went, and the grid to reconstruct on.
        noise: how uncertain the line integrals are; ``None`` if nobody knows.
        offset_error: standard error of the geometry's ``detector_offset``, or of where the rotation axis
            meets the detector, in mm; 0 where that is taken as exact. See `ct_dip.operators.nuisance`.
        detector_row: that the scan is of, counted from 0, where the detector has several.
        row_spacing: distance of such rows at the rotation axis, mm: that of the slices of a volume.
        ground_truth: the true attenuation in 1/mm, (rows, columns), of a simulated scan. A
            reconstruction of a measured scan is not one.
        mask: pixels that an evaluation counts, (rows, columns); see `evaluated`.
        attenuation_scale: 1/mm of value 1 of the image that was scanned, as of water; no reconstruction
            depends on it.
        source: where the scan comes from, in words; shortened to 500 characters.
        steps: what was done to the readings since they were measured, in order, one line each.
        warnings: what those who made the scan noticed about its data, one line each; a result repeats them.
    """

    sinogram: Floats
    geometry: Geometry
    noise: NoiseModel | None = None
    offset_error: float = 0.0
    detector_row: int | None = None
    row_spacing: float | None = None
    ground_truth: Floats | None = None
    mask: Bools | None = None
    attenuation_scale: float = 1.0
    source: str = ""
    steps: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not isinstance(self.geometry, ParallelBeam | FanBeam):
            raise ScanError(f"geometry: expected a ParallelBeam or FanBeam, got {self.geometry!r}")
        wanted = "a noise model, for example WhiteNoise(std=0.1), or None if nobody knows"
        check_type(self.noise, NoiseModel | None, "noise", wanted)
        for name, dtype in (("sinogram", np.float32), ("ground_truth", np.float32), ("mask", np.bool_)):
            if name == "sinogram" or getattr(self, name) is not None:
                self._freeze(name, dtype)
        scale = self.attenuation_scale
        if not isinstance(scale, int | float | np.floating) or not 0 < scale < math.inf:
            raise ScanError(f"attenuation_scale {scale!r} must be a positive number, in 1/mm")
        object.__setattr__(self, "attenuation_scale", float(scale))
        error = self.offset_error
        if not isinstance(error, int | float | np.floating) or not 0 <= error < math.inf:
            raise ScanError(f"offset_error {error!r} must be a standard error in mm, or 0 if there is none")
        object.__setattr__(self, "offset_error", float(error))
        row = self.detector_row
        if row is not None and not (isinstance(row, int) and row >= 0):
            raise ScanError(f"detector_row {row!r} must be a whole number, counted from 0, or None")
        if self.row_spacing is not None:
            object.__setattr__(self, "row_spacing", check_positive(self.row_spacing, "row_spacing", "mm"))
        object.__setattr__(self, "source", shortened(self.source, _SOURCE))
        for name in ("steps", "warnings"):
            lines = getattr(self, name)
            if isinstance(lines, str) or len(lines) > _MOST_LINES:
                raise ScanError(
                    f"{name} must be at most {_MOST_LINES} lines of text, got {shortened(repr(lines))}"
                )
            texts = (shortened(" ".join(str(line).split()), _LINE) for line in lines)
            object.__setattr__(self, name, tuple(text for text in texts if text))

    def _freeze(self, name: str, dtype: Any) -> None:
        values = np.asarray(getattr(self, name))
        check_shapes(self.geometry, {name: values.shape})
        if values.dtype.kind not in "fiub":
            raise ScanError(f"{name} has type {values.dtype}, expected real numbers")
        if name == "mask" and not (np.isfinite(values).all() and values.any()):
            raise ScanError("mask must be true for at least one pixel, and not NaN; correct or drop it")
        with np.errstate(over="ignore"):  # too large for float32 is not finite, either
            frozen = np.array(values, dtype=dtype, order="C")
        finite = np.isfinite(frozen)
        if not finite.all():
            first = tuple(int(i) for i in np.argwhere(~finite)[0])
            raise ScanError(
                f"{name}{list(first)} is {values[first]}: {np.sum(~finite)} of {finite.size} values not "
                "finite in float32; mask dead detectors or interpolate them first"
            )
        frozen.flags.writeable = False
        object.__setattr__(self, name, frozen)

    def __repr__(self) -> str:
        geometry = self.geometry
        parts = [f"{geometry.kind} beam", f"{geometry.views} views × {geometry.detectors} detectors"]
        parts += [str(geometry.volume), "unknown noise" if self.noise is None else str(self.noise)]
        parts += [f"detector offset ± {self.offset_error:.2g} mm"] if self.offset_error else []
        parts += ["ground truth"] if self.ground_truth is not None else []
        return f"<Scan{f' of {shortened(self.source, 60)}' if self.source else ''}: {', '.join(parts)}>"

    def _repr_html_(self) -> str:
        pictures = {"sinogram: views × detectors": self.sinogram, "ground truth": self.ground_truth}
        return thumbnails(repr(self), pictures)

    @cached_property
    def evaluated(self) -> Bools:
        """Pixels that an evaluation counts, (rows, columns): those of the mask, or the field of view."""
        return self.geometry.field_of_view_mask() if self.mask is None else self.mask

    @property
    def variance(self) -> Floats | None:
        """Variance of every line integral by the noise model, (views, detectors)."""
        return None if self.noise is None else self.noise.variance(self.sinogram)

    def variance_or_estimate(self) -> tuple[Floats, bool]:
        """Return the variance of every line integral, and whether the scan states it.

        For photon noise, add a constant where the data vary more than photons explain.

        Raises:
            ScanError: the stated noise is below the resolution of the data, or none is stated and none can
                be found in the sinogram.
        """
        if self.noise is None:
            std = estimate_white_std(self.sinogram)
            if std == 0:
                raise ScanError(
                    "the scan states no noise, and none can be estimated from its sinogram; "
                    "add noise to the scan, or use method fbp"
                )
            return np.full(self.sinogram.shape, std**2), False
        variance = self.noise.variance(self.sinogram)
        least, resolution = math.sqrt(variance.min()), 1e-6 * float(np.abs(self.sinogram).max())
        if least < resolution:
            raise ScanError(
                f"the scan states a noise of {least:.2g}, below {resolution:.2g}, the resolution of its "
                "float32 sinogram; state a realistic one, or none"
            )
        return self.noise.settled(self.sinogram).variance(self.sinogram), True

    def select_views(self, index: ViewIndex) -> "Scan":
        """Return the same scan with some of its views; all of them say how noisy they are."""
        geometry = self.geometry.select_views(index)
        if not isinstance(index, slice):
            index = np.asarray(index)
        noise = None if self.noise is None else self.noise.settled(self.sinogram)
        return dataclasses.replace(self, geometry=geometry, sinogram=self.sinogram[index], noise=noise)

    def bin_detectors(self, factor: int) -> "Scan":
        """Join ``factor`` neighbouring bins: line integrals are averaged, photon counts added."""
        geometry = self.geometry.bin_detectors(factor)
        if self.noise is None:
            sinogram = self.sinogram.reshape(*geometry.range_shape, factor).mean(axis=-1)
            return dataclasses.replace(self, geometry=geometry, sinogram=sinogram)
        return dataclasses.replace(
            self,
            geometry=geometry,
            sinogram=self.noise.bin_sinogram(self.sinogram, factor).astype(np.float32),
            noise=self.noise.binned(factor),
        )

    @cached_property
    def digest(self) -> str:
        """SHA-256 of what a reconstruction depends on: sinogram, geometry and its error, noise."""
        identity = f"{self.geometry.digest} {self.noise!r}"
        if self.offset_error:
            identity += f" {self.offset_error!r}"
        return hashlib.sha256(identity.encode() + self.sinogram.tobytes()).hexdigest()
