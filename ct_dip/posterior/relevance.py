"""Pixels where the sinogram contradicts the model, by automatic relevance determination.

A network can be blind somewhere: where its output saturates, J is zero, and no weight lets the image change,
whatever the data say. For a pixel j that got an own independent variance v the evidence would be largest at
``v = (q² − s)/s²``, ``q = b_jᵀK⁻¹r``, ``s = b_jᵀK⁻¹b_j`` (Tipping & Faul 2003), and ``q/√s`` is a standard
normal if the model is right. So a pixel beyond a few deviations gets that variance, and so do its neighbours,
since few objects are a single pixel wide; then the data decide their values.
"""

import torch
from scipy import stats
from torch import Tensor

from ct_dip.posterior.conditional import Conditional

FALSE_ALARMS = 0.05  # expected in an image for which the model is right
MOST_FREED = 10  # places; a model that is wrong in more of them is not mended by this
_SUSPECTS = 5  # pixels that are looked at exactly, since s may be an estimate


def freed_pixel_variance(posterior: Conditional, seed: int = 0) -> Tensor:
    """Return own variances, (pixels,), float64, in units of the O(1) image; zero for nearly all."""
    problem, original = posterior.problem, posterior
    tiny = torch.finfo(torch.float64).tiny
    limit = threshold(FALSE_ALARMS, problem.pixels)
    residual = posterior.residual
    variance = torch.zeros_like(problem.prior_mean)
    information = posterior.pixel_information(seed).clamp_min(tiny)
    for _ in range(MOST_FREED):
        score = problem.back_project(posterior.solve(residual))[0].double() / information.sqrt()
        # The strongest first: what its neighbours show is often its shadow.
        suspects = torch.where(variance > 0, 0.0, score.abs()).topk(min(_SUSPECTS, problem.pixels)).indices
        seen = problem.project(problem.unit_images(suspects))
        solved = posterior.solve(seen).double()
        exact = (seen.double() * solved).sum(dim=1).clamp_min(tiny)
        q = (solved * residual.double()).sum(dim=1)
        best = int((q.abs() / exact.sqrt()).argmax())
        if abs(q[best]) / exact[best].sqrt() <= limit:
            break
        place = neighbourhood(variance, int(suspects[best]), problem.jacobian.range_shape)
        place.clamp_(min=float((q[best] ** 2 / exact[best] - 1) / exact[best]))
        posterior = original.with_pixel_variance(variance)
    return variance


def threshold(false_alarms: float, pixels: int) -> float:
    """Return the deviation that a given number of pixels of a right model exceed; 4 at 28²."""
    return float(stats.norm.isf(false_alarms / 2 / pixels))


def neighbourhood(values: Tensor, pixel: int, shape: tuple[int, int]) -> Tensor:
    """Return a view of a pixel and its neighbours, (3, 3) inside the image."""
    row, column = divmod(pixel, shape[1])
    return values.reshape(shape)[max(0, row - 1) : row + 2, max(0, column - 1) : column + 2]
