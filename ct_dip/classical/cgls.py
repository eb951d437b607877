"""Conjugate gradients on the least-squares problem ``min_x ‖W^½ (Ax − y)‖²``."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from ct_dip.operators.linear_map import LinearMap


@dataclass(frozen=True, kw_only=True)
class CglsResult:
    """The result of `cgls`."""

    image: Tensor  # (rows, columns)
    residuals: list[float]  # ‖W^½ (Ax − y)‖ after every step, the start first
    reason: str  # why it stopped


def cgls(
    transform: LinearMap,
    sinogram: Tensor,
    *,
    weights: Tensor | None = None,
    discrepancy: float | None = None,
    tolerance: float = 1e-4,
    max_iterations: int = 200,
    report: Callable[[int, float], None] | None = None,
) -> CglsResult:
    """Björck's CGLS from zero, regularised by stopping.

    Args:
        weights: of the measurements, inverse variances up to a factor; 1 if not given.
        discrepancy: stop when the weighted residual norm is down to this, its expected value
            under the noise (Morozov); going on would fit the noise.
        tolerance: stop when ``‖Aᵀ W r‖`` is down to this part of its first value.
        report: called after every step with (step, residual norm).
    """
    root = torch.ones_like(sinogram) if weights is None else weights.sqrt()
    # Weights of any size: the largest is 1 while iterating, so that no square overflows.
    unit = float(root.max())
    root = root / unit
    residual = root * sinogram
    x = sinogram.new_zeros(transform.domain_shape)
    gradient = transform.T(root * residual)
    direction = gradient
    energy = first_energy = torch.sum(gradient**2)
    residuals = [unit * float(torch.linalg.vector_norm(residual))]
    reason = f"{max_iterations} iterations"
    for iteration in range(1, max_iterations + 1):
        if discrepancy is not None and residuals[-1] <= discrepancy:
            reason = "residual at noise level"
            break
        if energy <= tolerance**2 * first_energy:
            reason = "gradient below tolerance"
            break
        step = root * transform(direction)
        alpha = energy / torch.sum(step**2)
        x = x + alpha * direction
        residual = residual - alpha * step
        gradient = transform.T(root * residual)
        previous, energy = energy, torch.sum(gradient**2)
        direction = gradient + (energy / previous) * direction
        residuals.append(unit * float(torch.linalg.vector_norm(residual)))
        if report is not None:
            report(iteration, residuals[-1])
    return CglsResult(image=x, residuals=residuals, reason=reason)
