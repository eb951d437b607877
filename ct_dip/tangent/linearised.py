"""The U-Net linearised in its weights: one pass towards the image, one back, without autograd.

At the fit every activation is a constant, so a change δw of all weights moves the image by a linear U-Net
with two terms per convolution, ``δz_l = w_l * δa_l + δw_l * a_l``, and its transpose takes an image to the
weights. Either costs at most the arithmetic of two forward passes: one with w, one with δw.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from ct_dip.dip.unet import UNet
from ct_dip.tangent.parts import InterpolatedPart, PlainPart, PointwisePart
from ct_dip.tangent.stages import Activation, Convolution


class _Layer(NamedTuple):
    """A convolution and what follows it up to the next one."""

    convolution: Convolution
    activation: Activation

    def tangent(self, weights: Tensor, *changes: Tensor) -> Tensor:
        return self.activation.tangent_(self.convolution.tangent(weights, *changes))

    def adjoint_(self, x: Tensor) -> Tensor:
        return self.activation.adjoint_(x)


class _Up(NamedTuple):
    skip: _Layer | None
    first: _Layer
    second: _Layer


class LinearisedUNet:
    """A U-Net around its weights, as linear stages; the network runs once, to find their constants.

    Args:
        network: with the fitted weights.
        network_input: (1, 1, rows, columns).

    Attributes:
        image: output at the fit, (rows, columns).
        convolutions: by the name of their weight.
        bytes: memory of all constants.
    """

    def __init__(self, network: UNet, network_input: Tensor) -> None:
        inputs, outputs, image = _run(network, network_input)
        starts = _starts(network)
        self.image = image[0, 0]
        self.convolutions: dict[str, Convolution] = {}
        self.bytes = 0

        def convolution(module: Any, coarse: Tensor | None = None) -> Convolution:
            """Of its inputs, the first one may be interpolated from a coarse map."""
            name, start = starts[module]
            recorded = inputs.pop(module)  # freed as its constants are made
            filters = torch.split(module.weight, [part.shape[1] for part in recorded], dim=1)
            parts: list[PlainPart] = []
            for activation, own in zip(recorded, filters, strict=True):
                if coarse is not None and not parts:
                    fine = activation.shape[-2:]
                    parts.append(InterpolatedPart(coarse, own, fine, network.shape.upsampling))
                elif own.shape[-1] == 1:
                    parts.append(PointwisePart(activation, own))
                else:
                    parts.append(PlainPart(activation, own, module.stride[0]))
            found = Convolution(name, start, parts)
            self.convolutions[name] = found
            self.bytes += found.bytes
            return found

        def layer(module: Any, norm: nn.Module, coarse: Tensor | None = None) -> _Layer:
            activation = Activation(norm, outputs.pop(module))
            self.bytes += activation.bytes
            return _Layer(convolution(module, coarse), activation)

        def double(module: Any, coarse: Tensor | None = None) -> tuple[_Layer, _Layer]:
            return layer(module.first, module.first_norm, coarse), layer(module.second, module.second_norm)

        self._first = layer(network.first, network.first_norm)
        self._downs = [double(down) for down in network.downs]
        self._ups = []
        for module in network.ups:
            up: Any = module
            skip = None if up.skip is None else layer(up.skip, nn.Identity())
            self._ups.append(_Up(skip, *double(up.convolutions, coarse=inputs.pop(up)[0])))
        self._last = convolution(network.last)
        self._output_slope = _output_slope(network, outputs.pop(network.last))[0, 0]

    def tangent(self, weights: Tensor) -> Tensor:
        """Changes of all weights, (n, P) → changes of the image, (n, rows, columns)."""
        levels = [self._first.tangent(weights)]
        for first, second in self._downs:
            levels.append(second.tangent(weights, first.tangent(weights, levels[-1])))
        x = levels.pop()
        for up in self._ups:
            fine = levels.pop()
            parts = [x] if up.skip is None else [x, up.skip.tangent(weights, fine)]
            x = up.second.tangent(weights, up.first.tangent(weights, *parts))
        return self._last.tangent(weights, x)[:, 0] * self._output_slope

    def adjoint(self, images: Tensor) -> Iterator[tuple[Convolution, Tensor]]:
        """Every convolution with the adjoint of images u at its output, last layer first.

        (n, rows, columns) → (n, outputs, rows, columns) of the layer, valid until the next one is asked for;
        who needs no more stops asking.
        """
        # What a ray transform returns has its images side by side, and all maps would inherit that layout.
        z = (images.contiguous() * self._output_slope)[:, None]
        yield self._last, z
        (x,) = self._last.to_inputs(z)
        skipped: list[tuple[PlainPart, Tensor] | None] = []  # skips and their cotangents, finest first
        for up in reversed(self._ups):
            z = up.second.adjoint_(x)
            yield up.second.convolution, z
            z = up.first.adjoint_(*up.second.convolution.to_inputs(z))
            yield up.first.convolution, z
            x, *skip = up.first.convolution.to_inputs(z)
            skipped.append(None)
            if up.skip is not None:
                z = up.skip.adjoint_(*skip)
                yield up.skip.convolution, z
                skipped[-1] = (up.skip.convolution.parts[0], z)
        for double in reversed(self._downs):
            for layer in reversed(double):
                z = layer.adjoint_(x)
                yield layer.convolution, z
                (x,) = layer.convolution.to_inputs(z)
            more = skipped.pop()
            if more is not None:
                part, z = more
                assert isinstance(part, PointwisePart)
                part.to_input(z, add_to=x)
        yield self._first.convolution, self._first.adjoint_(x)


def _run(
    network: UNet, network_input: Tensor
) -> tuple[dict[nn.Module, tuple[Tensor, ...]], dict[nn.Module, Tensor], Tensor]:
    """Inputs and outputs of all convolutions, coarse inputs of all ``ups``, and the image; by one pass."""
    inputs: dict[nn.Module, tuple[Tensor, ...]] = {}
    outputs: dict[nn.Module, Tensor] = {}

    def record(module: nn.Module, parts: tuple[Tensor, ...], output: Tensor) -> None:
        inputs[module], outputs[module] = parts, output

    def record_coarse(module: nn.Module, parts: tuple[Tensor, ...]) -> None:
        inputs[module] = parts[:1]

    convolutions = [module for module in network.modules() if isinstance(module, nn.Conv2d)]
    handles = [module.register_forward_hook(record) for module in convolutions]
    handles += [up.register_forward_pre_hook(record_coarse) for up in network.ups]
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
