"""A ray transform in units of the noise, on the network's O(1) image."""

import torch
from torch import Tensor

from ct_dip.operators.linear_map import LinearMap


class Whitened(LinearMap):
    """``B = diag(1/σ) A``, (rows, columns) → (measurements,).

    Args:
        transform: A.
        inverse: 1/σ of every measurement, in units of the O(1) image, shape of A's range.

    Attributes:
        log_det: ``log|W|`` of `whiten`, which the log-density of whitened data has more.
        noise_variance: of every measurement, in units of σ², (measurements,) or one number.
    """

    log_det: float = 0.0
    noise_variance: Tensor | float = 1.0

    def __init__(self, transform: LinearMap, inverse: Tensor) -> None:
        self.transform, self.inverse = transform, inverse
        self.domain_shape = transform.domain_shape
        self.range_shape: tuple[int] = (inverse.numel(),)

    def _forward(self, x: Tensor) -> Tensor:
        return (self.transform(x) * self.inverse.to(x)).flatten(1)

    def _adjoint(self, y: Tensor) -> Tensor:
        return self.transform.T(y.reshape(-1, *self.inverse.shape) * self.inverse.to(y))

    def whiten(self, v: Tensor) -> Tensor:
        """Compute ``W v`` of sinograms in units of σ, (n, measurements); W = I for independent noise."""
        return v

    def unwhiten(self, v: Tensor) -> Tensor:
        """Compute ``W⁻¹ v``, (n, measurements) → the same."""
        return v

    def project(self, images: Tensor) -> Tensor:
        """Compute ``B x`` of flat images, (n, pixels) → (n, measurements)."""
        return self(images.reshape(-1, *self.domain_shape))

    def back_project(self, sinograms: Tensor) -> Tensor:
        """Compute ``Bᵀ v`` as flat images, (n, measurements) → (n, pixels)."""
        return self.T(sinograms).flatten(1)


class StackedWhitened(Whitened):
    """The measurements of two maps of the same image, ``x ↦ (B x, C x)``.

    Args:
        above: B.
        below: C.
    """

    def __init__(self, above: Whitened, below: Whitened) -> None:
        super().__init__(above.transform, above.inverse)
        self.above, self.below = above, below
        self.range_shape = (above.inverse.numel() + below.inverse.numel(),)

    def _forward(self, x: Tensor) -> Tensor:
        return torch.cat([self.above(x), self.below(x)], dim=1)

    def _adjoint(self, y: Tensor) -> Tensor:
        count = self.above.inverse.numel()
        return self.above.T(y[:, :count]) + self.below.T(y[:, count:])
