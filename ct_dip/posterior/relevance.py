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

from ct_dip.evidence.marginal import factorise
from ct_dip.posterior.exact import LinearModel, prior_covariance

FALSE_SPOTS = 0.05  # expected in an image for which the model is right
SPOTS = 10  # at most; a model that is wrong in more places is not mended by this


def relevant_pixels(model: LinearModel, theta: Tensor, shape: tuple[int, int]) -> Tensor:
    """Own variance of every pixel, (pixels,), in units of the O(1) image; zero for nearly all.

    Args:
        shape: of the image.
    """
    prior = prior_covariance(model, theta)
    _, _, noise = model.evidence.split(theta)
    whitened = model.whitened
    measured = whitened @ prior @ whitened.T
    measured.diagonal().add_(float(noise.exp()))
    variance = torch.zeros(whitened.shape[1], dtype=torch.float64)
    limit = threshold(FALSE_SPOTS, len(variance))
    for _ in range(SPOTS):
        active = variance > 0
        columns = whitened[:, active]
        lower, _ = factorise(measured + (columns * variance[active]) @ columns.T)
        half = torch.linalg.solve_triangular(lower, whitened, upper=False)
        residual = torch.linalg.solve_triangular(lower, model.evidence.residual[:, None], upper=False)
        seen = half.square().sum(dim=0)
        score = (half.T @ residual)[:, 0] / seen.clamp_min(torch.finfo(seen.dtype).tiny).sqrt()
        new = (score.abs() > limit) & ~active
        if not new.any():
            break
        # The strongest first: what its neighbours show is often its shadow.
        best = int(torch.where(new, score.abs(), 0.0).argmax())
        spot = neighbourhood(variance, best, shape)
        spot.clamp_(min=float((score[best] ** 2 - 1) / seen[best]))
    return variance


def threshold(false_spots: float, pixels: int) -> float:
    """Deviations that so many pixels of a right model exceed on average; 4 at 28²."""
    return float(stats.norm.isf(false_spots / 2 / pixels))


def neighbourhood(values: Tensor, pixel: int, shape: tuple[int, int]) -> Tensor:
    """A view of a pixel and its neighbours, (3, 3) inside of the image."""
    row, column = divmod(pixel, shape[1])
    return values.reshape(shape)[max(0, row - 1) : row + 2, max(0, column - 1) : column + 2]
