"""Linear maps that are numbers rather than physics: the identity, diagonals, and low ranks."""

import torch
from torch import Tensor

from ct_dip.errors import InputError
from ct_dip.operators.linear_map import LinearMap


class Identity(LinearMap):
    """``x ↦ x`` on arrays of a shape."""

    def __init__(self, *shape: int) -> None:
        self.domain_shape = self.range_shape = shape

    def _forward(self, x: Tensor) -> Tensor:
        return x.clone()  # autograd must not meet its own input again

    def _adjoint(self, y: Tensor) -> Tensor:
        return self._forward(y)


class Diagonal(LinearMap):
    """``x ↦ d x``, entry by entry.

    Args:
        diagonal: d, of the shape of the arrays.
    """

    def __init__(self, diagonal: Tensor) -> None:
        self.diagonal = diagonal
        self.domain_shape = self.range_shape = tuple(diagonal.shape)

    def _forward(self, x: Tensor) -> Tensor:
        return self.diagonal.to(x) * x

    def _adjoint(self, y: Tensor) -> Tensor:
        return self._forward(y)


class LowRank(LinearMap):
    """``x ↦ U Vᵀ x``, or ``U Uᵀ x``, of flat vectors.

    Args:
        left: U as rows, (rank, n): ``left[k]`` is its k-th column.
        right: V likewise, (rank, m); U if it is not given.
    """

    def __init__(self, left: Tensor, right: Tensor | None = None) -> None:
        right = left if right is None else right
        if left.ndim != 2 or right.ndim != 2 or len(left) != len(right):
            raise InputError(
                f"factors of shapes {tuple(left.shape)} and {tuple(right.shape)} do not fit; give (rank, n) "
                "and (rank, m)"
            )
        self.left, self.right = left, right
        self.domain_shape, self.range_shape = (right.shape[1],), (left.shape[1],)

    def _forward(self, x: Tensor) -> Tensor:
        return x @ self.right.to(x).T @ self.left.to(x)

    def _adjoint(self, y: Tensor) -> Tensor:
        return y @ self.left.to(y).T @ self.right.to(y)


class Reshape(LinearMap):
    """``x`` in another shape with as many entries; what flattens images to vectors."""

    def __init__(self, domain_shape: tuple[int, ...], range_shape: tuple[int, ...]) -> None:
        if torch.Size(domain_shape).numel() != torch.Size(range_shape).numel():
            raise InputError(f"arrays of shape {domain_shape} have no shape {range_shape}")
        self.domain_shape, self.range_shape = domain_shape, range_shape

    def _forward(self, x: Tensor) -> Tensor:
        return x.reshape(-1, *self.range_shape).clone()

    def _adjoint(self, y: Tensor) -> Tensor:
        return y.reshape(-1, *self.domain_shape).clone()
