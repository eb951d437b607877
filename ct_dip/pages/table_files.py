"""Write a `MethodTable` as CSV with all columns, and as LaTeX with the main ones."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from ct_dip.data.column_legend import write_table
from ct_dip.data.method_table import MethodTable
from ct_dip.data.scores import Mean, Scores
from ct_dip.files import write_bytes
from ct_dip.memory import format_bytes
from ct_dip.progress import format_duration

FIRST = ("scan", "method")  # of a CSV file, by which it is known
MARK = "% written by ct-dip compare"  # of a LaTeX file


class Column(NamedTuple):
    """How a column is shown."""

    title: str
    about: str
    text: Callable[[float], str]


def _percent(value: float) -> str:
    return f"{100 * value:.1f} %"


# Those that a reader sees first; the others have their names and four digits.
MAIN: dict[str, Column] = {
    "psnr": Column("PSNR, dB", "how close the image is; larger is better", "{:.2f}".format),
    "ssim": Column("SSIM", "how alike the structures are; 1 is perfect", "{:.3f}".format),
    "log_likelihood_1": Column(
        "Log-likelihood",
        "how well image and error bars together predict single pixels, in nats; larger is better",
        "{:.2f}".format,
    ),
    "crps": Column(
        "CRPS, 10⁻³/mm",
        "error of image and error bars together; smaller is better",
        lambda value: f"{1000 * value:.3g}",
    ),
    "coverage_95_near": Column(
        "95 % near",
        "share of pixels near the object inside their 95 % error bars; 95 % is right",
        _percent,
    ),
    "coverage_95_blocks_8": Column(
        "95 %, 8×8 blocks",
        "share of 8×8 block means inside their 95 % error bars, which only samples that belong together get "
        "right; 95 % is right",
        _percent,
    ),
    "heldout_log_density": Column(
        "Held-out views",
        "log predictive density of measurements in views that the method was not given, in nats each; larger "
        "is better; needs no truth",
        "{:.3f}".format,
    ),
    "evidence": Column(
        "Evidence",
        "log marginal likelihood of the sinogram, in nats; larger is better among settings of one method",
        "{:.1f}".format,
    ),
    "seconds": Column("Time", "of one run, without the scores", format_duration),
    "peak_memory_mb": Column(
        "Memory", "peak of the whole process during the run", lambda value: format_bytes(round(value * 2**20))
    ),
}


def cell_text(column: str, mean: Mean | None, *, none: str = "–") -> tuple[str, str]:
    """Return a number and its standard error as text; the error is empty if it is not known."""
    if mean is None:
        return none, ""
    text = MAIN[column].text if column in MAIN else "{:.4g}".format
    error = None if column in ("evidence", "seconds", "peak_memory_mb") else mean.standard_error
    return text(mean.value), "" if not error else text(error)


def write_csv(path: str | Path, table: MethodTable) -> None:
    """Write every row: the main columns first, then warnings and all other columns of `Scores`.

    What they mean is written beside it; see `ct_dip.data.column_legend.write_table`.
    """
    every = Scores(compared_with="truth", noise_std=0.0, value_range=1.0).row()
    for row in table.rows:
        every |= row.cells
    main = [name for name in MAIN if name in every]
    others = [name for name in every if name not in MAIN]
    names = [*FIRST, *main, "error", "warnings", "compared_with", "pixels", *others, "scan_digest"]
    lines = []
    for row in table.rows:
        found = row.prediction
        own = () if found is None else found.warnings
        lines.append(
            row.cells
            | {
                "scan": table.scan(row.scan_digest).name,
                "method": row.method,
                "scan_digest": row.scan_digest,
                "compared_with": "" if found is None or found.scores is None else found.scores.compared_with,
                "pixels": row.pixels,
                "warnings": " ".join((*own, *row.warnings)),
                "error": row.error,
            }
        )
    write_table(path, names, lines)


def write_latex(path: str | Path, table: MethodTable) -> None:
    """Write a tabular of the main columns, for the package booktabs; the best of each column is bold."""
    columns = [name for name in MAIN if name in table.columns]
    lines = [
        MARK,
        r"% needs \usepackage{booktabs}",
        *([f"% {_escape(table.pixels_differ)}"] if table.pixels_differ else []),
        rf"\begin{{tabular}}{{l{'r' * len(columns)}}}",
        r"\toprule",
        " & ".join(["Method", *(_escape(MAIN[name].title) for name in columns)]) + r" \\",
        r"\midrule",
    ]
    best = {name: table.best(name) for name in columns}
    for method in table.ranked():
        cells = []
        for name in columns:
            value, error = cell_text(name, table.mean(method, name), none="--")
            value = rf"\textbf{{{_escape(value)}}}" if method in best[name] else _escape(value)
            cells.append(value + (rf" $\pm$ {_escape(error)}" if error else ""))
        lines.append(" & ".join([_escape(method), *cells]) + r" \\")
    write_bytes(path, "\n".join([*lines, r"\bottomrule", r"\end{tabular}", ""]).encode("utf-8"))


_SPECIAL = {
    **{sign: f"\\{sign}" for sign in "&%$#_{}"},
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    "×": r"$\times$",
    "–": "--",
    "−": "$-$",
    "\n": " ",
}


def _escape(text: str) -> str:
    """Return text with what LaTeX would take as commands spelled out; a minus sign is one."""
    text = "".join(_SPECIAL.get(sign, sign) for sign in text)
    return re.sub(r"^-(?=\d)", "$-$", text).replace("⁻³", "$^{-3}$")
