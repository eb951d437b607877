"""The linear stages that a U-Net is made of once its weights' neighbourhood is all that matters.

Every stage knows its tangent (towards the image) and its adjoint (back), both for a batch of n vectors at
once and without autograd; what can be done in place is. A product has the precision of its vectors, whatever
that of the constants is.
"""

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor, nn

from ct_dip.dip.unet import SLOPE
from ct_dip.tangent.maps import constant
from ct_dip.tangent.parts import PlainPart

_PIECE_BYTES = 2**20  # of a map that is multiplied by a constant of another precision


class Convolution:
    """``δz = w * δa + δw * a``, of inputs that are joined along their channels.

    Args:
        name: of its weight in the network.
        start: of its weights in the flat vector of all weights.
        parts: of the input.
    """

    def __init__(self, name: str, start: int, parts: Sequence[PlainPart]) -> None:
        self.name, self.parts = name, parts
        outputs, _, *taps = parts[0].size
        self.inputs = [part.size[1] for part in parts]
        self.size = torch.Size([outputs, sum(self.inputs), *taps])
        self.slice = slice(start, start + self.size.numel())
        self.bytes = sum(part.bytes for part in parts)
        self.output_shape = (outputs, *parts[0].places)

    def tangent(self, weights: Tensor, *changes: Tensor) -> Tensor:
        """(n, P) and the changes of the inputs, none for a constant one → δz."""
        own = torch.split(weights[:, self.slice].reshape(-1, *self.size), self.inputs, dim=2)
        if not changes:
            return self.parts[0].tangent(own[0], None)
        z = self.parts[0].tangent(own[0], changes[0])
        for part, w, x in zip(self.parts[1:], own[1:], changes[1:], strict=True):
            z += part.tangent(w, x)
        return z

    def to_weights(self, z: Tensor, out: Tensor) -> None:
        """Cotangent of the output, (n, outputs, rows, columns) → that of the weights, out, (n, weights)."""
        pieces = torch.split(out.view(-1, *self.size), self.inputs, dim=2)
        for part, piece in zip(self.parts, pieces, strict=True):
            piece.copy_(part.to_weights(z))

    def to_inputs(self, z: Tensor) -> list[Tensor]:
        """Cotangent of the output → those of the inputs."""
        return [part.to_input(z) for part in self.parts]


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
            self.standard = constant(standard.reshape(z.shape))
            scale = norm.weight.reshape(self.groups, -1) / deviation[:, None]
            self.diagonal *= scale.reshape(1, -1, 1, 1)
        self.diagonal = constant(self.diagonal)

    @property
    def bytes(self) -> int:
        """Memory of the constants."""
        return self.diagonal.nbytes + (0 if self.standard is None else self.standard.nbytes)

    def tangent_(self, z: Tensor) -> Tensor:
        """``D P z``, in place."""
        return self._scale_(self._project_(z))

    def adjoint_(self, x: Tensor) -> Tensor:
        """``P D x``, in place."""
        return self._project_(self._scale_(x))

    def _scale_(self, z: Tensor) -> Tensor:
        if z.dtype == self.diagonal.dtype:
            return z.mul_(self.diagonal)
        for rows in self._pieces(z):
            z[..., rows, :].mul_(self.diagonal[..., rows, :])
        return z

    def _project_(self, z: Tensor) -> Tensor:
        if self.standard is None:
            return z
        pieces = list(self._pieces(z))
        means = self._group_means(z)
        products = torch.zeros_like(means)
        for rows in pieces:
            products += self._group_means(z[..., rows, :] * self.standard[..., rows, :])
        for rows in pieces:
            z[..., rows, :].sub_(means).addcmul_(self.standard[..., rows, :], products, value=-1)
        return z

    def _pieces(self, z: Tensor) -> Iterator[slice]:
        """Rows that are taken together: where precisions differ, torch copies what it reads."""
        rows, step = z.shape[2], z.shape[2]
        if z.dtype != self.diagonal.dtype:
            step = max(1, _PIECE_BYTES * rows // max(1, z.nbytes))
        for first in range(0, rows, step):
            yield slice(first, first + step)

    def _group_means(self, x: Tensor) -> Tensor:
        """(n, channels, rows, columns) → (n, channels, 1, 1), every channel with its group's share of a mean.

        Rows first: torch then gives a thread the same rows as the operations before and after it do. Asked
        for all places at once it gives each thread some channels, so that every row travels between the
        cores; where these share no cache, products were up to a quarter slower.
        """
        n, channels, rows, _ = x.shape
        sums = x.permute(0, 2, 3, 1).flatten(0, 1).sum(dim=1)  # (n · rows, channels)
        means = sums.view(n, rows, self.groups, -1).sum(dim=(1, 3)) * (self.groups / self.diagonal.numel())
        return means.repeat_interleave(channels // self.groups, dim=1)[:, :, None, None]
