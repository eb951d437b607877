"""Convolutions that take some rows after another where torch would unfold all of them: in float64.

In float32 torch has kernels that read a map where it is. In float64 it writes the neighbourhood of every
place into a matrix first, 150 MB at 256² with 32 channels, and takes twice as long as with a few rows at a
time.
"""

from collections.abc import Iterator

import torch
import torch.nn.functional as F  # noqa: N812  everybody's name for it
from torch import Tensor
from torch.nn.grad import conv2d_weight

_STRIP_BYTES = 4 * 2**20  # that are written at once: what fits the caches


def convolve(x: Tensor, filters: Tensor, stride: int) -> Tensor:
    """``w * x``, padded by half of the taps: (n, inputs, rows, columns) → (n, outputs, …)."""
    padding = filters.shape[-1] // 2
    if _in_place(x):
        return F.conv2d(x, filters, None, stride, padding)
    places = [-(-side // stride) for side in x.shape[-2:]]
    shape = len(x), len(filters), *places
    z = torch.empty(shape, dtype=x.dtype, device=x.device, memory_format=torch.channels_last)
    for rows, part in _strips(x, filters.shape[-1], stride):
        z[..., rows, :] = F.conv2d(part, filters, None, stride, (0, padding))
    return z


def correlate(x: Tensor, z: Tensor, size: torch.Size, stride: int) -> Tensor:
    """Its transpose towards the filters, ``Σ_places z xᵀ``: one z, (1, outputs, rows, columns) → size."""
    padding = size[-1] // 2
    if _in_place(x):
        whole: Tensor = conv2d_weight(x, size, z, stride, padding)  # type: ignore[no-untyped-call]
        return whole
    total = z.new_zeros(size)
    for rows, part in _strips(x, size[-1], stride):
        total += conv2d_weight(part, size, z[..., rows, :], stride, (0, padding))  # type: ignore[no-untyped-call]
    return total


def _in_place(x: Tensor) -> bool:
    """Whether torch convolves a map where it is."""
    return x.dtype == torch.float32 or x.device.type != "cpu"


def _strips(x: Tensor, taps: int, stride: int) -> Iterator[tuple[slice, Tensor]]:
    """Some rows of the output after another, and the rows of the padded x that they are made from."""
    rows, columns = (-(-side // stride) for side in x.shape[-2:])
    unfolded = len(x) * columns * x.shape[1] * taps**2 * x.element_size()  # of a row
    step = max(1, _STRIP_BYTES // max(1, unfolded))
    for first in range(0, rows, step):
        stop = min(first + step, rows)
        above, below = first * stride - taps // 2, (stop - 1) * stride + taps - taps // 2
        part = x[..., max(above, 0) : below, :]
        missing = max(-above, 0), max(below - x.shape[-2], 0)
        yield slice(first, stop), F.pad(part, (0, 0, *missing)) if any(missing) else part
