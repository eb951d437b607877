"""``J = ∂f/∂w`` at the fitted weights, as a linear map: the network is run once, then every product is cheap.

A weight of a convolution acts only through the convolution's output ``z_l = w_l * a_l``, whose input a_l is
the same for every product. So ``J_l = E_l B_l``: ``B_l`` takes weights to the change of z_l, one matrix
product with the unfolded a_l; ``E_l = ∂f/∂z_l`` is the rest of the network, linearised. ``Eᵀ`` is its
backward pass, and E the backward pass of that one (linear in its argument, so no forward pass is needed),
both for a whole batch of vectors at once and through graphs that are kept.
"""

import copy
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812  everybody's name for it
from torch import Tensor, nn

from ct_dip.dip.unet import UNet, WeightBlock
from ct_dip.operators.linear_map import LinearMap

# A product keeps about this many maps of every convolution's output alive at once, as measured.
_MAPS = 4
CHUNK_BYTES = 64 * 2**20


class _Layer:
    """One convolution: its place in the flat weights, its input, and a handle on its output."""

    def __init__(self, module: nn.Conv2d, activation: Tensor, handle: Tensor, start: int) -> None:
        self.size = module.weight.shape  # (outputs, inputs, taps, taps)
        self.slice = slice(start, start + module.weight.numel())
        self.handle = handle  # zeros that were added to z_l: (1, outputs, rows, columns)
        padding, stride = _pair(module.padding), _pair(module.stride)
        # (inputs · taps², positions)
        self.unfolded = F.unfold(activation, _pair(self.size[-2:]), padding=padding, stride=stride)[0]

    def to_output(self, weights: Tensor) -> Tensor:
        """``B_l``: (n, outputs · inputs · taps²) → (n, 1, outputs, rows, columns)."""
        mixed = weights.reshape(-1, len(self.unfolded)) @ self.unfolded
        return mixed.reshape(len(weights), *self.handle.shape)

    def to_weights(self, outputs: Tensor) -> Tensor:
        """``B_lᵀ``: (n, 1, outputs, rows, columns) → (n, outputs · inputs · taps²)."""
        flat = outputs.reshape(len(outputs) * self.size[0], -1)
        return (flat @ self.unfolded.T).reshape(len(outputs), -1)


