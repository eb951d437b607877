"""Laplace's approximation of the weights' posterior, ``N(w̃, (H + δI)⁻¹)`` block by block.

H is the generalised Gauss-Newton matrix of the likelihood, or an approximation of it that couples no two
blocks: the diagonal, Kronecker factors, or some of the weights alone. Whatever it is, a block has
``H = Q diag(λ) Qᵀ``, and everything follows from λ and Q: draws, and the marginal likelihood

    log p(y) ≈ log p(y|w̃) + Σ_blocks ½ (k log δ − δ ‖w̃‖² − Σ_i log(λ_i + δ))

of its k weights' prior ``N(0, I/δ)`` (MacKay, 1992; Immer et al., 2021). Every block has its own δ: layers
can be rescaled against each other without any effect on the image, and predictions must not depend on that.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ct_dip.weight_posterior.linearised_scan import LinearisedScan

_DECADES = 20  # below its upper bound in which δ is searched
_BISECTIONS = 100


@dataclass(frozen=True, kw_only=True, eq=False)
class LaplaceBlock:
    """Weights that the posterior couples with no others.

    Args:
        index: of the weights among all, (k,).
        weights: w̃ of the block in units in which its prior is N(0, I/δ), (k,).
        eigenvalues: λ of H in these units, (k,), float64.
        to_weights: takes coordinates along the eigenvectors, (n, k), to the weights: Q, and the units.
    """

    index: Tensor
    weights: Tensor
    eigenvalues: Tensor
    to_weights: Callable[[Tensor], Tensor]

    def precision(self) -> float:
        """Return δ, at which the marginal likelihood is largest; see `prior_precision`."""
        return prior_precision(self.eigenvalues, float(self.weights.double().square().sum()))

    def variances(self) -> Tensor:
        """Return ``1/(λ + δ)``, the posterior variances along the eigenvectors, (k,)."""
        return 1 / (self.eigenvalues + self.precision())

    def log_evidence(self) -> float:
        """Return the block's part of the log marginal likelihood."""
        precision = self.precision()
        squared = precision * float(self.weights.double().square().sum())
        curvature = float((self.eigenvalues / precision).log1p().sum())
        return -0.5 * (squared + curvature)


def prior_precision(eigenvalues: Tensor, squared_norm: float) -> float:
    """Return δ, where ``δ ‖w̃‖² = Σ λ/(λ + δ)``: the number of weights that the data determine.

    The left side grows with δ and the right side falls, so that there is one solution, which is at most
    ``k/‖w̃‖²``.
    """
    upper = math.log(len(eigenvalues) / max(squared_norm, 1e-300))
    lower = upper - _DECADES * math.log(10)
    for _ in range(_BISECTIONS):
        middle = 0.5 * (lower + upper)
        determined = float((eigenvalues / (eigenvalues + math.exp(middle))).sum())
        if math.exp(middle) * squared_norm < determined:
            lower = middle
        else:
            upper = middle
    return math.exp(upper)


def log_marginal_likelihood(scan: LinearisedScan, blocks: Sequence[LaplaceBlock]) -> float:
    """Return ``log p(y)`` in nats, by the formula of the module."""
    residual = scan.residual
    likelihood = -0.5 * float(residual.square().sum()) - scan.log_noise
    likelihood -= 0.5 * len(residual) * math.log(2 * math.pi)
    return likelihood + sum(block.log_evidence() for block in blocks)


def draw_images(
    scan: LinearisedScan, blocks: Sequence[LaplaceBlock], count: int, seed: int = 0
) -> Iterator[Tensor]:
    """Yield draws of ``f(w̃) + J δw``, (n, rows, columns) in units of the O(1) image, ``count`` in all."""
    jacobian = scan.jacobian
    generator = torch.Generator().manual_seed(seed)
    deviations = [block.variances().sqrt() for block in blocks]
    for first in range(0, count, jacobian.chunk):
        change = jacobian.weights.new_zeros(min(jacobian.chunk, count - first), *jacobian.domain_shape)
        for block, deviation in zip(blocks, deviations, strict=True):
            normal = torch.randn(len(change), len(deviation), generator=generator)
            change[:, block.index] = block.to_weights(normal.to(deviation) * deviation).to(change)
        yield jacobian.image + jacobian(change)
