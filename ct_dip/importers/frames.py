"""Stacks of frames in HDF5 files, (frames, rows, columns), of which only the needed rows are read."""

from pathlib import Path
from typing import Any

import h5py
import numpy as np

from ct_dip.arrays import Floats
from ct_dip.data.plain_hdf5 import Linked, check_size
from ct_dip.errors import ScanError
from ct_dip.importers.open import reading

_MILLIMETRES = {"mm": 1.0, "m": 1e3, "cm": 10.0, "um": 1e-3, "µm": 1e-3, "micron": 1e-3, "nm": 1e-6}


def get_stack(file: Linked, name: str, needed: str) -> h5py.Dataset:
    """Return a dataset (frames, rows, columns) of numbers.

    Args:
        needed: what a file must have, for the message.
    """
    dataset = file.get(name)
    if not isinstance(dataset, h5py.Dataset):
        raise ScanError(f"there is no dataset {name}; {needed}")
    if dataset.ndim != 3 or 0 in dataset.shape:
        raise ScanError(f"{name} has shape {dataset.shape}, expected (frames, rows, columns)")
    if dataset.dtype.kind not in "fiu":
        raise ScanError(f"{name} has type {dataset.dtype}, expected real numbers")
    return dataset


def read_rows(
    path: Path, dataset: h5py.Dataset, first: int, last: int, which: Floats | None = None
) -> Floats:
    """Return rows from ``first`` to before ``last`` of all frames or of some, (frames, rows, columns).

    Args:
        which: true for every frame that is wanted, (frames,).
    """
    runs = _runs(np.ones(len(dataset), dtype=bool) if which is None else which)
    count = sum(stop - start for start, stop in runs)
    where = f"{dataset.name.lstrip('/')}[:, {first}, :]"
    check_size(where, (count, last - first, dataset.shape[2]), np.float64)
    check_size(f"a chunk of {dataset.name}", dataset.chunks or (), dataset.dtype)  # the least that is read
    with reading(path, "HDF5"):
        return np.concatenate([dataset[start:stop, first:last] for start, stop in runs])


def read_angles(file: Linked, name: str, frames: int, degrees: bool | None = None) -> Floats:
    """Angles of a dataset in radians, (frames,); its attribute ``units`` says what they are, else degrees."""
    dataset = file.get(name)
    if not isinstance(dataset, h5py.Dataset):
        raise ScanError(
            f"there is no dataset {name} with the angles; name it with --angles, or give --arc DEGREES"
        )
    if dataset.shape != (frames,):
        raise ScanError(f"{name} has shape {dataset.shape}, expected ({frames},), one per view")
    unit = str(plain(dataset.attrs.get("units", "degrees"))).lower()
    if not unit.startswith(("deg", "rad", "°")):
        raise ScanError(f"{name} is in {unit!r}, expected degrees or radians; convert it")
    if dataset.dtype.kind not in "fiu":
        raise ScanError(f"{name} has type {dataset.dtype}, expected numbers")
    angles = np.asarray(dataset[...], dtype=np.float64)
    if not np.isfinite(angles).all():
        view = int(np.argmin(np.isfinite(angles)))
        raise ScanError(f"{name}: angles[{view}] is {angles[view]}; every angle must be finite")
    return angles if unit.startswith("rad") and not degrees else np.deg2rad(angles)


def read_length(item: Any) -> float | None:
    """A dataset with one length as mm, by its attribute ``units``; ``None`` without a dataset or a unit."""
    if not isinstance(item, h5py.Dataset) or item.size != 1 or item.dtype.kind not in "fiu":
        return None
    factor = _MILLIMETRES.get(str(plain(item.attrs.get("units", ""))).strip())
    return None if factor is None else float(np.ravel(item[()])[0]) * factor


def read_text(item: Any) -> str:
    """Return a dataset with one text, in one line; empty without."""
    if not isinstance(item, h5py.Dataset) or item.size != 1 or item.dtype.kind not in "OSU":
        return ""
    return " ".join(str(plain(np.ravel(item[()])[0])).split())


def plain(value: Any) -> Any:
    """Text of HDF5 as Python's own."""
    return value.decode(errors="replace") if isinstance(value, bytes) else value


def _runs(which: Any) -> list[tuple[int, int]]:
    """First and last-plus-one of every run of true values."""
    edges = np.flatnonzero(np.diff(np.concatenate([[False], which, [False]]).astype(int)))
    return [(int(start), int(stop)) for start, stop in edges.reshape(-1, 2)]
