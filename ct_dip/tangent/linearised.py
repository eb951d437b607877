"""The U-Net linearised in its weights: one pass towards the image, one back, without autograd.

At the fit every activation is a constant, so a change δw of all weights moves the image by a linear U-Net
with two terms per convolution, ``δz_l = w_l * δa_l + δw_l * a_l``, and its transpose takes an image to the
weights. Either costs the arithmetic of two forward passes: one with w, one with δw.
"""

import copy
import itertools
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from ct_dip.dip.unet import UNet
from ct_dip.tangent.stages import Activation, Convolution, Interpolation


class _Layer(NamedTuple):
    """A convolution and what follows it up to the next one."""

    convolution: Convolution
    activation: Activation

    def tangent(self, weights: Tensor, *changes: Tensor) -> Tensor:
        return self.activation.tangent_(self.convolution.tangent(weights, *changes))


class _Up(NamedTuple):
    interpolation: Interpolation
    skip: _Layer | None
    first: _Layer
    second: _Layer


class LinearisedUNet:
    """A U-Net around its weights, as linear stages; the network runs once, to find their constants.

    Args:
        network: with the fitted weights.
        network_input: (1, 1, rows, columns).
        dtype: of the products; the network itself runs in its own precision.

    Attributes:
        image: output at the fit, (rows, columns).
        convolutions: by the name of their weight.
        bytes: memory of all constants.
    """

    def __init__(self, network: UNet, network_input: Tensor, dtype: torch.dtype) -> None:
        inputs, outputs, image = _run(network, network_input)
        if dtype != network_input.dtype:
            # Fits end with many features at the kink of their activation: run in another precision, the
            # network would have other slopes there, and another J by some percent.
            wide = copy.deepcopy(network).to(dtype)
            twin = dict(zip(network.modules(), wide.modules(), strict=True))
            inputs = {twin[m]: tuple(part.to(dtype) for part in parts) for m, parts in inputs.items()}
            outputs = {twin[m]: output.to(dtype) for m, output in outputs.items()}
            network, image = wide, image.to(dtype)
        starts = _starts(network)
        self.image = image[0, 0]
        self.convolutions: dict[str, Convolution] = {}
        self.bytes = 0

        def convolution(module: Any) -> Convolution:
            name, start = starts[module]
            found = Convolution(name, start, module, inputs[module])
            self.convolutions[name] = found
            self.bytes += found.bytes
            return found

        def layer(module: Any, norm: nn.Module) -> _Layer:
            activation = Activation(norm, outputs[module])
            self.bytes += activation.bytes
            return _Layer(convolution(module), activation)

        def double(module: Any) -> tuple[_Layer, _Layer]:
            return layer(module.first, module.first_norm), layer(module.second, module.second_norm)

        self._first = layer(network.first, network.first_norm)
        self._downs = [double(down) for down in network.downs]
        sizes = [self.image.shape, *(second.activation.diagonal.shape[-2:] for _, second in self._downs)]
        self._ups = []
        for module, (coarse, fine) in zip(network.ups, itertools.pairwise(reversed(sizes)), strict=True):
            up: Any = module
            grid = Interpolation(network.shape.upsampling, coarse, fine)
            skip = None if up.skip is None else layer(up.skip, nn.Identity())
            self._ups.append(_Up(grid, skip, *double(up.convolutions)))
        self._last = convolution(network.last)
        self._output_slope = _output_slope(network, outputs[network.last])[0, 0]

    def tangent(self, weights: Tensor) -> Tensor:
        """Changes of all weights, (n, P) → changes of the image, (n, rows, columns)."""
        levels = [self._first.tangent(weights)]
        for first, second in self._downs:
            levels.append(second.tangent(weights, first.tangent(weights, levels[-1])))
        x = levels.pop()
        for up in self._ups:
            fine = levels.pop()
            x = up.interpolation.tangent(x)
            parts = [x] if up.skip is None else [x, up.skip.tangent(weights, fine)]
            x = up.second.tangent(weights, up.first.tangent(weights, *parts))
        return self._last.tangent(weights, x)[:, 0] * self._output_slope

    def adjoint(self, images: Tensor) -> Iterator[tuple[Convolution, Tensor]]:
        """Every convolution with ``Eᵀ u``, the adjoint of an image u at its output, last layer first.

        (n, rows, columns) → (n, outputs, rows, columns), to be used before the next one is asked for, which
        overwrites it. `Convolution.to_weights` takes it to the weights; who needs no more stops asking.
        """
        z = (images * self._output_slope)[:, None]
        yield self._last, z
        (x,) = self._last.to_inputs(z)
        skipped: list[Tensor | None] = []  # what reaches the levels through the skips, finest first
        for up in reversed(self._ups):
            for layer in (up.second, up.first):
                z = layer.activation.adjoint_(x)
                yield layer.convolution, z
                x, *skip = layer.convolution.to_inputs(z)
            skipped.append(None)
            if up.skip is not None:
                z = up.skip.activation.adjoint_(skip[0])
                yield up.skip.convolution, z
                (skipped[-1],) = up.skip.convolution.to_inputs(z)
            x = up.interpolation.adjoint(x)
        for double in reversed(self._downs):
            for layer in reversed(double):
                z = layer.activation.adjoint_(x)
                yield layer.convolution, z
                (x,) = layer.convolution.to_inputs(z)
            more = skipped.pop()
            if more is not None:
                x += more
        yield self._first.convolution, self._first.activation.adjoint_(x)


def _run(
    network: UNet, network_input: Tensor
) -> tuple[dict[nn.Module, tuple[Tensor, ...]], dict[nn.Module, Tensor], Tensor]:
    """Inputs (one or more) and outputs of all convolutions, and the image, from one forward pass."""
    inputs: dict[nn.Module, tuple[Tensor, ...]] = {}
    outputs: dict[nn.Module, Tensor] = {}

    def record(module: nn.Module, parts: tuple[Tensor, ...], output: Tensor) -> None:
        inputs[module], outputs[module] = parts, output

    convolutions = [module for module in network.modules() if isinstance(module, nn.Conv2d)]
    handles = [module.register_forward_hook(record) for module in convolutions]
    try:
        image = network(network_input)
    finally:
        for handle in handles:
            handle.remove()
    return inputs, outputs, image


def _starts(network: UNet) -> dict[nn.Module, tuple[str, int]]:
    """Name of every convolution's weight and where it begins in the flat weights."""
    found: dict[nn.Module, tuple[str, int]] = {}
    start = 0
    for name in (name for block in network.weight_blocks() for name in block.parameters):
        found[network.get_submodule(name.removesuffix(".weight"))] = (name, start)
        start += network.get_parameter(name).numel()
    return found


def _output_slope(network: UNet, z: Tensor) -> Tensor:
    """Derivative of the last activation."""
    if network.shape.output == "identity":
        return torch.ones_like(z)
    f = torch.sigmoid(z)
    return f * (1 - f) if network.shape.output == "sigmoid" else f
