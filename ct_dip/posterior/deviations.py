"""How far the image may be from its mean: covariances and samples, in units of the network's O(1) image."""

import math
from abc import ABC, abstractmethod
from functools import cached_property

import torch
from torch import Tensor

from ct_dip.evidence.marginal import Factor, factorise


class Deviations(ABC):
    """The posterior's zero-mean part; pixels are row-major.

    Attributes:
        std: of every pixel, (pixels,), float64.
        std_error: Monte-Carlo standard error of ``std``; ``None`` where it is exact.
        samples: that ``std`` was made from; 0 where it is exact.
    """

    std_error: Tensor | None = None
    samples: int = 0

    @property
    @abstractmethod
    def std(self) -> Tensor:
        """Return the standard deviation of every pixel, (pixels,)."""

    @abstractmethod
    def covariance(self, index: Tensor) -> Tensor:
        """Return the covariance of some pixels, (n, n), float64."""

    @abstractmethod
    def draw(self, count: int, seed: int) -> Tensor:
        """Draw samples, (count, pixels)."""

    @property
    def jitter(self) -> float:
        """What had to be added to variances to draw samples; 0 as a rule."""
        return 0.0


class DenseDeviations(Deviations):
    """Deviations of a covariance matrix, (pixels, pixels), float64."""

    def __init__(self, matrix: Tensor) -> None:
        self.matrix = matrix

    @property
    def std(self) -> Tensor:
        """The exact standard deviation."""
        return self.matrix.diagonal().clamp_min(0).sqrt()

    def covariance(self, index: Tensor) -> Tensor:
        """Return a part of the matrix."""
        return self.matrix[index[:, None], index]

    def draw(self, count: int, seed: int) -> Tensor:
        """Draw samples by its Cholesky factor."""
        generator = torch.Generator().manual_seed(seed)
        draws = torch.randn(count, len(self.matrix), generator=generator, dtype=torch.float64)
        return draws.to(self.matrix) @ self._factor.lower.T

    @cached_property
    def _factor(self) -> Factor:
        return factorise(self.matrix)

    @property
    def jitter(self) -> float:
        """The jitter, which is not 0 where the matrix is singular, as without a complement."""
        return self._factor.jitter


class WidenedDeviations(Deviations):
    """Deviations whose covariance is multiplied by a factor."""

    def __init__(self, deviations: Deviations, factor: float) -> None:
        self.base, self.factor, self.samples = deviations, factor, deviations.samples
        error = deviations.std_error
        self.std_error = None if error is None else error * math.sqrt(factor)

    @property
    def std(self) -> Tensor:
        """The standard deviation, wider by the factor's root."""
        return self.base.std * math.sqrt(self.factor)

    def covariance(self, index: Tensor) -> Tensor:
        """Return the covariance times the factor."""
        return self.base.covariance(index) * self.factor

    def draw(self, count: int, seed: int) -> Tensor:
        """Draw samples, farther from the mean by the factor's root."""
        return self.base.draw(count, seed) * math.sqrt(self.factor)

    @property
    def jitter(self) -> float:
        """The jitter of the base."""
        return self.base.jitter
