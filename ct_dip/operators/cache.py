"""Projection matrices on disk, so that a geometry is assembled once per machine.

One file per matrix in ``CT_DIP_CACHE`` (default: ``ct_dip`` in the user's cache folder), named by the
digest of geometry, kernel and ASTRA version. Writing is atomic, so two processes may do it at once.
The folder is kept below a limit by removing what was not used for longest.

A matrix with wrong values would spoil every result silently, and one with wrong indices ends in a crash. So a
file has a label (`ct_dip.labels`), and without the right one a matrix is assembled again.
"""

import contextlib
import hashlib
import os
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse

from ct_dip.files import atomic_path
from ct_dip.geometry import Geometry
from ct_dip.labels import has_label, write_label

_FORMAT = 2
_LIMIT_BYTES = 8 * 2**30
_STALE_SECONDS = 3600
_ADVICE = "set CT_DIP_CACHE to a writable folder with space, or to 'off'"


def cache_folder() -> Path | None:
    """Return the folder that keeps matrices; ``None`` if ``CT_DIP_CACHE`` is ``off``."""
    given = os.environ.get("CT_DIP_CACHE")
    if given == "off":
        return None
    if given:
        return Path(given).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "ct_dip"


def matrix_path(geometry: Geometry, kernel: str, folder: Path) -> Path:
    """Return the file of this matrix."""
    import astra

    identity = f"{_FORMAT} {geometry.digest} {kernel} {astra.__version__}"
    return folder / f"matrix-{hashlib.sha256(identity.encode()).hexdigest()[:32]}.npz"


def load_matrix(path: Path) -> Any | None:
    """Load the SciPy CSR matrix; ``None`` where there is none or the file is damaged."""
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as parts:
            if not has_label(parts.zip, path.name):
                return None
            matrix = scipy.sparse.csr_matrix(
                (parts["data"], parts["indices"], parts["indptr"]), shape=tuple(parts["shape"])
            )
    except Exception:  # whatever is wrong with the file, it can be made again
        return None
    with contextlib.suppress(OSError):
        os.utime(path)
    return matrix


@contextlib.contextmanager
def one_at_a_time(path: Path) -> Iterator[None]:
    """Let one process of this machine make a matrix: others that need it wait, and find what it made.

    Another matrix has another lock: one that takes minutes to assemble keeps nobody else from theirs.
    """
    lock = path.with_name(f".{path.stem}.lock")
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(OSError, ImportError):  # where nothing can be locked, each makes its own
            import fcntl

            _make_folder(path.parent)
            descriptor = os.open(lock, os.O_RDWR | os.O_CREAT, 0o600)
            stack.callback(os.close, descriptor)
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            stack.callback(_remove, lock)
        yield


def store_matrix(path: Path, matrix: Any) -> None:
    """Write a matrix for `load_matrix`, then remove the least recently used beyond the limit."""
    _make_folder(path.parent)
    owners = os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600
    with (
        atomic_path(path, advice=_ADVICE) as temporary,
        os.fdopen(os.open(temporary, *owners), "w+b") as file,
    ):
        parts = {"data": matrix.data, "indices": matrix.indices, "indptr": matrix.indptr}
        np.savez(file, **parts, shape=np.array(matrix.shape))
        with zipfile.ZipFile(file, "a") as archive:
            write_label(archive, path.name)
    _trim(path.parent, keep=path)


def _make_folder(folder: Path) -> None:
    with contextlib.suppress(OSError):  # which `atomic_path` explains
        folder.parent.mkdir(parents=True, exist_ok=True)
        folder.mkdir(mode=0o700)  # a folder that is there keeps its mode


def _trim(folder: Path, keep: Path) -> None:
    for leftover in folder.glob(".matrix-*"):  # of writers that were killed
        with contextlib.suppress(OSError):
            if time.time() - leftover.stat().st_mtime > _STALE_SECONDS:
                leftover.unlink()
    files = []
    for path in folder.glob("matrix-*.npz"):
        with contextlib.suppress(OSError):  # another process may just have removed it
            status = path.stat()
            files.append((status.st_mtime, status.st_size, path))
    total = sum(size for _, size, _ in files)
    for _, size, path in sorted(files):
        if total <= _LIMIT_BYTES:
            break
        if path != keep:
            _remove(path)
            total -= size


def _remove(path: Path) -> None:
    with contextlib.suppress(OSError):
        path.unlink()
