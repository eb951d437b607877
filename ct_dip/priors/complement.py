"""The complement ``u``: what the tangent space does not span, independent from pixel to pixel.

The image of the linear model is ``h(w) + u``. Without u the covariance is singular, and images that differ
from every ``h(w)``, as every true one does, are impossible. The data hardly see u, so its size is a matter
of prior knowledge:

``slope``: a network that misplaces an edge is wrong where its output is between its extremes, and beside
that. The deviation goes with g, the slope of the output activation at the 3×3 mean of f(w̃), plus a small
floor everywhere, and with what the noise leaves open in a single pixel, σ/‖A e_j‖.
``white``: ``τ²`` everywhere, by evidence.
``floor``: ``σ_y² mean diag (AᵀA)⁺`` with 100 singular vectors, as published; added to the posterior only.
"""

from typing import NamedTuple

import torch
import torch.nn.functional as F  # noqa: N812  everybody's name for it
from torch import Tensor

from ct_dip.dip.unet import Output

# Chosen on KMNIST images 50 to 55 at 20 and 5 views; see experiments/calibration.
_SLOPE_AMPLITUDE = 2.0  # in units of σ/‖A e_j‖
_SLOPE_FLOOR = 0.03  # in the same units
_WHITE_VARIANCE = 1e-4
_WHITE_DEVIATION = 3.0
_FLOOR_VECTORS = 100


class Complement(NamedTuple):
    """Prior variances of u.

    Args:
        variance: of every pixel of the O(1) image, (pixels,).
        deviation: of the log-normal hyperprior of a common factor that the evidence fits; ``None`` if it
            is fixed.
        in_model: whether the data are to know of it, or it is only added to the posterior.
    """

    variance: Tensor
    deviation: float | None = None
    in_model: bool = True


def slope_complement(image: Tensor, output: Output, pixel_noise: float) -> Complement:
    """See the module.

    Args:
        image: f(w̃), (rows, columns).
        pixel_noise: σ/‖A e_j‖ of a typical pixel, in units of the O(1) image.
    """
    smooth = F.avg_pool2d(
        image.double()[None, None], 3, stride=1, padding=1, count_include_pad=False
    ).flatten()
    relative = (_SLOPE_AMPLITUDE * _slope(smooth, output)) ** 2 + _SLOPE_FLOOR**2
    return Complement(pixel_noise**2 * relative)


def white_complement(pixels: int) -> Complement:
    """See the module."""
    return Complement(torch.full((pixels,), _WHITE_VARIANCE, dtype=torch.float64), _WHITE_DEVIATION)


def published_floor(whitened: Tensor) -> Complement:
    """See the module.

    Args:
        whitened: A in units of the noise, (measurements, pixels): ``σ_y² (AᵀA)⁺`` is ``(AᵀA)⁺`` of it.
    """
    singular = torch.linalg.svdvals(whitened.double())[:_FLOOR_VECTORS]
    singular = singular[singular > 1e-6 * singular[0]]  # of a pseudo-inverse
    variance = float((1 / singular.square()).sum()) / whitened.shape[1]
    return Complement(torch.full((whitened.shape[1],), variance, dtype=torch.float64), in_model=False)


def _slope(value: Tensor, output: Output) -> Tensor:
    """Derivative of the output activation, where the activation has a value."""
    if output == "sigmoid":
        return value * (1 - value)
    return 1 - torch.exp(-value) if output == "softplus" else torch.ones_like(value)
