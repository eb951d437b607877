"""Images that were drawn from a posterior of the weights, with what no weight can show."""

from collections.abc import Iterable

import torch
from torch import Tensor

from ct_dip.data.prediction import Prediction
from ct_dip.operators.whitened import Whitened
from ct_dip.priors.complement import published_floor


def drawn_prediction(
    images: Iterable[Tensor], whitened: Whitened, scale: float, *, mean: Tensor | None = None, seed: int = 0
) -> Prediction:
    """Make the prediction of some draws: their mean, or one that is known, and deviations around it.

    Where the output of a network saturates, no change of its weights changes the image, and draws are all
    alike. So every pixel gets the independent variance of Antorán et al. (2023), σ² times the mean of the
    diagonal of (AᵀA)⁺, cut at 100 singular vectors; see `ct_dip.priors.complement.published_floor`.

    Args:
        images: batches of draws, (n, rows, columns), units of the O(1) image.
        whitened: A in units of the noise, on the O(1) image.
        scale: 1/mm per unit of the O(1) image.
        mean: (rows, columns), units of the O(1) image; that of the draws if ``None``.
        seed: of the independent pixels.
    """
    drawn = torch.cat(list(images)).cpu().double()
    center = drawn.mean(dim=0) if mean is None else mean.cpu().double()
    floor = float(published_floor(whitened, whitened.inverse.device).variance[0]) ** 0.5
    degrees = max(1, len(drawn) - (mean is None))
    variance = (drawn - center).square().sum(dim=0) / degrees + floor**2
    noise = torch.randn(drawn.shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    std = scale * variance.sqrt().numpy()
    return Prediction(
        mean=(scale * center).float().numpy(),
        std=std,
        std_error=std / (2 * len(drawn)) ** 0.5,
        samples=(scale * (drawn + floor * noise)).float().numpy(),
        diagnostics={"floor_std": scale * floor},
    )
