"""Charts of whether held-out views and the evidence choose as the truth would, as numbers for a template."""

import itertools
from dataclasses import dataclass

from scipy.stats import spearmanr

from ct_dip.data.method_table import ERROR_BARS, EVIDENCE, HELDOUT, IMAGE, MethodTable
from ct_dip.pages.table_files import MAIN

FEWEST = 3  # points of a chart that says anything
_UNITS = {IMAGE: "dB", ERROR_BARS: "nats"}


@dataclass(frozen=True, kw_only=True)
class Axis:
    """A figure of the table; ``low`` and ``high`` are its outermost values, as text."""

    title: str
    low: str
    high: str


@dataclass(frozen=True, kw_only=True)
class Point:
    """A row of the table; its place is from 0 to 1, from left to right and from below.

    Args:
        text: the method and both figures.
        chosen: whether it is the best of those on the horizontal axis.
    """

    x: float
    y: float
    text: str
    chosen: bool


@dataclass(frozen=True, kw_only=True)
class ChoiceChart:
    """What the data say, across, against what the truth says, up; ``text`` is how well both agree."""

    across: Axis
    up: Axis
    points: list[Point]
    text: str


def choice_charts(table: MethodTable) -> list[ChoiceChart]:
    """Return the charts of one scan with a known truth or reference.

    The evidence is compared among settings of one method only.
    """
    if len(table.digests) != 1:
        return []
    made = {row.prediction.method for row in table.rows if row.prediction is not None}
    choosers = (HELDOUT, EVIDENCE) if len(made) == 1 else (HELDOUT,)
    pairs = itertools.product(choosers, _UNITS)
    return [chart for chooser, judge in pairs if (chart := _chart(table, chooser, judge)) is not None]


def _chart(table: MethodTable, chooser: str, judge: str) -> ChoiceChart | None:
    means = {name: (table.mean(name, chooser), table.mean(name, judge)) for name in table.methods}
    known = {name: (x.value, y.value) for name, (x, y) in means.items() if x is not None and y is not None}
    if len(known) < FEWEST:
        return None
    xs, ys = (list(values) for values in zip(*known.values(), strict=True))
    if min(xs) == max(xs) or min(ys) == max(ys):
        return None
    across, up = MAIN[chooser], MAIN[judge]
    chosen = max(known, key=lambda name: known[name][0])
    loss = max(ys) - known[chosen][1]
    correlation = f"{spearmanr(xs, ys).statistic:.2f}".replace("-", "−")
    verdict = f"{loss:.2g} {_UNITS[judge]} below the best" if loss else "the best"
    return ChoiceChart(
        across=Axis(title=across.title, low=across.text(min(xs)), high=across.text(max(xs))),
        up=Axis(title=up.title, low=up.text(min(ys)), high=up.text(max(ys))),
        points=[
            Point(
                x=(x - min(xs)) / (max(xs) - min(xs)),
                y=(y - min(ys)) / (max(ys) - min(ys)),
                text=f"{name}: {across.title} {across.text(x)}, {up.title} {up.text(y)}",
                chosen=name == chosen,
            )
            for name, (x, y) in known.items()
        ],
        text=f"Rank correlation {correlation}; chosen: {chosen}{table.doubt(chooser)}, {verdict}.",
    )
