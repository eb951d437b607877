"""The Matérn covariance of the pixels of an image: products by FFT, and samples.

With the distance d between two pixels in pixels and ``t = √(2ν) d/ℓ``,

    ν = 1/2: e^{−t}      ν = 3/2: (1 + t) e^{−t}      ν = 5/2: (1 + t + t²/3) e^{−t}

(Rasmussen and Williams, 2006, section 4.2). A product with it is a convolution, exact on a torus of twice the
image's size. A torus on which the covariance is positive, too, gives samples (Dietrich and Newsam, 1997).
"""

import math

import numpy as np
import torch
from torch import Tensor

from ct_dip.image_space.markov_field import standard_normal

SMOOTHNESS = (0.5, 1.5, 2.5)
_TORI = (2, 3, 4, 6, 8)  # sizes of the torus of samples that are tried, in images
_NEGATIVE = 1e-6  # share of the variance that a torus may have below zero


class Matern:
    """Covariance K of unit variance and length ℓ, in pixels.

    Args:
        shape: of the image, (rows, columns).
        smoothness: ν, one of `SMOOTHNESS`.
    """

    def __init__(
        self, shape: tuple[int, int], length: float, smoothness: float, device: torch.device | None = None
    ) -> None:
        self.shape, self.length, self.smoothness, self.device = shape, length, smoothness, device
        self._spectra = [torch.fft.rfft2(kernel) for kernel in self._kernels(2)]

    def products(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """Return ``K u`` and ``∂K/∂log ℓ u``, (n, rows, columns) each."""
        rows, columns = self.shape
        size = (2 * rows, 2 * columns)
        transformed = torch.fft.rfft2(images, s=size)
        k, slope = (torch.fft.irfft2(transformed * s, s=size)[..., :rows, :columns] for s in self._spectra)
        return k, slope

    def __call__(self, images: Tensor) -> Tensor:
        """Return ``K u``, (n, rows, columns)."""
        return self.products(images)[0]

    def sample(self, count: int, rng: np.random.Generator) -> Tensor:
        """Draw images from N(0, K), (count, rows, columns).

        Where even the largest torus has negative variances, which lengths of about the image's size make,
        they count as zero.
        """
        spectrum = torch.empty(0)
        for torus in _TORI:
            spectrum = torch.fft.fft2(self._kernels(torus)[0]).real
            if float(-spectrum.clamp(max=0).sum()) <= _NEGATIVE * float(spectrum.sum()):
                break
        shape = (-(-count // 2), *spectrum.shape)
        white = torch.complex(*(standard_normal(shape, rng, spectrum) for _ in range(2)))
        drawn = torch.fft.fft2(white * (spectrum.clamp(min=0) / spectrum.numel()).sqrt())
        rows, columns = self.shape
        return torch.cat([drawn.real, drawn.imag])[:count, :rows, :columns]

    def _kernels(self, torus: int) -> tuple[Tensor, Tensor]:
        """Return the covariance with the first pixel of a torus, and its derivative by log ℓ, float64."""
        steps = [torch.arange(torus * side, dtype=torch.float64, device=self.device) for side in self.shape]
        down, right = (torch.minimum(step, len(step) - step) for step in steps)
        t = torch.hypot(down[:, None], right[None, :]) * (math.sqrt(2 * self.smoothness) / self.length)
        decay = torch.exp(-t)
        if self.smoothness == 0.5:
            return decay, t * decay
        if self.smoothness == 1.5:
            return (1 + t) * decay, t**2 * decay
        return (1 + t + t**2 / 3) * decay, t**2 * (1 + t) / 3 * decay
