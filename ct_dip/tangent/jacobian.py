"""``J = ∂f/∂w`` of any network at its fitted weights, as a linear map, by `torch.func`.

``tangent/unet/`` computes the same products faster for a `UNet`; `linearise` picks the class.
"""

import copy
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.func import functional_call, vjp, vmap

from ct_dip.devices import full_float32
from ct_dip.dip.own_network import weight_blocks
from ct_dip.dip.unet import WeightBlock
from ct_dip.operators.linear_map import LinearMap

# Of the largest map of one chunk: what fits the cache together with the other operands of a convolution.
# As measured, 1 to 8 MB make no difference, and from 32 MB on convolutions lose a quarter of their speed.
CPU_CHUNK_BYTES = 4 * 2**20
# On other devices a chunk hides the time that it takes to launch a kernel, which larger ones do no better.
_DEVICE_CHUNK_BYTES = 256 * 2**20
MAPS_OF_A_PASS = 20  # of the largest in float32, with what they leave in the heap: 8 to 9; in float64 17


def default_chunk_bytes(device: torch.device) -> int:
    """Return the size of the largest feature map of one pass, from the memory that the device has free."""
    if device.type == "cpu":
        return CPU_CHUNK_BYTES
    if device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
        return min(_DEVICE_CHUNK_BYTES, free // (2 * MAPS_OF_A_PASS))
    return _DEVICE_CHUNK_BYTES


class Jacobian(LinearMap):
    """``J`` of the convolution weights of a network, (P,) → (rows, columns), in the network's O(1) units.

    The flat weights are those of `weight_blocks`, in that order; biases and the parameters of normalisations
    are not among them. Products are made on the network's device and in its precision.

    Args:
        network: with the fitted weights.
        network_input: (1, channels, rows, columns).
        chunk_bytes: of the largest feature map of one pass; larger batches go in chunks.

    Attributes:
        weights: w̃, (P,).
        image: f(w̃), (rows, columns).
        blocks: `WeightBlock` of every part of the flat weights, and ``slices`` where it is.
        chunk: vectors in one pass.
        bytes: memory that the constants of the linearised network take.
    """

    domain_shape: tuple[int]
    range_shape: tuple[int, int]

    @full_float32()
    def __init__(self, network: nn.Module, network_input: Tensor, *, chunk_bytes: int | None = None) -> None:
        network = copy.deepcopy(network).requires_grad_(False)  # which no training step changes
        network_input = network_input.detach().clone()
        self._network, self._network_input = network, network_input
        self._set_domain(network)
        names = [name for block in self.blocks for name in block.parameters]
        shapes = [network.get_parameter(name).shape for name in names]
        largest = 0

        def image(weights: Tensor) -> Tensor:
            pieces = torch.split(weights, [shape.numel() for shape in shapes])
            own = {n: piece.view(shape) for n, piece, shape in zip(names, pieces, shapes, strict=True)}
            output: Tensor = functional_call(network, own, (network_input,))
            return output[0, 0]

        def measure(module: nn.Module, inputs: object, output: Tensor) -> None:
            nonlocal largest
            largest = max(largest, output.numel())

        hooks = [m.register_forward_hook(measure) for m in network.modules() if isinstance(m, nn.Conv2d)]
        value, pull = vjp(image, self.weights)[:2]
        for hook in hooks:
            hook.remove()
        self._pull = pull
        # J is the transpose of Jᵀ. (Forward-mode differentiation does not nest, and J must work inside it.)
        self._push = vjp(lambda u: pull(u)[0], torch.zeros_like(value))[1]
        self._set_range(value, largest, chunk_bytes)

    def _set_domain(self, network: nn.Module) -> None:
        self.blocks = weight_blocks(network)
        self.slices: dict[str, slice] = {}
        pieces, start = [], 0
        for block in self.blocks:
            pieces += [network.get_parameter(name).detach().flatten() for name in block.parameters]
            stop = sum(len(piece) for piece in pieces)
            self.slices[block.name], start = slice(start, stop), stop
        self.weights = torch.cat(pieces)
        self.domain_shape = (len(self.weights),)

    def _set_range(self, image: Tensor, largest: int, chunk_bytes: int | None) -> None:
        """Set the image, and the chunk from the elements that the largest map of one vector has."""
        self.image = image
        self.range_shape = (image.shape[0], image.shape[1])
        self._largest = largest
        self._chunk_bytes = default_chunk_bytes(image.device) if chunk_bytes is None else chunk_bytes
        self._choose_chunk()

    def _choose_chunk(self) -> None:
        self.chunk = max(1, self._chunk_bytes // (self._largest * self.weights.element_size()))

    def in_float64(self) -> "Jacobian":
        """Linearise the same network in float64, in which slopes at a kink of an activation may differ."""
        if self.weights.dtype is torch.float64:
            return self
        network = copy.deepcopy(self._network).double()
        return Jacobian(network, self._network_input.double(), chunk_bytes=self._chunk_bytes)

    def _jvp(self, weights: Tensor) -> Tensor:
        """Push changes of the weights, (n, P), to changes of the image, (n, rows, columns)."""
        changes: Tensor = vmap(self._push)(weights)[0]
        return changes

    def _vjp(self, images: Tensor, blocks: Sequence[WeightBlock], out: Tensor) -> None:
        """Pull images, (n, rows, columns), back to the weights of some blocks, side by side in ``out``."""
        pulled = vmap(self._pull)(images)[0]
        out.copy_(torch.cat([pulled[:, self.slices[block.name]] for block in blocks], dim=1))

    @full_float32()
    def _forward(self, x: Tensor) -> Tensor:
        y = x.new_empty(len(x), *self.range_shape)
        for first in range(0, len(x), self.chunk):
            part = slice(first, first + self.chunk)
            y[part] = self._jvp(x[part].to(self.weights))
        return y

    @full_float32()
    def _adjoint(self, y: Tensor) -> Tensor:
        x = y.new_empty(len(y), *self.domain_shape)
        for first in range(0, len(y), self.chunk):
            part = slice(first, first + self.chunk)
            self._vjp(y[part].to(self.weights), self.blocks, x[part])
        return x

    @torch.no_grad()
    @full_float32()
    def columns(self, blocks: Sequence[WeightBlock]) -> Tensor:
        """Return the columns of J that belong to some blocks, (pixels, weights), by one vjp per pixel."""
        pixels = self.image.numel()
        sizes = [self.slices[block.name].stop - self.slices[block.name].start for block in blocks]
        columns = self.image.new_empty(pixels, sum(sizes))
        for first in range(0, pixels, self.chunk):
            part = columns[first : first + self.chunk]
            units = self.image.new_zeros(len(part), pixels)
            units.diagonal(first).fill_(1)
            self._vjp(units.view(-1, *self.range_shape), blocks, part)
        return columns
