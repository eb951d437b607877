"""Arrays by their names, out of NPZ, HDF5 and MATLAB files alike."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

import h5py
import numpy as np

from ct_dip.data.plain_hdf5 import Linked, open_linked
from ct_dip.data.plain_numpy import npz_names, read_npz
from ct_dip.errors import ScanError
from ct_dip.importers.matlab import matlab_names, read_matlab
from ct_dip.importers.open import check_file, named, reading

_MOST = 400  # names that are looked for in a file


class ArrayFile(Protocol):
    """An open file."""

    names: list[str]

    def get(self, name: str) -> Any:
        """Return an array, or an HDF5 dataset, of which parts can be read."""


@contextlib.contextmanager
def open_arrays(path: Path) -> Iterator[ArrayFile]:
    """Open a file of any of the three kinds."""
    path = check_file(path)
    with path.open("rb") as file:
        start = file.read(128)
    if start.startswith(b"\x93NUMPY"):
        raise ScanError(f"{path} holds one bare array; write sinogram, angles, … with numpy.savez")
    if start.startswith(b"PK"):
        yield _Npz(path)
    elif start.startswith(b"MATLAB"):  # also 7.3, whose arrays are transposed in HDF5
        yield _Matlab(path)
    else:
        with contextlib.ExitStack() as stack:
            with reading(path, "NPZ, MATLAB or HDF5"), named(path):
                opened = _Hdf5(stack.enter_context(open_linked(path)))
            yield opened


class _Npz:
    def __init__(self, path: Path) -> None:
        self.path = path
        with named(path):
            self.names = npz_names(path)

    def get(self, name: str) -> Any:
        arrays = read_npz(self.path, only={name})
        return arrays.get(name)


class _Matlab:
    """Names of fields in structures have dots."""

    def __init__(self, path: Path) -> None:
        self.path, self.names = path, matlab_names(path)

    def get(self, name: str) -> Any:
        variable, *fields = name.split(".")
        value = read_matlab(self.path, variable) if variable in self.names else None
        for field in fields:
            value = value.get(field) if isinstance(value, dict) else None
        return None if value is None else np.asarray(value)


class _Hdf5:
    def __init__(self, file: Linked) -> None:
        self.file = file
        self.names: list[str] = []
        waiting = ["/"]
        while waiting and len(self.names) < _MOST:
            group: h5py.Group = file.file[waiting.pop()]
            for name in group:
                where = f"{group.name}/{name}".lstrip("/")
                linked = group.id.links.get_info(name.encode()).type != h5py.h5l.TYPE_HARD
                is_group = not linked and isinstance(group[name], h5py.Group)
                (waiting if is_group else self.names).append(where)

    def get(self, name: str) -> Any:
        item = self.file.get(name)
        return item if isinstance(item, h5py.Dataset) else None
