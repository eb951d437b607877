"""Finite differences ``D`` and total variation ``TV(x) = ‖Dx‖₁``."""

import torch
from torch import Tensor

from ct_dip.operators.linear_map import LinearMap


class FiniteDifferences(LinearMap):
    """Forward differences to the next row and the next column, zero at the far edge.

    ``(Dx)[0, i, j] = x[i+1, j] − x[i, j]`` and ``(Dx)[1, i, j] = x[i, j+1] − x[i, j]``, so
    (rows, columns) → (2, rows, columns). Per pixel, not per mm: TV then has the image's unit.
    """

    def __init__(self, shape: tuple[int, int]) -> None:
        self.domain_shape = shape
        self.range_shape = (2, *shape)

    def _forward(self, x: Tensor) -> Tensor:
        d = x.new_zeros(x.shape[0], *self.range_shape)
        d[:, 0, :-1] = x[:, 1:] - x[:, :-1]
        d[:, 1, :, :-1] = x[:, :, 1:] - x[:, :, :-1]
        return d

    def _adjoint(self, y: Tensor) -> Tensor:
        x = y.new_zeros(y.shape[0], *self.domain_shape)
        x[:, 1:] += y[:, 0, :-1]
        x[:, :-1] -= y[:, 0, :-1]
        x[:, :, 1:] += y[:, 1, :, :-1]
        x[:, :, :-1] -= y[:, 1, :, :-1]
        return x


def total_variation(x: Tensor, *, isotropic: bool = False) -> Tensor:
    """Sum over pixels of ``|∂ᵣx| + |∂꜀x|``, or of ``√(∂ᵣx² + ∂꜀x²)`` if isotropic.

    Args:
        x: (..., rows, columns).

    Returns:
        (...): one number per image, differentiable.
    """
    rows, columns = x.diff(dim=-2), x.diff(dim=-1)
    if not isotropic:
        return rows.abs().sum(dim=(-2, -1)) + columns.abs().sum(dim=(-2, -1))
    rows = torch.nn.functional.pad(rows, (0, 0, 0, 1))
    columns = torch.nn.functional.pad(columns, (0, 1))
    # A norm, not the square root of a sum: its gradient at zero is zero, not NaN.
    return torch.linalg.vector_norm(torch.stack([rows, columns]), dim=0).sum(dim=(-2, -1))
