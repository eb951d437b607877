"""`MethodTable`: scores of methods on the same scans, a row for each pair, and their ranking."""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from statistics import NormalDist
from typing import Literal, NamedTuple

from ct_dip.data.pixel_distribution import PixelDistribution
from ct_dip.data.prediction import Prediction
from ct_dip.data.scan import Scan
from ct_dip.data.scores import Mean
from ct_dip.text import counted

IMAGE, ERROR_BARS, HELDOUT = "psnr", "log_likelihood_1", "heldout_log_density"  # what methods are ranked by
EVIDENCE = "evidence"  # what settings of one method are ranked by
_SCORING = "compare with "  # begins the name of the stage that is ours, not the method's
_HIGH = ("psnr", "ssim", "log_likelihood", HELDOUT, EVIDENCE)
_LOW = ("mae", "rmse", "crps", "ence", "ause", "heldout_misfit", "seconds", "peak_memory_mb")
_OF_ONE_IN_A_THOUSAND = NormalDist().inv_cdf(1 - 0.5e-3)


def goal(column: str) -> Literal["high", "low"] | float | None:
    """Return what a column should be: high, low, or close to a number; ``None`` if nothing is better."""
    if coverage := re.match(r"(heldout_)?coverage_(\d+)", column):
        return int(coverage[2]) / 100
    if "rms_z" in column:
        return 1.0
    if column.startswith("z_999"):
        return _OF_ONE_IN_A_THOUSAND
    if column.startswith(_HIGH):
        return "high"
    return "low" if column.startswith(_LOW) and "no_knowledge" not in column else None


class ScanLabel(NamedTuple):
    """What a reader calls a scan, and a line about it."""

    name: str
    about: str = ""

    @staticmethod
    def of(scan: Scan, name: str = "") -> "ScanLabel":
        """Describe a scan in a line."""
        geometry, volume = scan.geometry, scan.geometry.volume
        about = (
            f"{geometry.views} views × {geometry.detectors} detector bins, "
            f"{volume.shape[0]} × {volume.shape[1]} pixels of {volume.pixel_size:g} mm"
        )
        return ScanLabel(name or scan.source or f"scan {scan.digest[:8]}", about)


@dataclass(frozen=True, kw_only=True, eq=False)
class Row:
    """One method on one scan.

    Args:
        method: its name, with the settings that tell it from another run of the same method.
        prediction: the images, scores and facts; ``None`` if the method failed, and ``error`` says why.
        warnings: beside those of the prediction.
    """

    scan_digest: str
    method: str
    prediction: Prediction | None = None
    error: str = ""
    warnings: tuple[str, ...] = ()

    @property
    def pixels(self) -> str:
        """The distribution of a single pixel; empty without error bars."""
        found = self.prediction
        return "" if found is None or found.std is None else PixelDistribution(found.degrees).name

    @cached_property
    def cells(self) -> dict[str, float | None]:
        """Every figure by its column, and standard errors as ``psnr_se``; none of a method that failed.

        ``seconds`` are without the scores.
        """
        if self.prediction is None:
            return {}
        cells: dict[str, float | None] = {}
        for scores in (self.prediction.scores, self.prediction.heldout):
            if scores is not None:
                cells |= scores.row(standard_errors=True)
        stages = self.prediction.seconds.items()
        cells["seconds"] = sum(s for name, s in stages if not name.startswith(_SCORING))
        for name in (EVIDENCE, "peak_memory_mb"):
            cells[name] = self.prediction.diagnostics.get(name)
        return cells


