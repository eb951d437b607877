"""Networks of the user's own: fitted as the U-Net is, refused before any work, told apart by checkpoints."""

import copy

import numpy as np
import pytest
import torch
from torch import nn

from ct_dip.data.simulate import NoiseLevel, simulate
from ct_dip.dip.config import DipConfig
from ct_dip.dip.ensemble import Ensemble
from ct_dip.dip.fit import fit_bytes, fit_dip, fit_many
from ct_dip.dip.own_network import check_network, network_digest, weight_blocks
from ct_dip.dip.presets import PRESETS, resolve
from ct_dip.dip.unet import UNet, UNetShape
from ct_dip.errors import InputError
from ct_dip.geometry import Volume
from ct_dip.operators import ray_transform
from ct_dip.scanners import scanner
from tests.own_network import Wrapped, sequential

GEOMETRY = scanner(Volume(shape=(20, 20)), views=15)
TRANSFORM = ray_transform(GEOMETRY)
STEPS = {"warmup_steps": 10, "cooldown_steps": 20, "max_steps": 50, "jitter": 0.01}
SCANS = [
    simulate("ellipses", GEOMETRY, noise=NoiseLevel(relative=0.05), seed=seed, same_grid=True)
    for seed in (1, 2)
]


def start_of(config, seed):
    """The U-Net that a fit of the first scan begins with."""
    settings = resolve(config, GEOMETRY.domain_shape)
    ensemble = Ensemble(SCANS[:1], settings, [seed], TRANSFORM, torch.device("cpu"))
    unet = copy.deepcopy(ensemble.template)
    nn.utils.vector_to_parameters(ensemble.adam.weights[0].clone(), unet.parameters())
    return unet


def test_a_copy_of_the_unet_is_fitted_to_the_same_bits():
    config = DipConfig(channels=(8, 8), **STEPS)
    expected = fit_dip(SCANS[0], config, seed=3, transform=TRANSFORM)
    network = Wrapped(start_of(config, 3))
    before = copy.deepcopy(network.state_dict())
    fit = fit_dip(SCANS[0], DipConfig(**STEPS), network=network, seed=3, transform=TRANSFORM)
    assert np.array_equal(fit.image, expected.image)
    assert all(torch.equal(before[name], value) for name, value in network.state_dict().items())
    for name, value in fit.network().named_parameters():
        assert torch.equal(value, expected.weights[name.removeprefix("inner.0.")])
    shown = fit.scale * fit.network()(fit.network_input)[0, 0].detach()
    np.testing.assert_allclose(shown.numpy(), fit.image, rtol=1e-4, atol=1e-6)


def test_several_scans_start_from_the_same_weights():
    config, network = DipConfig(**STEPS | {"jitter": 0.0}), sequential()
    together = fit_many(SCANS, config, network=network, transform=TRANSFORM)
    for scan, fit in zip(SCANS, together, strict=True):
        alone = fit_dip(scan, config, network=network, transform=TRANSFORM)
        np.testing.assert_allclose(fit.image, alone.image, rtol=1e-3, atol=1e-5)


class Offset(nn.Module):
    """A convolution, and a constant that is no parameter."""

    def __init__(self, offset=0.3):
        super().__init__()
        torch.manual_seed(0)
        self.layer = nn.Conv2d(1, 1, 3, padding=1)
        self.register_buffer("offset", torch.tensor(offset))

    def forward(self, x):
        return self.layer(x) + self.offset


def test_parameters_are_fitted_and_buffers_stay():
    fit = fit_dip(SCANS[0], DipConfig(**STEPS), network=Offset(), transform=TRANSFORM)
    fitted = fit.network()
    assert fit.weights.keys() == {"layer.weight", "layer.bias"}
    assert torch.equal(fitted.offset, Offset().offset)
    assert not torch.equal(fitted.layer.weight, Offset().layer.weight)


