"""Read untrusted HDF5 files: reading always ends, stays within the folder, and fits into memory.

*It ends.* A flipped bit, as in the size of a text in its heap, makes HDF5 loop for ever, or crash,
while Python waits for it and hears no signal. Files of ours therefore end in a seal, a digest of all bytes
before it, which is checked before HDF5 sees the file; that costs 2 ms per megabyte and notices any
damage. HDF5 ignores the seal, and cuts it off when it changes the file. A file without one is first read by a
child process with a time limit (`ct_dip.data.probe`), which costs the start of Python and h5py, about 0.2 s.
The seal is there for accidents; it keeps nobody from sealing a damaged file.

*It stays.* HDF5 follows links, virtual datasets and external storage to any file that the user may read, and
where a virtual dataset's source is missing it makes up values. Files of ours have none of these
(`refuse_indirect`); those of others may refer to files within their own folder (`Linked`).

*It fits.* Shapes and types are compared with what is expected before any value is read (`read_array`).
"""

import contextlib
import hashlib
import math
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path, PurePath
from typing import Any

import h5py
import numpy as np
from numpy.typing import NDArray

from ct_dip import memory
from ct_dip.errors import InputError

_SEAL = b"ct_dip blake2b "
_SEAL_BYTES = len(_SEAL) + 64 + 1
_PROBE = Path(__file__).with_name("probe.py")
_PROBE_SECONDS = 10.0  # a probe takes 0.2 s; more for a loaded machine
_PROBE_SPEED = 2e7  # bytes per second that even a slow disk gives
_DEEPEST = 16  # links that lead to links
_COPIES = 3  # of an array, while it is checked and converted


def seal(content: bytes | memoryview) -> bytes:
    """Return the bytes that a file of this content must end with, for `open_hdf5`."""
    return _SEAL + hashlib.blake2b(content, digest_size=32).hexdigest().encode() + b"\n"


@contextlib.contextmanager
def open_hdf5(path: Path) -> Iterator[h5py.File]:
    """Open a file for reading, once its seal or a child process has shown that reading it ends.

    Raises:
        InputError: it is damaged, or no regular file.
    """
    if not path.is_file():  # a pipe would be waited for
        raise InputError("it is not a regular file; copy what it holds into one")
    if not _is_sealed(path):
        _probe(path)
    with h5py.File(path, "r") as file:
        yield file


def _is_sealed(path: Path) -> bool:
    with path.open("rb") as file:
        size = file.seek(0, 2)
        file.seek(max(0, size - _SEAL_BYTES))
        if _SEAL[:8] not in file.read():  # a part of it tells of a file that was cut there
            return False
        file.seek(0)
        content = file.read()
    if seal(memoryview(content)[:-_SEAL_BYTES]) != content[-_SEAL_BYTES:]:
        raise InputError(
            "it is damaged, as its content does not match the checksum at its end; copy or write it again"
        )
    return True


def _probe(path: Path) -> None:
    seconds = _PROBE_SECONDS + path.stat().st_size / _PROBE_SPEED
    try:
        # -P: modules beside the script are not for it.
        child = subprocess.run(
            [sys.executable, "-P", _PROBE, path],
            timeout=seconds,
            check=False,
            stdin=subprocess.DEVNULL,
            capture_output=True,
        )
    except subprocess.TimeoutExpired as error:
        raise InputError(
            f"it is damaged, as reading it did not end within {seconds:.0f} s; copy or write it again"
        ) from error
    if child.returncode:
        raise InputError(
            f"it is damaged, as the HDF5 library fails on it (exit status {child.returncode}); copy or write "
            "it again"
        )


def refuse_indirect(group: h5py.Group) -> None:
    """Refuse links but hard ones, virtual datasets and external storage, anywhere in a file.

    Raises:
        InputError: with the name of the first.
    """
    seen = set()
    waiting = [group]
    while waiting:
        parent = waiting.pop()
        for name in parent:
            where = f"{parent.name.rstrip('/')}/{name}".lstrip("/")
            if parent.id.links.get_info(name.encode()).type != h5py.h5l.TYPE_HARD:
                raise InputError(f"{where} is a link to another place; store the data itself there")
            item = parent[name]
            if isinstance(item, h5py.Dataset):
                _refuse_external(item, where)
                if item.is_virtual:
                    raise InputError(f"{where} is a virtual dataset; store the data itself there")
            elif isinstance(item, h5py.Group):
                address = h5py.h5o.get_info(item.id).addr
                if address not in seen:
                    seen.add(address)
                    waiting.append(item)


def _refuse_external(dataset: h5py.Dataset, name: str) -> None:
    if dataset.external:
        raise InputError(
            f"{name} is stored outside of its file, in {dataset.external[0][0]}; store the data itself there"
        )


