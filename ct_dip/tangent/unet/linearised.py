"""Linearise a U-Net in its weights: one pass towards the image, one back, without autograd.

At the fit every activation is a constant, so a change δw of all weights moves the image by a linear U-Net
with two terms per convolution, ``δz_l = w_l * δa_l + δw_l * a_l``, and its transpose takes an image to the
weights. Either costs at most the arithmetic of two forward passes: one with w, one with δw.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from ct_dip.dip.unet import UNet
from ct_dip.tangent.unet.conv_inputs import ConvInput, InterpolatedInput, PointwiseInput
from ct_dip.tangent.unet.layers import Activation, Convolution


class _Layer(NamedTuple):
    """A convolution and what follows it up to the next one."""

    convolution: Convolution
    activation: Activation

    def jvp(self, weights: Tensor, *changes: Tensor) -> Tensor:
        return self.activation.jvp_(self.convolution.jvp(weights, *changes))


class _Up(NamedTuple):
    skip: _Layer | None
    first: _Layer
    second: _Layer


class LinearisedUNet:
    """A U-Net around its weights, as linear layers; the network runs once, to find their constants.

    Args:
        network: with the fitted weights.
        network_input: (1, 1, rows, columns).

    Attributes:
        image: output at the fit, (rows, columns).
        convolutions: by the name of their weight.
        bytes: memory of all constants.
    """

    @torch.no_grad()
    def __init__(self, network: UNet, network_input: Tensor) -> None:
        inputs, outputs, image = _run(network, network_input)
        starts = _starts(network)
        self.image = image[0, 0]
        self.convolutions: dict[str, Convolution] = {}
        self.bytes = 0

        def convolution(module: Any, coarse: Tensor | None = None) -> Convolution:
            """Linearise a convolution, whose first input may be interpolated from a coarse map."""
            name, start = starts[module]
            recorded = inputs.pop(module)  # freed as its constants are made
            filters = torch.split(module.weight, [a.shape[1] for a in recorded], dim=1)
            linear: list[ConvInput] = []
            for a, w in zip(recorded, filters, strict=True):
                if coarse is not None and not linear:
                    linear.append(InterpolatedInput(coarse, w, a.shape[-2:], network.shape.upsampling))
                elif w.shape[-1] == 1:
                    linear.append(PointwiseInput(a, w))
                else:
                    linear.append(ConvInput(a, w, module.stride[0]))
            self.convolutions[name] = Convolution(name, start, linear)
            self.bytes += self.convolutions[name].bytes
            return self.convolutions[name]

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

    def jvp(self, weights: Tensor) -> Tensor:
        """Push changes of all weights, (n, P), to changes of the image, (n, rows, columns)."""
        levels = [self._first.jvp(weights)]
        for first, second in self._downs:
            levels.append(second.jvp(weights, first.jvp(weights, levels[-1])))
        x = levels.pop()
        for up in self._ups:
            fine = levels.pop()
            changes = [x] if up.skip is None else [x, up.skip.jvp(weights, fine)]
            x = up.second.jvp(weights, up.first.jvp(weights, *changes))
        return self._last.jvp(weights, x)[:, 0] * self._output_slope

    def cotangents(self, images: Tensor) -> Iterator[tuple[Convolution, Tensor]]:
        """Pull cotangents of the image, (n, rows, columns), back to the output of every convolution.

        Yields every convolution with its cotangents, (n, outputs, …), last layer first, valid until the next
        one is asked for; who needs no more stops asking.
        """
        # What a ray transform returns has its images side by side, and all maps would inherit that layout.
        z = (images.contiguous() * self._output_slope)[:, None]
        yield self._last, z
        (x,) = self._last.input_vjp(z)
        skips: list[tuple[PointwiseInput, Tensor] | None] = []  # with their cotangents, finest first
        for up in reversed(self._ups):
            z = up.second.activation.vjp_(x)
            yield up.second.convolution, z
            z = up.first.activation.vjp_(*up.second.convolution.input_vjp(z))
            yield up.first.convolution, z
            x, *from_skip = up.first.convolution.input_vjp(z)
            skips.append(None)
            if up.skip is not None:
                z = up.skip.activation.vjp_(*from_skip)
                yield up.skip.convolution, z
                (fine,) = up.skip.convolution.inputs
                assert isinstance(fine, PointwiseInput)
                skips[-1] = (fine, z)
        for double in reversed(self._downs):
            for layer in reversed(double):
                z = layer.activation.vjp_(x)
                yield layer.convolution, z
                (x,) = layer.convolution.input_vjp(z)
            skip = skips.pop()
            if skip is not None:
                fine, z = skip
                fine.input_vjp(z, add_to=x)
        yield self._first.convolution, self._first.activation.vjp_(x)


def _run(
    network: UNet, network_input: Tensor
) -> tuple[dict[nn.Module, tuple[Tensor, ...]], dict[nn.Module, Tensor], Tensor]:
    """Record inputs and outputs of all convolutions, coarse inputs of all ``ups``, and the image."""
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
    """Return the name of every convolution's weight and where it begins in the flat weights."""
    starts: dict[nn.Module, tuple[str, int]] = {}
    start = 0
    for name in (name for block in network.weight_blocks() for name in block.parameters):
        starts[network.get_submodule(name.removesuffix(".weight"))] = (name, start)
        start += network.get_parameter(name).numel()
    return starts


def _output_slope(network: UNet, z: Tensor) -> Tensor:
    """Return the derivative of the last activation."""
    if network.shape.output == "identity":
        return torch.ones_like(z)
    f = torch.sigmoid(z)
    return f * (1 - f) if network.shape.output == "sigmoid" else f