class Jacobian(LinearMap):
    """``J`` of the convolution weights of a U-Net, (P,) → (rows, columns), in the network's O(1) units.

    The flat weights are those of `UNet.weight_blocks`, in that order; biases and the parameters of
    normalisations are not among them.

    Args:
        network: with the fitted weights; float32 or float64, which is then the precision of the products.
        network_input: (1, 1, rows, columns).
        chunk_bytes: memory that the vectors of one pass may take; larger batches go in chunks.

    Attributes:
        weights: w̃, (P,).
        image: f(w̃), (rows, columns).
        blocks: `WeightBlock` of every part of the flat weights, and ``slices`` where it is.
    """

    def __init__(self, network: UNet, network_input: Tensor, *, chunk_bytes: int = CHUNK_BYTES) -> None:
        network = copy.deepcopy(network).requires_grad_(False)
        self.blocks = network.weight_blocks()
        convolutions = _convolutions(network)
        inputs, handles, self._output = _run_with_handles(network, convolutions, network_input)
        self._probe = torch.zeros_like(self._output, requires_grad=True)
        self._layers: dict[str, _Layer] = {}
        start = 0
        for name, module in convolutions.items():
            self._layers[name] = _Layer(module, inputs[name], handles[name], start)
            start = self._layers[name].slice.stop
        self.slices = {
            block.name: slice(
                self._layers[block.parameters[0]].slice.start, self._layers[block.parameters[-1]].slice.stop
            )
            for block in self.blocks
        }
        self.weights = torch.cat([module.weight.flatten() for module in convolutions.values()])
        self.image = self._output.detach()[0, 0]
        rows, columns = self.image.shape
        self.domain_shape: tuple[int] = (len(self.weights),)
        self.range_shape: tuple[int, int] = (rows, columns)
        maps = sum(layer.handle.numel() for layer in self._layers.values())
        bytes_per_vector = self.image.element_size() * (_MAPS * maps + len(self.weights))
        self.chunk = max(1, chunk_bytes // bytes_per_vector)

    @cached_property
    def _pulled(self) -> tuple[Tensor, ...]:
        """``Eᵀ u`` of every layer at the probe u, as graphs in u."""
        with torch.enable_grad():
            handles = [layer.handle for layer in self._layers.values()]
            return torch.autograd.grad(self._output, handles, self._probe, create_graph=True)

    def _forward(self, x: Tensor) -> Tensor:
        if not len(x):
            return x.new_zeros(0, *self.range_shape)
        own = x.to(self.weights.dtype)
        return torch.cat([self._push(part) for part in torch.split(own, self.chunk)]).to(x.dtype)

    def _push(self, weights: Tensor) -> Tensor:
        outputs = [layer.to_output(weights[:, layer.slice]) for layer in self._layers.values()]
        (image,) = torch.autograd.grad(
            self._pulled, self._probe, outputs, is_grads_batched=True, retain_graph=True
        )
        return image[:, 0, 0]

    def _adjoint(self, y: Tensor) -> Tensor:
        if not len(y):
            return y.new_zeros(0, *self.domain_shape)
        own, names = y.to(self.weights.dtype), list(self._layers)
        return torch.cat([self._pull(part, names) for part in torch.split(own, self.chunk)]).to(y.dtype)

    def _pull(self, images: Tensor, names: Sequence[str]) -> Tensor:
        layers = [self._layers[name] for name in names]
        outputs = torch.autograd.grad(
            self._output,
            [layer.handle for layer in layers],
            images[:, None, None],
            is_grads_batched=True,
            retain_graph=True,
        )
        return torch.cat([layer.to_weights(part) for layer, part in zip(layers, outputs, strict=True)], dim=1)

    def columns(self, blocks: Sequence[WeightBlock]) -> Tensor:
        """The columns of J that belong to some blocks, (pixels, weights), by one pass per pixel."""
        names = [name for block in blocks for name in block.parameters]
        pixels = self.image.numel()
        size = sum(self._layers[name].slice.stop - self._layers[name].slice.start for name in names)
        found = self.image.new_empty(pixels, size)
        for first in range(0, pixels, self.chunk):
            count = min(self.chunk, pixels - first)
            units = self.image.new_zeros(count, pixels)
            units[torch.arange(count), first + torch.arange(count)] = 1
            found[first : first + count] = self._pull(units.reshape(count, *self.range_shape), names)
        return found


def _convolutions(network: UNet) -> dict[str, nn.Conv2d]:
    """By the name of their weight, in the order of the blocks."""
    found = {}
    for block in network.weight_blocks():
        for name in block.parameters:
            module = network.get_submodule(name.removesuffix(".weight"))
            assert isinstance(module, nn.Conv2d)
            found[name] = module
    return found


def _run_with_handles(
    network: UNet, convolutions: dict[str, nn.Conv2d], network_input: Tensor
) -> tuple[dict[str, Tensor], dict[str, Tensor], Tensor]:
    """Inputs a_l of the convolutions, zeros added to their outputs z_l, and the network's output."""
    inputs: dict[str, Tensor] = {}
    handles: dict[str, Tensor] = {}

    def add_handle(name: str) -> Callable[[nn.Module, tuple[Tensor, ...], Tensor], Tensor]:
        def hook(module: nn.Module, parts: tuple[Tensor, ...], output: Tensor) -> Tensor:
            inputs[name] = torch.cat(parts, dim=1).detach()
            handles[name] = torch.zeros_like(output, requires_grad=True)
            return output + handles[name]

        return hook

    for name, module in convolutions.items():
        module.register_forward_hook(add_handle(name))
    with torch.enable_grad():
        return inputs, handles, network(network_input)


def _pair(values: Any) -> tuple[int, int]:
    rows, columns = values
    return int(rows), int(columns)
