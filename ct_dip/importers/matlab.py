"""MATLAB files of either kind: version 5 through SciPy, version 7.3, which is HDF5, through h5py."""

from pathlib import Path
from typing import Any

import h5py
import numpy as np
import scipy.io

from ct_dip.importers.open import check_file, reading


def matlab_names(path: str | Path) -> list[str]:
    """Names of the variables."""
    path = check_file(path)
    with reading(path, "a MATLAB file"):
        if h5py.is_hdf5(path):
            with h5py.File(path, "r") as file:
                return [name for name in file if not name.startswith("#")]
        return [name for name, _, _ in scipy.io.whosmat(path)]


def read_matlab(path: str | Path, name: str) -> Any:
    """One variable: an array as MATLAB shows it with sides of length 1 dropped, text, or a dict of these."""
    path = check_file(path)
    with reading(path, "a MATLAB file"):
        if h5py.is_hdf5(path):
            with h5py.File(path, "r") as file:
                return _from_hdf5(file[name])
        return scipy.io.loadmat(path, simplify_cells=True, variable_names=[name])[name]


def _from_hdf5(item: h5py.Group | h5py.Dataset) -> Any:
    if isinstance(item, h5py.Group):
        return {name: _from_hdf5(part) for name, part in item.items()}
    values = item[...].T  # MATLAB counts along columns, HDF5 along rows
    if item.attrs.get("MATLAB_class") == b"char":
        return "".join(map(chr, values.ravel()))
    values = np.squeeze(values)
    return values[()] if values.ndim == 0 else values
