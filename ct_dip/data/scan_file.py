"""Scan files::

/                attributes: format "ct_dip.scan", version, attenuation_scale [1/mm], source;
                 steps and warnings, a line each; offset_error [mm], 0 without;
                 detector_row and row_spacing [mm] of a detector with several     (optional)
/sinogram        (views, detectors) float32, line integrals
/geometry        attributes: kind, shape, pixel_size, detectors, detector_pitch, …
                 with length_unit "mm" and angle_unit "rad"
/geometry/angles (views,) float64
/noise           attributes: kind "white" and std, or "photon", photons, constant (optional)
/ground_truth    (rows, columns) float32, 1/mm                                    (optional)
/mask            (rows, columns) bool                                             (optional)
"""

from pathlib import Path
from typing import Any

import h5py
import numpy as np

from ct_dip.data.hdf5 import add_array, read_hdf5, read_row, write_hdf5, write_row
from ct_dip.data.noise import NoiseModel, PhotonNoise, WhiteNoise
from ct_dip.data.plain_hdf5 import get_dataset, read_array
from ct_dip.data.scan import Scan, check_shapes
from ct_dip.errors import InputError, ScanError
from ct_dip.geometry import Geometry, geometry_from_dict

VERSION = 1
_UNITS = {"length_unit": "mm", "angle_unit": "rad"}


def write_scan(scan: Scan, path: str | Path) -> None:
    """Write a scan file atomically; the same scan gives the same bytes."""
    if isinstance(scan, str | Path):
        raise InputError("write_scan takes the scan first, then the path")

    def fill(file: h5py.File) -> None:
        file.attrs["attenuation_scale"] = scan.attenuation_scale
        file.attrs["source"] = scan.source
        if scan.offset_error:
            file.attrs["offset_error"] = scan.offset_error
        write_row(file, scan)
        for name in ("steps", "warnings"):
            if lines := getattr(scan, name):
                file.attrs[name] = "\n".join(lines)
        add_array(file, "sinogram", scan.sinogram, unit="1")
        fields = scan.geometry.to_dict()
        group = file.create_group("geometry")
        add_array(group, "angles", np.array(fields.pop("angles")), unit="rad")
        group.attrs.update(_UNITS | fields)
        if scan.noise is not None:
            noise = file.create_group("noise")
            stated = {name: value for name, value in vars(scan.noise).items() if value is not None}
            noise.attrs.update({"kind": scan.noise.kind, **stated})
        if scan.ground_truth is not None:
            add_array(file, "ground_truth", scan.ground_truth, unit="1/mm")
        if scan.mask is not None:
            add_array(file, "mask", scan.mask)

    write_hdf5(path, "scan", VERSION, fill)


def read_scan(path: str | Path) -> Scan:
    """Read and validate a scan file.

    Raises:
        ScanError: with the file, the field and the fix.
    """
    with read_hdf5(path, "scan", VERSION, ScanError) as file:
        geometry = _geometry(file["geometry"])
        arrays = [name for name in ("sinogram", "ground_truth", "mask") if name in file or name == "sinogram"]
        check_shapes(geometry, {name: get_dataset(file, name).shape for name in arrays})
        fields: dict[str, Any] = read_row(file) | {name: read_array(file, name) for name in arrays}
        return Scan(
            geometry=geometry,
            noise=_noise(file["noise"].attrs) if "noise" in file else None,
            offset_error=float(file.attrs.get("offset_error", 0.0)),
            attenuation_scale=float(file.attrs["attenuation_scale"]),
            source=str(file.attrs.get("source", "")),
            steps=tuple(str(file.attrs.get("steps", "")).splitlines()),
            warnings=tuple(str(file.attrs.get("warnings", "")).splitlines()),
            **fields,
        )


def _geometry(group: h5py.Group) -> Geometry:
    fields = {name: _plain(value) for name, value in group.attrs.items()}
    for name, unit in _UNITS.items():
        stated = fields.pop(name, None)
        if stated != unit:
            raise ScanError(f"geometry.{name} is {stated!r}, expected {unit!r}; convert the geometry")
    angles = read_array(group, "angles", dimensions=1, kinds="fiuc")
    return geometry_from_dict(fields | {"angles": angles})


def _noise(attributes: Any) -> NoiseModel:
    kind = str(attributes["kind"])
    if kind == WhiteNoise.kind:
        return WhiteNoise(std=float(attributes["std"]))
    if kind == PhotonNoise.kind:
        constant = float(attributes["constant"]) if "constant" in attributes else None
        return PhotonNoise(photons=float(attributes["photons"]), constant=constant)
    raise ScanError(f"noise.kind is {kind!r}, expected 'white' or 'photon'")


def _plain(value: Any) -> Any:
    """Convert NumPy scalars and arrays from HDF5 attributes to Python's own types."""
    return value.tolist() if isinstance(value, np.generic | np.ndarray) else value
