"""Files appear complete or not at all."""

import contextlib
import errno
import os
import secrets
from collections.abc import Iterator
from pathlib import Path

from ct_dip.errors import OutputError


@contextlib.contextmanager
def atomic_path(path: str | Path, *, advice: str = "choose another place") -> Iterator[Path]:
    """Yield a temporary path in the same folder; rename it to ``path`` when the block succeeds.

    A reader sees the old file or the new one, never a part of it, also when two processes write
    at once or one is killed: the rename is atomic within a file system. The folder is created.

    Raises:
        OutputError: the operating system refused (read-only, full, no such place). Nothing is
            left behind.
    """
    path = Path(path)
    if not path.name or path.is_dir():
        raise OutputError(f"cannot write {path}: it is a folder, a file name is needed; {advice}")
    # A random suffix rather than tempfile's: the file must get the user's umask, not mode 0600.
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(6)}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield temporary
        _flush_to_disk(temporary)
        temporary.replace(path)
    except OSError as error:
        reason = error.strerror or str(error)
        files = [str(parent) for parent in path.parents if parent.is_file()]
        if files:
            reason = f"{files[0]} is not a folder"
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            advice = f"make room there, or {advice}"
        raise OutputError(f"cannot write {path}: {reason}; {advice}") from error
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)


def write_bytes(path: str | Path, content: bytes) -> None:
    """Write ``content`` to ``path`` atomically."""
    with atomic_path(path) as temporary:
        temporary.write_bytes(content)


def check_writable(path: str | Path) -> None:
    """Raise `OutputError` now rather than after an hour of work that could not be saved.

    Folders that are not there yet are made, and removed again.
    """
    path = Path(path)
    new_folders = [folder for folder in path.parents if not folder.exists()]
    try:
        with atomic_path(path) as temporary:
            temporary.touch()
            raise _Writable
    except _Writable:
        pass
    finally:
        for folder in new_folders:
            with contextlib.suppress(OSError):  # not made, or filled by somebody else by now
                folder.rmdir()


class _Writable(Exception):  # noqa: N818  not an error: leaves `atomic_path` before its rename
    pass


def _flush_to_disk(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
