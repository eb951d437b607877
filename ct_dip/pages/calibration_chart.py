"""Curves of the calibration section of a page; figures are those of `ct_dip.data.scores`."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ct_dip.arrays import Floats
from ct_dip.data.prediction import Prediction
from ct_dip.evaluation.coverage import coverage_curve
from ct_dip.evaluation.near import near_object_of
from ct_dip.evaluation.pixel_scores import width_score
from ct_dip.pages.verdicts import FEWEST_PIXELS

POINTS = (0.05, *(round(0.1 * k, 1) for k in range(1, 10)), 0.95, 0.99)  # nominal levels of the curve
ERROR_BINS = 8


@dataclass(frozen=True)
class CalibrationChart:
    """Coverage by nominal level, and errors by standard deviation.

    Args:
        levels: nominal; ``everywhere`` the coverage of all pixels.
        near: the same, on and near the object; empty where that has too few pixels.
        band: where the coverage of right error bars is, 95 times of 100, near the object if ``near`` is.
        error_bins: root mean squares (std, error), 1/mm, by growing std, of the same pixels.
    """

    levels: Sequence[float]
    everywhere: Sequence[float]
    near: Sequence[float]
    band: Sequence[tuple[float, float]]
    error_bins: Sequence[tuple[float, float]]


def calibration_chart(result: Prediction) -> CalibrationChart | None:
    """Return the curves of error bars against the truth or a reference, where there are both."""
    compared = result.comparison
    if compared is None or result.std is None:
        return None
    image, std, seen, near = (
        compared.image,
        compared.widened(result.std),
        result.evaluated,
        near_object_of(result),
    )
    enough = int(near.sum()) >= FEWEST_PIXELS
    where = near if enough else seen
    levels: Floats = np.array(POINTS)
    samples = None if result.samples is None else compared.in_its_place(result.samples)
    distribution = result.pixel_distribution
    everywhere, curve = (
        coverage_curve(
            image, result.mean, std, levels=levels, mask=mask, samples=drawn, distribution=distribution
        )
        for mask, drawn in ((seen, None), (where, samples))
    )
    error, deviation = (result.mean - image)[where], std[where]
    bins = np.array_split(np.argsort(deviation, kind="stable"), min(ERROR_BINS, deviation.size))
    return CalibrationChart(
        levels=POINTS,
        everywhere=everywhere.empirical.tolist(),
        near=curve.empirical.tolist() if enough else [],
        band=list(zip(curve.band.lower.tolist(), curve.band.upper.tolist(), strict=True)),
        error_bins=[width_score(error, deviation, part) for part in bins],
    )


def log_axes(pairs: Sequence[tuple[float, float]]) -> dict[str, Any] | None:
    """Return pairs on two equal logarithmic axes from 0 to 1, and ticks (place, power of ten)."""
    points = [(x, y) for x, y in pairs if x > 0 and y > 0]
    if not points:
        return None
    low = math.floor(math.log10(min(min(p) for p in points)))
    high = max(math.ceil(math.log10(max(max(p) for p in points))), low + 1)
    place = [tuple((math.log10(v) - low) / (high - low) for v in p) for p in points]
    ticks = [((n - low) / (high - low), n) for n in range(low, high + 1)]
    return {"points": place, "ticks": ticks}
