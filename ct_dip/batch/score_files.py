"""All rows of an evaluation as CSV and as Parquet, also of one that is half finished."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ct_dip.batch.clusters import require
from ct_dip.batch.table import Row, read_rows
from ct_dip.data.column_legend import write_table
from ct_dip.data.scores import Scores
from ct_dip.errors import InputError
from ct_dip.files import atomic_path

CSV, PARQUET = "scores.csv", "scores.parquet"
FIRST = ("item", "label", "method", "state", "error", "seconds", "peak_memory_mb", "scan_digest", "result")


def write_scores(folder: str | Path) -> list[Row]:
    """Write ``scores.csv``, what its columns mean, and ``scores.parquet``; return the rows of the table.

    Parquet needs the extra ``batch``; without it, CSV alone is written.
    """
    rows, folder = read_rows(folder), Path(folder)
    names = _columns(rows)
    cells = [{name: getattr(row, name) for name in FIRST} | dict(row.scores) for row in rows]
    write_table(folder / CSV, names, cells)
    try:
        arrow, parquet = require("pyarrow", "batch"), require("pyarrow.parquet", "batch")
    except InputError:
        return rows
    kinds: dict[str, Any] = dict.fromkeys(names, arrow.float64()) | dict.fromkeys(FIRST, arrow.string())
    kinds |= {"item": arrow.int64(), "seconds": arrow.float64(), "peak_memory_mb": arrow.float64()}
    columns = [arrow.array([each.get(name) for each in cells], kinds[name]) for name in names]
    with atomic_path(folder / PARQUET) as path:
        parquet.write_table(arrow.table(columns, names=names), path)
    return rows


def _columns(rows: Sequence[Row]) -> list[str]:
    """Names of all columns: the same for every evaluation, whatever its rows have; then those of others."""
    every = dict.fromkeys((*FIRST, *Scores(compared_with="truth", noise_std=0.0, value_range=1.0).row()))
    for row in rows:
        every |= dict.fromkeys(row.scores)
    return list(every)
