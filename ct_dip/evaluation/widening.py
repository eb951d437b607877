"""How much wider error bars must be, by views that the network did not see.

Features that were fitted to a sinogram explain its noise, too; so its own evidence is too sure of them. Views
that were held out are honest. With errors e_i of their line integrals around the image that is shown, their
variance s_i² under the posterior and the noise v_i, the posterior's covariance is multiplied by the a of

    max_a Σ_i log N(e_i; 0, a s_i² + v_i).

Rays are taken one by one: what they share would need a covariance that is right already. A line integral sums
over many pixels, so a makes up for errors that many pixels share, which single pixels hardly show.
"""

import math
from collections.abc import Sequence

import numpy as np
from scipy.optimize import minimize_scalar

from ct_dip.evaluation.heldout import ViewResiduals

_LOG_RANGE = (-1.0, 6.0)  # of a: few rays may ask for less than the posterior's own width, but not much less


def fit_widening(parts: Sequence[ViewResiduals]) -> float:
    """Return a, the factor on the posterior's covariance that explains held-out views best."""
    squares = np.concatenate([part.error.ravel() ** 2 for part in parts])
    signal = np.concatenate([np.mean(part.spread**2, axis=0).ravel() for part in parts])
    noise = np.concatenate([part.fitted_noise.ravel() for part in parts])

    def cost(log_factor: float) -> float:
        variance = math.exp(log_factor) * signal + noise
        return float(np.mean(squares / variance + np.log(variance)))

    return math.exp(minimize_scalar(cost, bounds=_LOG_RANGE, method="bounded").x)
