"""Our own HDF5 files: written whole, and recognised by a format name and a version."""

import contextlib
import io
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from ct_dip.data.plain_hdf5 import open_hdf5, refuse_indirect, seal
from ct_dip.errors import InputError, ScanError
from ct_dip.files import write_bytes

_ENDINGS = (".h5", ".hdf5")
_ROW = ("detector_row", "row_spacing")
_IMPORT_HINT = "ct-dip import makes a scan file of a measured scan"


def write_hdf5(path: str | Path, kind: str, version: int, fill: Callable[[h5py.File], None]) -> None:
    """Let ``fill`` build the file in memory, then write it atomically.

    In memory, because a full disk in the middle of an HDF5 write is not reliably an exception. After the HDF5
    content comes a checksum, see `ct_dip.data.plain_hdf5`.
    """
    buffer = io.BytesIO()
    with h5py.File(buffer, "w") as file:
        file.attrs["format"] = f"ct_dip.{kind}"
        file.attrs["version"] = version
        fill(file)
    buffer.seek(0, io.SEEK_END)
    buffer.write(seal(buffer.getvalue()))
    write_bytes(path, buffer.getvalue())


def add_array(group: h5py.Group, name: str, values: Any, **attributes: Any) -> None:
    """Add a compressed dataset with a checksum, and its attributes (unit, meaning)."""
    values = np.asarray(values)
    options = {} if values.ndim == 0 else {"compression": "gzip", "shuffle": True, "fletcher32": True}
    dataset = group.create_dataset(name, data=values, **options)
    dataset.attrs.update(attributes)


def write_row(file: h5py.File, part: Any) -> None:
    """Store which row of a detector a scan or result is of, where it is known, and how far apart rows are."""
    for name in _ROW:
        if (value := getattr(part, name)) is not None:
            file.attrs[name] = value


def read_row(file: h5py.File) -> dict[str, Any]:
    """Return what `write_row` has stored, as arguments."""
    return {name: file.attrs[name].item() for name in _ROW if name in file.attrs}


def is_ours(path: str | Path) -> bool:
    """Whether a file claims to be one of ours; one that ends in .h5 and is damaged counts as such."""
    path = Path(path)
    if not path.is_file():
        return not path.is_dir()
    if not h5py.is_hdf5(path):
        return path.suffix == ".h5"
    with _open(path, InputError, any_links=True) as file:
        return str(file.attrs.get("format", "")).startswith("ct_dip.")


def file_kind(path: str | Path) -> str:
    """Return ``scan`` or ``result``: what one of our files holds.

    Raises:
        InputError: missing, not HDF5, truncated, or not ours.
    """
    with _open(path, InputError) as file:
        name = str(file.attrs.get("format", ""))
    kind = name.removeprefix("ct_dip.")
    if kind not in ("scan", "result"):
        raise InputError(f"{path} is an HDF5 file, but not one of ct_dip (format {name!r}); {_IMPORT_HINT}")
    return kind


@contextlib.contextmanager
def read_hdf5(path: str | Path, kind: str, version: int, error: type[InputError]) -> Iterator[h5py.File]:
    """Open a file of ours for reading; whatever is wrong with it becomes an ``error`` that says so."""
    with _open(path, error) as file:
        name = file.attrs.get("format", None)
        if name != f"ct_dip.{kind}":
            if str(name).startswith("ct_dip."):
                raise error(f"{path} is a {str(name).replace('.', ' ', 1)} file; a {kind} file is needed")
            raise error(f"{path} is not a ct_dip {kind} file; give the {kind} file; {_IMPORT_HINT}")
        stored = file.attrs.get("version", None)
        if stored != version:
            raise error(
                f"{path}: {kind} format version {stored} is not supported, this program reads version "
                f"{version}; use the ct_dip version that wrote it, or write it again"
            )
        yield file


@contextlib.contextmanager
def _open(path: str | Path, error: type[InputError], *, any_links: bool = False) -> Iterator[h5py.File]:
    path = Path(path)
    if not path.exists():
        raise error(f"{path} does not exist; check the path")
    if path.is_dir():
        first = f"; run ct-dip import {path} --out scan.h5 first" if error is ScanError else ""
        raise error(f"{path} is a folder, expected an HDF5 file{first}")
    if error is ScanError and path.suffix not in _ENDINGS and path.is_file() and not h5py.is_hdf5(path):
        raise error(
            f"{path} is not an HDF5 file; of a measured scan, run ct-dip import {path} --out scan.h5 first"
        )
    try:
        with open_hdf5(path) as file:
            if not any_links:
                refuse_indirect(file)
            yield file
    except InputError as problem:
        if str(problem).startswith(str(path)):
            raise
        raise error(f"{path}: {problem}") from problem
    except KeyError as problem:
        raise error(f"{path} is incomplete: {problem.args[0]}; write it again") from problem
    except (TypeError, ValueError, AttributeError, IndexError) as problem:
        raise error(
            f"{path} holds a field of the wrong type ({_first_line(problem)}); write it again"
        ) from problem
    except (OSError, RuntimeError, MemoryError) as problem:
        raise error(
            f"{path} cannot be read as HDF5 ({_first_line(problem)}); it is truncated, damaged or "
            "another kind of file: copy or write it again; for scans of other programs there is ct-dip import"
        ) from problem


def _first_line(problem: Exception) -> str:
    return (str(problem).splitlines() or [type(problem).__name__])[0]
