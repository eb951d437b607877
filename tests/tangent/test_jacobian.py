"""J of any network: against autograd, against its transpose, and wherever the network is."""

import gc
import weakref

import pytest
import torch
from torch import nn
from torch.func import functional_call

from ct_dip.errors import InputError
from ct_dip.tangent.jacobian import CPU_CHUNK_BYTES, Jacobian, default_chunk_bytes
from ct_dip.tangent.linearise import linearise
from ct_dip.tangent.statistics import (
    difference_variances,
    feature_statistics,
    streamed_difference_variances,
)
from ct_dip.tangent.unet.jacobian import UNetJacobian
from tests import identities, tiny


class Residual(nn.Module):
    """Nothing like a U-Net: two input channels, a residual, a weight that is used twice, a linear layer."""

    def __init__(self):
        super().__init__()
        self.first = nn.Conv2d(2, 3, 3, padding=1)
        self.twice = nn.Conv2d(3, 3, 1)
        self.norm = nn.GroupNorm(3, 3)
        self.last = nn.Conv2d(3, 1, 3, padding=1, bias=False)
        self.mix = nn.Linear(5, 5)

    def forward(self, x):
        x = torch.tanh(self.first(x))
        x = x + torch.tanh(self.twice(self.norm(self.twice(x))))
        return torch.sigmoid(self.mix(self.last(x)))


NAMES = ("first.weight", "twice.weight", "last.weight")


def make(**options):
    torch.manual_seed(0)
    network, z = Residual().double(), torch.rand(1, 2, 4, 5, dtype=torch.float64)
    return network, z, linearise(network, z, **options)


def by_autograd(network, z):
    def image(*weights):
        return functional_call(network, dict(zip(NAMES, weights, strict=True)), (z,))[0, 0]

    blocks = torch.autograd.functional.jacobian(image, tuple(map(network.get_parameter, NAMES)))
    return torch.cat([block.reshape(20, -1) for block in blocks], dim=1)


def test_equals_the_derivative_of_the_network():
    network, z, jacobian = make()
    assert type(jacobian) is Jacobian
    expected = by_autograd(network, z)
    torch.testing.assert_close(jacobian.dense(), expected)
    torch.testing.assert_close(jacobian.T.dense(), expected.T)
    torch.testing.assert_close(jacobian.columns(jacobian.blocks), expected)
    torch.testing.assert_close(jacobian.image, network(z)[0, 0].detach())


def test_obeys_every_identity():
    identities.assert_every_identity(make()[2])


def test_every_convolution_is_a_block():
    network, _, jacobian = make()
    assert [(b.name, b.kernel, b.parameters) for b in jacobian.blocks] == [
        (name.removesuffix(".weight"), kernel, (name,)) for name, kernel in zip(NAMES, (3, 1, 3), strict=True)
    ]
    dense = jacobian.dense()
    for block in jacobian.blocks:
        where = jacobian.slices[block.name]
        own = network.get_parameter(f"{block.name}.weight").detach().flatten()
        torch.testing.assert_close(jacobian.weights[where], own)
        torch.testing.assert_close(jacobian.columns([block]), dense[:, where])


def test_chunks_change_nothing():
    whole, chunked = make()[2], make(chunk_bytes=1)[2]
    assert chunked.chunk == 1 < whole.chunk
    torch.testing.assert_close(chunked.dense(), whole.dense())
    torch.testing.assert_close(chunked.columns(chunked.blocks), whole.dense())


def test_in_float64():
    network, z, jacobian = make()
    wide = Jacobian(network.float(), z.float()).in_float64()
    assert wide.weights.dtype == wide.image.dtype == torch.float64
    torch.testing.assert_close(wide.dense(), jacobian.dense(), rtol=1e-4, atol=1e-6)
    identities.assert_adjoint(wide, torch.float64)


def test_keeps_what_it_was_made_of_and_leaves_the_network_alone():
    network, z, jacobian = make()
    before = jacobian.dense()
    assert all(p.requires_grad for p in network.parameters())
    assert not any(module._forward_hooks for module in network.modules())
    assert not before.requires_grad
    assert not jacobian.image.requires_grad
    with torch.no_grad():
        z.add_(1)
        for parameter in network.parameters():
            parameter.add_(1)
    torch.testing.assert_close(jacobian.dense(), before)


def test_it_is_freed_with_its_last_name():
    gc.disable()
    try:
        _, _, jacobian = make()
        jacobian.T(torch.zeros(1, *jacobian.range_shape).double())
        watched = weakref.ref(jacobian)
        del jacobian
        assert watched() is None
    finally:
        gc.enable()


def test_refuses_networks_without_square_filters():
    z = torch.rand(1, 1, 4, 5)
    for network in (nn.Linear(5, 5), nn.Conv2d(1, 1, (1, 3), padding=(0, 1))):
        with pytest.raises(InputError, match="square kernels"):
            linearise(network, z)


def test_chunks_come_from_the_free_memory_of_a_cuda_device(monkeypatch):
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (2**30, 2**34))
    assert default_chunk_bytes(torch.device("cpu")) == CPU_CHUNK_BYTES
    assert 4 * CPU_CHUNK_BYTES < default_chunk_bytes(torch.device("cuda")) < 2**30 / 30


@pytest.mark.parametrize("network", [tiny.network, lambda: nn.Conv2d(1, 1, 3, padding=1)])
def test_products_do_without_tf32(network, monkeypatch):
    """Of every convolution, when J is made and when it is applied; what was allowed is so again after it."""
    seen = []
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", True)
    convolution = nn.functional.conv2d

    def watched(*given):
        seen.append(torch.backends.cudnn.allow_tf32)
        return convolution(*given)

    monkeypatch.setattr(nn.functional, "conv2d", watched)
    jacobian = linearise(network(), tiny.network_input())
    jacobian(jacobian.weights)
    jacobian.T(jacobian.image)
    jacobian.columns(jacobian.blocks)
    assert seen
    assert not any(seen)
    assert torch.backends.cudnn.allow_tf32


@pytest.mark.parametrize("shape", [tiny.PLAIN, tiny.NORMALISED], ids=["plain", "normalised"])
@pytest.mark.parametrize("kind", [Jacobian, UNetJacobian])
def test_everything_stays_on_the_device_of_the_network(kind, shape):
    """Tensors that are made on the default device, here one without data, would spoil the results."""
    network, z = tiny.network(shape), tiny.network_input()

    def results():
        narrow = kind(network, z)
        for jacobian in (narrow, narrow.in_float64()):
            grams = feature_statistics(jacobian).grams
            yield from (jacobian(jacobian.weights[None]), jacobian.T(jacobian.image[None]), grams)
            yield from (difference_variances(grams, tiny.IMAGE), streamed_difference_variances(jacobian))

    expected = list(results())
    with torch.device("meta"):
        found = list(results())
    for own, other in zip(found, expected, strict=True):
        torch.testing.assert_close(own, other)
