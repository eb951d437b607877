"""The page of an evaluation: its state, every item and method, whether error bars hold, worst and best cases.

It can be made at any moment, also of a run that is half finished. One file that needs no network; the pages
of single results that it links to stand beside these results.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from markupsafe import Markup

from ct_dip.data.method_table import HELDOUT, IMAGE
from ct_dip.files import write_bytes
from ct_dip.methods import summary_of
from ct_dip.pages.compare_page import assets, page_environment, shown_table
from ct_dip.pages.dataset_cases import Case, cases, chosen_labels
from ct_dip.pages.dataset_charts import calibrations, distributions
from ct_dip.pages.evaluation_rows import STATES, EvaluationRow, EvaluationRows, figures_of
from ct_dip.pages.table_files import MAIN
from ct_dip.text import counted, shortened

MARK = '<meta name="generator" content="ct-dip evaluate">'  # by which a page of ours is known
MOST_ROWS = 20_000  # of the table in a page, so that a browser still opens it
PAGE = 50  # rows that are shown at once
_MOST_ERRORS = 12
_NAMES = {IMAGE: "PSNR", HELDOUT: "log-density of held-out views"}


def write_dataset_page(
    path: str | Path, rows: Sequence[EvaluationRow], *, title: str, about: str = ""
) -> None:
    """Write the page of an evaluation, and those of the results of its worst and best items.

    Args:
        path: of the page, in the folder that paths of results are relative to.
        title: what stands above everything: the dataset, and after a colon what is in it.
        about: where the table of all figures is, or what else a reader should know.
    """
    path, every = Path(path), EvaluationRows(rows=rows)
    chosen = chosen_labels(every)[2]
    page = render_dataset_page(every, title=title, about=about, found=cases(path.parent, every, chosen))
    write_bytes(path, page.encode("utf-8"))


def render_dataset_page(
    rows: EvaluationRows, *, title: str, about: str = "", found: Sequence[Case] = ()
) -> str:
    """Return the page as text."""
    method, figure, _ = chosen_labels(rows)
    links = {(case.label, method): address for case in found for method, address in case.pages}
    items = item_table(rows, links)
    name, _, shape = title.partition(": ")
    return (
        page_environment()
        .get_template("dataset.html.j2")
        .render(
            mark=Markup(MARK),
            style=assets("report.css", "compare.css", "dataset.css"),
            script=assets("compare.js", "dataset.js"),
            title=name,
            shape=shape,
            about=about,
            rows=rows,
            state=state_sentence(rows),
            progress=[progress_of(rows, each) for each in rows.methods],
            errors=grouped_errors(rows),
            shown=shown_table(rows.table) if rows.table.rows else None,
            columns=MAIN,
            distributions=distributions(rows),
            calibrations=calibrations(rows),
            cases=found,
            chosen_by=(method, _NAMES.get(figure, figure)),
            items=items,
            # Text of others is in it: nothing in it may end the script.
            data=Markup(json.dumps(items, separators=(",", ":")).replace("<", "\\u003c")),
            page_rows=PAGE,
            summaries={name: text for name in rows.methods if (text := summary_of(name))},
        )
    )


def state_sentence(rows: EvaluationRows) -> str:
    """Say how far the evaluation is."""
    total, counts = len(rows.rows), {state: rows.count(state) for state in STATES}
    on = f"{counted(len(rows.methods), 'method')} on {counted(len(rows.items), 'item')}"
    if counts["done"] == total:
        return f"All {total} runs are done: {on}." if total != 1 else f"The run is done: {on}."
    words = {"failed": "failed", "running": "under way", "pending": "not begun"}
    rest = ", ".join(f"{counts[state]} {word}" for state, word in words.items() if counts[state])
    finished = counts["running"] + counts["pending"] == 0
    return f"{counts['done']} of {total} runs are done ({on}), {rest}." + (
        "" if finished else " This page shows what is finished so far."
    )


def progress_of(rows: EvaluationRows, method: str) -> dict[str, Any]:
    """Return how many items of a method are in each state, and as shares of all."""
    counts = {state: rows.count(state, method) for state in STATES}
    total = sum(counts.values())
    return {
        "method": method,
        "counts": counts,
        "shares": {state: 100 * count / total for state, count in counts.items()},
    }


def grouped_errors(rows: EvaluationRows) -> list[tuple[str, str]]:
    """Return what failed, the same errors as one: (which runs, error), the most frequent first."""
    groups: dict[str, list[EvaluationRow]] = {}
    for row in rows.rows:
        if row.state == "failed":
            groups.setdefault(row.error.replace(row.label, "…"), []).append(row)
    ordered = sorted(groups.values(), key=len, reverse=True)
    made = []
    for group in ordered[:_MOST_ERRORS]:
        names = ", ".join(f"{row.label} ({row.method})" for row in group[:4])
        more = f" and {len(group) - 4} more" if len(group) > 4 else ""
        made.append((names + more, shortened(group[0].error, 300)))
    if left := sum(map(len, ordered[_MOST_ERRORS:])):
        made.append((f"{left} more", "the table has their errors"))
    return made


def item_table(rows: EvaluationRows, links: dict[tuple[str, str], str]) -> dict[str, Any]:
    """Return the table of all items and methods as plain values: for the template, and for its script."""
    present = {name for row in rows.done for name in figures_of(row)}
    columns = [name for name in MAIN if name in present]
    lines = []
    for row in rows.rows[:MOST_ROWS]:
        figures = figures_of(row) if row.state == "done" else {}
        lines.append(
            {
                "label": row.label,
                "method": row.method,
                "state": row.state,
                "error": shortened(row.error, 200),
                "link": links.get((row.label, row.method), ""),
                "values": [float(f"{figures[name]:.6g}") if name in figures else None for name in columns],
                "texts": [MAIN[name].text(figures[name]) if name in figures else "–" for name in columns],
            }
        )
    return {
        "columns": [{"name": name, "title": MAIN[name].title, "about": MAIN[name].about} for name in columns],
        "rows": lines,
        "left_out": max(0, len(rows.rows) - MOST_ROWS),
    }
