"""Conditioning the linear model on the sinogram: three ways, one interface.

`Exact` writes every matrix down. `Compressed` and `Iterative` know the covariance of the measurements by its
products alone (`WeightConditional`).
"""

from abc import ABC, abstractmethod

import torch
from torch import Tensor

from ct_dip.posterior.problem import Problem
from ct_dip.priors.covariance import WeightCovariance

_PROBES, _TOGETHER = 64, 16  # of what the measurements know about pixels, and those that are made together


class Conditional(ABC):
    """The posterior at known hyperparameters.

    Args:
        pixel_variance: D of the complement and of freed pixels, (pixels,); ``None`` without them.
        noise: s², relative to the stated one.
    """

    def __init__(self, problem: Problem, pixel_variance: Tensor | None, noise: float) -> None:
        self.problem, self.pixel_variance, self.noise = problem, pixel_variance, noise

    @property
    def residual(self) -> Tensor:
        """r in the precision of solves, (1, measurements)."""
        return self.problem.residual[None].to(self.problem.jacobian.weights)

    @abstractmethod
    def solve(self, residuals: Tensor) -> Tensor:
        """Compute ``K⁻¹ r``, (n, measurements) → the same."""

    @abstractmethod
    def mean(self) -> Tensor:
        """Compute ``x*``, (pixels,), float64, in units of the O(1) image."""

    @abstractmethod
    def with_pixel_variance(self, extra: Tensor) -> "Conditional":
        """Return a copy with independent variances of some pixels added, (pixels,), mostly zero."""

    @abstractmethod
    def pixel_information(self, seed: int = 0) -> Tensor:
        """Compute ``(Bᵀ K⁻¹ B)_jj`` of every pixel, (pixels,), float64; by probes it is off by a tenth."""

    def _added(self, extra: Tensor) -> Tensor:
        """Add to the pixels' variances."""
        return extra if self.pixel_variance is None else self.pixel_variance + extra


class WeightConditional(Conditional):
    """A posterior that is known by what a sinogram says of the weights and of the complement.

    With weights w ~ N(0, Σ), complement u ~ N(0, D) and noise s ε, let ``r' = B J w + B u + s ε``. Then, by
    Matheron's rule, ``x = J (w − Δw(r')) + u − Δu(r')`` is a sample of the posterior around its mean, where
    ``Δw(r) = Σ Jᵀ Bᵀ K⁻¹ r`` and ``Δu(r) = D Bᵀ K⁻¹ r`` are what a sinogram r says of w and u; and the mean
    itself is ``m₀ + J Δw(r) + Δu(r)`` for the measured r.

    Args:
        covariance: Σ.
    """

    def __init__(
        self, problem: Problem, covariance: WeightCovariance, pixel_variance: Tensor | None, noise: float
    ) -> None:
        super().__init__(problem, pixel_variance, noise)
        self.covariance = covariance

    @abstractmethod
    def measure(self, weights: Tensor) -> Tensor:
        """Compute ``B J w``, (n, P) → (n, measurements)."""

    @abstractmethod
    def update(self, residuals: Tensor) -> tuple[Tensor, Tensor | None]:
        """Compute ``Δw`` (n, P) and ``Δu`` (n, pixels) for sinograms r, (n, measurements)."""

    def image(self, weights: Tensor, pixels: Tensor | None) -> Tensor:
        """Compute ``J w + u``, (n, pixels)."""
        images = self.problem.images(weights)
        return images if pixels is None else images + pixels

    def mean(self) -> Tensor:
        """Return x* by one update and one pass of J."""
        return self.problem.prior_mean + self.image(*self.update(self.residual))[0].double()

    def pixel_information(self, seed: int = 0) -> Tensor:
        """Estimate `Conditional.pixel_information` as ``E (Bᵀ K⁻¹ r')²_j`` over sinograms r' of the model."""
        generator = torch.Generator().manual_seed(seed)
        total = torch.zeros_like(self.problem.prior_mean)
        for _ in range(_PROBES // _TOGETHER):
            seen = self.problem.back_project(self.solve(self.sinograms(_TOGETHER, generator)))
            total += torch.linalg.vector_norm(seen, dim=0, dtype=torch.float64).square() / _PROBES
        return total

    def deviations(self, count: int, generator: torch.Generator) -> Tensor:
        """Sample the posterior minus its mean, (n, pixels), in units of the O(1) image."""
        weights, pixels, sinogram = self._draw(count, generator)
        by_weights, by_pixels = self.update(sinogram)
        if pixels is not None and by_pixels is not None:
            pixels = pixels - by_pixels
        return self.image(weights - by_weights, pixels)

    def weight_deviations(self, count: int, generator: torch.Generator) -> Tensor:
        """Sample the weights' posterior minus its mean, (n, P)."""
        weights, _, sinogram = self._draw(count, generator)
        return weights - self.update(sinogram)[0]

    def sinograms(self, count: int, generator: torch.Generator) -> Tensor:
        """Sample residuals r as the model expects them, (n, measurements)."""
        return self._draw(count, generator)[2]

    def _draw(self, count: int, generator: torch.Generator) -> tuple[Tensor, Tensor | None, Tensor]:
        """Draw weights and pixels from their priors, and what would be measured of them."""
        like = self.problem.jacobian.weights

        def normal(*shape: int) -> Tensor:
            return torch.randn(*shape, generator=generator).to(like)  # the same numbers in every precision

        weights = self.covariance.root(normal(count, len(like)))
        sinogram = self.measure(weights) + self.noise**0.5 * normal(count, self.problem.measurements)
        if self.pixel_variance is None:
            return weights, None, sinogram
        pixels = normal(count, self.problem.pixels) * self.pixel_variance.sqrt().to(like)
        return weights, pixels, sinogram + self.problem.project(pixels)