def test_a_checkpoint_belongs_to_its_network(tmp_path):
    config, options = DipConfig(**STEPS), {"transform": TRANSFORM, "run_folder": tmp_path}
    first = fit_dip(SCANS[0], config, network=sequential(), **options)
    again = fit_dip(SCANS[0], config, network=sequential(), **options)
    assert np.array_equal(first.image, again.image)
    for other in (sequential(seed=1), None):
        with pytest.raises(InputError, match="differs in: network"):
            fit_dip(SCANS[0], config, network=other, **options)


def test_a_digest_tells_networks_apart():
    class Other(Offset):
        pass

    networks = [Offset(), Offset(0.4), Other(), sequential(), sequential(seed=1), sequential(channels=5)]
    assert len({network_digest(network) for network in networks}) == len(networks)
    assert network_digest(sequential()) == network_digest(sequential())


class Function(nn.Module):
    """A convolution, and whatever comes after it."""

    def __init__(self, after):
        super().__init__()
        self.layer, self.after = nn.Conv2d(1, 1, 3, padding=1), after

    def forward(self, x):
        return self.after(self.layer(x))


def frozen():
    network = sequential()
    network[0].bias.requires_grad_(False)
    return network


@pytest.mark.parametrize(
    ("network", "problem"),
    [
        (lambda x: x, "must be a torch.nn.Module"),
        (nn.Linear(20, 20), "square kernels"),
        (nn.utils.parametrizations.weight_norm(nn.Conv2d(1, 1, 3, padding=1)), "are parameters"),
        (nn.Conv2d(1, 1, 3), r"makes \(1, 1, 18, 18\)"),
        (Function(lambda x: (x, x)), "makes tuple"),
        (nn.Conv2d(3, 1, 3, padding=1), "fails on an image"),
        (Function(lambda x: x / 0), "not finite"),
        (Function(nn.Dropout()), "every pass"),
        (Function(nn.BatchNorm2d(1)), "every pass"),
        (frozen(), "parameter 0.bias of Sequential does not require a gradient"),
    ],
)
def test_what_cannot_be_fitted_is_refused(network, problem):
    with pytest.raises(InputError, match=problem):
        fit_dip(SCANS[0], DipConfig(**STEPS), network=network, transform=TRANSFORM)


def test_settings_of_the_unet_are_refused():
    config = DipConfig(channels=(8, 8), upsampling="nearest", **STEPS)
    with pytest.raises(InputError, match=r"dip.channels, dip.skip_channels, dip.upsampling has no effect"):
        fit_dip(SCANS[0], config, network=sequential(), transform=TRANSFORM)


def test_weights_that_layers_share_are_one_block():
    network = nn.Sequential(nn.Conv2d(1, 1, 3, padding=1), nn.Conv2d(1, 1, 3, padding=1))
    network[1].weight = network[0].weight
    assert [block.parameters for block in weight_blocks(network)] == [("0.weight",)]
    fit = fit_dip(SCANS[0], DipConfig(**STEPS), network=network, transform=TRANSFORM)
    assert torch.equal(fit.network()[1].weight, fit.weights["0.weight"])


def test_a_single_convolution_is_a_network():
    network = nn.Conv2d(1, 1, 3, padding=1)
    assert [(block.name, block.parameters) for block in weight_blocks(network)] == [("all", ("weight",))]
    fit = fit_dip(SCANS[0], DipConfig(**STEPS), network=network, transform=TRANSFORM)
    assert torch.equal(fit.network().weight, fit.weights["weight"])


def test_features_are_counted_layer_by_layer():
    assert check_network(sequential(channels=6), (4, 5)) == ((6 + 6 + 1 + 1) * 20, 6 * 20)


@pytest.mark.parametrize("side", [28, 64, 128])
def test_memory_is_planned_as_for_a_unet_of_the_same_layers(side):
    name = "small" if side < 64 else "medium"
    preset = PRESETS[name]
    shape = UNetShape(
        channels=preset.channels, skip_channels=preset.skip_channels, norm_groups=preset.norm_groups
    )
    fixed = fit_bytes(DipConfig(), (side, side), members=0)
    known = fit_bytes(DipConfig(), (side, side)) - fixed
    counted = fit_bytes(DipConfig(), (side, side), network=Wrapped(UNet(shape))) - fixed
    assert known / 1.5 < counted < 1.5 * known
