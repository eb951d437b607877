"""The fast J against the general one, against its transpose, and for what it costs."""

import gc
import weakref

import pytest
import torch

from ct_dip.dip.unet import UNet, UNetShape
from ct_dip.tangent.jacobian import CPU_CHUNK_BYTES, MAPS_OF_A_PASS, Jacobian
from ct_dip.tangent.linearise import linearise
from ct_dip.tangent.unet import conv_inputs, convolutions, layers
from ct_dip.tangent.unet.jacobian import UNetJacobian, jacobian_bytes
from ct_dip.tangent.unet.linearised import LinearisedUNet
from tests import identities, tiny

SHAPES = {
    "plain": tiny.PLAIN,
    "normalised": tiny.NORMALISED,
    "softplus, nearest": UNetShape(
        channels=(2, 3, 2), skip_channels=(0, 2), output="softplus", upsampling="nearest"
    ),
    "identity, one scale": UNetShape(channels=(3,), skip_channels=(), output="identity"),
    "normalised, nearest": UNetShape(
        channels=(2, 4, 6), skip_channels=(3, 0), norm_groups=2, output="identity", upsampling="nearest"
    ),
    "softplus": UNetShape(channels=(2, 3), skip_channels=(2,), output="softplus"),
}
SIZES = [(6, 5), (7, 9), (8, 8), (4, 4)]


@pytest.fixture(params=SHAPES, ids=list(SHAPES))
def shape(request):
    return SHAPES[request.param]


def make(shape, **options):
    return UNetJacobian(tiny.network(shape).double(), tiny.network_input().double(), **options)


def test_a_unet_gets_the_fast_products():
    class OtherUNet(UNet):
        """May compute something else."""

    assert type(linearise(tiny.network(), tiny.network_input())) is UNetJacobian
    assert type(linearise(OtherUNet(tiny.PLAIN), tiny.network_input())) is Jacobian


def test_obeys_the_contract_of_linear_maps(shape):
    jacobian = make(shape)
    identities.assert_linear(jacobian)
    identities.assert_batch_is_loop(jacobian)
    identities.assert_differentiable(jacobian)
    identities.assert_functional_transforms(jacobian)
    identities.assert_adjoint(jacobian, torch.float64)


@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("unfolded", [False, True], ids=["by convolution", "by matrix product"])
def test_equals_the_general_jacobian(shape, size, unfolded, monkeypatch):
    """Whether inputs are kept unfolded or not, on odd and even grids, up to rounding."""
    monkeypatch.setattr(conv_inputs, "UNFOLDED_BYTES", 2**30 if unfolded else 0)
    torch.manual_seed(0)
    network, z = tiny.network(shape), torch.rand(1, 1, *size)
    with torch.no_grad():  # scales and biases that are not the trivial ones of a new network
        for parameter in network.parameters():
            parameter += 0.3 * torch.randn(parameter.shape)
    for dtype, rounding in ((torch.float32, 1e-5), (torch.float64, 1e-12)):
        fast, general = UNetJacobian(network.to(dtype), z.to(dtype)), Jacobian(network, z.to(dtype))
        assert torch.equal(fast.weights, general.weights)
        assert (fast.blocks, fast.slices, fast.chunk) == (general.blocks, general.slices, general.chunk)
        torch.testing.assert_close(fast.image, general.image)
        x, y = identities.random_pair(fast, dtype, batch=(3,))
        pairs = [(fast(x), general(x)), (fast.T(y), general.T(y))]
        pairs += [(fast.columns([block]), general.columns([block])) for block in fast.blocks]
        for found, expected in pairs:
            assert (found - expected).norm() < rounding * expected.norm()
        identities.assert_adjoint(fast, dtype)


def test_adjoint_in_float32():
    identities.assert_adjoint(UNetJacobian(tiny.network(), tiny.network_input()), torch.float32)


