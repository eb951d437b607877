"""Whatever is wrong with a file of others becomes one `ScanError` that names the file."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

from ct_dip.errors import InputError, ScanError


def check_file(path: str | Path) -> Path:
    """Return the path, if there is a file to read."""
    path = Path(path)
    if path.is_dir():
        raise ScanError(f"{path} is a folder, expected a file of the format; drop --format")
    if not path.exists():
        raise ScanError(f"{path} does not exist; check the path")
    if not path.is_file():  # a pipe would be waited for
        raise ScanError(f"{path} is not a regular file; copy what it holds into one")
    return path


@contextlib.contextmanager
def reading(path: Path, kind: str) -> Iterator[None]:
    """While a library parses ``path``: what it raises on damaged files, in words."""
    try:
        yield
    except InputError:
        raise
    except Exception as problem:  # SciPy and h5py trust a damaged file, and raise anything then
        reason = (str(problem).splitlines() or [""])[0]
        if len(reason) < 4:  # such as the index of an IndexError
            reason = f"{type(problem).__name__} {reason}".strip()
        raise ScanError(
            f"{path} cannot be read as {kind} ({reason}); it is truncated, damaged or another kind of file: "
            "copy or download it anew"
        ) from problem


@contextlib.contextmanager
def named(path: Path) -> Iterator[None]:
    """Put the file's name before errors about what it holds, once."""
    try:
        yield
    except InputError as error:
        kind = type(error) if isinstance(error, ScanError) else ScanError
        text = str(error) if str(error).startswith(str(path)) else f"{path}: {error}"
        raise kind(text) from error
