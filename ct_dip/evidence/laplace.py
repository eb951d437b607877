"""Hyperparameter uncertainty: a Laplace approximation of ``p(θ | y)`` and a few points that represent it."""

import torch
from torch import Tensor

from ct_dip.evidence.fit import EvidenceFit
from ct_dip.evidence.model import EvidenceModel

_STEP = 1e-2  # of the central differences, in log-parameters
# Largest standard deviation of a log-parameter: directions that the data do not see stay near the optimum.
_WIDEST = 1.5


def hyperparameter_points(model: EvidenceModel, fit: EvidenceFit) -> Tensor:
    """Return 2n points of equal weight with the moments of the Laplace approximation, (2n, n).

    ``p(θ | y) ≈ N(θ̂, H⁻¹)``, H the Hessian of the negative objective by differences of its gradient; the
    points ``θ̂ ± √n λ_i^½ v_i`` along the eigenvectors of H⁻¹ are the third-degree cubature rule.
    """
    size = len(fit.theta)
    lower, upper = model.bounds
    hessian = torch.stack([_difference(model, fit.theta, i) for i in range(size)])
    values, vectors = torch.linalg.eigh(-0.5 * (hessian + hessian.T))
    deviations = values.clamp_min(1 / _WIDEST**2).rsqrt()
    steps = size**0.5 * (vectors * deviations).T
    return torch.cat([fit.theta + steps, fit.theta - steps]).clamp(lower, upper)


def _difference(model: EvidenceModel, theta: Tensor, index: int) -> Tensor:
    gradients = []
    for sign in (1, -1):
        moved = theta.clone()
        moved[index] += sign * _STEP
        moved.requires_grad_()
        gradients.append(torch.autograd.grad(model.objective(moved), moved)[0])
    return (gradients[0] - gradients[1]) / (2 * _STEP)
