"""Conditioning on the sinogram without its covariance matrix: the posterior mean, and samples around it.

With weights w ~ N(0, Σ), complement u ~ N(0, D) and noise s ε, let ``r' = B J w + B u + s ε``. Then, by
Matheron's rule, ``x = J (w − Δw(r')) + u − Δu(r')`` is a sample of the posterior around its mean, where
``Δw(r) = Σ Jᵀ Bᵀ K⁻¹ r`` and ``Δu(r) = D Bᵀ K⁻¹ r`` are what a sinogram r says of w and u; and the mean
itself is ``m₀ + J Δw(r) + Δu(r)`` for the measured r.
"""

from abc import ABC, abstractmethod

import torch
from torch import Tensor

from ct_dip.matrix_free.problem import Problem
from ct_dip.priors.covariance import WeightCovariance


class Conditional(ABC):
    """The posterior at known hyperparameters.

    Args:
        covariance: Σ.
        pixel_variance: D of the complement, (pixels,); ``None`` without one.
        noise: s², relative to the stated one.
    """

    def __init__(
        self, problem: Problem, covariance: WeightCovariance, pixel_variance: Tensor | None, noise: float
    ) -> None:
        self.problem, self.covariance = problem, covariance
        self.pixel_variance, self.noise = pixel_variance, noise

    @abstractmethod
    def measure(self, weights: Tensor) -> Tensor:
        """``B J w``, (n, P) → (measurements, n)."""

    @abstractmethod
    def solve(self, columns: Tensor) -> Tensor:
        """``K⁻¹ r``, (measurements, n) → the same."""

    @abstractmethod
    def with_pixel_variance(self, extra: Tensor) -> "Conditional":
        """The same with independent variances of some pixels added, (pixels,), mostly zero."""

    @abstractmethod
    def update(self, columns: Tensor) -> tuple[Tensor, Tensor | None]:
        """``Δw`` (n, P) and ``Δu`` (n, pixels) for sinograms r, (measurements, n)."""

    def image(self, weights: Tensor, pixels: Tensor | None) -> Tensor:
        """``J w + u``, (n, pixels)."""
        images = self.problem.images(weights)
        return images if pixels is None else images + pixels

    def mean(self) -> Tensor:
        """``x*``, (pixels,), float64, in units of the O(1) image."""
        residual = self.problem.residual[:, None].to(self.problem.jacobian.weights)
        return self.problem.prior_mean + self.image(*self.update(residual))[0].double()

    def deviations(self, count: int, generator: torch.Generator) -> Tensor:
        """Samples of the posterior minus its mean, (n, pixels), in units of the O(1) image."""
        weights, pixels, sinogram = self._draw(count, generator)
        by_weights, by_pixels = self.update(sinogram)
        if pixels is not None and by_pixels is not None:
            pixels = pixels - by_pixels
        return self.image(weights - by_weights, pixels)

    def weight_deviations(self, count: int, generator: torch.Generator) -> Tensor:
        """Samples of the weights' posterior minus its mean, (n, P)."""
        weights, _, sinogram = self._draw(count, generator)
        return weights - self.update(sinogram)[0]

    def sinograms(self, count: int, generator: torch.Generator) -> Tensor:
        """Residuals r as the model expects them, (measurements, n)."""
        return self._draw(count, generator)[2]

    def _draw(self, count: int, generator: torch.Generator) -> tuple[Tensor, Tensor | None, Tensor]:
        """Weights and pixels from their priors, and what would be measured of them."""
        like = self.problem.jacobian.weights

        def normal(*shape: int) -> Tensor:
            return torch.randn(*shape, generator=generator).to(like)  # the same numbers in every precision

        weights = self.covariance.root(normal(count, len(like)))
        sinogram = self.measure(weights) + self.noise**0.5 * normal(count, self.problem.measurements).T
        if self.pixel_variance is None:
            return weights, None, sinogram
        pixels = normal(count, self.problem.pixels) * self.pixel_variance.sqrt().to(like)
        return weights, pixels, sinogram + self.problem.project(pixels)
