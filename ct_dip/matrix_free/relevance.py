"""`ct_dip.posterior.relevance` by products: pixels where the sinogram contradicts the model.

``q = Bᵀ K⁻¹ r`` is a solve. ``s_j = (Bᵀ K⁻¹ B)_jj`` is estimated for all pixels from sinograms r' of the
model, ``E (Bᵀ K⁻¹ r')²_j = s_j``, and computed for the few pixels that look most suspicious.
"""

import torch
from torch import Tensor

from ct_dip.matrix_free.conditional import Conditional
from ct_dip.posterior.relevance import FALSE_SPOTS, SPOTS, neighbourhood, threshold

_PROBES = 64
_TOGETHER = 16  # of them
_SUSPECTS = 5  # pixels that are looked at exactly, since the estimate is off by a tenth


def relevant_pixels(posterior: Conditional, seed: int = 0) -> Tensor:
    """Own variance of every pixel, (pixels,), float64; zero for nearly all."""
    problem = posterior.problem
    like = problem.jacobian.weights
    generator = torch.Generator().manual_seed(seed)
    limit = threshold(FALSE_SPOTS, problem.pixels)
    residual = problem.residual[:, None].to(like)
    variance = torch.zeros(problem.pixels, dtype=torch.float64)
    spread = torch.zeros_like(variance)
    for _ in range(_PROBES // _TOGETHER):
        seen = problem.back_project(posterior.solve(posterior.sinograms(_TOGETHER, generator)))
        spread += torch.linalg.vector_norm(seen, dim=0, dtype=torch.float64).square() / _PROBES
    spread.clamp_(min=torch.finfo(torch.float64).tiny)
    original = posterior
    for _ in range(SPOTS):
        score = problem.back_project(posterior.solve(residual))[0].double() / spread.sqrt()
        suspects = torch.where(variance > 0, 0.0, score.abs()).topk(min(_SUSPECTS, problem.pixels)).indices
        units = torch.zeros(len(suspects), problem.pixels).to(like)
        units[torch.arange(len(suspects)), suspects] = 1
        columns = problem.project(units)
        solved = posterior.solve(columns).double()
        exact = (columns.double() * solved).sum(dim=0).clamp_min(torch.finfo(torch.float64).tiny)
        q = (solved * residual.double()).sum(dim=0)
        best = int((q.abs() / exact.sqrt()).argmax())
        if abs(q[best]) / exact[best].sqrt() <= limit:
            break
        spot = neighbourhood(variance, int(suspects[best]), problem.jacobian.range_shape)
        spot.clamp_(min=float((q[best] ** 2 / exact[best] - 1) / exact[best]))
        posterior = original.with_pixel_variance(variance)
    return variance
