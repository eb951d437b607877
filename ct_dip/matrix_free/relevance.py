"""`ct_dip.posterior.relevance` by products: pixels where the sinogram contradicts the model.

``q = Bᵀ K⁻¹ r`` is a solve. ``s_j = (Bᵀ K⁻¹ B)_jj`` is estimated for all pixels from sinograms r' of the
model, ``E (Bᵀ K⁻¹ r')²_j = s_j``, and computed for the one pixel that looks most suspicious.
"""

import torch
from torch import Tensor

from ct_dip.matrix_free.compressed import Compressed
from ct_dip.posterior.relevance import FALSE_SPOTS, SPOTS, neighbourhood, threshold

_PROBES = 64


def relevant_pixels(posterior: Compressed, seed: int = 0) -> Tensor:
    """Own variance of every pixel, (pixels,), float64; zero for nearly all."""
    problem = posterior.problem
    like = problem.jacobian.weights
    generator = torch.Generator().manual_seed(seed)
    limit = threshold(FALSE_SPOTS, problem.pixels)
    residual = problem.residual[:, None].to(like)
    variance = torch.zeros(problem.pixels, dtype=torch.float64)
    seen = problem.back_project(posterior.solve(posterior.sinograms(_PROBES, generator)))
    spread = seen.double().square().mean(dim=0).clamp_min(torch.finfo(torch.float64).tiny)
    original = posterior
    for _ in range(SPOTS):
        score = problem.back_project(posterior.solve(residual))[0].double() / spread.sqrt()
        best = int(torch.where(variance > 0, 0.0, score.abs()).argmax())
        unit = torch.zeros(1, problem.pixels).to(like)
        unit[0, best] = 1
        column = problem.project(unit)
        solved = posterior.solve(column)
        exact = float((column.double() * solved.double()).sum())
        q = float((solved.double() * residual.double()).sum())
        if exact <= 0 or abs(q) / exact**0.5 <= limit:
            break
        spot = neighbourhood(variance, best, problem.jacobian.range_shape)
        spot.clamp_(min=(q**2 / exact - 1) / exact)
        posterior = original.with_pixel_variance(variance)
    return variance
