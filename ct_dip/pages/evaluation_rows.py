"""What a page reads of an evaluation: its rows, finished or not, one for every item and method."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Protocol

from ct_dip.data.method_table import MethodTable, Row

STATES = ("done", "failed", "running", "pending")


class EvaluationRow(Protocol):
    """One method on one item, as the table of record has it."""

    @property
    def item(self) -> int:
        """Number in the dataset."""

    @property
    def label(self) -> str:
        """Name of the item, which no other has."""

    @property
    def method(self) -> str:
        """Name of the method."""

    @property
    def state(self) -> str:
        """One of `STATES`."""

    @property
    def error(self) -> str:
        """Why it failed."""

    @property
    def seconds(self) -> float | None:
        """Of the run without the scores."""

    @property
    def peak_memory_mb(self) -> float | None:
        """Of the process that ran it."""

    @property
    def scores(self) -> Mapping[str, float]:
        """Figures by their flat names."""

    @property
    def result(self) -> str | None:
        """Path of its result file below the evaluation's folder."""


@dataclass(frozen=True, kw_only=True, eq=False)
class _FigureRow(Row):
    """A row of a method table of which only the figures are at hand."""

    figures: Mapping[str, float] = field(default_factory=dict)

    @cached_property
    def cells(self) -> dict[str, float | None]:
        return dict(self.figures)


@dataclass(frozen=True, kw_only=True)
class EvaluationRows:
    """All rows of an evaluation."""

    rows: Sequence[EvaluationRow]

    @cached_property
    def methods(self) -> list[str]:
        """Every method once."""
        return list(dict.fromkeys(row.method for row in self.rows))

    @cached_property
    def items(self) -> list[str]:
        """Labels of all items."""
        return list(dict.fromkeys(row.label for row in self.rows))

    @cached_property
    def done(self) -> list[EvaluationRow]:
        """Rows that are finished."""
        return [row for row in self.rows if row.state == "done"]

    @cached_property
    def common(self) -> set[str]:
        """Items that were finished by every method that has finished any: what methods are compared on."""
        finished: dict[str, set[str]] = {}
        for row in self.done:
            finished.setdefault(row.method, set()).add(row.label)
        return set.intersection(*finished.values()) if finished else set()

    def count(self, state: str, method: str | None = None) -> int:
        """Return the number of rows of a state, of all methods or one."""
        return sum(row.state == state and method in (None, row.method) for row in self.rows)

    @cached_property
    def table(self) -> MethodTable:
        """Figures of all methods on the items that they have in common, or on all if there are none."""
        rows = [
            _FigureRow(scan_digest=row.label, method=row.method, figures=figures_of(row))
            for row in self.done
            if row.label in self.common or not self.common
        ]
        return MethodTable(rows=rows)

    def values(self, method: str, figure: str) -> list[float]:
        """Return a figure of all items that a method finished."""
        return [row.scores[figure] for row in self.done if row.method == method and figure in row.scores]


def figures_of(row: EvaluationRow) -> dict[str, float]:
    """Return every figure of a row by its column, with time and memory."""
    costs = {"seconds": row.seconds, "peak_memory_mb": row.peak_memory_mb}
    return {**row.scores, **{name: value for name, value in costs.items() if value is not None}}
