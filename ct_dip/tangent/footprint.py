"""Estimate the memory of linearising a network, for plans, before anything is fitted."""

from typing import NamedTuple

from torch import nn

from ct_dip.dip.own_network import check_network, weight_blocks
from ct_dip.dip.unet import UNet, WeightBlock
from ct_dip.tangent.jacobian import CPU_CHUNK_BYTES, MAPS_OF_A_PASS
from ct_dip.tangent.unet.jacobian import jacobian_bytes

# With a `Jacobian` of the U-Net's layers, in float64, a process grew by 167, 208 and 671 MiB at 64², 128² and
# 256², where this says 181, 286 and 946.
_KEPT = 4  # maps per output of a layer that the graphs of J and Jᵀ keep
_FIXED = 64 * 2**20  # what torch.func takes for itself


class Footprint(NamedTuple):
    """The memory that a linearised network takes.

    Args:
        parameters: how many there are, biases included.
        blocks: of the weights, and ``block_weights`` how many each has.
        jacobian_bytes: of its Jacobian and the passes of one product.
        number_bytes: of a number in features that a compression keeps.
    """

    parameters: int
    blocks: list[WeightBlock]
    block_weights: list[int]
    jacobian_bytes: int
    number_bytes: int


def footprint(network: nn.Module, shape: tuple[int, int]) -> Footprint:
    """Measure a network for images of a shape, by a pass of its own unless it is a `UNet`.

    Raises:
        InputError: it cannot be linearised; see `check_network`.
    """
    sizes = {name: p.numel() for name, p in network.named_parameters()}
    if type(network) is UNet:
        held, number_bytes = jacobian_bytes(network.shape, shape), 4
    else:
        features = check_network(network, shape)
        held = _FIXED + 8 * (_KEPT * features.all + 2 * sum(sizes.values()))
        held += MAPS_OF_A_PASS * max(CPU_CHUNK_BYTES, 8 * features.largest)
        number_bytes = 8  # see `ct_dip.posterior.fit.fit_posterior`
    blocks = weight_blocks(network)
    block_weights = [sum(sizes[name] for name in block.parameters) for block in blocks]
    return Footprint(sum(sizes.values()), blocks, block_weights, held, number_bytes)
