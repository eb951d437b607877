"""The U-Net of the deep-image-prior papers: an encoder-decoder with 1×1 skips.

::

    input ─ in ──────────────────────────── skip ─┐
             └─ down ───────────── skip ─┐        │
                 └─ down ── … ── up ─────┴─ up ───┴─ 1×1 ─ output

``in`` is a 3×3 convolution; ``down`` two of them, the first with stride 2; ``up`` interpolates to the
finer grid, appends the skip, and has two more. Leaky ReLU with slope 0.2 everywhere, group normalisation
before it where asked for. Any image size of at least 2^(scales − 1) pixels works, odd ones too.
"""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
import torch.nn.functional as F  # noqa: N812  everybody's name for it
from torch import Tensor, nn

from ct_dip.errors import InputError

SLOPE = 0.2

Output = Literal["sigmoid", "identity", "softplus"]
Upsampling = Literal["bilinear", "nearest"]


@dataclass(frozen=True, kw_only=True)
class UNetShape:
    """The shape of a U-Net.

    Args:
        channels: of every scale, finest first; its length is the number of scales.
        skip_channels: of the skip into every ``up``, finest first; 0 for none.
        norm_groups: of the group normalisation; 0 for none.
        output: last activation.
        upsampling: interpolation of the ``up`` blocks.
    """

    channels: tuple[int, ...]
    skip_channels: tuple[int, ...]
    norm_groups: int = 0
    output: Output = "sigmoid"
    upsampling: Upsampling = "bilinear"

    def __post_init__(self) -> None:
        if len(self.channels) < 1 or any(c < 1 for c in self.channels):
            raise InputError(f"channels {self.channels} must be one positive number per scale")
        if len(self.skip_channels) != len(self.channels) - 1 or any(c < 0 for c in self.skip_channels):
            raise InputError(
                f"skip_channels {self.skip_channels} must be {len(self.channels) - 1} numbers, one for "
                "every scale but the coarsest, 0 for no skip"
            )
        indivisible = [c for c in self.channels if self.norm_groups and c % self.norm_groups]
        if self.norm_groups < 0 or indivisible:
            raise InputError(f"norm_groups {self.norm_groups} must divide the channels {self.channels}")

    @property
    def scales(self) -> int:
        """Number of resolutions."""
        return len(self.channels)

    def check_image(self, shape: tuple[int, int]) -> None:
        """Refuse images that vanish on the way down."""
        least = 2 ** (self.scales - 1)
        if min(shape) < least:
            raise InputError(
                f"an image of {shape[0]} × {shape[1]} pixels is too small for {self.scales} scales, which "
                f"need {least}; use fewer scales (dip.channels)"
            )


class WeightBlock(NamedTuple):
    """Convolution weights that share a prior; see `UNet.weight_blocks`."""

    name: str  # in, down0, …, up0, …, skip0, …, out
    kernel: int  # 3 or 1
    parameters: tuple[str, ...]  # names in ``UNet.named_parameters()``
    normalised: bool  # followed by a normalisation, so that its scale does not matter


class _JoinedConvolution(nn.Conv2d):
    """The convolution of several inputs that were joined along their channels, without joining them.

    The 32 + 4 channels of a skip would be 36, for which the grouped convolutions of an ensemble have no
    fast path: in two parts they take a third of the time, and a single network loses nothing.
    """

    def forward(self, *parts: Tensor) -> Tensor:
        weights = torch.split(self.weight, [part.shape[-3] for part in parts], dim=1)
        total = F.conv2d(parts[0], weights[0], self.bias, self.stride, self.padding)
        for part, weight in zip(parts[1:], weights[1:], strict=True):
            total = total + F.conv2d(part, weight, None, self.stride, self.padding)
        return total


class _DoubleConvolution(nn.Module):
    def __init__(self, inputs: int, outputs: int, stride: int, groups: int) -> None:
        super().__init__()
        self.first = _JoinedConvolution(inputs, outputs, 3, stride=stride, padding=1)
        self.first_norm = _norm(outputs, groups)
        self.second = nn.Conv2d(outputs, outputs, 3, padding=1)
        self.second_norm = _norm(outputs, groups)

    def forward(self, *parts: Tensor) -> Tensor:
        x = F.leaky_relu(self.first_norm(self.first(*parts)), SLOPE)
        return F.leaky_relu(self.second_norm(self.second(x)), SLOPE)


