"""What a network will take, known before it is fitted."""

import pytest
import torch

from ct_dip.dip.unet import UNet
from ct_dip.tangent.footprint import footprint
from ct_dip.tangent.linearise import linearise
from ct_dip.tangent.unet.jacobian import jacobian_bytes
from tests import tiny
from tests.own_network import Wrapped, sequential


@pytest.mark.parametrize("network", [tiny.network(), Wrapped(tiny.network()), sequential()])
def test_weights_are_those_of_the_jacobian(network):
    found, jacobian = footprint(network, tiny.IMAGE), linearise(network, tiny.network_input())
    assert found.blocks == jacobian.blocks
    assert sum(found.block_weights) == len(jacobian.weights)
    assert found.parameters == sum(p.numel() for p in network.parameters())
    assert found.number_bytes == (4 if type(network) is UNet else 8)


def test_a_unet_keeps_its_own_estimate_and_others_grow_with_their_features():
    assert footprint(tiny.network(), (64, 64)).jacobian_bytes == jacobian_bytes(tiny.PLAIN, (64, 64))
    small, large = (footprint(sequential(), (side, side)).jacobian_bytes for side in (256, 1024))
    assert 8 * 14 * 1024**2 < large < 16 * small  # 14 maps


def test_nothing_is_kept_of_the_trial():
    network = sequential()
    before = torch.cat([p.detach().flatten() for p in network.parameters()])
    footprint(network, (8, 8))
    assert torch.equal(before, torch.cat([p.detach().flatten() for p in network.parameters()]))
    assert not any(module._forward_hooks for module in network.modules())
