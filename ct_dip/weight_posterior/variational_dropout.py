"""Sparse variational dropout: a prior that lets weights go which the data do not need.

Under the log-uniform prior ``p(|w|) ∝ 1/|w|`` a Gaussian ``N(μ, σ²)`` has a divergence that depends on
``α = σ²/μ²`` alone. Up to a constant (Molchanov, Ashukha and Vetrov, 2017),

    KL ≈ ½ log(1 + 1/α) + k₁ (1 − sigmoid(k₂ + k₃ log α))

which is within 0.03 of the integral. It falls with α: a weight that is noise is pruned. In terms of μ and σ,
not of μ and α, gradients stay small as α grows (additive noise).
"""

import torch
from torch import Tensor

from ct_dip.weight_posterior.mean_field import MeanField
from ct_dip.weight_posterior.potential import Potential

_K1, _K2, _K3 = 0.63576, 1.87320, 1.48695
_PRUNED = 3.0  # log α from which on a weight is pruned: its dropout rate is above 95 %
_LEAST = 1e-16  # μ² of a weight that is zero


def log_uniform(mean: Tensor, log_std: Tensor) -> Tensor:
    """Return ``KL(q‖p)`` of one convolution under the log-uniform prior, (k,) each → scalar."""
    log_alpha = _log_alpha(mean, log_std)
    tail = _K1 * torch.sigmoid(-(_K2 + _K3 * log_alpha))
    return (0.5 * torch.nn.functional.softplus(-log_alpha) + tail).sum()


def prune(potential: Potential, q: MeanField) -> tuple[MeanField, float]:
    """Set pruned weights to zero, without a variance, and return the fraction of weights that are pruned."""
    mean, log_std = q.mean.clone(), q.log_std.clone()
    pruned = torch.zeros_like(mean, dtype=torch.bool)
    for where in potential.slices.values():
        pruned[where] = _log_alpha(mean[where], log_std[where]) > _PRUNED
    mean[pruned], log_std[pruned] = 0.0, -torch.inf
    weights = sum(where.stop - where.start for where in potential.slices.values())
    return MeanField(mean, log_std), float(pruned.sum()) / weights


def _log_alpha(mean: Tensor, log_std: Tensor) -> Tensor:
    return 2 * log_std - (mean.square() + _LEAST).log()
