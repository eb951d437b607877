"""Data Exchange files of synchrotrons (HDF5): counts, flats and darks of a parallel beam.

``exchange/data``, ``data_white`` and ``data_dark`` are (frames, rows, columns), ``exchange/theta`` the angles
in degrees. One row is one scan. The layout states neither the rotation axis nor, as a rule, the pixel size,
nor the sense of rotation, which is taken as counter-clockwise: an image may be a mirror image of the object.
"""

from pathlib import Path
from typing import Any

import h5py
import numpy as np

from ct_dip.arrays import Floats
from ct_dip.data.plain_hdf5 import Linked, check_size, open_linked
from ct_dip.data.scan import Scan
from ct_dip.errors import ScanError
from ct_dip.geometry import ParallelBeam
from ct_dip.importers.axis import find_axis
from ct_dip.importers.grid import ANY_VOLUME, bin_columns, check_bin, scan_on_grid
from ct_dip.importers.intensity import check_air, check_readings, flat_noise, line_integrals
from ct_dip.importers.open import check_file, named, reading


def read_data_exchange(
    path: str | Path,
    *,
    row: int | None = None,
    center: float | None = None,
    pitch: float | None = None,
    bin: int = 1,
    size: int | None = None,
    width: float | None = None,
) -> Scan:
    """One detector row, all views, on a grid, with photon noise measured in the flats.

    Args:
        row: which one; needed if there are several.
        center: column of the rotation axis, column j being centred at j; found if not given.
        pitch: of the columns, mm; 1 if not given, so that a length of the scan is a number of columns.
        bin: neighbouring columns whose intensities are averaged.
        size, width: of the grid, see `ct_dip.importers.grid.on_grid`.

    Raises:
        ScanError: with the file, the field and the fix.
    """
    path = check_file(path)
    with reading(path, "a Data Exchange file"), named(path), open_linked(path) as file:
        row, fields = _read(file, row)
        title = _text(file, "measurement/sample/name") or _text(file, "exchange/title")
    with named(path):
        counts, white = fields["data"], check_air(fields["data_white"], "exchange/data_white")
        columns = counts.shape[1]
        check_bin(columns, bin)
        dark = fields["data_dark"].mean(axis=0)
        flats = white - dark
        flat = flats.mean(axis=0)
        if not flat.min() > 0:
            column = int(flat.argmin())
            raise ScanError(
                f"column {column} of row {row} reads {flat[column]:g} above the dark current in air: a dead "
                "detector; interpolate it first, or choose another --row"
            )
        angles = fields["theta"]
        center_source = "given"
        if center is None:
            center, center_source = find_axis(line_integrals(counts - dark, flat), angles), "found"
        elif not 0 <= center <= columns - 1:
            raise ScanError(f"--center {center:g} is outside of the columns, 0…{columns - 1}")
        binned = bin_columns(flats, bin)
        millimetres = 1.0 if pitch is None else pitch
        geometry = ParallelBeam(
            volume=ANY_VOLUME,
            angles=angles,
            detectors=columns // bin,
            detector_pitch=millimetres * bin,
            center_of_rotation=(center - (columns - 1) / 2) * millimetres,
        )
        unit = "" if pitch is not None else ", pitch not stated: 1 mm stands for a column"
        scan = Scan(
            sinogram=line_integrals(bin_columns(counts - dark, bin), binned.mean(axis=0)),
            geometry=geometry,
            noise=flat_noise(binned),
            source=f"Data Exchange, {title or 'no title'}, row {row}, axis {center_source} at column "
            f"{center:.2f}{unit}; the file states no licence",
        )
        return scan_on_grid(scan, size=size, width=width)


def _read(file: Linked, row: int | None) -> tuple[int, dict[str, Floats]]:
    """The row, and its readings (frames, columns) and angles in radians (views,) by name."""
    sets = {name: _dataset(file, f"exchange/{name}") for name in ("data", "data_white", "data_dark", "theta")}
    views, rows, columns = _frames(sets["data"], "exchange/data")
    for name in ("data_white", "data_dark"):
        shape = _frames(sets[name], f"exchange/{name}")
        if shape[1:] != (rows, columns):
            raise ScanError(
                f"exchange/{name} has frames of {shape[1]} × {shape[2]}, exchange/data of {rows} × {columns}"
            )
    if sets["theta"].shape != (views,):
        raise ScanError(f"exchange/theta has shape {sets['theta'].shape}, expected ({views},), one per view")
    if row is None and rows > 1:
        raise ScanError(f"there are {rows} rows; choose one with --row 0…{rows - 1}")
    row = row or 0
    if not 0 <= row < rows:
        raise ScanError(f"--row {row} is outside of the rows, 0…{rows - 1}")
    unit = str(_plain(sets["theta"].attrs.get("units", "degrees"))).lower()
    if not unit.startswith(("deg", "rad")):
        raise ScanError(f"exchange/theta is in {unit!r}, expected degrees or radians; convert it")
    if sets["theta"].dtype.kind not in "fiu":
        raise ScanError(f"exchange/theta has type {sets['theta'].dtype}, expected numbers")
    theta = np.asarray(sets["theta"][...], dtype=np.float64)
    if not np.isfinite(theta).all():
        view = int(np.argmin(np.isfinite(theta)))
        raise ScanError(f"exchange/theta: angles[{view}] is {theta[view]}; every angle must be finite")
    fields = {}
    for name in ("data", "data_white", "data_dark"):
        where, values = f"exchange/{name}[:, {row}, :]", sets[name]
        check_size(where, (len(values), columns), np.float64)
        check_size(f"a chunk of exchange/{name}", values.chunks or (), values.dtype)  # the least that is read
        if values.dtype.kind not in "fiu":
            raise ScanError(f"{where} has type {values.dtype}, expected real numbers")
        fields[name] = check_readings(values[:, row, :], where)
    return row, fields | {"theta": np.deg2rad(theta) if unit.startswith("deg") else theta}


def _dataset(file: Linked, name: str) -> h5py.Dataset:
    item = file.get(name)
    if not isinstance(item, h5py.Dataset):
        raise ScanError(
            f"there is no dataset {name}; a scan has exchange/data, data_white, data_dark and theta: add it"
        )
    return item


def _frames(dataset: h5py.Dataset, name: str) -> tuple[int, int, int]:
    if dataset.ndim != 3 or 0 in dataset.shape:
        raise ScanError(f"{name} has shape {dataset.shape}, expected (frames, rows, columns)")
    axes = str(_plain(dataset.attrs.get("axes", "")))
    if axes and axes.split(":")[1:] != ["y", "x"]:
        raise ScanError(f"{name} has the axes {axes!r}, expected 'theta:y:x'; transpose it")
    frames, rows, columns = dataset.shape
    return frames, rows, columns


def _text(file: Linked, name: str) -> str:
    item = file.get(name)
    if not isinstance(item, h5py.Dataset) or item.size != 1 or item.dtype.kind not in "OSU":
        return ""
    return " ".join(str(_plain(item[()])).split())


def _plain(value: Any) -> Any:
    return value.decode(errors="replace") if isinstance(value, bytes) else value
