"""A linear reconstruction problem in units of its noise, in which every number is of order one."""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from ct_dip.operators.linear_map import LinearMap
from ct_dip.operators.norm import rms_column_norm
from ct_dip.operators.whitened import Whitened


@dataclass(frozen=True, kw_only=True)
class PixelProblem:
    """``r = B u + ε`` with ``ε ~ N(0, I)``, for images ``x = unit · u`` in 1/mm.

    ``B = unit · diag(1/σ) A`` has columns of norm 1 (root mean square), so that 1 is the deviation with which
    the data would know a pixel if all others were known: σ/‖A e_j‖. The weight of total variation is then its
    ``strength`` (see `ct_dip.classical.tv.tv`).
    """

    whitened: Whitened  # B
    data: Tensor  # r, (measurements,)
    unit: float  # 1/mm

    @property
    def shape(self) -> tuple[int, int]:
        """(rows, columns)."""
        rows, columns = self.whitened.domain_shape
        return rows, columns

    @property
    def pixels(self) -> int:
        """Number of pixels."""
        return self.shape[0] * self.shape[1]


def unit_vectors(size: int, chunk: int, device: torch.device) -> Iterator[Tensor]:
    """Yield the rows of the identity, (up to ``chunk``, size), float64, for the matrix of a linear map."""
    for first in range(0, size, chunk):
        rows = torch.zeros(min(chunk, size - first), size, dtype=torch.float64, device=device)
        rows[:, first:].fill_diagonal_(1)
        yield rows


def pixel_problem(
    transform: LinearMap, sinogram: Tensor, variance: Tensor | float, *, seed: int = 0
) -> PixelProblem:
    """State the problem of a sinogram.

    Args:
        sinogram: (views, detectors).
        variance: of the measurements, one number or (views, detectors).
        seed: of the probes that measure the column norm.
    """
    variance = torch.as_tensor(variance, dtype=torch.float64, device=sinogram.device).expand_as(sinogram)
    precision = variance.rsqrt().to(sinogram)  # 1/σ
    unit = 1 / rms_column_norm(transform, precision, seed=seed)
    whitened = Whitened(transform, unit * precision)
    return PixelProblem(whitened=whitened, data=(precision * sinogram).flatten(), unit=unit)
