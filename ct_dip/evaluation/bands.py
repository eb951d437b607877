"""How far a curve may stray from its expectation if the model is right.

Errors of neighbouring pixels are correlated, so an image counts for fewer observations than it has pixels.
A band that assumes independent pixels is therefore narrower than the honest one: leaving it proves little.
Samples of the posterior have that correlation, as the model sees it, and give the band without a formula.
"""

import math
from collections.abc import Callable
from typing import Literal, NamedTuple

import numpy as np
from scipy.stats import binom

from ct_dip.arrays import Floats
from ct_dip.errors import InputError


class Band(NamedTuple):
    """Where a calibrated model's curve lies, point by point, with the given probability."""

    lower: Floats
    upper: Floats
    source: Literal["samples", "independent pixels"]


def enough_samples(count: int, probability: float = 0.95) -> bool:
    """Whether so many samples can give a band: 39 for 95 %, whose ends are then the extremes."""
    return _rank(count, probability) > 0


def sample_band(statistic: Callable[[Floats], Floats], samples: Floats, probability: float = 0.95) -> Band:
    """The band of a statistic of the truth, with every sample of the posterior in the truth's place.

    If the model is right, truth and samples are exchangeable, so the truth's value is equally likely to
    have any rank among n + 1. With ``k = ⌊(n + 1)(1 − probability)/2⌋`` the k-th smallest and k-th largest of
    the samples' values then enclose it with at least the stated probability, whatever the correlation of the
    pixels. This holds at every point of the curve by itself, not for all at once. A mask that was made from
    the truth breaks the exchange a little.

    Args:
        statistic: of a truth, (rows, columns) → (points,).
        samples: of the posterior, (n, rows, columns).
    """
    _check(probability)
    if not enough_samples(len(samples), probability):
        raise InputError(
            f"{len(samples)} samples cannot give a band of {probability:.0%}; draw more or use binomial_band"
        )
    curves = np.sort([statistic(sample) for sample in samples], axis=0)  # (n, points)
    k = _rank(len(samples), probability)
    return Band(curves[k - 1], curves[-k], "samples")


def binomial_band(expected: Floats, pixels: int, probability: float = 0.95) -> Band:
    """The band of a fraction of pixels if pixels were independent: a lower bound on the true width.

    The count of pixels is then Binomial(pixels, expected), of which these are the quantiles.

    Args:
        expected: fraction if the model is right, (points,).
    """
    _check(probability)
    tail = (1 - probability) / 2
    lower, upper = (binom.ppf(p, pixels, expected) / pixels for p in (tail, 1 - tail))
    return Band(lower, upper, "independent pixels")


def _rank(samples: int, probability: float) -> int:
    return math.floor((samples + 1) * (1 - probability) / 2 + 1e-9)  # 20 · 0.05 is not quite 1


def _check(probability: float) -> None:
    if not 0 < probability < 1:
        raise InputError(f"probability {probability} must be between 0 and 1")
