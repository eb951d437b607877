"""The linear layers that a U-Net is made of once its weights' neighbourhood is all that matters.

Every layer has its Jacobian-vector product (jvp, towards the image) and its vector-Jacobian product (vjp,
back), both for a batch of n vectors at once and without autograd; what can be done in place is. A product has
the precision of its vectors, whatever that of the constants is.
"""

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor, nn

from ct_dip.dip.unet import SLOPE
from ct_dip.tangent.unet.conv_inputs import ConvInput
from ct_dip.tangent.unet.maps import constant

_PIECE_BYTES = 2**20  # of a map that is multiplied by a constant of another precision


class Convolution:
    """``δz = w * δa + δw * a``, of inputs that are joined along their channels.

    Args:
        name: of its weight in the network.
        start: of its weights in the flat vector of all weights.
        inputs: that it sums over.
    """

    def __init__(self, name: str, start: int, inputs: Sequence[ConvInput]) -> None:
        self.name, self.inputs = name, inputs
        outputs, _, *taps = inputs[0].size
        self._channels = [a.size[1] for a in inputs]
        self.size = torch.Size([outputs, sum(self._channels), *taps])
        self.slice = slice(start, start + self.size.numel())
        self.bytes = sum(a.bytes for a in inputs)
        self.output_shape = (outputs, *inputs[0].places)

    def jvp(self, weights: Tensor, *changes: Tensor) -> Tensor:
        """Return δz of changes of all weights, (n, P), and of the inputs; none if the input is constant."""
        own = torch.split(weights[:, self.slice].reshape(-1, *self.size), self._channels, dim=2)
        z = self.inputs[0].jvp(own[0], changes[0] if changes else None)
        for a, w, change in zip(self.inputs[1:], own[1:], changes[1:], strict=True):
            z += a.jvp(w, change)
        return z

    def weight_vjp(self, cotangent: Tensor, out: Tensor) -> None:
        """Pull cotangents of z back to the weights and write them to ``out``, (n, weights)."""
        pieces = torch.split(out.view(-1, *self.size), self._channels, dim=2)
        for a, piece in zip(self.inputs, pieces, strict=True):
            piece.copy_(a.weight_vjp(cotangent))

    def input_vjp(self, cotangent: Tensor) -> list[Tensor]:
        """Pull cotangents of z back to every input."""
        return [a.input_vjp(cotangent) for a in self.inputs]


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
        """Return the memory of the constants."""
        return self.diagonal.nbytes + (0 if self.standard is None else self.standard.nbytes)

    def jvp_(self, z: Tensor) -> Tensor:
        """Replace changes of z by ``D P z``."""
        return self._scale_(self._project_(z))

    def vjp_(self, x: Tensor) -> Tensor:
        """Replace cotangents of the output by ``P D x``, those of z."""
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
        """Yield rows to be taken together: where precisions differ, torch copies what it reads."""
        rows, step = z.shape[2], z.shape[2]
        if z.dtype != self.diagonal.dtype:
            step = max(1, _PIECE_BYTES * rows // max(1, z.nbytes))
        for first in range(0, rows, step):
            yield slice(first, first + step)

    def _group_means(self, x: Tensor) -> Tensor:
        """Average z's rows over their groups: (n, channels, rows, columns) → (n, channels, 1, 1).

        Some rows give their share of the mean over all rows.

        Rows first: torch then gives a thread the same rows as the operations before and after it do. Asked
        for all places at once it gives each thread some channels, so that every row travels between the
        cores; where these share no cache, products were up to a quarter slower.
        """
        n, channels, rows, _ = x.shape
        sums = x.permute(0, 2, 3, 1).flatten(0, 1).sum(dim=1)  # (n · rows, channels)
        means = sums.view(n, rows, self.groups, -1).sum(dim=(1, 3)) * (self.groups / self.diagonal.numel())
        return means.repeat_interleave(channels // self.groups, dim=1)[:, :, None, None]
