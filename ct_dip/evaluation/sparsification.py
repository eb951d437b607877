"""Sparsification: does the standard deviation know where the errors are?

Remove the pixels with the largest standard deviation, a fraction f of all, and look at the error of the rest.
It falls with f if the uncertain pixels are the wrong ones. The oracle removes the largest errors first, and
no order falls faster. The area between the two is AUSE (Ilg et al. 2018), here relative to the error of all
pixels: 0 for an oracle. Even a perfect model does not reach 0, since it knows the spread of an error, not the
error itself; `Sparsification.expected` is its curve, and `Sparsification.ause_of_no_knowledge` the other end.
The curve depends on the order of the deviations, not on their size: that is the business of coverage.
"""

import math
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from ct_dip.arrays import Bools, Floats
from ct_dip.data.pixel_distribution import GAUSSIAN, PixelDistribution
from ct_dip.errors import InputError
from ct_dip.evaluation.pixels import errors_and_stds

Measure = Literal["mae", "rmse"]


@dataclass(frozen=True, kw_only=True, eq=False)
class Sparsification:
    """Error of the pixels that remain, after k = 0 … n − 1 of n were removed; each curve is (n,).

    Args:
        removed: fractions ``k/n``.
        error: when the most uncertain are removed; ``oracle`` when the largest errors are.
        expected: of the model itself: what ``error`` would be on average if its deviations were right.
    """

    removed: Floats
    error: Floats
    oracle: Floats
    expected: Floats
    measure: Measure

    @property
    def ause(self) -> float:
        """``∫ (error − oracle) df / error(0)``; 0 if there is no error at all."""
        return self._area(self.error)

    @property
    def ause_of_no_knowledge(self) -> float:
        """The same for pixels removed at random, whose error stays where it is."""
        return self._area(np.full_like(self.error, self.error[0]))

    def _area(self, curve: Floats) -> float:
        return float(np.mean(curve - self.oracle) / self.error[0]) if self.error[0] > 0 else 0.0


class BinnedError(NamedTuple):
    """Pixels in bins of rising standard deviation; each field is (bins,)."""

    std: Floats  # mean standard deviation
    error: Floats  # mean absolute error; E|z| · std for a calibrated model
    standard_error: Floats  # of that mean, if pixels were independent
    pixels: np.ndarray


def sparsification(
    truth: Floats,
    mean: Floats,
    std: Floats,
    *,
    mask: Bools | None = None,
    measure: Measure = "mae",
    distribution: PixelDistribution = GAUSSIAN,
) -> Sparsification:
    """The sparsification curve and its oracle.

    Pixels of equal deviation are in no order; each counts with the mean error of its equals, which is what
    a random order among them gives on average.

    Args:
        measure: ``mae``, the mean absolute error; ``rmse``, the root of the mean square.
        distribution: of (truth − mean)/std, for what the model expects.
    """
    if measure not in ("mae", "rmse"):
        raise InputError(f"measure {measure!r} is not known; use 'mae' or 'rmse'")
    error, deviation = errors_and_stds(truth, mean, std, mask)
    power = 1 if measure == "mae" else 2
    loss = np.abs(error) ** power
    _, group = np.unique(deviation, return_inverse=True)
    shared = np.bincount(group, loss) / np.bincount(group)  # by rising deviation
    factor = distribution.mean_absolute if measure == "mae" else 1.0
    by_std, oracle, expected = (
        _mean_of_rest(losses) ** (1 / power)
        for losses in (shared[np.sort(group)], np.sort(loss), factor * np.sort(deviation) ** power)
    )
    return Sparsification(
        removed=np.arange(len(loss)) / len(loss),
        error=by_std,
        oracle=oracle,
        expected=expected,
        measure=measure,
    )


def error_by_std(
    truth: Floats, mean: Floats, std: Floats, *, mask: Bools | None = None, bins: int = 12
) -> BinnedError:
    """Mean absolute error against standard deviation, in bins of equally many pixels.

    Args:
        bins: at most; never more than pixels.
    """
    if bins < 1:
        raise InputError(f"bins {bins} must be at least 1")
    error, deviation = errors_and_stds(truth, mean, std, mask)
    order = np.argsort(deviation, kind="stable")
    parts = np.array_split(order, min(bins, len(order)))
    size = np.abs(error)
    return BinnedError(
        np.array([deviation[part].mean() for part in parts]),
        np.array([size[part].mean() for part in parts]),
        np.array([size[part].std() / math.sqrt(len(part)) for part in parts]),
        np.array([len(part) for part in parts]),
    )


def _mean_of_rest(losses: Floats) -> Floats:
    """Mean of all but the last k, for k = 0 … n − 1."""
    return (np.cumsum(losses) / np.arange(1, len(losses) + 1))[::-1]
