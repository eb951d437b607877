"""`import_scan` and `import_rows`: measured scans from a file or folder of any known format."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ct_dip.data.scan import Scan
from ct_dip.errors import InputError
from ct_dip.importers.build import build_scans, pick_rows
from ct_dip.importers.content import look_into
from ct_dip.importers.formats import FORMATS, find_format
from ct_dip.importers.open import named
from ct_dip.importers.options import Options
from ct_dip.importers.recording import Format, MissingError, Recording


def import_scan(
    path: str | Path,
    *,
    format: str = "auto",
    row: int | None = None,
    bin: int = 1,
    size: int | None = None,
    width: float | None = None,
    offset_error: float | None = None,
    **options: Any,
) -> Scan:
    """All views of a measured scan, on a grid.

    Args:
        format: the name of one of `ct_dip.importers.formats.FORMATS`, or ``auto``: by the content.
        row: of the detector; needed if it has several.
        bin: neighbouring detectors whose counts are averaged.
        size, width: pixels and mm of a side of the grid, see `ct_dip.importers.grid.on_grid`.
        offset_error: standard error of where the axis meets the detector, mm; by default that of the search.
        options: what the file does not say, see `ct_dip.importers.options.Options`.

    Raises:
        InputError: a word that cannot be, or a file that cannot be used.
    """
    if "rows" in options:
        raise InputError("import_scan reads one row; give row, or take several from ct_dip.import_rows")
    rows = None if row is None else str(row)
    common: dict[str, Any] = {"bin": bin, "size": size, "width": width, "offset_error": offset_error}
    _, scan = next(import_rows(path, rows=rows, format=format, **common, **options))
    return scan


def import_rows(
    path: str | Path,
    *,
    rows: str | None,
    format: str = "auto",
    bin: int = 1,
    size: int | None = None,
    width: float | None = None,
    offset_error: float | None = None,
    **options: Any,
) -> Iterator[tuple[int, Scan]]:
    """Yield rows of the detector and their scans, which share one geometry, read a few at a time.

    Args:
        rows: ``12``, ``10:20`` or ``all``; see `ct_dip.importers.build.pick_rows`.
        format, bin, size, width, offset_error, options: as for `import_scan`.
    """
    with open_recording(path, format, Options(**options)) as (kind, recording):
        chosen = range(1)
        missing = recording.missing(kind.options)
        try:
            chosen = pick_rows(rows, recording.shape[1])
        except MissingError as error:
            missing.append(str(error))
        if missing:
            raise MissingError("; ".join(missing))
        yield from build_scans(recording, chosen, bin=bin, size=size, width=width, offset_error=offset_error)


@contextlib.contextmanager
def open_recording(path: str | Path, format: str, options: Options) -> Iterator[tuple[Format, Recording]]:
    """Open a file, and give its format and what the file and the user say."""
    known = {kind.name: kind for kind in FORMATS}
    if format not in ("auto", *known):
        raise InputError(f"format {format!r} is not known; choose auto or one of {', '.join(known)}")
    kind = find_format(look_into(path)) if format == "auto" else known[format]
    options.refuse_others(kind.name, kind.options)
    with kind.open(Path(path), options) as recording, named(Path(path)):
        yield kind, recording.with_options(options)
