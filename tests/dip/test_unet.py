import pytest
import torch
from torch import nn

from ct_dip.dip.config import DipConfig
from ct_dip.dip.presets import PRESETS, resolve, unet_shape
from ct_dip.dip.unet import UNet, UNetShape
from ct_dip.errors import InputError

SHAPES = {
    "plain": UNetShape(channels=(8, 8, 8), skip_channels=(2, 2)),
    "normalised": UNetShape(channels=(8, 12, 16), skip_channels=(2, 3), norm_groups=4, output="identity"),
    "no skips": UNetShape(channels=(6, 8), skip_channels=(0,), output="softplus", upsampling="nearest"),
    "one scale": UNetShape(channels=(5,), skip_channels=()),
}
every_shape = pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES.keys())


def network(shape, seed=0, mean=0.3):
    unet = UNet(shape)
    unet.initialise(torch.Generator().manual_seed(seed), mean)
    return unet


@every_shape
@pytest.mark.parametrize("size", [(4, 4), (5, 9), (28, 28), (33, 17), (7, 64)])
def test_any_size_comes_back(shape, size):
    image = network(shape)(torch.rand(2, 1, *size))
    assert image.shape == (2, 1, *size)
    assert torch.isfinite(image).all()


@every_shape
def test_no_parameter_is_unused(shape):
    unet = network(shape)
    target = torch.rand(1, 1, 17, 13, generator=torch.Generator().manual_seed(1))
    torch.sum((unet(target) - target) ** 2).backward()
    for name, parameter in unet.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.abs().max() > 0, name


@every_shape
def test_blocks_hold_every_convolution_once(shape):
    unet = network(shape)
    blocks = unet.weight_blocks()
    listed = [name for block in blocks for name in block.parameters]
    convolutions = {f"{n}.weight" for n, m in unet.named_modules() if isinstance(m, nn.Conv2d)}
    assert len(listed) == len(set(listed))
    assert set(listed) == convolutions
    parameters = dict(unet.named_parameters())
    for block in blocks:
        for name in block.parameters:
            assert parameters[name].shape[-2:] == (block.kernel, block.kernel)
    assert len({block.name for block in blocks}) == len(blocks)
    normalised = {block.name for block in blocks if block.normalised}
    assert bool(normalised) == bool(shape.norm_groups)


def test_normalised_blocks_do_not_feel_their_scale():
    """What proposition 3 rests on: weights before a normalisation may be rescaled freely."""
    unet = network(SHAPES["normalised"])
    image = torch.rand(1, 1, 16, 16)
    before = unet(image)
    with torch.no_grad():
        for block in unet.weight_blocks():
            for name in block.parameters:
                if block.normalised:
                    unet.get_parameter(name).mul_(10)
                    unet.get_parameter(name.replace("weight", "bias")).mul_(10)
    torch.testing.assert_close(unet(image), before, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("output", ["sigmoid", "softplus", "identity"])
def test_images_begin_around_the_mean_and_not_as_a_constant(output):
    unet = network(UNetShape(channels=(32,) * 4, skip_channels=(4,) * 3, output=output), mean=0.2)
    with torch.no_grad():
        image = unet(torch.rand(1, 1, 32, 32, generator=torch.Generator().manual_seed(0)))
        assert image.std() > 0.01
        unet.last.weight.zero_()
        torch.testing.assert_close(unet(torch.rand(1, 1, 8, 8)), torch.full((1, 1, 8, 8), 0.2))


def test_features_keep_their_size():
    """He initialisation: over many seeds, the last features are as large as the first."""
    shape = UNetShape(channels=(32,) * 4, skip_channels=(4,) * 3)
    ratios = []
    for seed in range(10):
        unet, seen = network(shape, seed), {}
        unet.first.register_forward_hook(lambda m, i, o, seen=seen: seen.update(first=o.std()))
        unet.ups[-1].register_forward_hook(lambda m, i, o, seen=seen: seen.update(last=o.std()))
        with torch.no_grad():
            unet(torch.randn(1, 1, 32, 32))
        ratios.append(seen["last"] / seen["first"])
    assert 0.2 < torch.stack(ratios).median() < 3


@pytest.mark.parametrize(
    "options",
    [
        {"channels": (), "skip_channels": ()},
        {"channels": (8, 0), "skip_channels": (2,)},
        {"channels": (8, 8), "skip_channels": (2, 2)},
        {"channels": (8, 8), "skip_channels": (-1,)},
        {"channels": (8, 6), "skip_channels": (2,), "norm_groups": 4},
    ],
)
def test_impossible_networks_are_refused(options):
    with pytest.raises(InputError):
        UNetShape(**options)


@pytest.mark.parametrize(("size", "name"), [(28, "small"), (128, "medium"), (256, "medium"), (501, "large")])
def test_presets_follow_the_image(size, name):
    resolved = resolve(DipConfig(), (size, size))
    assert resolved.preset == name
    assert resolved.channels == PRESETS[name].channels
    assert unet_shape(resolved).scales == len(resolved.channels)
    assert resolve(resolved, (size, size)) == resolved


def test_a_user_changes_what_a_preset_says():
    resolved = resolve(DipConfig(channels=(16, 16), norm_groups=8, output="identity"), (28, 28))
    assert resolved.skip_channels == (4,)
    assert unet_shape(resolved).norm_groups == 8
    assert unet_shape(resolved).output == "identity"


def test_images_too_small_for_the_scales_are_refused():
    with pytest.raises(InputError, match=r"3 × 28 pixels is too small for 3 scales.*dip\.channels"):
        resolve(DipConfig(preset="small"), (3, 28))
