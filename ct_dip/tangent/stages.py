"""The linear stages that a U-Net is made of once its weights' neighbourhood is all that matters.

Every stage knows its tangent (towards the image) and its adjoint (back), both for a batch of n vectors at
once and without autograd. Maps are (n, channels, rows, columns) in channels-last memory, in which
convolutions reach the speed of large matrix products; what can be done in place is.
"""

from collections.abc import Sequence

import torch
import torch.nn.functional as F  # noqa: N812  everybody's name for it
from torch import Tensor, nn
from torch.nn.grad import conv2d_weight

from ct_dip.dip.unet import SLOPE, Upsampling

# Up to this size an unfolded input is kept: it stays in the cache, and one batched matrix product serves
# all vectors. Beyond it, one convolution per vector is faster and needs no unfolding.
_UNFOLDED_BYTES = 3 * 2**20


class Part:
    """One of the inputs ``a`` that a convolution ``z = Σ_parts w * a`` sums over.

    Args:
        activation: a, (1, inputs, rows, columns).
        filters: w, (outputs, inputs, taps, taps).
        stride: of the convolution, which is padded by half its taps.
    """

    def __init__(self, activation: Tensor, filters: Tensor, stride: int) -> None:
        self.filters = _constant(filters)
        self.stride, self.padding = stride, filters.shape[-1] // 2
        self.pointwise = filters.shape[-1] == 1  # a matrix product, which torch's convolutions do slowly
        rows, columns = activation.shape[-2:]
        self.places = (-(-rows // stride), -(-columns // stride))  # of the output
        # What a transposed convolution cannot know: how many rows the stride left over.
        self.left_over = ((rows - 1) % stride, (columns - 1) % stride)
        self.activation: Tensor | None = None
        self.unfolded: Tensor | None = None  # (places, inputs · taps²)
        if self.places[0] * self.places[1] * filters[0].numel() * filters.element_size() <= _UNFOLDED_BYTES:
            unfolded = F.unfold(activation, filters.shape[-1], padding=self.padding, stride=stride)
            self.unfolded = unfolded[0].T.contiguous()
        else:
            self.activation = _constant(activation)

    @property
    def bytes(self) -> int:
        """Memory of the constants."""
        return sum(t.nbytes for t in (self.filters, self.activation, self.unfolded) if t is not None)

    def add_weights_(self, z: Tensor, weights: Tensor) -> None:
        """``z += B δw``: the fixed input under changed filters, (n, outputs, inputs, taps, taps)."""
        if self.unfolded is not None:
            matrices = weights.flatten(2).transpose(1, 2)  # (n, inputs · taps², outputs)
            _flat(z).baddbmm_(self.unfolded.expand(len(z), -1, -1), matrices)
            return
        for one, filters in zip(z, weights, strict=True):
            assert self.activation is not None
            one += F.conv2d(self.activation, filters, None, self.stride, self.padding)[0]

    def to_weights(self, z: Tensor) -> Tensor:
        """``Bᵀ z``: (n, outputs, rows, columns) → (n, outputs, inputs, taps, taps)."""
        if self.unfolded is not None:
            left, right = _flat(z), self.unfolded.expand(len(z), -1, -1)
            if right.shape[2] < left.shape[2]:  # the narrow one first: 6 times faster for the 9 taps of "in"
                products = torch.bmm(right.transpose(1, 2), left).transpose(1, 2)
            else:
                products = torch.bmm(left.transpose(1, 2), right)
            return products.reshape(len(z), *self.filters.shape)
        assert self.activation is not None
        size = self.filters.shape
        return torch.cat(
            [
                conv2d_weight(self.activation, size, one[None], self.stride, self.padding)[None]  # type: ignore[no-untyped-call]
                for one in z
            ]
        )

    def forward(self, x: Tensor) -> Tensor:
        """``E x``: a changed input under the fixed filters."""
        if self.pointwise:
            return _map(_flat(x) @ self.filters.flatten(1).T, self.places)
        return F.conv2d(x, self.filters, None, self.stride, self.padding)

    def adjoint(self, z: Tensor) -> Tensor:
        """``Eᵀ z``."""
        if self.pointwise:
            return _map(_flat(z) @ self.filters.flatten(1), self.places)
        return F.conv_transpose2d(z, self.filters, None, self.stride, self.padding, self.left_over)


class Convolution:
    """``δz = w * δa + δw * a``, of inputs that are joined along their channels.

    Args:
        name: of its weight in the network.
        start: of its weights in the flat vector of all weights.
        parts: the inputs a, each (1, inputs, rows, columns).
    """

    def __init__(self, name: str, start: int, module: nn.Conv2d, parts: Sequence[Tensor]) -> None:
        self.name = name
        self.size = module.weight.shape
        self.slice = slice(start, start + self.size.numel())
        self.inputs = [part.shape[1] for part in parts]
        filters = torch.split(module.weight, self.inputs, dim=1)
        self.parts = [Part(a, w, module.stride[0]) for a, w in zip(parts, filters, strict=True)]
        self.bytes = sum(part.bytes for part in self.parts)
        rows, columns = self.parts[0].places
        self.output_shape = (self.size[0], rows, columns)

    def tangent(self, weights: Tensor, *changes: Tensor) -> Tensor:
        """(n, P) and the changes of the inputs, none for a constant one → δz."""
        outputs, rows, columns = self.output_shape
        own = weights[:, self.slice].reshape(-1, *self.size)
        if changes:
            z = self.parts[0].forward(changes[0])
            for part, x in zip(self.parts[1:], changes[1:], strict=True):
                z += part.forward(x)
        else:
            z = _map(weights.new_zeros(len(weights), rows * columns, outputs), (rows, columns))
        for part, w in zip(self.parts, torch.split(own, self.inputs, dim=2), strict=True):
            part.add_weights_(z, w)
        return z

    def to_weights(self, z: Tensor, out: Tensor) -> None:
        """The adjoint towards the weights: (n, outputs, rows, columns) → out, (n, weights)."""
        own = torch.split(out.view(len(z), *self.size), self.inputs, dim=2)
        for part, weights in zip(self.parts, own, strict=True):
            weights.copy_(part.to_weights(z))

    def to_inputs(self, z: Tensor) -> list[Tensor]:
        """The adjoint towards the inputs."""
        return [part.adjoint(z) for part in self.parts]


class Activation:
    """Group normalisation, if any, and leaky ReLU: ``D P`` with a diagonal D and a projection P.

    Of ``x̂ = (z − μ) / σ`` per group, ``δx̂ = (δz − mean δz − x̂ mean(x̂ δz)) / σ =: P δz / σ``; D has the
    slope of the leaky ReLU, the scale γ of the normalisation, and 1/σ. P is its own transpose.

    Args:
        norm: `nn.GroupNorm` or `nn.Identity`.
        z: its input at the fit, (1, channels, rows, columns).
    """

    def __init__(self, norm: nn.Module, z: Tensor) -> None:
        self.diagonal = torch.ones_like(z).masked_fill_(norm(z) <= 0, SLOPE)
        self.standard: Tensor | None = None  # x̂
        self.groups = 1
        if isinstance(norm, nn.GroupNorm):
            self.groups = norm.num_groups
            grouped = z.reshape(self.groups, -1)
            deviation = (grouped.var(dim=1, correction=0) + norm.eps).sqrt()
            standard = (grouped - grouped.mean(dim=1, keepdim=True)) / deviation[:, None]
            self.standard = _constant(standard.reshape(z.shape))
            scale = norm.weight.reshape(self.groups, -1) / deviation[:, None]
            self.diagonal *= scale.reshape(1, -1, 1, 1)
        self.diagonal = _constant(self.diagonal)

    @property
    def bytes(self) -> int:
        """Memory of the constants."""
        return self.diagonal.nbytes + (0 if self.standard is None else self.standard.nbytes)

    def tangent_(self, z: Tensor) -> Tensor:
        """``D P z``, in place."""
        return self._project_(z).mul_(self.diagonal)

    def adjoint_(self, x: Tensor) -> Tensor:
        """``P D x``, in place."""
        return self._project_(x.mul_(self.diagonal))

    def _project_(self, z: Tensor) -> Tensor:
        if self.standard is None:
            return z
        flat, standard = _flat(z), _flat(self.standard)
        means = self._group_means(flat.mean(dim=1))
        products = self._group_means((flat * standard).mean(dim=1))
        flat.sub_(means).addcmul_(standard, products, value=-1)
        return z

    def _group_means(self, x: Tensor) -> Tensor:
        """(n, channels) → (n, 1, channels)."""
        grouped = x.reshape(len(x), self.groups, -1)
        return grouped.mean(dim=2, keepdim=True).expand_as(grouped).reshape(len(x), 1, -1)


class Interpolation:
    """From a coarse grid to the next finer one, as `UNet` does it."""

    def __init__(self, mode: Upsampling, coarse: Sequence[int], fine: Sequence[int]) -> None:
        self.mode, self.coarse, self.fine = mode, list(coarse), list(fine)

    def tangent(self, x: Tensor) -> Tensor:
        """(n, channels, *coarse) → (n, channels, *fine)."""
        align = None if self.mode == "nearest" else True
        return F.interpolate(x, size=self.fine, mode=self.mode, align_corners=align)

    def adjoint(self, y: Tensor) -> Tensor:
        """The transpose: torch has it only as the gradient's own operator."""
        size = [*y.shape[:2], *self.coarse]
        found: Tensor
        if self.mode == "nearest":
            found = torch.ops.aten.upsample_nearest2d_backward(y, self.fine, size)
        else:
            found = torch.ops.aten.upsample_bilinear2d_backward(y, self.fine, size, True)
        return found


def _constant(x: Tensor) -> Tensor:
    """A copy that no training step changes, with the channels of a pixel next to each other in memory."""
    return x.detach().clone(memory_format=torch.channels_last)


def _flat(x: Tensor) -> Tensor:
    """(n, channels, rows, columns) in channels-last memory → a view (n, places, channels)."""
    return x.permute(0, 2, 3, 1).flatten(1, 2)


def _map(x: Tensor, places: tuple[int, int]) -> Tensor:
    """The way back, from (n, places, channels)."""
    return x.reshape(len(x), *places, -1).permute(0, 3, 1, 2)
