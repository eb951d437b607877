"""The result of every inference regime, in units of the network's O(1) image and of the stated noise."""

from typing import NamedTuple

from torch import Tensor

from ct_dip.evidence.fit import EvidenceFit
from ct_dip.posterior.certificate import Certificate
from ct_dip.posterior.deviations import Deviations


class Inferred(NamedTuple):
    """The posterior of the linear model.

    Args:
        evidence: hyperparameters; ``extra`` those that its search does not hold, by name.
        noise: s², relative to the stated one.
        mean: x*, (pixels,), float64.
        deviations: around the mean.
        sinogram_variance: of ``B x`` under the posterior, (measurements,).
        effective_dimension: of the sinogram, as the prior explains it.
        freed_pixels: how many pixels were freed; see `ct_dip.posterior.relevance`.
        jitter: the largest that a factorisation needed.
        certificate: how much was approximated, and whether everything converged; ``None`` where nothing was.
    """

    evidence: EvidenceFit
    noise: float
    mean: Tensor
    deviations: Deviations
    sinogram_variance: Tensor
    effective_dimension: float
    freed_pixels: int
    jitter: float
    certificate: Certificate | None
    extra: dict[str, float]
