"""TIFF files as frames: shapes first, then rows, one file in memory at a time."""

import logging
import re
from pathlib import Path

import numpy as np
import tifffile

from ct_dip.arrays import Floats
from ct_dip.data.plain_hdf5 import check_size
from ct_dip.errors import ScanError
from ct_dip.importers.content import TIFF_STARTS
from ct_dip.importers.open import check_file, named, reading

logging.getLogger("tifffile").addHandler(logging.NullHandler())  # our errors say it in one line


def is_tiff(path: Path) -> bool:
    """Whether a file is one, by its first bytes."""
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return file.read(4) in TIFF_STARTS


def sorted_tiffs(folder: Path) -> list[Path]:
    """TIFF files of a folder, by the numbers in their names: ``view2`` before ``view10``.

    Raises:
        ScanError: a file ends like one and is none: to leave it out would move all views after it.
    """
    for path in folder.iterdir():
        if path.suffix.lower() in (".tif", ".tiff") and not is_tiff(path):
            raise ScanError(f"{path} is not a TIFF file, or damaged; copy it anew, or move it away")
    return sorted(filter(is_tiff, folder.iterdir()), key=by_number)


def by_number(path: Path) -> list[tuple[int, str]]:
    """Return a key for sorting: text as text, digits as numbers."""
    return [(int(part), "") if part.isdigit() else (0, part) for part in re.split(r"(\d+)", path.name)]


def frame_shape(path: Path) -> tuple[int, int, int]:
    """Pages, rows and columns of a file, without its values."""
    path = check_file(path)
    with reading(path, "TIFF"), named(path), tifffile.TiffFile(path) as file:
        pages, page = len(file.pages), file.pages.first
        if page.dtype is None or page.dtype.kind not in "fiu" or len(page.shape) != 2:
            raise ScanError(
                f"it has pixels of shape {page.shape} and type {page.dtype}, expected grey values"
            )
        rows, columns = page.shape
        if pages == 1 and file.series[0].ndim == 3:  # ImageJ stores large stacks behind one page
            pages = file.series[0].shape[0]
        return pages, rows, columns


def read_tiff_rows(files: list[Path], shape: tuple[int, int], first: int, last: int) -> Floats:
    """Return rows from ``first`` to before ``last`` of one-page files, (files, rows, columns).

    Args:
        shape: (rows, columns) that every file must have.
    """
    frames = []
    for path in files:
        found = frame_shape(path)
        if found != (1, *shape):
            raise ScanError(
                f"{path} has {found[0]} pages of {found[1]} × {found[2]} pixels, expected 1 of "
                f"{shape[0]} × {shape[1]}"
            )
        frames.append(read_pages(path, first, last)[0])
    return np.stack(frames)


def read_pages(path: Path, first: int, last: int) -> Floats:
    """Return rows from ``first`` to before ``last`` of every page of one file, (pages, rows, columns)."""
    pages, rows, columns = frame_shape(path)
    with reading(path, "TIFF"), named(path), tifffile.TiffFile(path) as file:
        check_size("a page", (rows, columns), np.float64)
        check_size("these rows", (pages, last - first, columns), np.float64)
        if len(file.pages) == pages:
            return np.stack([page.asarray()[first:last] for page in file.pages])
        return np.array(tifffile.memmap(path, mode="r").reshape(pages, rows, columns)[:, first:last])


def read_tiff(path: Path) -> Floats:
    """All values of a file, (rows, columns) or (pages, rows, columns)."""
    pages, rows, _ = frame_shape(path)
    values = read_pages(path, 0, rows)
    return values if pages > 1 else values[0]
