"""Figures of single pixels: errors, coverage, densities, CRPS, ENCE, sparsification, largest residuals."""

import math

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from ct_dip.arrays import Bools, Floats
from ct_dip.data.pixel_distribution import PixelDistribution
from ct_dip.data.scores import LEVELS, Mean, PartScores, WidthScore
from ct_dip.evaluation.clusters import clustered_mean, root
from ct_dip.evaluation.residuals import standardised
from ct_dip.evaluation.sparsification import sparsification

_ENCE_BINS = 10
_ENCE_PIXELS = 10  # that a bin has at least


def pixel_scores(
    truth: Floats,
    mean: Floats,
    std: Floats | None,
    part: Bools,
    tiles: NDArray[np.intp],
    distribution: PixelDistribution,
) -> PartScores:
    """Return the figures of the pixels in a part, (rows, columns), which has one pixel at least.

    Args:
        std: widened by the noise of a reference; ``None`` leaves out what needs it.
        tiles: number of every pixel's cluster, (rows, columns); see `ct_dip.evaluation.clusters`.
        distribution: of (truth − mean)/std.
    """
    error, clusters = np.asarray(truth, dtype=np.float64)[part] - mean[part], tiles[part]

    def average(values: Floats) -> Mean:
        found = clustered_mean(values, clusters)
        assert found is not None  # truth and mean are finite
        return found

    squared = root(average(error**2))
    assert squared is not None
    errors = PartScores(pixels=len(error), mae=average(np.abs(error)), rmse=squared)
    if std is None:
        return errors
    z = np.abs(standardised(truth, mean, std, part))
    deviation, scores = std[part], np.abs(distribution.normal_scores(z))
    curve = sparsification(truth, mean, std, mask=part)
    order, quarter = np.argsort(deviation, kind="stable"), max(1, len(error) // 4)
    return PartScores(
        pixels=errors.pixels,
        mae=errors.mae,
        rmse=errors.rmse,
        coverage={level: average((scores <= ndtri((1 + level) / 2)).astype(float)) for level in LEVELS},
        log_likelihood=clustered_mean(distribution.log_density(error, deviation), clusters),
        crps=average(distribution.crps(error, deviation)),
        rms_z=root(clustered_mean(z**2, clusters)),
        largest_z=_finite(z.max()),
        z_999=_finite(np.sort(z)[math.ceil(0.999 * len(z)) - 1]),
        ence=ence(error, deviation),
        ause=curve.ause,
        ause_of_no_knowledge=curve.ause_of_no_knowledge,
        narrowest=width_score(error, deviation, order[:quarter]),
        widest=width_score(error, deviation, order[-quarter:]),
    )


def width_score(error: Floats, std: Floats, chosen: NDArray[np.intp]) -> WidthScore:
    """Return the root mean squares of std and of the errors over the chosen pixels."""
    return WidthScore(
        *(math.sqrt(float(np.mean(np.square(part[chosen], dtype=np.float64)))) for part in (std, error))
    )


def ence(error: Floats, std: Floats) -> float | None:
    """Expected normalised calibration error (Levi et al. 2022), a pure number.

    In ten bins of equally many pixels and of rising deviation it is the mean of ``|rmse − rms std|/rms std``:
    ``|1 − 1/k|`` for deviations k times too large. Chance alone gives about ``0.8/√(2n)`` with n independent
    pixels in a bin. ``None`` below ten pixels a bin, or where a bin claims to know its pixels exactly.
    """
    if len(error) < _ENCE_BINS * _ENCE_PIXELS:
        return None
    bins = np.array_split(np.argsort(std, kind="stable"), _ENCE_BINS)
    stated = np.array([math.sqrt(np.mean(std[part] ** 2)) for part in bins])
    actual = np.array([math.sqrt(np.mean(error[part] ** 2)) for part in bins])
    return float(np.mean(np.abs(actual - stated) / stated)) if stated.all() else None


def _finite(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None
