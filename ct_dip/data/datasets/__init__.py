"""Datasets of many scans: `open_dataset` finds out what is there, a `Dataset` gives scans by number."""

import re
from pathlib import Path

from ct_dip.data.datasets.dataset import Dataset
from ct_dip.data.datasets.scan_files import ENDINGS, folder_of_scans, scans_by_pattern, scans_of_manifest
from ct_dip.errors import InputError

__all__ = ["Dataset", "open_dataset"]

EXPECTED = (
    "a LoDoPaB folder (observation_test_000.hdf5, …), a 2DeteCT folder (slice00001/mode2/sinogram.tif, …), "
    "a folder of scan files (.h5), a pattern such as 'scans/*.h5', or a CSV manifest with a column 'scan'"
)


def open_dataset(
    path: str | Path, *, part: str | None = None, views: int | None = None, detector_bin: int = 1
) -> Dataset:
    """Open a dataset by what the path holds.

    Args:
        path: a LoDoPaB or 2DeteCT folder, a folder of scan files, a scan file, a pattern or a CSV manifest.
        part: of LoDoPaB ``train``, ``validation``, ``test`` (the default) or ``challenge``; of 2DeteCT
            ``mode1``, ``mode2`` (the default) or ``mode3``. Scan files have none.
        views: how many evenly spaced views to keep of every scan.
        detector_bin: how many neighbouring detector bins become one.

    Raises:
        InputError: nothing of the kind is there.
    """
    text, path = str(path), Path(path)
    if path.is_dir():
        names = [entry.name for entry in path.iterdir()]
        kinds = [(_is_scan_file, folder_of_scans)]
        for recognised, opened in kinds:
            if any(map(recognised, names)):
                _refuse_part(path, part)
                return opened(path, views=views, detector_bin=detector_bin)
        raise InputError(f"{path} holds no dataset; expected {EXPECTED}")
    _refuse_part(path, part)
    if path.is_file():
        if path.suffix.lower() == ".csv":
            return scans_of_manifest(path, views=views, detector_bin=detector_bin)
        if _is_scan_file(path.name):
            return scans_by_pattern(re.sub(r"([*?[])", r"[\1]", text), views=views, detector_bin=detector_bin)
        raise InputError(f"{path} is no dataset; expected {EXPECTED}")
    if re.search(r"[*?[]", text):
        return scans_by_pattern(text, views=views, detector_bin=detector_bin)
    raise InputError(f"{path} does not exist; expected {EXPECTED}")


def _is_scan_file(name: str) -> bool:
    return name.endswith(ENDINGS) and not name.startswith(".")


def _refuse_part(path: Path, part: str | None) -> None:
    if part is not None:
        raise InputError(f"{path} has no parts, but part {part!r} was asked for; drop it")
