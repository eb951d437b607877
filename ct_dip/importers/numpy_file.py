"""A sinogram of your own: an NPZ file (``numpy.savez``) without pickles.

==================  =============================================================================
``sinogram``        line integrals, dimensionless, (views, detectors)
``angles``          of the views, radians, (views,)
``detector_pitch``  distance of neighbouring detectors, mm
==================  =============================================================================

and where they apply:

============================================  ===================================================
``source_origin``, ``origin_detector``        distances of a flat fan beam, mm; without: parallel
``detector_offset``, ``center_of_rotation``   mm, 0 without (`ct_dip.geometry` has the frame)
``noise_std`` or ``photons``                  the noise, where it is known (`ct_dip.data.noise`)
``source``                                    where the scan comes from, in words
============================================  ===================================================

With ``--counts`` the sinogram holds readings of the detector, and these are needed or may be there:

==========  =====================================================================================
``flat``    readings in air, (detectors,) or (repetitions, detectors), or one number; repetitions
            tell the noise
``dark``    readings without light, likewise; 0 without
==========  =====================================================================================
"""

import difflib
from pathlib import Path
from typing import Any

import numpy as np

from ct_dip.arrays import Floats
from ct_dip.data.noise import NoiseModel, PhotonNoise, WhiteNoise
from ct_dip.data.plain_numpy import read_npz
from ct_dip.data.scan import Scan
from ct_dip.errors import ScanError
from ct_dip.geometry import FanBeam, Geometry, ParallelBeam
from ct_dip.importers.grid import ANY_VOLUME, bin_columns, check_bin, scan_on_grid
from ct_dip.importers.intensity import check_readings, flat_noise, line_integrals
from ct_dip.importers.open import check_file, named

REQUIRED = ("sinogram", "angles", "detector_pitch")
OPTIONAL = (
    *("source_origin", "origin_detector", "detector_offset", "center_of_rotation"),
    *("noise_std", "photons", "source", "flat", "dark"),
)


def read_numpy(
    path: str | Path,
    *,
    counts: bool = False,
    bin: int = 1,
    size: int | None = None,
    width: float | None = None,
) -> Scan:
    """All views on a grid.

    Args:
        counts: the sinogram holds readings of the detector, not line integrals.
        bin: neighbouring detectors whose line integrals are averaged (with ``photons``: their counts).
        size, width: of the grid, see `ct_dip.importers.grid.on_grid`.

    Raises:
        ScanError: with the file, the field and the fix.
    """
    path = check_file(path)
    with path.open("rb") as file:
        if file.read(6) == b"\x93NUMPY":
            raise ScanError(f"{path} holds one bare array; write sinogram, angles, … with numpy.savez")
    with named(path):
        return scan_on_grid(_scan(read_npz(path), bin, counts), size=size, width=width)


def _scan(fields: dict[str, Any], bin: int, counts: bool) -> Scan:
    for name in REQUIRED:
        if name not in fields:
            raise ScanError(f"there is no array {name!r}; needed are {', '.join(REQUIRED)}")
    for name in fields:
        if name not in REQUIRED + OPTIONAL:
            near = difflib.get_close_matches(name, OPTIONAL, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"known are {', '.join(REQUIRED + OPTIONAL)}"
            raise ScanError(f"array {name!r} has no meaning; {hint}")
    sinogram = fields["sinogram"]
    if sinogram.ndim != 2:
        raise ScanError(f"sinogram has shape {sinogram.shape}, expected (views, detectors)")
    geometry, noise = _geometry(fields, sinogram.shape[1]), _noise(fields)
    source = str(fields.get("source", ""))
    check_bin(sinogram.shape[1], bin)
    if counts:
        integrals, measured = _from_counts(fields, bin)
        noise = noise.binned(bin) if noise is not None else measured
        return Scan(sinogram=integrals, geometry=geometry.bin_detectors(bin), noise=noise, source=source)
    for name in ("flat", "dark"):
        if name in fields:
            raise ScanError(f"array {name!r} belongs to readings of the detector; import them with --counts")
    return Scan(sinogram=sinogram, geometry=geometry, noise=noise, source=source).bin_detectors(bin)


def _from_counts(fields: dict[str, Any], bin: int) -> tuple[Floats, PhotonNoise | None]:
    """Line integrals of binned readings, and the noise that repeated flats show."""
    readings = check_readings(fields["sinogram"], "sinogram")
    if "flat" not in fields:
        raise ScanError("--counts needs the readings in air: add an array 'flat', per detector or one number")
    dark = _frames(fields, "dark", readings.shape[1]).mean(axis=0) if "dark" in fields else 0.0
    flats = _frames(fields, "flat", readings.shape[1]) - dark
    if not flats.min() > 0:
        raise ScanError(f"flat reads {flats.min():g} above the dark current somewhere: a dead detector?")
    flats = bin_columns(flats, bin)
    return line_integrals(bin_columns(readings - dark, bin), flats.mean(axis=0)), flat_noise(flats)


def _frames(fields: dict[str, Any], name: str, detectors: int) -> Floats:
    """Readings as (repetitions, detectors)."""
    values = check_readings(fields[name], name)
    if values.size != 1 and (values.ndim > 2 or values.shape[-1] != detectors):
        raise ScanError(f"{name} has shape {values.shape}, expected ({detectors},) or (n, {detectors})")
    return np.broadcast_to(np.atleast_2d(values), (1 if values.ndim < 2 else len(values), detectors))


def _geometry(fields: dict[str, Any], detectors: int) -> Geometry:
    lengths: dict[str, float] = {
        name: _number(fields, name)
        for name in ("detector_pitch", "detector_offset", "center_of_rotation")
        if name in fields
    }
    fan: dict[str, float] = {
        name: _number(fields, name) for name in ("source_origin", "origin_detector") if name in fields
    }
    common: dict[str, Any] = {
        "volume": ANY_VOLUME,
        "angles": fields["angles"],
        "detectors": detectors,
        **lengths,
    }
    if not fan:
        return ParallelBeam(**common)
    if len(fan) == 1:
        raise ScanError(
            f"a fan beam needs source_origin and origin_detector, in mm; found only {next(iter(fan))}"
        )
    return FanBeam(**(common | fan))


def _noise(fields: dict[str, Any]) -> NoiseModel | None:
    if "noise_std" in fields and "photons" in fields:
        raise ScanError("noise_std and photons exclude each other; keep one")
    if "noise_std" in fields:
        return WhiteNoise(std=_number(fields, "noise_std"))
    return PhotonNoise(photons=_number(fields, "photons")) if "photons" in fields else None


def _number(fields: dict[str, Any], name: str) -> float:
    value = fields[name]
    if value.size != 1 or value.dtype.kind not in "fiu":
        raise ScanError(f"{name} has shape {value.shape} and type {value.dtype}, expected one number")
    return float(value.reshape(()))
