"""MATLAB files of either kind: version 5 through SciPy, version 7.3, which is HDF5, through h5py."""

import struct
import zlib
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import scipy.io

from ct_dip.data.plain_hdf5 import Linked, check_size, open_hdf5, open_linked
from ct_dip.importers.open import check_file, named, reading

_COMPRESSED = 15  # miCOMPRESSED of the format's version 5
_PIECE = 2**20  # bytes


def matlab_names(path: str | Path) -> list[str]:
    """Names of the variables."""
    path = check_file(path)
    with reading(path, "a MATLAB file"), named(path):
        if h5py.is_hdf5(path):
            with open_hdf5(path) as file:
                return [name for name in file if not name.startswith("#")]
        return [name for name, _, _ in scipy.io.whosmat(path)]


def read_matlab(path: str | Path, name: str) -> Any:
    """One variable: an array as MATLAB shows it with sides of length 1 dropped, text, or a dict of these."""
    path = check_file(path)
    with reading(path, "a MATLAB file"), named(path):
        if h5py.is_hdf5(path):
            with open_linked(path) as file:
                return _from_hdf5(file, file.get(name), name)
        _check_sizes(path, name)
        return scipy.io.loadmat(path, simplify_cells=True, variable_names=[name])[name]


def _check_sizes(path: Path, name: str) -> None:
    """Unpack a compressed variable of version 5, a piece at a time, to see what it would take.

    SciPy believes the sizes in the file, and a small one may unpack to a thousand times its size.
    """
    wanted = [known == name for known, _, _ in scipy.io.whosmat(path)]  # in the order of the file
    unpacked = number = 0
    with path.open("rb") as file:
        order = "<" if file.read(128)[126:] == b"IM" else ">"
        while len(tag := file.read(8)) == 8:
            kind, length = struct.unpack(f"{order}II", tag)
            content = file.read(length)
            others = number < len(wanted) and not wanted[number]
            number += 1
            decompressor = zlib.decompressobj() if kind == _COMPRESSED and not others else None
            while decompressor and content and not decompressor.eof:
                unpacked += len(decompressor.decompress(content, _PIECE))
                content = decompressor.unconsumed_tail
                check_size("the file, unpacked,", (unpacked,), np.float64)  # bytes that become doubles


def _from_hdf5(file: Linked, item: h5py.Group | h5py.Dataset | None, name: str) -> Any:
    if isinstance(item, h5py.Group):
        return {part: _from_hdf5(file, file.get(part, item), f"{name}.{part}") for part in item}
    if not isinstance(item, h5py.Dataset):
        raise KeyError(f"there is no variable {name}")
    check_size(name, item.shape, item.dtype)
    values = item[...].T  # MATLAB counts along columns, HDF5 along rows
    if item.attrs.get("MATLAB_class") == b"char":
        return "".join(map(chr, values.ravel()))
    values = np.squeeze(values)
    return values[()] if values.ndim == 0 else values
