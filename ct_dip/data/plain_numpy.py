"""Read untrusted NPY and NPZ files: headers are checked before values are read; no pickles.

A header of a hundred bytes may declare any shape, and an archive may unpack to a thousand times its size. So
an array is read only if it has numbers or text, fits into the memory budget, and is as long as it says.
"""

import contextlib
import lzma
import math
import tokenize
import zipfile
import zlib
from collections.abc import Container, Iterator
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from ct_dip.data.plain_hdf5 import check_size
from ct_dip.errors import InputError

# What zipfile, its decompressors and NumPy's parser of headers raise on damaged files.
DAMAGE = (
    *(OSError, ValueError, TypeError, KeyError, EOFError, SyntaxError, MemoryError, NotImplementedError),
    *(RuntimeError, zipfile.BadZipFile, zlib.error, lzma.LZMAError, tokenize.TokenError),
)
_KINDS = "fiubcUS"


def read_npy(path: Path) -> NDArray[Any]:
    """Read the array of an NPY file.

    Raises:
        InputError: it is damaged, holds objects, or is too large.
    """
    with _explained(), path.open("rb") as file:
        return _read(file, path.stat().st_size, "the array")


def npz_names(path: Path) -> list[str]:
    """List the names of the arrays of an NPZ file."""
    with _explained(), zipfile.ZipFile(path) as archive:
        return [member.removesuffix(".npy") for member in archive.namelist()]


def read_npz(path: Path, only: Container[str] | None = None) -> dict[str, NDArray[Any]]:
    """Read the arrays of an NPZ file by name, or ``only`` some of them; see `read_npy`."""
    with _explained(), zipfile.ZipFile(path) as archive:
        members = archive.infolist()
        arrays = {}
        for member in members:
            name = member.filename.removesuffix(".npy")
            if name in arrays:
                raise InputError(f"it has two arrays {name!r}; keep one")
            if only is not None and name not in only:
                continue
            with archive.open(member) as file:
                arrays[name] = _read(file, member.file_size, name)
        return arrays


def _read(file: IO[bytes], size: int, name: str) -> NDArray[Any]:
    version = np.lib.format.read_magic(file)
    read_header = np.lib.format.read_array_header_1_0
    if version != (1, 0):
        read_header = np.lib.format.read_array_header_2_0
    shape, fortran, dtype = read_header(file)
    if dtype.kind not in _KINDS:
        reason = "; no pickle is ever loaded" if dtype.hasobject else ""
        raise InputError(f"{name} has type {dtype}, expected numbers{reason}")
    length = math.prod(shape) * dtype.itemsize
    if file.tell() + length != size:
        stored = size - file.tell()
        raise InputError(f"{name} of shape {shape} and {dtype} has {length} bytes, but {stored} are stored")
    check_size(name, shape, dtype)
    values = np.frombuffer(file.read(length), dtype=dtype, count=math.prod(shape))
    return values.reshape(shape, order="F" if fortran else "C")


@contextlib.contextmanager
def _explained() -> Iterator[None]:
    try:
        yield
    except DAMAGE as problem:
        reason = (str(problem).splitlines() or [type(problem).__name__])[0]
        raise InputError(f"it is damaged, or of another kind ({reason}); copy or write it again") from problem
