"""`Jacobian` of a U-Net without autograd: the network is run once, then every product is cheap.

A weight of a convolution acts only through the convolution's output ``z_l = w_l * a_l``, whose input a_l is
the same for every product. So ``J_l = E_l B_l``: ``B_l`` takes weights to the change of z_l, and ``E_l``
that change to the image. `LinearisedUNet` has both and their transposes; here they become one map.
"""

import copy
import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from ct_dip.devices import full_float32
from ct_dip.dip.unet import UNet, UNetShape, WeightBlock
from ct_dip.tangent.jacobian import CPU_CHUNK_BYTES, MAPS_OF_A_PASS, Jacobian
from ct_dip.tangent.unet.conv_inputs import UNFOLDED_BYTES
from ct_dip.tangent.unet.linearised import LinearisedUNet


def jacobian_bytes(shape: UNetShape, image: tuple[int, int]) -> int:
    """Predict the memory of a `UNetJacobian` and of its passes: the network runs on no image at all.

    (A batch of none has its shapes as well as one on torch's ``meta`` device, which takes seconds to import.)
    """
    network = UNet(shape)
    constants = 0
    largest = 0

    def count(module: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        nonlocal constants, largest
        assert isinstance(module, nn.Conv2d)
        taps = module.kernel_size[0] * module.kernel_size[1]
        channels, rows, columns = output.shape[1:]
        for a in inputs:
            unfolded = 4 * rows * columns * taps * a.shape[1]
            constants += unfolded if unfolded <= UNFOLDED_BYTES else 4 * a.shape[1:].numel()
        # `Activation`; filters, as they are and flipped
        constants += 4 * (2 * channels * rows * columns + 2 * module.weight.numel())
        largest = max(largest, 4 * channels * rows * columns)

    for module in network.modules():
        if isinstance(module, nn.Conv2d):
            module.register_forward_hook(count)
    with torch.no_grad():
        network(torch.empty(0, 1, *image))
    return constants + MAPS_OF_A_PASS * max(CPU_CHUNK_BYTES, largest)


class UNetJacobian(Jacobian):
    """``J`` of the convolution weights of a `UNet`: what `Jacobian` computes, faster.

    Attributes:
        bytes: memory that the constants of the linearised network take.
    """

    @full_float32()
    def __init__(self, network: UNet, network_input: Tensor, *, chunk_bytes: int | None = None) -> None:
        self._linearised = LinearisedUNet(network, network_input)
        self.bytes = self._linearised.bytes
        self._set_domain(network)
        maps = [math.prod(layer.output_shape) for layer in self._linearised.convolutions.values()]
        self._set_range(self._linearised.image, max(maps), chunk_bytes)

    def in_float64(self) -> "UNetJacobian":
        """Return the same map, with the same constants, whose products are in float64.

        Not a linearisation in float64: fits end with many features at the kink of their activation, where
        the network would have other slopes in another precision, and another J by some percent.
        """
        wide = copy.copy(self)
        wide._adjoint_map = None
        wide.weights, wide.image = self.weights.double(), self.image.double()
        wide._choose_chunk()
        return wide

    def _jvp(self, weights: Tensor) -> Tensor:
        return self._linearised.jvp(weights)

    def _vjp(self, images: Tensor, blocks: Sequence[WeightBlock], out: Tensor) -> None:
        names = [name for block in blocks for name in block.parameters]
        sizes = [self._linearised.convolutions[name].size.numel() for name in names]
        missing = dict(zip(names, torch.split(out, sizes, dim=1), strict=True))
        for convolution, cotangent in self._linearised.cotangents(images):
            if convolution.name in missing:
                convolution.weight_vjp(cotangent, missing.pop(convolution.name))
            if not missing:
                return
