"""The size of a linear map's typical column."""

import math

import torch
from torch import Tensor

from ct_dip.operators.linear_map import LinearMap

_TOGETHER = 16  # probes that are projected at once


def rms_column_norm(linear_map: LinearMap, row_weights: Tensor, *, probes: int = 8, seed: int = 0) -> float:
    """Compute ``√(‖diag(w) A‖_F² / columns)``: how strongly a typical pixel is seen.

    Hutchinson's estimator: for random signs z, ``E ‖diag(w) A z‖² = ‖diag(w) A‖_F²``.

    Args:
        row_weights: w, shape of the range.
        probes: number of sign vectors; relative error about ``(probes · rank)^−½``.
    """
    generator = torch.Generator().manual_seed(seed)
    total = 0.0
    for first in range(0, probes, _TOGETHER):
        size = (min(_TOGETHER, probes - first), *linear_map.domain_shape)
        signs = 2 * torch.randint(0, 2, size, generator=generator) - 1
        total += float((linear_map(signs.to(row_weights)) * row_weights).double().square().sum())
    return math.sqrt(total / probes / math.prod(linear_map.domain_shape))