def read_array(
    group: h5py.Group, name: str, *, dimensions: int | None = None, kinds: str = "fiub"
) -> NDArray[Any]:
    """Read a whole dataset of one of our files, if it has the right type, was written, and is not too large.

    Args:
        dimensions: how many it must have; any number if not given.
        kinds: of NumPy types that are taken.

    Raises:
        InputError: it is not.
    """
    dataset = get_dataset(group, name)
    if dimensions is not None and dataset.ndim != dimensions:
        raise InputError(
            f"{name} has shape {dataset.shape}, expected {dimensions} dimensions; write the file again"
        )
    if dataset.dtype.kind not in kinds:
        raise InputError(f"{name} has type {dataset.dtype}, expected real numbers; write the file again")
    if dataset.chunks:
        counts = [-(-side // chunk) for side, chunk in zip(dataset.shape, dataset.chunks, strict=True)]
        written = dataset.id.get_num_chunks() == math.prod(counts)
    else:
        written = dataset.id.get_storage_size() == dataset.nbytes
    if not written:
        raise InputError(f"{name} of shape {dataset.shape} was never written in full; write the file again")
    check_size(name, dataset.shape, dataset.dtype)
    return np.asarray(dataset[...])


def get_dataset(group: h5py.Group, name: str) -> h5py.Dataset:
    """Return a dataset without reading its values."""
    item = group[name]
    if not isinstance(item, h5py.Dataset):
        raise TypeError(f"{name} is not a dataset")
    return item


def check_size(name: str, shape: tuple[int, ...], dtype: Any) -> None:
    """Refuse an array that would not fit into the memory budget, before it is read."""
    memory.require(
        _COPIES * math.prod(shape) * np.dtype(dtype).itemsize,
        memory.memory_budget(),
        what=f"reading {name} of shape {shape} and type {dtype}",
        advice="check that it is meant to be so large",
    )


class Linked:
    """A file of others, and those in its folder that it refers to; `open_linked` gives one.

    Links are followed by name here, not by HDF5, which would look in more places.
    """

    def __init__(self, path: Path, stack: contextlib.ExitStack) -> None:
        path = path.resolve()  # as HDF5 does: where the file is, not where a symbolic link to it is
        self._folder, self._stack = path.parent, stack
        self._files: dict[Path, h5py.File] = {}
        self.file = self._open(path)

    def get(self, name: str, start: h5py.Group | None = None) -> h5py.Group | h5py.Dataset | None:
        """Return the group or dataset of a name, following links inside the folder; ``None`` without one.

        Raises:
            InputError: a link or a virtual dataset leads out of the folder, or to nothing.
        """
        return self._walk(self.file if start is None else start, name, 0)

    def _walk(self, start: h5py.Group, name: str, depth: int) -> h5py.Group | h5py.Dataset | None:
        item = start.file if name.startswith("/") else start
        for part in name.split("/"):
            if part not in ("", "."):
                item = self._step(item, part, depth) if isinstance(item, h5py.Group) else None
        if isinstance(item, h5py.Dataset):
            _refuse_external(item, name)
            if item.is_virtual:
                self._check_sources(item, depth)
        return item

    def _step(self, group: h5py.Group, part: str, depth: int) -> h5py.Group | h5py.Dataset | None:
        links, key = group.id.links, part.encode()
        if not links.exists(key):
            return None
        kind = links.get_info(key).type
        if kind == h5py.h5l.TYPE_HARD:
            return group[part]
        where = f"{group.name.rstrip('/')}/{part}"
        if depth == _DEEPEST:
            raise InputError(f"{where} is a link to a link, {_DEEPEST} times; link to the data itself")
        if kind == h5py.h5l.TYPE_SOFT:
            target = links.get_val(key).decode()
            item = self._walk(group, target, depth + 1)
        elif kind == h5py.h5l.TYPE_EXTERNAL:
            filename, target = (text.decode() for text in links.get_val(key))
            item = self._walk(self._neighbour(group, filename, where), "/" + target, depth + 1)
        else:
            raise InputError(f"{where} is a link of an unknown kind; store the data itself there")
        if item is None:
            raise InputError(f"{where} is a link to {target!r}, which does not exist; add what is missing")
        return item

    def _check_sources(self, dataset: h5py.Dataset, depth: int) -> None:
        where = dataset.name
        if depth == _DEEPEST:
            raise InputError(f"{where} is made of virtual datasets, {_DEEPEST} times; use the data itself")
        covered = 0
        for part in dataset.virtual_sources():
            if "%" in part.file_name + part.dset_name:
                raise InputError(f"{where} has sources by a pattern, {part.file_name!r}; name every one")
            same = part.file_name == "."
            file = dataset.file if same else self._neighbour(dataset, part.file_name, where)
            source = self._walk(file, "/" + part.dset_name, depth + 1)
            if not isinstance(source, h5py.Dataset):
                raise InputError(f"{where}: its source {part.dset_name!r} is missing in {part.file_name}")
            points = part.vspace.get_select_npoints()
            if part.src_space.get_select_type() == h5py.h5s.SEL_ALL:  # of the source as it was then
                fits = source.size == points
            else:
                fits = all(np.less(part.src_space.get_select_bounds()[1], source.shape))
            if not fits:
                raise InputError(f"{where}: its source {part.dset_name!r} has another shape, {source.shape}")
            covered += points
        if covered < dataset.size:
            raise InputError(f"{where}: {dataset.size - covered} of its {dataset.size} values have no source")

    def _neighbour(self, item: h5py.Group | h5py.Dataset, name: str, where: str) -> h5py.File:
        """Return the file that ``item`` refers to."""
        rule = "only files in the scan's own folder are read: copy it there, and link to it by its name"
        if PurePath(name).is_absolute() or ".." in PurePath(name).parts:
            raise InputError(f"{where} refers to {name!r}, but {rule}")
        path = (Path(item.file.filename).parent / name).resolve()
        if not path.is_relative_to(self._folder):
            raise InputError(f"{where} refers to {name!r}, a symbolic link to elsewhere, but {rule}")
        if not path.is_file():
            raise InputError(f"{where} refers to {name!r}, which does not exist; copy it there")
        return self._open(path)

    def _open(self, path: Path) -> h5py.File:
        if path not in self._files:
            self._files[path] = self._stack.enter_context(open_hdf5(path))
        return self._files[path]


@contextlib.contextmanager
def open_linked(path: Path) -> Iterator[Linked]:
    """Open a file of others for reading, with what it refers to."""
    with contextlib.ExitStack() as stack:
        yield Linked(path, stack)
