"""The inputs a that a convolution ``z = Σ_parts w * a`` sums over, and the ways in which each is convolved.

At the fit, ``δz = w * δa + δw * a`` with constants w and a. A part knows both terms and their transposes, for
a batch of n vectors at once and without autograd. A product has the precision of its vectors; constants may
have less.
"""

from collections.abc import Sequence

import torch
import torch.nn.functional as F  # noqa: N812  everybody's name for it
from torch import Tensor

from ct_dip.dip.unet import Upsampling, interpolate
from ct_dip.tangent.convolutions import convolve, correlate, spread
from ct_dip.tangent.maps import as_map, constant, flat

# Up to this size an unfolded input is kept: it stays in the cache, and one batched matrix product serves
# all vectors. Beyond it, one convolution per vector is faster and needs no unfolding.
UNFOLDED_BYTES = 3 * 2**20


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

    def to_weights(self, arrived: Tensor) -> Tensor:
        """``Bᵀ z``."""
        if self.unfolded is not None:
            # The constant comes first: for 9 columns and 32 outputs that is six times faster.
            left = self.unfolded.to(arrived).T.expand(len(arrived), -1, -1)
            return torch.bmm(left, flat(arrived)).transpose(1, 2).unflatten(2, self.size[1:])
        assert self.activation is not None
        return torch.stack([correlate(self.activation, one[None], self.size, self.stride) for one in arrived])

    def to_input(self, arrived: Tensor) -> Tensor:
        """``Eᵀ z``."""
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
