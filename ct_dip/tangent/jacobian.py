"""``J = ∂f/∂w`` at the fitted weights, as a linear map: the network is run once, then every product is cheap.

A weight of a convolution acts only through the convolution's output ``z_l = w_l * a_l``, whose input a_l is
the same for every product. So ``J_l = E_l B_l``: ``B_l`` takes weights to the change of z_l, and ``E_l``
that change to the image. `LinearisedUNet` has both and their transposes; here they become one map.
"""

import copy
import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from ct_dip.dip.unet import UNet, UNetShape, WeightBlock
from ct_dip.operators.linear_map import LinearMap
from ct_dip.tangent.linearised import LinearisedUNet
from ct_dip.tangent.parts import UNFOLDED_BYTES

# Of the largest map of one chunk: what fits the cache together with the other operands of a convolution.
# As measured, 1 to 8 MB make no difference, and from 32 MB on convolutions lose a quarter of their speed.
CHUNK_BYTES = 4 * 2**20
_MAPS_OF_A_PASS = 20  # of the largest in float32, with what they leave in the heap: 8 to 9; in float64 17


def jacobian_bytes(shape: UNetShape, image: tuple[int, int]) -> int:
    """Memory of a `Jacobian` and of its passes, for planning: the network runs on no image at all.

    (A batch of none has its shapes as well as one on torch's ``meta`` device, which takes seconds to import.)
    """
    network = UNet(shape)
    constants = 0
    largest = 0

    def count(module: nn.Module, parts: tuple[Tensor, ...], output: Tensor) -> None:
        nonlocal constants, largest
        assert isinstance(module, nn.Conv2d)
        taps = module.kernel_size[0] * module.kernel_size[1]
        channels, rows, columns = output.shape[1:]
        for part in parts:
            unfolded = 4 * rows * columns * taps * part.shape[1]
            constants += unfolded if unfolded <= UNFOLDED_BYTES else 4 * part.shape[1:].numel()
        # `Activation`; filters, as they are and flipped
        constants += 4 * (2 * channels * rows * columns + 2 * module.weight.numel())
        largest = max(largest, 4 * channels * rows * columns)

    for module in network.modules():
        if isinstance(module, nn.Conv2d):
            module.register_forward_hook(count)
    with torch.no_grad():
        network(torch.empty(0, 1, *image))
    return constants + _MAPS_OF_A_PASS * max(CHUNK_BYTES, largest)


class Jacobian(LinearMap):
    """``J`` of the convolution weights of a U-Net, (P,) → (rows, columns), in the network's O(1) units.

    The flat weights are those of `UNet.weight_blocks`, in that order; biases and the parameters of
    normalisations are not among them.

    Args:
        network: with the fitted weights.
        network_input: (1, 1, rows, columns).
        chunk_bytes: of the largest feature map of one pass; larger batches go in chunks.

    Attributes:
        weights: w̃, (P,).
        image: f(w̃), (rows, columns).
        blocks: `WeightBlock` of every part of the flat weights, and ``slices`` where it is.
        chunk: vectors in one pass.
        bytes: memory that the constants of the linearised network take.
    """

    def __init__(
        self,
        network: UNet,
        network_input: Tensor,
        *,
        chunk_bytes: int = CHUNK_BYTES,
    ) -> None:
        with torch.no_grad():
            self._network = LinearisedUNet(network, network_input)
            parameters = [network.get_parameter(n) for b in network.weight_blocks() for n in b.parameters]
            self.weights = torch.cat([parameter.flatten() for parameter in parameters])
        self.blocks = network.weight_blocks()
        convolutions = self._network.convolutions
        self.slices = {
            block.name: slice(
                convolutions[block.parameters[0]].slice.start, convolutions[block.parameters[-1]].slice.stop
            )
            for block in self.blocks
        }
        self.image = self._network.image
        self.bytes = self._network.bytes
        rows, columns = self.image.shape
        self.domain_shape: tuple[int] = (len(self.weights),)
        self.range_shape: tuple[int, int] = (rows, columns)
        self._largest = max(math.prod(c.output_shape) for c in convolutions.values())
        self._chunk_bytes = chunk_bytes
        self._choose_chunk()

    def _choose_chunk(self) -> None:
        self.chunk = max(1, self._chunk_bytes // (self._largest * self.weights.element_size()))

    def in_float64(self) -> "Jacobian":
        """The same map, with the same constants, whose products are in float64.

        Not a linearisation in float64: fits end with many features at the kink of their activation, where
        the network would have other slopes in another precision, and another J by some percent.
        """
        wide = copy.copy(self)
        wide._adjoint_map = None
        wide.weights, wide.image = self.weights.double(), self.image.double()
        wide._choose_chunk()
        return wide

    # Inside of a pass autograd has nothing to note, not even that a tensor is a view of another: with some
    # hundred small operations that takes a percent. What is returned is allocated before.

    def _forward(self, x: Tensor) -> Tensor:
        found = x.new_empty(len(x), *self.range_shape)
        for first in range(0, len(x), self.chunk):
            part = slice(first, first + self.chunk)
            with torch.inference_mode():
                found[part] = self._network.tangent(x[part].to(self.weights))
        return found

    def _adjoint(self, y: Tensor) -> Tensor:
        found = y.new_empty(len(y), *self.domain_shape)
        for first in range(0, len(y), self.chunk):
            part = slice(first, first + self.chunk)
            self._pull(y[part].to(self.weights), self.blocks, found[part])
        return found

    @torch.inference_mode()
    def _pull(self, images: Tensor, blocks: Sequence[WeightBlock], out: Tensor) -> None:
        """``Jᵀ u`` of some blocks, (n, rows, columns) → (n, their weights side by side)."""
        names = [name for block in blocks for name in block.parameters]
        sizes = [self._network.convolutions[name].size.numel() for name in names]
        missing = dict(zip(names, torch.split(out, sizes, dim=1), strict=True))
        for convolution, z in self._network.adjoint(images):
            if convolution.name in missing:
                convolution.to_weights(z, missing.pop(convolution.name))
            if not missing:
                return

    def columns(self, blocks: Sequence[WeightBlock]) -> Tensor:
        """The columns of J that belong to some blocks, (pixels, weights), by one pass per pixel."""
        pixels = self.image.numel()
        size = sum(self.slices[block.name].stop - self.slices[block.name].start for block in blocks)
        found = self.image.new_empty(pixels, size)
        for first in range(0, pixels, self.chunk):
            part = found[first : first + self.chunk]
            units = self.image.new_zeros(len(part), pixels)
            index = torch.arange(len(part), device=units.device)
            units[index, first + index] = 1
            self._pull(units.reshape(-1, *self.range_shape), blocks, part)
        return found
