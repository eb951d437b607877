"""Worst and best items of an evaluation, with their pictures and pages."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ct_dip.data.method_table import MethodTable, Row, ScanLabel, goal
from ct_dip.data.result_file import read_result
from ct_dip.errors import InputError
from ct_dip.pages.compare_page import pictures, shown_table
from ct_dip.pages.evaluation_rows import EvaluationRow, EvaluationRows
from ct_dip.pages.report_page import write_report

EACH = 3  # worst ones, and best ones
THUMBNAIL = 160  # pixels of a picture's longer side


@dataclass(frozen=True, kw_only=True)
class Case:
    """One item.

    Args:
        kind: ``worst`` or ``best``.
        table: its figures, for the template of a table.
        pictures: of all methods that have a result file; ``None`` without one.
        pages: (method, address relative to the evaluation's folder).
    """

    kind: str
    label: str
    table: dict[str, Any]
    pictures: dict[str, Any] | None
    pages: list[tuple[str, str]]


def chosen_labels(rows: EvaluationRows) -> tuple[str, str, dict[str, str]]:
    """Return method and figure by which items are told apart, and labels of worst and best ones.

    The figure is the criterion of the table, the method the one that does best by it. All is empty if nothing
    can be ranked.
    """
    figure = rows.table.criterion
    if figure is None or not rows.table.rows:
        return "", "", {}
    method = rows.table.ranked()[0]
    values = {r.label: r.scores[figure] for r in rows.done if r.method == method and figure in r.scores}
    ordered = sorted(values, key=lambda label: values[label], reverse=goal(figure) == "low")
    each = min(EACH, len(ordered) // 2)
    chosen = dict.fromkeys(ordered[:each], "worst") | dict.fromkeys(ordered[::-1][:each], "best")
    return method, figure, chosen


def cases(folder: Path, rows: EvaluationRows, chosen: dict[str, str]) -> list[Case]:
    """Read the results of chosen items, and write a page for each result that has none, or an older one."""
    return [
        _case(folder, label, kind, [r for r in rows.done if r.label == label])
        for label, kind in chosen.items()
    ]


def _case(folder: Path, label: str, kind: str, rows: list[EvaluationRow]) -> Case:
    found, pages = [], []
    for row in rows:
        if row.result is None:
            continue
        try:
            prediction = read_result(folder / row.result)
        except InputError:  # moved or damaged; its figures are in the table all the same
            continue
        found.append(Row(scan_digest=label, method=row.method, prediction=prediction))
        result, page = folder / row.result, Path(row.result).with_suffix(".html")
        if not (folder / page).exists() or (folder / page).stat().st_mtime < result.stat().st_mtime:
            write_report(folder / page, prediction, source=label)
        pages.append((row.method, page.as_posix()))
    table = MethodTable(rows=found, scans={label: ScanLabel(label)})
    figures = EvaluationRows(rows=rows).table
    return Case(
        kind=kind,
        label=label,
        table=shown_table(figures),
        pictures=pictures(table, longest=THUMBNAIL) if found else None,
        pages=pages,
    )
