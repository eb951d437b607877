"""What a fit starts from, and how that decides where it ends."""

from dataclasses import replace

import pytest
import torch

from ct_dip.classical.tv_strength import choose_tv_strength
from ct_dip.data.noise import WhiteNoise
from ct_dip.data.simulate import NoiseLevel, simulate
from ct_dip.dip.config import DipConfig
from ct_dip.dip.ensemble import Ensemble
from ct_dip.dip.fit import fit_dip, fit_many
from ct_dip.dip.presets import resolve
from ct_dip.dip.start import make_starts, network_scale
from ct_dip.errors import ScanError
from ct_dip.geometry import Volume
from ct_dip.operators import ray_transform
from ct_dip.scanners import scanner

GEOMETRY = scanner(Volume(shape=(20, 20)), views=15)
TRANSFORM, CPU = ray_transform(GEOMETRY), torch.device("cpu")
QUICK = DipConfig(channels=(8, 8), warmup_steps=10, cooldown_steps=30, max_steps=80)


def make(seed=1, **options):
    return simulate("ellipses", GEOMETRY, noise=NoiseLevel(relative=0.05), seed=seed, **options)


def test_every_scan_has_the_strength_that_its_views_choose():
    scans = [make(), make(seed=2)]
    fits = fit_many(scans, QUICK.model_copy(update={"strength": "auto"}))
    for scan, fit in zip(scans, fits, strict=True):
        sinogram, variance = torch.as_tensor(scan.sinogram.copy()), torch.as_tensor(scan.variance)
        choice = choose_tv_strength(TRANSFORM, sinogram, variance, GEOMETRY)
        # Those of several scans are solved together until the last one has a gap of 1e-2.
        assert fit.strength == pytest.approx(choice.recommended, rel=0.01)
    assert fits[0].strength != fits[1].strength


def test_the_scale_comes_from_the_data_whatever_the_scan_says():
    scan = make()
    image, seen = torch.as_tensor(scan.ground_truth.copy()), scan.evaluated
    scale = network_scale(image, seen)
    assert scale >= float(image.max())
    told = [
        Ensemble([replace(scan, attenuation_scale=value)], resolve(QUICK, (20, 20)), [0], TRANSFORM, CPU)
        for value in (0.3 * scale, 1.0)
    ]
    assert told[0].scales == told[1].scales
    with pytest.raises(ScanError, match="nowhere positive"):
        network_scale(-image, seen)


def test_the_misfit_of_total_variation_grows_with_its_strength():
    scan = make(same_grid=True)
    settings = [resolve(QUICK.model_copy(update={"strength": s}), (20, 20)) for s in (0.1, 5.0)]
    weak, strong = (make_starts([scan], each, TRANSFORM, CPU)[0].tv_misfit for each in settings)
    assert weak < 1 < strong


def test_a_fit_does_not_wait_for_a_misfit_that_total_variation_never_reaches():
    """A scan that states a third of its noise: its misfit stays near 9, and 1 is out of reach."""
    scan = make(same_grid=True)
    proud = replace(scan, noise=WhiteNoise(std=scan.noise.std / 3))
    settings = DipConfig(channels=(16, 16), cooldown_steps=50, max_steps=1500, strength=4.0)
    (start,) = make_starts([proud], resolve(settings, (20, 20)), TRANSFORM, CPU)
    assert start.tv_misfit > 4
    fit = fit_dip(proud, settings, transform=TRANSFORM)
    assert fit.stopped_by == "discrepancy"
    assert fit.steps < 1500
    assert fit.misfit < 1.15 * start.tv_misfit
