"""`import_scan`: a measured scan from a file of any known format."""

from pathlib import Path
from typing import Any

from ct_dip.data.scan import Scan
from ct_dip.errors import InputError
from ct_dip.importers.data_exchange import read_data_exchange
from ct_dip.importers.detect import FORMATS, detect_format
from ct_dip.importers.fips_walnut import read_fips_walnut
from ct_dip.importers.htc2022 import read_htc2022
from ct_dip.importers.numpy_file import read_numpy


def import_scan(
    path: str | Path,
    *,
    format: str = "auto",
    bin: int = 1,
    size: int | None = None,
    width: float | None = None,
    row: int | None = None,
    center: float | None = None,
    pitch: float | None = None,
    counts: bool = False,
) -> Scan:
    """All views of a measured scan, on a grid.

    Args:
        format: one of `FORMATS`, or ``auto`` to find out from the content.
        bin: neighbouring detectors to average.
        size, width: pixels and mm of a side of the grid, see `ct_dip.importers.grid.on_grid`.
        row, center, pitch: of a Data Exchange file, see `ct_dip.importers.data_exchange`.
        counts: an NPZ file holds readings of the detector, see `ct_dip.importers.numpy_file`.

    Raises:
        InputError: a word that cannot be, or a file that cannot be used.
    """
    if format not in ("auto", *FORMATS):
        raise InputError(f"format {format!r} is not known; choose auto or one of {', '.join(FORMATS)}")
    kind = detect_format(path) if format == "auto" else format
    common: dict[str, Any] = {"bin": bin, "size": size, "width": width}
    special: dict[str, Any] = {"row": row, "center": center, "pitch": pitch}
    if counts and kind != "numpy":
        raise InputError(f"--counts has no meaning with format {kind}, which says it itself; drop it")
    if kind == "numpy":
        common["counts"] = counts
    if kind == "data-exchange":
        return read_data_exchange(path, **common, **special)
    for name, value in special.items():
        if value is not None:
            option = "detector-pitch" if name == "pitch" else name
            raise InputError(f"--{option} {value} has no meaning with format {kind}; drop it")
    readers = {"htc2022": read_htc2022, "fips-walnut": read_fips_walnut, "numpy": read_numpy}
    return readers[kind](path, **common)
