"""TV-PredCP: a prior over tap correlation lengths that prefers images of small total variation.

Under the prior of block b, with the other blocks at w̃, every difference of neighbouring pixels is Gaussian:
mean ``μ = D (f(w̃) − J_b w̃_b)``, variance ``v = Σ_d c_{b,d} T_{b,d}``. So the expected total variation has a
closed form, a sum of folded normal means, ``κ_b = Σ E|N(μ, v)|``,
``E|N(μ, v)| = √(2v/π) exp(−μ²/2v) + μ erf(μ/√2v)``. The prior is exponential in κ, carried over to ℓ_b by the
change of variables:
``log p(ℓ_b) = log λ − λ κ_b + log |∂κ_b/∂ℓ_b|`` (Nalisnick et al. 2021; Antorán et al. 2022).
"""

import math

import torch
from torch import Tensor

from ct_dip.priors.weights import BlockPrior

_LEAST_SLOPE = 1e-30  # of κ in ℓ


def folded_normal_mean(mean: Tensor, variance: Tensor) -> Tensor:
    """``E|N(μ, v)|``, elementwise; ``|μ|`` where v = 0, with a gradient that is finite there."""
    variance = variance.clamp_min(torch.finfo(variance.dtype).tiny)
    root = (2 * variance).sqrt()
    ratio = mean / root
    return root / math.sqrt(math.pi) * torch.exp(-ratio.square()) + mean * torch.erf(ratio)


class TvPredCp:
    """``Σ_b log p(ℓ_b)`` for the 3×3 blocks of a prior.

    Args:
        prior: whose lengths it is about.
        means: μ of every block, (blocks, differences).
        variances: T of every term, (terms, differences), in the order of the prior's coefficients.
        strength: λ, per unit of total variation of the O(1) image.
    """

    def __init__(self, prior: BlockPrior, means: Tensor, variances: list[Tensor], strength: float) -> None:
        self.prior, self.means, self.variances, self.strength = prior, means, variances, strength

    def expected_tv(self, theta: Tensor, block: int) -> Tensor:
        """κ_b."""
        coefficients = self.prior.block_coefficients(theta, block).to(self.variances[block])
        return folded_normal_mean(self.means[block], coefficients @ self.variances[block]).sum().to(theta)

    def log_density(self, theta: Tensor) -> Tensor:
        """``Σ_b log λ − λ κ_b + log |∂κ_b/∂ℓ_b|``, differentiable in θ."""
        if not theta.requires_grad:
            theta = theta.detach().requires_grad_()
        total = theta.new_zeros(())
        _, log_lengths = self.prior.split(theta)
        first = len(self.prior.blocks)
        with torch.enable_grad():
            for place, block in enumerate(self.prior.wide):
                kappa = self.expected_tv(theta, block)
                (slope,) = torch.autograd.grad(kappa, theta, create_graph=True)
                by_length = slope[first + place] / log_lengths[place].exp()
                # Where ℓ has no effect the density is zero; a tiny one keeps the search finite.
                jacobian = by_length.abs().clamp_min(_LEAST_SLOPE)
                total = total + math.log(self.strength) - self.strength * kappa + jacobian.log()
        return total
