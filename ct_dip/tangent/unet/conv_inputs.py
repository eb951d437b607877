"""The inputs a of a convolution ``z = Σ_inputs w * a``, linearised in the filters w and in a.

At the fit, ``δz = w * δa + δw * a`` with constants w and a. Every kind of input has both terms (``jvp``) and
their transposes (``weight_vjp``, ``input_vjp``), for a batch of n vectors at once and without autograd.
A product has the precision of its vectors; constants may have less.
"""

from collections.abc import Sequence

import torch
import torch.nn.functional as F  # noqa: N812  everybody's name for it
from torch import Tensor

from ct_dip.dip.unet import Upsampling, interpolate
from ct_dip.tangent.unet.convolutions import convolve, convolve_transposed, correlate
from ct_dip.tangent.unet.maps import as_map, constant, flat

# Up to this size an unfolded input is kept: it stays in the cache, and one batched matrix product serves
# all vectors. Beyond it, one convolution per vector is faster and needs no unfolding.
UNFOLDED_BYTES = 3 * 2**20


class ConvInput:
    """``w * a``.

    Args:
        activation: a, (1, inputs, rows, columns).
        filters: w, (outputs, inputs, taps, taps).
        stride: of the convolution, which is padded by half its taps.

    Attributes:
        size: outputs, inputs, taps, taps.
        places: rows and columns of the output.
        bytes: memory of the constants.
    """

    def __init__(self, activation: Tensor, filters: Tensor, stride: int = 1) -> None:
        self.size = filters.shape
        self.filters = constant(filters)
        self.flipped = constant(filters.transpose(0, 1).flip(2, 3))  # of the transpose
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

    def jvp(self, weights: Tensor, change: Tensor | None) -> Tensor:
        """Return ``δw * a + w * δa``, (n, outputs, rows, columns).

        Args:
            weights: δw, (n, outputs, inputs, taps, taps).
            change: δa, (n, inputs, …); None for an input that does not change.
        """
        if change is None:
            z = weights.new_zeros(len(weights), self.places[0] * self.places[1], weights.shape[1])
            z = as_map(z, self.places)
        else:
            z = self._convolve(change)
        if self.unfolded is not None:
            matrices = weights.flatten(2).transpose(1, 2)  # (n, inputs · taps², outputs)
            flat(z).baddbmm_(self.unfolded.to(z).expand(len(z), -1, -1), matrices)
            return z
        assert self.activation is not None
        for one, filters in zip(z, weights, strict=True):
            convolve(self.activation, filters, self.stride, add_to=one[None])
        return z

    def _convolve(self, change: Tensor) -> Tensor:
        """Return ``w * δa``."""
        return convolve(change, self.filters.to(change), self.stride)

    def weight_vjp(self, cotangent: Tensor) -> Tensor:
        """Pull cotangents of z, (n, outputs, rows, columns), back to w, (n, outputs, inputs, taps, taps)."""
        if self.unfolded is not None:
            left, right = flat(cotangent), self.unfolded.to(cotangent).expand(len(cotangent), -1, -1)
            # The narrower factor comes first: with 9 columns and 32 outputs that is six times faster.
            wide = right.shape[2] > left.shape[2]
            matrices = torch.bmm(left.mT, right) if wide else torch.bmm(right.mT, left).mT
            return torch.unflatten(matrices, 2, self.size[1:])
        assert self.activation is not None
        a, size, stride = self.activation, self.size, self.stride
        return torch.stack([correlate(a, one[None], size, stride) for one in cotangent])

    def input_vjp(self, cotangent: Tensor) -> Tensor:
        """Pull cotangents of z, (n, outputs, rows, columns), back to a, (n, inputs, …)."""
        if self.stride == 1:
            return convolve(cotangent, self.flipped.to(cotangent), 1)
        return convolve_transposed(cotangent, self.filters.to(cotangent), self.stride, self.input_places)


class PointwiseInput(ConvInput):
    """``w a`` with one tap: a matrix product, which torch's convolutions do slowly."""

    def _convolve(self, change: Tensor) -> Tensor:
        return as_map(flat(change) @ self.filters.to(change).flatten(1).T, self.places)

    def input_vjp(self, cotangent: Tensor, add_to: Tensor | None = None) -> Tensor:
        """Pull cotangents of z back to a, and add them to ``add_to``, in place, if it is given."""
        left, right = flat(cotangent), self.filters.to(cotangent).flatten(1)
        if add_to is not None:
            flat(add_to).baddbmm_(left, right.expand(len(left), -1, -1))
            return add_to
        return as_map(left * right if len(right) == 1 else left @ right, self.places)


class InterpolatedInput(ConvInput):
    """``w * (U a)``, with the interpolation U from a coarse grid to the next finer one.

    Args:
        activation: a, (1, inputs, *coarse).
        filters: w, (outputs, inputs, taps, taps).
        fine: rows and columns of U a.
        mode: of the interpolation.
    """

    def __init__(self, activation: Tensor, filters: Tensor, fine: Sequence[int], mode: Upsampling) -> None:
        super().__init__(interpolate(activation, fine, mode), filters)
        self.mode, self.coarse, self.fine = mode, list(activation.shape[-2:]), list(fine)

    def _convolve(self, change: Tensor) -> Tensor:
        return super()._convolve(interpolate(change, self.fine, self.mode))

    def input_vjp(self, cotangent: Tensor) -> Tensor:
        """Pull cotangents of z back to the coarse a."""
        y = super().input_vjp(cotangent)
        size = [*y.shape[:2], *self.coarse]
        pulled: Tensor  # torch has Uᵀ only as the gradient's own operator
        if self.mode == "nearest":
            pulled = torch.ops.aten.upsample_nearest2d_backward(y, self.fine, size)
        else:
            pulled = torch.ops.aten.upsample_bilinear2d_backward(y, self.fine, size, True)
        return pulled
