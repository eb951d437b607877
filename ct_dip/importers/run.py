"""`import_scan` and `import_rows`: measured scans from a file or folder of any known format."""

import contextlib
import dataclasses
import difflib
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ct_dip.arrays import Bools
from ct_dip.data.scan import Scan
from ct_dip.errors import CtDipError, InputError
from ct_dip.importers.build import build_scans, pick_rows
from ct_dip.importers.content import look_into
from ct_dip.importers.formats import FORMATS, find_format
from ct_dip.importers.grid import spread_views, with_mask
from ct_dip.importers.open import named
from ct_dip.importers.options import Options
from ct_dip.importers.recording import Format, MissingError, Recording


def import_scan(
    path: str | Path,
    *,
    format: str = "auto",
    row: int | None = None,
    views: int | None = None,
    bin: int = 1,
    size: int | None = None,
    width: float | None = None,
    mask: str | Path | Bools | None = None,
    offset_error: float | None = None,
    **options: Any,
) -> Scan:
    """Import a measured scan on a grid, with the repairs that are asked for, as ``ct-dip import`` does.

    Args:
        format: the name of one of `ct_dip.importers.formats.FORMATS`, or ``auto``: by the content.
        row: of the detector; needed if it has several.
        views: keep so many, evenly spread; all if ``None``.
        bin: neighbouring detectors whose counts are averaged.
        size, width: pixels and mm of a side of the grid, see `ct_dip.importers.grid.on_grid`.
        mask: pixels that evaluations count, (rows, columns), a file of them, or ``all``; the field of view if
            ``None``.
        offset_error: standard error of where the axis meets the detector, mm; by default that of the search.
        options: what the file does not say, repairs and noise, see `ct_dip.importers.options.Options`.

    Raises:
        InputError: an option has an impossible value, or a file cannot be used.
    """
    if "rows" in options:
        raise InputError("import_scan reads one row; give row, or take several from ct_dip.import_rows")
    rows = None if row is None else str(row)
    common: dict[str, Any] = {"bin": bin, "size": size, "width": width, "offset_error": offset_error}
    _, scan = next(import_rows(path, rows=rows, format=format, views=views, mask=mask, **common, **options))
    return scan


def import_rows(
    path: str | Path,
    *,
    rows: str | None,
    format: str = "auto",
    views: int | None = None,
    bin: int = 1,
    size: int | None = None,
    width: float | None = None,
    mask: str | Path | Bools | None = None,
    offset_error: float | None = None,
    **options: Any,
) -> Iterator[tuple[int, Scan]]:
    """Yield rows of the detector and their scans, which share one geometry, read a few at a time.

    Args:
        rows: ``12``, ``10:20`` or ``all``; see `ct_dip.importers.build.pick_rows`.
        format, views, bin, size, width, mask, offset_error, options: as for `import_scan`.
    """
    with _python_names(), open_recording(path, format, told := _told(options)) as (kind, recording):
        chosen = range(1)
        missing = recording.missing(kind.options)
        try:
            chosen = pick_rows(rows, recording.shape[1])
        except MissingError as error:
            missing.append(str(error))
        if missing:
            raise MissingError("; ".join(missing))
        scans = build_scans(
            recording, chosen, told, bin=bin, size=size, width=width, offset_error=offset_error
        )
        for row, scan in scans:
            marked = with_mask(scan, mask)
            yield row, marked if views is None else spread_views(marked, views)


@contextlib.contextmanager
def _python_names() -> Iterator[None]:
    """Note in an error which arguments of Python its options are; the shell shows no notes."""
    special = {"--arc": "arc, in radians", "--row": "row of import_scan", "--rows": "rows of import_rows"}
    try:
        yield
    except CtDipError as error:
        options = dict.fromkeys(re.findall(r"(?<![^\s(])--[a-z-]+", str(error)))
        names = {option: special.get(option, option[2:].replace("-", "_")) for option in options}
        words = [f"{option} is {name}" for option, name in names.items() if option != f"--{name}"]
        if words:
            error.add_note(f"As arguments in Python: {'; '.join(words)}.")
        raise


def _told(options: dict[str, Any]) -> Options:
    """Return options by their names, and refuse others."""
    known = [field.name for field in dataclasses.fields(Options)]
    own = [name for name in inspect.signature(import_scan).parameters if name not in ("path", "options")]
    for name in options:
        if name not in known:
            names = [*own, *known]
            near = difflib.get_close_matches(name, names, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"known are {', '.join(names)}"
            raise InputError(f"option {name!r} is not known; {hint}")
    return Options(**options)


@contextlib.contextmanager
def open_recording(path: str | Path, format: str, options: Options) -> Iterator[tuple[Format, Recording]]:
    """Open a file, and give its format and what the file and the user say."""
    known = {kind.name: kind for kind in FORMATS}
    if format not in ("auto", *known):
        raise InputError(f"format {format!r} is not known; choose auto or one of {', '.join(known)}")
    kind = find_format(look_into(path)) if format == "auto" else known[format]
    options.refuse_others(kind.name, kind.options)
    with kind.open(Path(path), options) as recording, named(Path(path)):
        yield kind, recording.with_options(options).without_repeated_view()
