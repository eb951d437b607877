"""A ray transform in units of the noise, on the network's O(1) image."""

from torch import Tensor

from ct_dip.operators.linear_map import LinearMap


class Whitened(LinearMap):
    """``B = diag(1/σ) A``, (rows, columns) → (measurements,).

    Args:
        transform: A.
        inverse: 1/σ of every measurement, in units of the O(1) image, shape of A's range.
    """

    def __init__(self, transform: LinearMap, inverse: Tensor) -> None:
        self.transform, self.inverse = transform, inverse
        self.domain_shape = transform.domain_shape
        self.range_shape: tuple[int] = (inverse.numel(),)

    def _forward(self, x: Tensor) -> Tensor:
        return (self.transform(x) * self.inverse.to(x)).flatten(1)

    def _adjoint(self, y: Tensor) -> Tensor:
        return self.transform.T(y.reshape(-1, *self.inverse.shape) * self.inverse.to(y))

    def project(self, images: Tensor) -> Tensor:
        """Compute ``B x`` of flat images, (n, pixels) → (n, measurements)."""
        return self(images.reshape(-1, *self.domain_shape))

    def back_project(self, sinograms: Tensor) -> Tensor:
        """Compute ``Bᵀ v`` as flat images, (n, measurements) → (n, pixels)."""
        return self.T(sinograms).flatten(1)
