"""The evidence of a sinogram, given pseudo-measurements of the image: ``p(y | 0) = p(y, 0)/p(0)``."""

from dataclasses import dataclass

import torch
from torch import Tensor

from ct_dip.evidence.marginal import CovarianceSum
from ct_dip.evidence.model import EvidenceModel


@dataclass(frozen=True, kw_only=True, eq=False)
class ConditionalEvidence:
    """``log p(y, 0 | θ) − log p(0 | θ) + log p(θ)``, as a function of the prior's parameters in θ.

    Args:
        joint: the evidence of sinogram and pseudo-measurements.
        alone: that of the pseudo-measurements.
        start: θ that the evidence of the sinogram has chosen; noise and complement stay there.
    """

    joint: EvidenceModel
    alone: EvidenceModel
    start: Tensor

    @property
    def names(self) -> tuple[str, ...]:
        """Name the parameters in θ."""
        return self.joint.names

    @property
    def bounds(self) -> tuple[Tensor, Tensor]:
        """(lower, upper) of θ, which are equal for parameters that stay."""
        count = len(self.joint.prior.start)
        lower, upper = (torch.cat([bound[:count], self.start[count:]]) for bound in self.joint.bounds)
        return lower, upper

    @property
    def matrices(self) -> CovarianceSum:
        """Those of the joint evidence."""
        return self.joint.matrices

    def log_evidence(self, theta: Tensor) -> Tensor:
        """Compute ``log p(y | 0, θ)``; differentiable."""
        return self.joint.log_evidence(theta) - self.alone.log_evidence(theta)

    def log_hyperprior(self, theta: Tensor) -> Tensor:
        """Compute ``log p(θ)`` up to a constant."""
        return self.joint.log_hyperprior(theta)

    def objective(self, theta: Tensor) -> Tensor:
        """Compute what the fit maximises."""
        return self.log_evidence(theta) + self.log_hyperprior(theta)
