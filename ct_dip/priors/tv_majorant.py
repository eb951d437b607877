"""Total variation as a Gaussian prior of the image: its half-quadratic majorant at an image f.

With ``w = (|D f|² + ε²)^½`` in every pixel, D f its two differences to neighbours,

    λ TV(x) ≤ ½ xᵀ Dᵀ W D x + const,    W = λ/w,

with the same value and slope at x = f, up to ε. As a measurement it says ``0 = W^½ D x + N(0, I)``.
"""

import torch
from torch import Tensor

from ct_dip.operators.differences import FiniteDifferences


def majorant_weights(image: Tensor, strength: float, smoothing: float, *, isotropic: bool = True) -> Tensor:
    """Return ``λ/√(|D f|² + ε²)`` of every difference, (2, rows, columns); per pixel if isotropic."""
    rows, columns = image.shape
    squares = FiniteDifferences((rows, columns))(image).square()
    if isotropic:
        squares = squares.sum(dim=0, keepdim=True)
    return (strength / torch.sqrt(squares + smoothing**2)).expand(2, rows, columns).contiguous()


def without_pixels(weights: Tensor, pixels: Tensor) -> Tensor:
    """Return W with zeros at all differences of some pixels to their neighbours, (2, rows, columns).

    Args:
        pixels: true where, (pixels,).
    """
    marked = pixels.reshape(weights.shape[1:])
    touching = marked.repeat(2, 1, 1)
    touching[0, :-1] |= marked[1:]
    touching[1, :, :-1] |= marked[:, 1:]
    return weights.masked_fill(touching, 0.0)