class _Up(nn.Module):
    def __init__(
        self, inputs: int, fine: int, skip: int, outputs: int, groups: int, upsampling: Upsampling
    ) -> None:
        super().__init__()
        self.skip = nn.Conv2d(fine, skip, 1) if skip else None
        self.convolutions = _DoubleConvolution(inputs + skip, outputs, 1, groups)
        self.upsampling = upsampling

    def forward(self, x: Tensor, fine: Tensor) -> Tensor:
        x = interpolate(x, fine.shape[-2:], self.upsampling)
        if self.skip is None:
            return self.convolutions(x)
        return self.convolutions(x, F.leaky_relu(self.skip(fine), SLOPE))


class UNet(nn.Module):
    """(batch, 1, rows, columns) → (batch, 1, rows, columns)."""

    def __init__(self, shape: UNetShape) -> None:
        super().__init__()
        self.shape = shape
        channels, groups = shape.channels, shape.norm_groups
        self.first = nn.Conv2d(1, channels[0], 3, padding=1)
        self.first_norm = _norm(channels[0], groups)
        pairs = list(itertools.pairwise(channels))
        self.downs = nn.ModuleList(_DoubleConvolution(a, b, 2, groups) for a, b in pairs)
        self.ups = nn.ModuleList(
            _Up(coarse, fine, skip, fine, groups, shape.upsampling)
            for (fine, coarse), skip in zip(reversed(pairs), reversed(shape.skip_channels), strict=True)
        )
        self.last = nn.Conv2d(channels[0], 1, 1)

    def initialise(self, generator: torch.Generator, mean: float) -> None:
        """Set random weights that let signals through, and an output that begins at ``mean``.

        He et al. (2015): with variance ``2 / ((1 + slope²) fan_in)`` and zero biases, features keep their
        size through any number of layers. torch's default has a sixth of that variance, so that after a
        dozen layers the image begins as a constant, which costs a fit hundreds of steps.
        """
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, a=SLOPE, generator=generator)
                module.bias.data.zero_()  # type: ignore[union-attr]
        begin = mean
        if self.shape.output == "sigmoid":
            begin = math.log(mean / (1 - mean))
        elif self.shape.output == "softplus":
            begin = math.log(math.expm1(mean))
        self.last.bias.data.fill_(begin)  # type: ignore[union-attr]

    def forward(self, x: Tensor) -> Tensor:
        """Map (batch, 1, rows, columns) to the same shape."""
        levels = [F.leaky_relu(self.first_norm(self.first(x)), SLOPE)]
        for down in self.downs:
            levels.append(down(levels[-1]))
        x = levels[-1]
        for up, fine in zip(self.ups, reversed(levels[:-1]), strict=True):
            x = up(x, fine)
        x = self.last(x)
        if self.shape.output == "sigmoid":
            return torch.sigmoid(x)
        return F.softplus(x) if self.shape.output == "softplus" else x

    def weight_blocks(self) -> list[WeightBlock]:
        """Group the convolution weights as a prior over them does: every parameter once, no biases.

        ``in``, each ``down`` and each ``up`` (coarsest first) with 3×3 taps; skips and output with 1×1.
        A normalised convolution is a block of its own (``down0.first``, ``down0.second``): its scale means
        nothing, so it must not share a variance with another one. (The channel groups of one layer could
        be rescaled apart as well; they share a variance, which would else be thousands of matrices.)
        """
        blocks = [WeightBlock("in", 3, ("first.weight",), self.shape.norm_groups > 0)]
        for i in range(len(self.downs)):
            blocks += self._double_block(f"down{i}", f"downs.{i}")
        for i, up in enumerate(self.ups):
            blocks += self._double_block(f"up{i}", f"ups.{i}.convolutions")
            if up.skip is not None:
                blocks.append(WeightBlock(f"skip{i}", 1, (f"ups.{i}.skip.weight",), False))
        blocks.append(WeightBlock("out", 1, ("last.weight",), False))
        return blocks

    def _double_block(self, name: str, module: str) -> list[WeightBlock]:
        parameters = {part: f"{module}.{part}.weight" for part in ("first", "second")}
        if not self.shape.norm_groups:
            return [WeightBlock(name, 3, tuple(parameters.values()), False)]
        return [WeightBlock(f"{name}.{part}", 3, (weight,), True) for part, weight in parameters.items()]


def interpolate(x: Tensor, size: Sequence[int], mode: Upsampling) -> Tensor:
    """Interpolate (batch, channels, rows, columns) → (batch, channels, *size), as the ``up`` blocks do."""
    return F.interpolate(x, list(size), mode=mode, align_corners=None if mode == "nearest" else True)


def _norm(channels: int, groups: int) -> nn.Module:
    return nn.GroupNorm(groups, channels) if groups else nn.Identity()
