"""A folder of TIFF projections, one file per view, with flats and darks.

Flats are files or subfolders whose names begin with flat, white, open or io, darks those with dark or di; all
other TIFF files are views, by the numbers in their names; they may be in one subfolder. ``--flat`` and
``--dark`` name a subfolder, a pattern such as ``ff_*.tif``, a folder or file elsewhere, or a number. The
geometry comes from options, or from a file ``geometry.yaml`` in the folder with the same names::

    arc: 360               # degrees that evenly spread views cover; negative if clockwise
    detector_pitch: 0.05   # mm
    source_origin: 110     # mm, with origin_detector: a fan beam
    origin_detector: 190   # mm
    center: 1023.5         # column of the rotation axis

Readings are counts. Of flat-corrected projections the air is 1: ``--flat 1``.
"""

import contextlib
import dataclasses
import glob
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ct_dip.errors import ScanError
from ct_dip.importers.flats import frames_of
from ct_dip.importers.open import named
from ct_dip.importers.options import BEAM, Options
from ct_dip.importers.recording import Format, Readings, Recording
from ct_dip.importers.tiff import by_number, frame_shape, is_tiff, read_tiff_rows, sorted_tiffs
from ct_dip.plain_yaml import read_yaml
from ct_dip.text import shortened

_STARTS = {"flat": ("flat", "white", "open", "io"), "dark": ("dark", "di")}
_OPTIONS = ("arc", "flat", "dark", "air", *BEAM)
_NUMBERS = ("arc", "air", *BEAM)


@contextlib.contextmanager
def _open(path: Path, options: Options) -> Iterator[Recording]:
    if not path.is_dir():
        raise ScanError(f"{path} is not a folder; for one file there is --format tiff-sinogram")
    with named(path):
        options = _with_yaml(path, options)
        others = {name: _files(path, name, options) for name in ("flat", "dark")}
        views = _views(path, {file.resolve() for files in others.values() for file in files})
        _, rows, columns = frame_shape(views[0])
    numbers = {
        name: frames_of(text, lambda text: None, rows, columns, name)
        for name in ("flat", "dark")
        if (text := getattr(options, name)) is not None and not others[name]
    }

    def read(first: int, last: int) -> Readings:
        parts = {
            name: read_tiff_rows(files, (rows, columns), first, last)
            for name, files in others.items()
            if files
        }
        parts |= {name: values[:, first:last] for name, values in numbers.items() if values is not None}
        data = read_tiff_rows(views, (rows, columns), first, last)
        return Readings(
            data=data,
            flats=parts.get("flat"),
            darks=parts.get("dark"),
            air=options.air or 0,
            names=("views", "flats", "darks"),
        )

    recording = Recording(
        shape=(len(views), rows, columns), read=read, counts=True, source=f"TIFF projections of {path.name}"
    )
    yield recording.with_options(options)


def _views(path: Path, others: set[Path]) -> list[Path]:
    """Projections in the folder itself, or in its only other subfolder with TIFF files.

    Args:
        others: flats and darks.
    """
    found = {path: _without(sorted_tiffs(path), others)}
    if not found[path]:
        folders = sorted(item for item in path.iterdir() if item.is_dir() and not _begins(item))
        found = {folder: tiffs for folder in folders if (tiffs := _without(sorted_tiffs(folder), others))}
    if len(found) != 1:
        names = ", ".join(folder.name for folder in found) or "none"
        raise ScanError(
            f"{len(found)} subfolders hold TIFF files that may be views ({names}); the views belong into the "
            "folder or one subfolder: name the flats with --flat SUBFOLDER, darks with --dark SUBFOLDER, and "
            "move others away"
        )
    return next(iter(found.values()))


def _without(files: list[Path], others: set[Path]) -> list[Path]:
    return [file for file in files if file.resolve() not in others and not _begins(file)]


def _begins(path: Path, kinds: tuple[str, ...] = ("flat", "dark")) -> bool:
    return path.name.lower().startswith(tuple(start for kind in kinds for start in _STARTS[kind]))


def _files(path: Path, kind: str, options: Options) -> list[Path]:
    """Files of the flats or darks."""
    wanted: str | None = getattr(options, kind)
    if wanted is None:
        items = [item for item in path.iterdir() if _begins(item, (kind,))]
    else:
        with contextlib.suppress(ValueError):
            float(wanted)
            return []
        items = _named(path, wanted)
    for item in items:
        if item.is_dir() and not any(item.iterdir()) and not (options.air and kind == "flat"):
            raise ScanError(f"the folder {item} is empty; copy the {kind}s into it, or remove it")
    files = [file for item in items for file in (sorted_tiffs(item) if item.is_dir() else [item])]
    files = sorted(filter(is_tiff, files), key=by_number)
    if wanted is not None and not files:
        raise ScanError(
            f"--{kind} {wanted} is neither a number, nor a folder, file or pattern of TIFF files, in the "
            "scan's folder or elsewhere"
        )
    return files


def _named(path: Path, wanted: str) -> list[Path]:
    """Files and folders by a name or pattern: in the scan's folder, or else from where the user is."""
    for folder in (path, Path()):
        if (folder / wanted).exists():  # which is the name itself if that is absolute
            return [folder / wanted]
        if found := glob.glob(wanted, root_dir=folder):  # noqa: PTH207 - absolute patterns, too
            return [folder / name for name in found]
    return []


def _with_yaml(path: Path, options: Options) -> Options:
    """Options of ``geometry.yaml``, where the user did not say otherwise."""
    file = path / "geometry.yaml"
    if not file.is_file():
        return options
    fields: Any = read_yaml(file.read_text(encoding="utf-8", errors="replace"))
    if not isinstance(fields, dict):
        raise ScanError("geometry.yaml must have lines such as 'detector_pitch: 0.05'")
    for name, value in fields.items():
        if name not in _OPTIONS:
            raise ScanError(
                f"geometry.yaml: {shortened(repr(name))} is not known; known are {', '.join(_OPTIONS)}"
            )
        if name in _NUMBERS and (isinstance(value, bool) or not isinstance(value, int | float)):
            raise ScanError(f"geometry.yaml: {name} is {shortened(repr(value))}, expected a number")
    if "arc" in fields:
        fields["arc"] = math.radians(fields["arc"])
    for name in {"flat", "dark"} & fields.keys():
        fields[name] = str(fields[name])
        if Path(fields[name]).is_absolute() or ".." in Path(fields[name]).parts:
            raise ScanError(
                f"geometry.yaml: {name} {fields[name]} must be in the folder; give --{name} instead"
            )
    return dataclasses.replace(options, **(fields | options.given))


def _recognises(path: Path) -> bool:
    return any(
        is_tiff(item) or (item.is_dir() and any(map(is_tiff, item.iterdir()))) for item in path.iterdir()
    )


FORMAT = Format(
    name="tiff-folder",
    about="a folder of TIFF projections with flats and darks",
    options=_OPTIONS,
    recognises=lambda content: content.kind == "folder" and _recognises(content.path),
    open=_open,
)
