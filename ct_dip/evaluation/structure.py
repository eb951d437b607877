"""Structure in the residuals of a sinogram: what their size alone does not show."""

import math
from typing import NamedTuple

import numpy as np
from scipy.special import ndtri

from ct_dip.arrays import Floats

_FALSE_ALARMS = 1e-3  # stripes in sinograms of white noise


class Structure(NamedTuple):
    """What distinguishes residuals from white noise, with the standard error that white noise has.

    Args:
        correlation: of residuals of neighbouring detectors; 0 for white noise.
        drift: root mean square of the views' mean residuals beyond what chance gives means of so many
            detectors, relative to the residuals; 0 for white noise.
        drift_error: the drift whose square is one standard error of drift².
        stripe: the largest mean residual of a detector over all views, as an absolute value, relative to the
            residuals.
        stripe_chance: the stripe that white noise exceeds once in a thousand sinograms.
        stripe_detector: which detector it is.
    """

    correlation: float
    correlation_error: float
    drift: float
    drift_error: float
    stripe: float = 0.0
    stripe_chance: float = 0.0
    stripe_detector: int = 0


def residual_structure(residuals: Floats) -> Structure | None:
    """Return correlation, drift and stripe of standardised residuals z, (views, detectors).

    With z scaled to a mean square of 1, V views and D detectors::

        r  = mean(z[v, d] z[v, d+1]),              standard error 1 / √(V (D − 1))
        a² = mean over v of (mean_d z[v, d])² − c, standard error c √(2/V)
        t  = largest |mean_v z[v, d]| over d,      each Gaussian of deviation 1 / √V

    where ``c = (1 + r) / (1 − r) / D`` for r > 0, else ``1/D``, is the variance that neighbours which
    correlate at r give the mean of a view: they alone are no drift.

    Returns:
        ``None`` if there are fewer than two detectors, or no residuals at all.
    """
    views, detectors = residuals.shape
    z = residuals.astype(np.float64)
    scale = float(np.mean(z**2))
    if detectors < 2 or not scale > 0:
        return None
    correlation = float(np.mean(z[:, 1:] * z[:, :-1])) / scale
    shared = min(max(correlation, 0.0), 0.99)
    chance = (1 + shared) / (1 - shared) / detectors
    excess = float(np.mean(z.mean(axis=1) ** 2)) / scale - chance
    means = np.abs(z.mean(axis=0))  # (detectors,)
    return Structure(
        correlation=correlation,
        correlation_error=1 / math.sqrt(views * (detectors - 1)),
        drift=math.sqrt(max(excess, 0.0)),
        drift_error=math.sqrt(chance * math.sqrt(2 / views)),
        stripe=float(means.max()) / math.sqrt(scale),
        stripe_chance=float(-ndtri(_FALSE_ALARMS / 2 / detectors)) / math.sqrt(views),
        stripe_detector=int(means.argmax()),
    )
