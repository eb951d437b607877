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

_FALSE_SPOTS = 0.05  # expected in an image for which the model is right
_SPOTS = 10  # at most; a model that is wrong in more places is not mended by this


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
    threshold = float(stats.norm.isf(_FALSE_SPOTS / 2 / len(variance)))  # 4 deviations at 28²
    for _ in range(_SPOTS):
        active = variance > 0
        columns = whitened[:, active]
        lower, _ = factorise(measured + (columns * variance[active]) @ columns.T)
        half = torch.linalg.solve_triangular(lower, whitened, upper=False)
        residual = torch.linalg.solve_triangular(lower, model.evidence.residual[:, None], upper=False)
        seen = half.square().sum(dim=0)
        score = (half.T @ residual)[:, 0] / seen.clamp_min(torch.finfo(seen.dtype).tiny).sqrt()
        new = (score.abs() > threshold) & ~active
        if not new.any():
            break
        # The strongest first: what its neighbours show is often its shadow.
        best = int(torch.where(new, score.abs(), 0.0).argmax())
        row, column = divmod(best, shape[1])
        spot = variance.reshape(shape)[max(0, row - 1) : row + 2, max(0, column - 1) : column + 2]
        spot.clamp_(min=float((score[best] ** 2 - 1) / seen[best]))
    return variance