@pytest.mark.parametrize("unfolded", [False, True], ids=["by convolution", "by matrix product"])
def test_in_float64_with_constants_of_float32(shape, unfolded, monkeypatch):
    """Products lose nothing but the digits that constants do not have, which both share."""
    monkeypatch.setattr(conv_inputs, "UNFOLDED_BYTES", 2**30 if unfolded else 0)
    monkeypatch.setattr(convolutions, "_STRIP_BYTES", 0)
    monkeypatch.setattr(layers, "_PIECE_BYTES", 0)
    narrow = UNetJacobian(tiny.network(shape), tiny.network_input())
    wide = narrow.in_float64()
    identities.assert_adjoint(wide, torch.float64)
    x, y = identities.random_pair(wide, torch.float64, batch=(3,))
    for own, other, v in ((wide, narrow, x), (wide.T, narrow.T, y)):
        found = own(v)
        assert found.dtype == torch.float64
        torch.testing.assert_close(found, other(v.float()).double(), rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(own(v[:1] + v[1:2]), found[:1] + found[1:2], rtol=1e-12, atol=1e-12)
    assert wide.bytes == narrow.bytes  # the same ones
    assert narrow(x.float()).dtype == torch.float32


def test_empty_batches():
    jacobian = make(tiny.PLAIN)
    assert jacobian(torch.empty(0, *jacobian.domain_shape).double()).shape == (0, *tiny.IMAGE)
    assert jacobian.T(torch.empty(0, *tiny.IMAGE).double()).shape == (0, *jacobian.domain_shape)


def test_chunks_change_nothing(shape):
    whole, chunked = make(shape), make(shape, chunk_bytes=1)
    assert chunked.chunk == 1 < whole.chunk
    x, y = identities.random_pair(whole, torch.float64, batch=(5,))
    torch.testing.assert_close(chunked(x), whole(x))
    torch.testing.assert_close(chunked.T(y), whole.T(y))
    torch.testing.assert_close(chunked.columns(chunked.blocks), whole.dense())


def test_columns_of_a_block_are_columns_of_j(shape):
    jacobian = make(shape)
    dense = jacobian.dense()
    for block in jacobian.blocks:
        torch.testing.assert_close(jacobian.columns([block]), dense[:, jacobian.slices[block.name]])


def test_weights_and_image_are_those_of_the_network(shape):
    jacobian, network = make(shape), tiny.network(shape).double()
    parameters = dict(network.named_parameters())
    flat = torch.cat([parameters[n].flatten() for b in network.weight_blocks() for n in b.parameters])
    torch.testing.assert_close(jacobian.weights, flat.detach())
    torch.testing.assert_close(jacobian.image, network(tiny.network_input().double())[0, 0].detach())


def test_the_network_runs_once(monkeypatch):
    calls = []
    forward = UNet.forward

    def counted(self, x):
        calls.append(1)
        return forward(self, x)

    monkeypatch.setattr(UNet, "forward", counted)
    jacobian = make(tiny.PLAIN)
    x, y = identities.random_pair(jacobian, torch.float64, batch=(3,))
    for _ in range(3):
        jacobian(x)
        jacobian.T(y)
    assert len(calls) == 1


@pytest.mark.parametrize("channels", [(3, 2), (1, 1)], ids=str)
def test_keeps_what_it_was_made_of(channels):
    shape = UNetShape(channels=channels, skip_channels=(1,))
    network, z = tiny.network(shape).double(), tiny.network_input().double()
    jacobian = UNetJacobian(network, z)
    before = jacobian.dense()
    with torch.no_grad():
        z.add_(1)
        for parameter in network.parameters():
            parameter.add_(1)
    torch.testing.assert_close(jacobian.dense(), before)
    torch.testing.assert_close(jacobian.T.dense(), before.T)


@pytest.mark.parametrize("side", [16, 128])
def test_constants_take_what_was_planned(shape, side):
    planned = jacobian_bytes(shape, (side, side)) - MAPS_OF_A_PASS * CPU_CHUNK_BYTES
    taken = UNetJacobian(tiny.network(shape), torch.rand(1, 1, side, side)).bytes
    assert 0.3 * planned < taken < planned


def test_leaves_the_network_alone():
    network = tiny.network()
    UNetJacobian(network, tiny.network_input())
    assert all(p.requires_grad for p in network.parameters())
    assert not any(module._forward_hooks for module in network.modules())


def test_it_is_freed_with_its_last_name():
    """A map and its adjoint are no circle: the constants of a network are hundreds of megabytes."""
    gc.disable()
    try:
        jacobian = make(tiny.NORMALISED)
        jacobian.T(torch.zeros(1, *jacobian.range_shape, dtype=jacobian.weights.dtype))
        assert jacobian.T.T is jacobian
        watched = weakref.ref(jacobian)
        del jacobian
        assert watched() is None
    finally:
        gc.enable()


def test_the_layout_of_maps_is_not_that_of_the_images():
    """Ray transforms return their images side by side; maps of that layout made products a third slower."""
    network, z = tiny.network(tiny.NORMALISED), tiny.network_input()
    linearised = LinearisedUNet(network, z)
    beside = torch.randn(*linearised.image.shape, 3).permute(2, 0, 1)
    assert not beside.is_contiguous()
    layouts = [
        [cotangent.stride() for _, cotangent in linearised.cotangents(images)]
        for images in (beside, beside.contiguous())
    ]
    assert layouts[0] == layouts[1]
