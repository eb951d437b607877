"""Scan files as a dataset: those of a folder, of a pattern such as ``scans/*.h5``, or of a CSV manifest.

A manifest has a line of names and one line per scan::

    scan,reference,label
    a/scan.h5,a/reference.tif,walnut-a

Only ``scan`` is needed. Paths are relative to the manifest's folder.
"""

import csv
import glob
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ct_dip.arrays import Floats
from ct_dip.data.datasets.dataset import Dataset
from ct_dip.data.reference_file import read_reference
from ct_dip.data.scan import Scan
from ct_dip.data.scan_file import read_scan
from ct_dip.errors import InputError
from ct_dip.text import counted

ENDINGS = (".h5", ".hdf5")
_COLUMNS = ("scan", "reference", "label")


@dataclass(frozen=True)
class ScanEntry:
    """One scan of a manifest."""

    scan: Path
    reference: Path | None = None
    label: str = ""


class ScanFiles(Dataset):
    """Scan files of any geometries.

    Args:
        entries: the scans, in their order.
        origin: the folder, pattern or manifest that they come from.
    """

    def __init__(self, entries: Sequence[ScanEntry], origin: str | Path, **subsets: Any) -> None:
        super().__init__(**subsets)
        if not entries:
            raise InputError(f"{origin} holds no scan; name one scan file (.h5) at least")
        self._entries = list(entries)
        self._origin = str(origin)
        self._labels = _labels(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def label(self, index: int) -> str:
        """Return the manifest's label, or the file's name without its ending."""
        return self._labels[index]

    def describe(self) -> str:
        """Return how many there are, and where."""
        return f"{counted(len(self), 'scan file')} of {self._origin}"

    def read(self, index: int) -> Scan:
        """Read the scan file."""
        return read_scan(self._entries[index].scan)

    def reference(self, index: int) -> Floats | None:
        """Read the image that the manifest names for a scan."""
        path = self._entries[index].reference
        return None if path is None else np.asarray(read_reference(path))


def folder_of_scans(folder: Path, **subsets: Any) -> ScanFiles:
    """Return the scan files of a folder, by name; not those of folders in it."""
    paths = sorted(path for path in folder.iterdir() if path.suffix in ENDINGS and path.is_file())
    return ScanFiles([ScanEntry(path) for path in paths], folder, **subsets)


def scan_files(paths: Sequence[Path], **subsets: Any) -> ScanFiles:
    """Return scan files that are named one by one."""
    for path in paths:
        if not path.name.endswith(ENDINGS):
            raise InputError(f"{path} is not a scan file (.h5); give scan files, or one folder or manifest")
    origin = str(paths[0]) if len(paths) == 1 else f"{paths[0]} to {paths[-1]}" if paths else "the list"
    return ScanFiles([ScanEntry(path) for path in paths], origin, **subsets)


def scans_by_pattern(pattern: str, **subsets: Any) -> ScanFiles:
    """Return the files that match a pattern with ``*``, ``?``, ``[…]`` or ``**``, by name."""
    paths = sorted(Path(name) for name in glob.glob(pattern, recursive=True))  # noqa: PTH207  absolute ones, too
    return ScanFiles([ScanEntry(path) for path in paths if path.is_file()], pattern, **subsets)


def scans_of_manifest(manifest: Path, **subsets: Any) -> ScanFiles:
    """Return the scans that a CSV file lists."""
    try:
        with manifest.open(newline="", encoding="utf-8-sig") as file:
            reader = csv.DictReader(file, strict=True, skipinitialspace=True)
            columns, rows = list(reader.fieldnames or ()), list(reader)
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise InputError(
            f"{manifest} cannot be read as CSV ({error}); write UTF-8 text with commas"
        ) from error
    unknown = [name for name in columns if name not in _COLUMNS]
    if "scan" not in columns or unknown:
        raise InputError(
            f"{manifest} has the columns {', '.join(map(repr, columns)) or 'none'}; its first line must name "
            "them: scan, and if wanted reference and label"
        )
    entries = []
    for line, row in enumerate(rows, start=2):
        if None in row or not row["scan"]:
            what = "more values than columns" if None in row else "no scan"
            raise InputError(f"{manifest}: line {line} has {what}; correct or drop it")
        reference = row.get("reference")
        entries.append(
            ScanEntry(
                scan=manifest.parent / row["scan"],
                reference=manifest.parent / reference if reference else None,
                label=row.get("label") or "",
            )
        )
    return ScanFiles(entries, manifest, **subsets)


def _labels(entries: Sequence[ScanEntry]) -> list[str]:
    """Return labels that differ: a file's name, with as many of its folders as that takes, then a number."""
    names = [_clean(entry.label or entry.scan.stem) for entry in entries]
    for depth in range(1, max(len(entry.scan.parts) for entry in entries)):
        twice = _repeated(names)
        if not twice:
            break
        for i, entry in enumerate(entries):
            if names[i] in twice and not entry.label:
                names[i] = _clean("-".join([*entry.scan.parts[-1 - depth : -1], entry.scan.stem]))
    counts: dict[str, int] = {}
    for i, name in enumerate(names):
        while name.casefold() in counts:  # some file systems do not tell cases apart
            counts[name.casefold()] += 1
            name = f"{names[i]}-{counts[name.casefold()]}"
        counts[name.casefold()] = 1
        names[i] = name
    return names


def _repeated(names: Sequence[str]) -> set[str]:
    counts = Counter(name.casefold() for name in names)
    return {name for name in names if counts[name.casefold()] > 1}


def _clean(text: str) -> str:
    return re.sub(r"[^\w.-]+", "_", text).strip("._-")[:100] or "scan"
