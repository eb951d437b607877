"""The inputs a that a convolution ``z = Σ_parts w * a`` sums over, and the ways in which each is convolved.

At the fit, ``δz = w * δa + δw * a`` with constants w and a. A part knows both terms and their transposes, for
a batch of n vectors at once and without autograd. A product has the precision of its vectors; constants may
have less.
"""

from collections.abc import Sequence
from typing import Protocol

import torch
import torch.nn.functional as F  # noqa: N812  everybody's name for it
from torch import Tensor

from ct_dip.dip.unet import Upsampling, interpolate
from ct_dip.tangent.convolutions import convolve, correlate, spread
from ct_dip.tangent.maps import as_map, constant, flat

# Up to this size an unfolded input is kept: it stays in the cache, and one batched matrix product serves
# all vectors. Beyond it, one convolution per vector is faster and needs no unfolding.
UNFOLDED_BYTES = 3 * 2**20

# Up to so many inputs, the gradient towards them is faster as a matrix product: as measured, torch takes as
# long for 4 as for 16.
_FEW = 8

# Up to so many times the width of the other one, the constant matrix comes first in a product: for 32
# outputs, 9 columns are six times faster so, 36 a quarter.
_NARROW = 2

# Up to this side, arithmetic is saved by constants that larger images would have to fetch from memory.
_SMALL_SIDE = 64


def is_small(places: Sequence[int]) -> bool:
    """Whether an image, or a map, is small enough for the ways that save arithmetic."""
    return max(places) <= _SMALL_SIDE


class Part(Protocol):
    """One input of a convolution.

    The two transposes begin alike: ``Bᵀ z = to_weights(adjoint(z))`` and ``Eᵀ z = to_input(adjoint(z))``.

    Attributes:
        size: outputs, inputs, taps, taps.
        places: rows and columns of the output.
        bytes: memory of the constants.
    """

    size: torch.Size
    places: tuple[int, int]
    bytes: int

    def tangent(self, weights: Tensor, change: Tensor | None) -> Tensor:
        """``B δw + E δa``: (n, outputs, inputs, taps, taps), and a map unless a is constant → δz."""

    def adjoint(self, z: Tensor) -> Tensor:
        """(n, outputs, rows, columns) → whatever the two below take."""

    def to_weights(self, arrived: Tensor) -> Tensor:
        """→ (n, outputs, inputs, taps, taps)."""

    def to_input(self, arrived: Tensor) -> Tensor:
        """→ (n, inputs, rows, columns)."""


