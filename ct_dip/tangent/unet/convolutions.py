"""Convolutions in float64 that unfold some rows after another, where torch would unfold all of them.

In float32, and on other devices, torch has kernels that read a map where it is. In float64 it writes the
neighbourhood of every place into a matrix first, 150 MB at 256² with 32 channels. Here a few rows at a time
go into a matrix that stays in the caches, and the products with it go where they belong. Maps that are only
read may be in float32.
"""

import math
from collections.abc import Iterator

import torch
import torch.nn.functional as F  # noqa: N812  everybody's name for it
from torch import Tensor
from torch.nn.grad import conv2d_weight

from ct_dip.tangent.unet.maps import flat

_STRIP_BYTES = 4 * 2**20  # that are unfolded at once: what fits the caches


def convolve(x: Tensor, filters: Tensor, stride: int, add_to: Tensor | None = None) -> Tensor:
    """Return ``w * x``, padded by half of the taps: (n, inputs, rows, columns) → (n, outputs, …).

    Args:
        add_to: map that the result is added to, in place.
    """
    if _in_torch(x, filters.shape, stride, filters):
        z = F.conv2d(x.to(filters), filters, None, stride, filters.shape[-1] // 2)
        return z if add_to is None else add_to.add_(z)
    z = _zeros(x, len(filters), _places(x, stride), filters) if add_to is None else add_to
    matrix = _matrix(filters)
    for one, own in zip(x, flat(z), strict=True):
        for where, unfolded in _strips(one, filters.shape, stride, z):
            own[where].addmm_(unfolded, matrix.T)
    return z


def correlate(x: Tensor, z: Tensor, size: torch.Size, stride: int) -> Tensor:
    """Transpose `convolve` in the filters: ``Σ_places z xᵀ`` of one z, (1, outputs, rows, columns) → size."""
    outputs, inputs, taps, _ = size
    if _in_torch(x, size, stride, z):
        whole: Tensor = conv2d_weight(x.to(z), size, z, stride, taps // 2)  # type: ignore[no-untyped-call]
        return whole
    total = z.new_zeros(outputs, taps * taps * inputs)
    for where, unfolded in _strips(x[0], size, stride, z):
        total.addmm_(flat(z)[0, where].T, unfolded)  # twice as fast as its transpose
    return total.view(outputs, taps, taps, inputs).permute(0, 3, 1, 2)


def convolve_transposed(z: Tensor, filters: Tensor, stride: int, places: tuple[int, int]) -> Tensor:
    """Transpose `convolve` in x, which has the given places: (n, outputs, …) → (n, inputs, *places)."""
    taps = filters.shape[-1]
    if _in_torch(z, filters.shape, 1, z):
        # What the transpose cannot know: how many rows the stride left over.
        left_over = [(side - 1) % stride for side in places]
        return F.conv_transpose2d(z, filters.to(z), None, stride, taps // 2, left_over)
    x = _zeros(z, filters.shape[1], places, z)
    matrix = _matrix(filters.to(z))
    for one, own in zip(flat(z), x.permute(0, 2, 3, 1), strict=True):
        rows, columns = z.shape[-2:]
        for first, stop in _steps(rows, columns, filters.shape, z):
            unfolded = one[first * columns : stop * columns] @ matrix
            unfolded = unfolded.view(stop - first, columns, taps, taps, -1)
            for k in range(taps):
                to_rows, from_rows = _shifted(first, stop, k - taps // 2, stride, places[0])
                for m in range(taps):
                    to_columns, from_columns = _shifted(0, columns, m - taps // 2, stride, places[1])
                    own[to_rows, to_columns] += unfolded[from_rows, from_columns, k, m]
    return x


def _in_torch(x: Tensor, size: torch.Size, stride: int, like: Tensor) -> bool:
    """Tell whether torch reads a map where it is, or unfolds no more than this file; size of the filters."""
    if like.dtype == torch.float32 or like.device.type != "cpu":
        return True
    return len(x) * math.prod(_places(x, stride)) * _around(size, like) <= _STRIP_BYTES


def _around(size: torch.Size, like: Tensor) -> int:
    """Count the bytes of all that a place is made from."""
    return size[1:].numel() * like.element_size()


def _places(x: Tensor, stride: int) -> tuple[int, int]:
    rows, columns = x.shape[-2:]
    return -(-rows // stride), -(-columns // stride)


def _zeros(x: Tensor, channels: int, places: tuple[int, int], like: Tensor) -> Tensor:
    """Make a map for every one of x."""
    return like.new_zeros(len(x), *places, channels).permute(0, 3, 1, 2)


def _matrix(filters: Tensor) -> Tensor:
    """Flatten (outputs, inputs, taps, taps) to (outputs, taps · taps · inputs)."""
    return filters.permute(0, 2, 3, 1).flatten(1)


def _steps(rows: int, columns: int, size: torch.Size, like: Tensor) -> Iterator[tuple[int, int]]:
    """Yield ranges of rows that fit the caches when unfolded; size of the filters."""
    step = max(1, _STRIP_BYTES // max(1, columns * _around(size, like)))
    for first in range(0, rows, step):
        yield first, min(first + step, rows)


def _strips(x: Tensor, size: torch.Size, stride: int, like: Tensor) -> Iterator[tuple[slice, Tensor]]:
    """Yield ranges of output places, each with x unfolded around them, (places, taps · taps · inputs).

    The unfolded x is valid until the next one is asked for.

    Args:
        size: of the filters.
        like: what has the precision.
    """
    _, inputs, taps, _ = size
    rows, columns = _places(x, stride)
    margin, source = taps // 2, x.permute(1, 2, 0)
    padded = unfolded = like.new_zeros(0)
    for first, stop in _steps(rows, columns, size, like):
        above, below = first * stride - margin, (stop - 1) * stride + taps - margin
        if len(padded) != below - above:
            padded = like.new_zeros(below - above, source.shape[1] + 2 * margin, inputs)
            unfolded = like.new_empty(stop - first, columns, taps, taps * inputs)
        here = source[max(above, 0) : below]
        before = max(-above, 0)
        padded[:before] = 0
        padded[before : before + len(here), margin : margin + source.shape[1]] = here
        padded[before + len(here) :] = 0
        down, across, _ = padded.stride()
        unfolded.copy_(padded.as_strided(unfolded.shape, (stride * down, stride * across, down, 1)))
        yield slice(first * columns, stop * columns), unfolded.view(-1, taps * taps * inputs)


def _shifted(first: int, stop: int, shift: int, stride: int, size: int) -> tuple[slice, slice]:
    """Return ``stride · i + shift`` and i − first, for all i from first to stop that stay within the size."""
    begin = max(first, -(-max(0, -shift) // stride))
    end = max(begin, min(stop, (size - 1 - shift) // stride + 1))
    there = slice(stride * begin + shift, max(0, stride * (end - 1) + shift + 1), stride)
    return there, slice(begin - first, end - first)
