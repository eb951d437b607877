"""Standardised residuals ``z = (truth − mean)/std``: standard normal if the error bars are right.

A wider histogram means overconfidence, a narrower one underconfidence, and heavy tails are single pixels that
the model is wrong about and does not know. Pixels are correlated: see the caveat in `evaluation.bands`.
"""

from typing import NamedTuple

import numpy as np
from scipy.stats import beta, norm

from ct_dip.arrays import Bools, Floats
from ct_dip.errors import InputError
from ct_dip.evaluation.bands import Band
from ct_dip.evaluation.pixels import errors_and_stds


class ResidualHistogram(NamedTuple):
    """Density of z in bins, against N(0, 1)."""

    edges: Floats  # (bins + 1,)
    density: Floats  # (bins,), of all z, so it sums to 1 − outside
    normal: Floats  # (bins,), mean of the normal density over every bin
    outside: float  # fraction of z beyond the edges


class QuantilePairs(NamedTuple):
    """Points of a Q-Q plot, in rising order."""

    normal: Floats  # quantiles of N(0, 1), (points,)
    observed: Floats  # those of z
    probabilities: Floats  # at which both are taken


def standardised(truth: Floats, mean: Floats, std: Floats, mask: Bools | None = None) -> Floats:
    """``z = (truth − mean)/std`` of the pixels inside the mask, (pixels,).

    Where the deviation is 0, z is 0 for a right value and infinite for a wrong one.
    """
    error, deviation = errors_and_stds(truth, mean, std, mask)
    certain = np.where(error == 0, 0.0, np.copysign(np.inf, error))
    return np.divide(error, deviation, out=certain, where=deviation > 0)


def residual_histogram(z: Floats, *, limit: float = 5.0, bins: int = 40) -> ResidualHistogram:
    """The histogram of z between ``−limit`` and ``limit``, and what N(0, 1) would give in the same bins."""
    edges = np.linspace(-limit, limit, bins + 1)
    counts, _ = np.histogram(z, edges)
    normal = np.diff(norm.cdf(edges)) / np.diff(edges)
    outside = 1 - counts.sum() / z.size
    return ResidualHistogram(edges, counts / z.size / np.diff(edges), normal, float(outside))


def quantile_pairs(z: Floats, *, points: int = 300) -> QuantilePairs:
    """Order statistics of z against the normal quantiles ``Φ⁻¹((i − ½)/n)`` of their ranks i = 1 … n.

    Args:
        points: at most so many, spread evenly along the axis of normal quantiles.
    """
    if z.size == 0:
        raise InputError("there are no residuals")
    ranks = _ranks(z.size, points)
    probabilities = (ranks - 0.5) / z.size
    return QuantilePairs(norm.ppf(probabilities), np.sort(z, axis=None)[ranks - 1], probabilities)


def quantile_band(pixels: int, *, points: int = 300, probability: float = 0.95) -> Band:
    """Where the points of `quantile_pairs` lie if z is N(0, 1) and pixels are independent.

    They are not, so this is a lower bound on the width. The i-th smallest of n uniform numbers has the
    distribution Beta(i, n − i + 1), and Φ⁻¹ makes it normal.
    """
    ranks, tail = _ranks(pixels, points), (1 - probability) / 2
    lower, upper = (norm.ppf(beta.ppf(p, ranks, pixels - ranks + 1)) for p in (tail, 1 - tail))
    return Band(lower, upper, "independent pixels")


def _ranks(count: int, points: int) -> np.ndarray:
    end = norm.ppf(1 - 0.5 / count)
    positions = norm.cdf(np.linspace(-end, end, max(points, 2))) * count + 0.5
    return np.unique(np.clip(np.rint(positions).astype(int), 1, count))