class PlainPart:
    """``w * a``.

    Args:
        activation: a, (1, inputs, rows, columns).
        filters: w, (outputs, inputs, taps, taps).
        stride: of the convolution, which is padded by half its taps.
    """

    def __init__(self, activation: Tensor, filters: Tensor, stride: int) -> None:
        self.size = filters.shape
        self.filters = constant(filters)
        self.flipped = constant(filters.transpose(0, 1).flip(2, 3))  # of the adjoint
        self.stride = stride
        rows, columns = activation.shape[-2:]
        self.input_places = (rows, columns)
        self.places = (-(-rows // stride), -(-columns // stride))
        self.activation: Tensor | None = None
        self.unfolded: Tensor | None = None  # (places, inputs · taps²)
        if self.places[0] * self.places[1] * filters[0].numel() * filters.element_size() <= UNFOLDED_BYTES:
            unfolded = F.unfold(activation, filters.shape[-1], padding=filters.shape[-1] // 2, stride=stride)
            self.unfolded = unfolded[0].T.contiguous()
        else:
            self.activation = constant(activation)
        constants = (self.filters, self.flipped, self.activation, self.unfolded)
        self.bytes = sum(t.nbytes for t in constants if t is not None)

    def tangent(self, weights: Tensor, change: Tensor | None) -> Tensor:
        """``B δw + E δa``."""
        if change is None:
            z = weights.new_zeros(len(weights), self.places[0] * self.places[1], weights.shape[1])
            z = as_map(z, self.places)
        else:
            z = self._from_input(change)
        if self.unfolded is not None:
            matrices = weights.flatten(2).transpose(1, 2)  # (n, inputs · taps², outputs)
            flat(z).baddbmm_(self.unfolded.to(z).expand(len(z), -1, -1), matrices)
            return z
        assert self.activation is not None
        for one, filters in zip(z, weights, strict=True):
            convolve(self.activation, filters, self.stride, add_to=one[None])
        return z

    def _from_input(self, change: Tensor) -> Tensor:
        """``E δa``."""
        return convolve(change, self.filters.to(change), self.stride)

    def adjoint(self, z: Tensor) -> Tensor:
        """Nothing that the two transposes have in common."""
        return z

    def to_weights(self, arrived: Tensor) -> Tensor:
        """``Bᵀ z``."""
        if self.unfolded is not None:
            n, right = len(arrived), self.unfolded.to(arrived)
            if arrived.is_contiguous():  # one channel after the other: all images are one matrix
                return (arrived.view(-1, len(right)) @ right).view(n, *self.size)
            left, right = flat(arrived), right.expand(n, -1, -1)
            if right.shape[2] <= _NARROW * left.shape[2]:
                products = torch.bmm(right.transpose(1, 2), left).transpose(1, 2)
            else:
                products = torch.bmm(left.transpose(1, 2), right)
            return torch.unflatten(products, 2, self.size[1:])
        assert self.activation is not None
        return torch.stack([correlate(self.activation, one[None], self.size, self.stride) for one in arrived])

    def to_input(self, arrived: Tensor) -> Tensor:
        """``Eᵀ z``."""
        if self.size[1] <= _FEW and self.stride == 1 and is_small(self.places):
            n, (outputs, inputs, taps, _) = len(arrived), self.size
            matrix = self.filters.to(arrived).permute(2, 3, 1, 0).reshape(-1, outputs).expand(n, -1, -1)
            y = torch.bmm(matrix, flat(arrived).transpose(1, 2)).view(n, taps, taps * inputs, *self.places)
            return _sum_shifted_(_sum_shifted_(y, dim=-2).view(n, taps, inputs, *self.places), dim=-1)
        if self.stride == 1:
            return convolve(arrived, self.flipped.to(arrived), 1)
        return spread(arrived, self.filters.to(arrived), self.stride, self.input_places)


class PointwisePart(PlainPart):
    """``w a`` with one tap: a matrix product, which torch's convolutions do slowly.

    Args:
        activation: a, (1, inputs, rows, columns).
        filters: w, (outputs, inputs, 1, 1).
    """

    def __init__(self, activation: Tensor, filters: Tensor) -> None:
        super().__init__(activation, filters, stride=1)

    def _from_input(self, change: Tensor) -> Tensor:
        return as_map(flat(change) @ self.filters.to(change).flatten(1).T, self.places)

    def to_input(self, arrived: Tensor, add_to: Tensor | None = None) -> Tensor:
        """``Eᵀ z``, or that added to a map, in place."""
        left, right = flat(arrived), self.filters.to(arrived).flatten(1)
        if add_to is not None:
            flat(add_to).baddbmm_(left, right.expand(len(left), -1, -1))
            return add_to
        return as_map(left * right if len(right) == 1 else left @ right, self.places)


class InterpolatedPart(PlainPart):
    """``w * (U a)``, with the interpolation U from a coarse grid to the next finer one.

    Args:
        activation: a, (1, inputs, *coarse).
        filters: w, (outputs, inputs, taps, taps).
        fine: rows and columns of U a.
    """

    def __init__(self, activation: Tensor, filters: Tensor, fine: Sequence[int], mode: Upsampling) -> None:
        super().__init__(interpolate(activation, fine, mode), filters, stride=1)
        self.mode, self.coarse, self.fine = mode, list(activation.shape[-2:]), list(fine)

    def tangent(self, weights: Tensor, change: Tensor | None) -> Tensor:
        """``B δw + E U δa``."""
        return super().tangent(weights, None if change is None else interpolate(change, self.fine, self.mode))

    def to_input(self, arrived: Tensor) -> Tensor:
        """``Uᵀ Eᵀ z``."""
        y = super().to_input(arrived)
        size = [*y.shape[:2], *self.coarse]
        found: Tensor  # torch has Uᵀ only as the gradient's own operator
        if self.mode == "nearest":
            found = torch.ops.aten.upsample_nearest2d_backward(y, self.fine, size)
        else:
            found = torch.ops.aten.upsample_bilinear2d_backward(y, self.fine, size, True)
        return found


class CoarsePart:
    """``w * (U a)`` with less arithmetic: the filters act on the coarse grid, before the interpolation.

    Tap k sees ``U a`` from a place beside: ``w * (U a) = Σ_k w_k S_k U a`` with the shift S_k. Filters act on
    channels, shift and interpolation on places, so the order does not matter: ``Σ_k S_k U (w_k a)``, where
    w_k a has a quarter of the places. ``S_k U`` acts on rows and on columns apart, as a dense matrix each.

    Args:
        activation: a, (1, inputs, *coarse).
        filters: w, (outputs, inputs, taps, taps).
        fine: rows and columns of U a.
    """

    def __init__(self, activation: Tensor, filters: Tensor, fine: Sequence[int], mode: Upsampling) -> None:
        self.size = filters.shape
        taps = filters.shape[-1]
        rows, columns = activation.shape[-2:]
        self.coarse, self.places = (rows, columns), (fine[0], fine[1])
        shifted = [_shifted(activation, c, f, taps, mode) for c, f in zip(self.coarse, fine, strict=True)]
        self._rows = shifted[0]  # (taps, coarse rows, fine rows)
        self._columns = shifted[1].transpose(0, 1).flatten(0, 1)  # (coarse columns · taps, fine columns)
        self._activation = flat(constant(activation))  # (1, coarse places, inputs)
        # (taps down, inputs, taps across · outputs)
        self._filters = filters.detach().permute(2, 1, 3, 0).flatten(2).clone()
        constants = (self._rows, self._columns, self._activation, self._filters)
        self.bytes = sum(t.nbytes for t in constants)

    def tangent(self, weights: Tensor, change: Tensor | None) -> Tensor:
        """``Σ_k S_k U (δw_k a + w_k δa)``."""
        assert change is not None  # only what the network computes is ever interpolated
        n, (outputs, inputs, taps, _) = len(weights), self.size
        rows, columns = self.places
        to_rows, to_columns = self._rows.to(weights), self._columns.to(weights)
        own = weights.permute(3, 0, 2, 4, 1).reshape(taps * n, inputs, taps * outputs)
        filtered = torch.bmm(self._activation.to(weights).expand(taps * n, -1, -1), own)
        filtered = filtered.view(taps, n, self.coarse[0] * self.coarse[1], taps * outputs)
        z = filtered.new_zeros(n, rows, len(to_columns) * outputs)
        for y, w, interpolation in zip(filtered, self._filters.to(weights), to_rows, strict=True):
            y.baddbmm_(flat(change), w.expand(n, -1, -1))
            y = y.view(n, self.coarse[0], len(to_columns) * outputs)
            z.baddbmm_(interpolation.T.expand(n, -1, -1), y)
        z = to_columns.T @ z.view(n * rows, len(to_columns), outputs)
        return as_map(z.view(n, rows * columns, outputs), self.places)

    def adjoint(self, z: Tensor) -> Tensor:
        """``Uᵀ S_kᵀ z``: → (n, taps down, coarse places, taps across · outputs)."""
        n, (outputs, _, taps, _) = len(z), self.size
        x = self._columns.to(z) @ z.permute(0, 2, 3, 1).flatten(0, 1)
        x = self._rows.to(z).flatten(0, 1) @ x.view(n, self.places[0], len(self._columns) * outputs)
        return x.view(n, taps, self.coarse[0] * self.coarse[1], taps * outputs)

    def to_weights(self, arrived: Tensor) -> Tensor:
        """Times ``aᵀ``."""
        n, (outputs, inputs, taps, _) = len(arrived), self.size
        activation = self._activation.to(arrived).expand(n * taps, -1, -1)
        products = torch.bmm(arrived.flatten(0, 1).transpose(1, 2), activation)
        return products.view(n, taps, taps, outputs, inputs).permute(0, 3, 4, 1, 2)

    def to_input(self, arrived: Tensor) -> Tensor:
        """``Σ_k w_kᵀ`` of it."""
        first, *others = self._filters.to(arrived)
        found = arrived[:, 0] @ first.T
        for k, filters in enumerate(others, start=1):
            found.baddbmm_(arrived[:, k], filters.T.expand(len(found), -1, -1))
        return as_map(found, self.coarse)


def interpolated_part(activation: Tensor, filters: Tensor, fine: Sequence[int], mode: Upsampling) -> Part:
    """Of `CoarsePart` and `InterpolatedPart`, the one that is faster at this size."""
    chosen = CoarsePart if is_small(fine) else InterpolatedPart
    return chosen(activation, filters, fine, mode)


def _shifted(like: Tensor, coarse: int, fine: int, taps: int, mode: Upsampling) -> Tensor:
    """``(S_k U)ᵀ`` of every tap k along one axis, (taps, coarse, fine), zero beyond the edges."""
    unit = torch.eye(coarse, dtype=like.dtype, device=like.device)
    interpolation = interpolate(unit[None, None], (coarse, fine), mode)[0, 0]
    padded = F.pad(interpolation, (taps // 2, taps // 2))
    return torch.stack([padded[:, k : k + fine] for k in range(taps)])


def _sum_shifted_(x: Tensor, dim: int) -> Tensor:
    """``Σ_k S_kᵀ x_k`` along rows or columns: (n, taps, channels, rows, columns) → a view of x."""
    middle, size = x.shape[1] // 2, x.shape[dim]
    total = x[:, middle]
    for k in range(x.shape[1]):
        step = k - middle
        if 0 < abs(step) < size:
            to, from_ = max(step, 0), max(-step, 0)
            total.narrow(dim, to, size - abs(step)).add_(x[:, k].narrow(dim, from_, size - abs(step)))
    return total
