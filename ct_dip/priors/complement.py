"""The complement ``u``: what the tangent space does not span, independent from pixel to pixel.

The image of the linear model is ``h(w) + u``. Without u the covariance is singular, and images that differ
from every ``h(w)``, as every true one does, are impossible. The data hardly see u, so its size is a matter
of prior knowledge:

``slope``: a network that misplaces an edge is wrong where the image changes within a pixel or two, and where
it is between its extremes. With x = f(w̃) relative to its own range, ⟨·⟩ the 3×3 mean, and c the number of
pixels per measurement where that is above one, the deviation is
``1.5 c^½ (⟨x²⟩ − ⟨x⟩²)^½ + ⟨x (1 − x)⟩`` in units of what the noise leaves open in a single pixel, σ/‖A e_j‖;
plus a small floor everywhere. Where an edge lies is the less certain the fewer measurements there are; a
plateau is an average of many pixels.
``white``: ``τ²`` everywhere, by evidence.
``floor``: ``σ_y² mean diag (AᵀA)⁺`` with 100 singular vectors, as published; added to the posterior only.
"""

import math
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812  everybody's name for it
from scipy.sparse.linalg import LinearOperator, eigsh
from torch import Tensor

from ct_dip.arrays import Floats
from ct_dip.operators.linear_map import LinearMap

# A compromise of KMNIST images 50 to 57, HTC 2022 01a and 04c, and generated objects; experiments/README.md.
# In units of σ/‖A e_j‖.
_EDGES = 1.5
_PLATEAUS = 1.0
_FLOOR = 0.03
_DENSE = 0.99  # quantile at the upper end of the image's range: single pixels overshoot
_WHITE_VARIANCE = 1e-4
_WHITE_DEVIATION = 3.0
_FLOOR_VECTORS = 100
_DENSE_SIDE = 2000  # pixels or measurements up to which singular values are those of the matrix


class Complement(NamedTuple):
    """Prior variances of u.

    Args:
        variance: of every pixel of the O(1) image, (pixels,).
        deviation: of the log-normal hyperprior of a common factor that the evidence fits; ``None`` if it
            is fixed.
        in_units_of_noise: whether it belongs to the noise that the scan states, and follows the fitted one.
        in_model: whether the data are to know of it, or it is only added to the posterior.
    """

    variance: Tensor
    deviation: float | None = None
    in_units_of_noise: bool = True
    in_model: bool = True


def slope_complement(image: Tensor, pixel_noise: float, measurements: int) -> Complement:
    """See the module.

    Args:
        image: f(w̃), (rows, columns).
        pixel_noise: σ/‖A e_j‖ of a typical pixel, in units of the O(1) image.
        measurements: how many there are.
    """
    low, high = (float(torch.quantile(image.double().flatten(), q)) for q in (0.0, _DENSE))
    high = high if high > low else float(image.max())  # an object of few pixels
    x = ((image.double() - low) / ((high - low) or 1.0)).clamp(0, 1)
    local_variance = (_local_mean(x.square()) - _local_mean(x).square()).clamp_min(0)
    crowding = max(1.0, image.numel() / measurements)
    slope = _EDGES * (crowding * local_variance).sqrt() + _PLATEAUS * _local_mean(x * (1 - x))
    return Complement(pixel_noise**2 * (slope.square() + _FLOOR**2))


def _local_mean(x: Tensor) -> Tensor:
    """Over 3×3 pixels inside of the image, (rows, columns) → (pixels,)."""
    return F.avg_pool2d(x[None, None], 3, stride=1, padding=1, count_include_pad=False).flatten()


def white_complement(pixels: int, device: torch.device | None = None) -> Complement:
    """Return ``τ²`` everywhere, with its hyperprior."""
    variance = torch.full((pixels,), _WHITE_VARIANCE, dtype=torch.float64, device=device)
    return Complement(variance, _WHITE_DEVIATION, False)


def published_floor(whitened: LinearMap, device: torch.device | None = None) -> Complement:
    """See the module.

    Args:
        whitened: A in units of the noise, (rows, columns) → (measurements,): ``σ_y² (AᵀA)⁺`` is ``(AᵀA)⁺`` of
            it.
        device: that it works on.
    """
    pixels = math.prod(whitened.domain_shape)
    if min(whitened.shape) <= _DENSE_SIDE:
        singular = torch.linalg.svdvals(whitened.dense(device=device))[:_FLOOR_VECTORS]
        return _floor(singular, pixels, device)

    def normal(x: Floats) -> Floats:
        # In float64: the squares of small singular values are far below float32's rounding of large ones.
        image = torch.as_tensor(x, dtype=torch.float64, device=device).reshape(whitened.domain_shape)
        return whitened.T(whitened(image)).flatten().cpu().numpy()

    operator = LinearOperator((pixels, pixels), matvec=normal, dtype=np.float64)
    start = np.random.default_rng(0).standard_normal(pixels)  # the same result in every run
    squares = eigsh(operator, k=_FLOOR_VECTORS, which="LM", tol=1e-4, v0=start, return_eigenvectors=False)
    return _floor(torch.tensor(np.sort(np.abs(squares))[::-1].copy()).sqrt(), pixels, device)


def _floor(singular: Tensor, pixels: int, device: torch.device | None) -> Complement:
    singular = singular[singular > 1e-6 * singular[0]]  # of a pseudo-inverse
    variance = float((1 / singular.square()).sum()) / pixels
    return Complement(torch.full((pixels,), variance, dtype=torch.float64, device=device), in_model=False)
