"""Coverage: how often the truth is inside the interval that the model names.

The central interval of nominal level p is ``mean ± q std``, with ``q = Φ⁻¹((1 + p)/2)`` for Gaussian pixels.
Its empirical coverage is the fraction of pixels with ``|truth − mean| ≤ q std``. Calibrated error bars cover
p of the pixels at every p; overconfident ones cover less, underconfident ones more.

The empty background of a scan is often known almost exactly and outnumbers the object, so coverage of all
pixels says little about the object: look inside and near it as well (`ct_dip.evaluation.near`).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtri

from ct_dip.arrays import Bools, Floats
from ct_dip.data.pixel_distribution import GAUSSIAN, PixelDistribution
from ct_dip.errors import InputError
from ct_dip.evaluation.bands import Band, binomial_band, enough_samples, sample_band
from ct_dip.evaluation.residuals import standardised

CURVE_LEVELS: Floats = np.arange(1, 100) / 100  # at which a curve is drawn


@dataclass(frozen=True, kw_only=True, eq=False)
class CoverageCurve:
    """Nominal against empirical coverage.

    Args:
        levels: nominal, (n,); ``empirical`` the fraction of pixels that is covered, (n,).
        band: where a calibrated model's curve would lie, point by point; see `ct_dip.evaluation.bands`.
        pixels: how many were counted.
    """

    levels: Floats
    empirical: Floats
    band: Band
    pixels: int

    @property
    def calibration_error(self) -> float:
        """Mean over the levels of ``|empirical − nominal|``."""
        return float(np.mean(np.abs(self.empirical - self.levels)))


def coverage(
    truth: Floats,
    mean: Floats,
    std: Floats,
    levels: Floats | Sequence[float] = CURVE_LEVELS,
    mask: Bools | None = None,
    distribution: PixelDistribution = GAUSSIAN,
) -> Floats:
    """Fraction of pixels whose truth is in the central interval of every level, (levels,).

    Args:
        truth: (rows, columns) as ``mean`` and ``std``, in one unit.
        levels: nominal, between 0 and 1, (levels,).
        mask: the pixels that count; all if ``None``.
    """
    levels = np.asarray(levels, dtype=np.float64)
    if not ((levels > 0) & (levels < 1)).all():
        raise InputError("every level of coverage must be between 0 and 1")
    reach = np.abs(distribution.normal_scores(standardised(truth, mean, std, mask)))
    return np.searchsorted(np.sort(reach), ndtri((1 + levels) / 2), side="right") / len(reach)


def coverage_curve(
    truth: Floats,
    mean: Floats,
    std: Floats,
    *,
    levels: Floats = CURVE_LEVELS,
    mask: Bools | None = None,
    samples: Floats | None = None,
    distribution: PixelDistribution = GAUSSIAN,
    probability: float = 0.95,
) -> CoverageCurve:
    """Coverage with its sampling band.

    The band is that of the posterior samples if there are enough of them. Otherwise it is the binomial one,
    which takes pixels as independent. They are not, so it is a lower bound on the width: a curve outside it
    may still belong to a calibrated model.

    Args:
        samples: of the posterior, Gaussian, (n, rows, columns).
        distribution: of (truth − mean)/std. Samples have its ranks, if not its tails, which are all that
            coverage asks for.
        probability: of the band.
    """
    empirical = coverage(truth, mean, std, levels, mask, distribution)
    pixels = truth.size if mask is None else int(np.count_nonzero(mask))
    if samples is not None and enough_samples(len(samples), probability):
        band = sample_band(lambda sample: coverage(sample, mean, std, levels, mask), samples, probability)
    else:
        band = binomial_band(levels, pixels, probability)
    return CoverageCurve(levels=levels, empirical=empirical, band=band, pixels=pixels)