@dataclass(frozen=True, kw_only=True, eq=False)
class MethodTable:
    """Rows of methods on scans, in the order in which they were given.

    Args:
        scans: what a reader calls them, by digest.
    """

    rows: Sequence[Row]
    scans: dict[str, ScanLabel] = field(default_factory=dict)

    def __repr__(self) -> str:
        return f"<MethodTable: {', '.join(self.methods)} on {counted(len(self.digests), 'scan')}>"

    @property
    def methods(self) -> list[str]:
        """Every method once."""
        return list(dict.fromkeys(row.method for row in self.rows))

    @property
    def digests(self) -> list[str]:
        """Every scan once."""
        return list(dict.fromkeys(row.scan_digest for row in self.rows))

    @property
    def columns(self) -> list[str]:
        """Columns in which some row has a number, without those of standard errors."""
        every = dict.fromkeys(name for row in self.rows for name in row.cells if not name.endswith("_se"))
        return [name for name in every if any(row.cells.get(name) is not None for row in self.rows)]

    def of_scan(self, digest: str) -> "MethodTable":
        """Return the rows of one scan."""
        rows = [row for row in self.rows if row.scan_digest == digest]
        return MethodTable(rows=rows, scans={digest: self.scan(digest)})

    def scan(self, digest: str) -> ScanLabel:
        """Return what a scan is called."""
        return self.scans.get(digest) or ScanLabel(f"scan {digest[:8]}".strip())

    @property
    def pixels_differ(self) -> str:
        """A sentence about the distributions of single pixels; empty if they are of one kind."""
        kinds: dict[str, dict[str, None]] = {}
        for row in self.rows:
            if row.pixels:
                kinds.setdefault(row.pixels, {})[row.method] = None
        if len(kinds) < 2:
            return ""
        shapes = "; ".join(f"{kind} for {', '.join(methods)}" for kind, methods in kinds.items())
        return (
            f"Single pixels have different distributions: {shapes}. Their log-likelihood, CRPS and coverage "
            "judge this shape, too, and not the widths of the error bars alone."
        )

    def mean(self, method: str, column: str) -> Mean | None:
        """Return a method's mean over the scans on which it has a number in a column; ``None`` without any.

        The standard error of several scans is that of their mean; of a single one, the figure's own.
        """
        cells = [row.cells for row in self.rows if row.method == method]
        values = [value for each in cells if (value := each.get(column)) is not None]
        if not values:
            return None
        if len(values) == 1:
            errors = [each.get(f"{column}_se") for each in cells if each.get(column) is not None]
            return Mean(values[0], errors[0] if len(cells) == 1 else None, 1)
        mean = math.fsum(values) / len(values)
        variance = math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1)
        return Mean(mean, math.sqrt(variance / len(values)), len(values))

    def ranked(self, column: str | None = None) -> list[str]:
        """Return the methods, best first, by a column or else by the `criterion`.

        Those with a number on fewer scans come later, as their means are over other scans.
        """
        column = column or self.criterion
        if column is None or goal(column) is None:
            return self.methods
        return sorted(self.methods, key=lambda method: self._place(method, column))

    def best(self, column: str) -> list[str]:
        """Return the best method of a column, several if they are equal; none without two to compare."""
        if goal(column) is None:
            return []
        places = {method: self._place(method, column) for method in self.methods}
        counted = {method: place for method, place in places.items() if place[1] < math.inf}
        first = min(counted.values(), default=None)
        if len(counted) < 2 or len(set(counted.values())) == 1:
            return []
        return [method for method, place in counted.items() if place == first]

    def doubt(self, column: str) -> str:
        """Name the methods whose held-out views are within a standard error of the best; empty if none are.

        The error is the larger one of both, too large for the difference of methods that met the same noise.
        """
        best = self.best(column)
        if column != HELDOUT or not best:
            return ""
        means = {method: mean for method in self.methods if (mean := self.mean(method, column)) is not None}
        first = means[best[0]]
        near = []
        for method, mean in means.items():
            error = max(mean.standard_error or 0, first.standard_error or 0)
            if method not in best and abs(mean.value - first.value) < error:
                near.append(method)
        verb = "is" if len(near) == 1 else "are"
        return f" (not clearly: {' and '.join(near)} {verb} within one standard error)" if near else ""

    @property
    def criterion(self) -> str | None:
        """The column that ranks: PSNR if all scans have a truth, or else the held-out log-density.

        PSNR against references, which are no truths, if no views were held out, or not for every method that
        has a PSNR; ``None`` without anything.
        """
        finished = [row for row in self.rows if row.prediction is not None]
        scores = [row.prediction.scores for row in finished if row.prediction is not None]
        if scores and all(each is not None and each.compared_with == "truth" for each in scores):
            return IMAGE
        counts = {
            column: sum(self.mean(method, column) is not None for method in self.methods)
            for column in (HELDOUT, IMAGE)
        }
        column = max(counts, key=lambda column: counts[column])  # the first of equals
        return column if counts[column] else None

    def _place(self, method: str, column: str) -> tuple[int, float]:
        """Return how many scans have no number, and how far the mean is from the goal."""
        mean, wanted = self.mean(method, column), goal(column)
        if mean is None:
            return len(self.digests), math.inf
        signs = {"high": -mean.value, "low": mean.value}
        distance = signs[wanted] if isinstance(wanted, str) else abs(mean.value - (wanted or 0.0))
        return len(self.digests) - mean.count, distance
