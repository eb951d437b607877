"""Datasets of many scans: `open_dataset` finds out what is there, a `Dataset` gives scans by number."""

import re
from collections.abc import Sequence
from pathlib import Path

from ct_dip.data.datasets.dataset import Dataset
from ct_dip.data.datasets.lodopab import LoDoPaB, is_lodopab
from ct_dip.data.datasets.scan_files import (
    ENDINGS,
    folder_of_scans,
    scan_files,
    scans_by_pattern,
    scans_of_manifest,
)
from ct_dip.data.datasets.two_detect import SIDE, TwoDetect, is_two_detect
from ct_dip.errors import InputError

__all__ = ["Dataset", "open_dataset"]

EXPECTED = (
    "a LoDoPaB folder (observation_test_000.hdf5, …), a 2DeteCT folder (slice00001/mode2/sinogram.tif, …), "
    "a folder of scan files (.h5), a pattern such as 'scans/*.h5', or a CSV manifest with a column 'scan'"
)


def open_dataset(
    path: str | Path | Sequence[str | Path],
    *,
    part: str | None = None,
    views: int | None = None,
    bin: int = 1,
    side: int | None = None,
) -> Dataset:
    """Open a dataset by what the path holds.

    Args:
        path: a LoDoPaB or 2DeteCT folder, a folder of scan files, a scan file or several, a pattern or a CSV
            manifest.
        part: of LoDoPaB ``train``, ``validation``, ``test`` (the default where there are several) or
            ``challenge``; of 2DeteCT ``mode1``, ``mode2`` (the default) or ``mode3``. Scan files have none.
        views: how many evenly spaced views to keep of every scan.
        bin: how many neighbouring detector bins become one.
        side: pixels of the sides of 2DeteCT's images, 1024 by default. The others have images of their own.

    Raises:
        InputError: nothing of the kind is there.
    """
    subsets = {"views": views, "bin": bin}
    if not isinstance(path, str | Path):
        if part is not None or side is not None:
            raise InputError("part and side belong to a folder, not to scan files; drop them")
        return scan_files([Path(each) for each in path], **subsets)
    text, path = str(path), Path(path)
    names = [entry.name for entry in path.iterdir()] if path.is_dir() else []
    if is_two_detect(names):
        return TwoDetect(path, part or "mode2", side=SIDE if side is None else side, **subsets)
    if side is not None:
        raise InputError(
            f"{path} has images of its own size, but {side} pixels a side were asked for; drop it"
        )
    if is_lodopab(names):
        return LoDoPaB(path, part, **subsets)
    if part is not None:
        raise InputError(f"{path} has no parts, but part {part!r} was asked for; drop it")
    if path.is_dir():
        if any(map(_is_scan_file, names)):
            return folder_of_scans(path, **subsets)
        raise InputError(f"{path} holds no dataset; expected {EXPECTED}")
    if path.is_file():
        if path.suffix.lower() == ".csv":
            return scans_of_manifest(path, **subsets)
        if _is_scan_file(path.name):
            return scan_files([path], **subsets)
        raise InputError(f"{path} is no dataset; expected {EXPECTED}")
    if re.search(r"[*?[]", text):
        return scans_by_pattern(text, **subsets)
    raise InputError(f"{path} does not exist; expected {EXPECTED}")


def _is_scan_file(name: str) -> bool:
    return name.endswith(ENDINGS) and not name.startswith(".")
