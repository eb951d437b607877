"""Sizes of a linear map: its largest singular value and its typical column."""

import math

import torch
from torch import Tensor

from ct_dip.operators.linear_map import LinearMap

_TOGETHER = 16  # probes that are projected at once


def operator_norm(
    linear_map: LinearMap,
    *,
    tolerance: float = 1e-4,
    max_iterations: int = 500,
    seed: int = 0,
    dtype: torch.dtype = torch.float32,
    device: torch.device | None = None,
) -> float:
    """``‖A‖₂`` by power iteration on ``AᵀA``.

    ``‖Av‖/‖v‖`` never exceeds the norm and grows with every step, so this is a lower bound that
    is reached to about ``tolerance``: the iteration stops when a step gains relatively less than a
    tenth of it.
    """
    generator = torch.Generator().manual_seed(seed)
    v = torch.randn(linear_map.domain_shape, generator=generator, dtype=dtype).to(device)
    norm = 0.0
    for _ in range(max_iterations):
        v = v / torch.linalg.vector_norm(v)
        image = linear_map(v)
        previous, norm = norm, float(torch.linalg.vector_norm(image))
        if norm == 0 or norm - previous <= 0.1 * tolerance * norm:
            break
        v = linear_map.T(image)
    return norm


def rms_column_norm(linear_map: LinearMap, row_weights: Tensor, *, probes: int = 8, seed: int = 0) -> float:
    """``√(‖diag(w) A‖_F² / columns)``: how strongly a typical pixel is seen.

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
