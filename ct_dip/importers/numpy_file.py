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
"""

import difflib
from pathlib import Path
from typing import Any

from ct_dip.data.noise import NoiseModel, PhotonNoise, WhiteNoise
from ct_dip.data.plain_numpy import read_npz
from ct_dip.data.scan import Scan
from ct_dip.errors import ScanError
from ct_dip.geometry import FanBeam, Geometry, ParallelBeam
from ct_dip.importers.grid import ANY_VOLUME, check_bin, scan_on_grid
from ct_dip.importers.open import check_file, named

REQUIRED = ("sinogram", "angles", "detector_pitch")
OPTIONAL = (
    *("source_origin", "origin_detector", "detector_offset", "center_of_rotation"),
    *("noise_std", "photons", "source"),
)


def read_numpy(
    path: str | Path, *, bin: int = 1, size: int | None = None, width: float | None = None
) -> Scan:
    """All views on a grid.

    Args:
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
        return scan_on_grid(_scan(read_npz(path), bin), size=size, width=width)


def _scan(fields: dict[str, Any], bin: int) -> Scan:
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
    return Scan(
        sinogram=sinogram,
        geometry=_geometry(fields, sinogram.shape[1]),
        noise=_noise(fields),
        source=str(fields.get("source", "")),
    ).bin_detectors(check_bin(sinogram.shape[1], bin))


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
