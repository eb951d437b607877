"""A bootstrap of a linear method, whose covariance is known; and what it says of others."""

import dataclasses
import itertools

import numpy as np
import pytest
import torch

import ct_dip
from ct_dip.classical.fbp import fbp
from ct_dip.data.motions import Motion
from ct_dip.data.noise import WhiteNoise
from ct_dip.data.simulate import NoiseLevel, simulate
from ct_dip.errors import InputError
from ct_dip.geometry import Volume
from ct_dip.methods import load_config
from ct_dip.operators import ray_transform
from ct_dip.pipeline import plan_run
from ct_dip.scanners import scanner

SHAPE = (10, 10)
GEOMETRY = scanner(Volume(shape=SHAPE), views=7)
SCAN = simulate("ellipses", GEOMETRY, noise=NoiseLevel(relative=0.05), seed=3)
FILTER = {"fbp": {"filter": "hann"}}


@pytest.fixture(scope="module")
def inverse():
    """R of FBP, (pixels, measurements)."""
    units = torch.eye(SCAN.sinogram.size).reshape(-1, *SCAN.sinogram.shape)
    return np.array([fbp(unit, GEOMETRY, filter="hann").flatten().numpy() for unit in units]).T


EXACT = [
    Motion(quarters=q, mirrored=m, shift=(down, right))
    for q, m, down, right in itertools.product(range(4), (False, True), range(-2, 3), range(-2, 3))
]


@pytest.mark.parametrize(("motions", "group"), [("none", [Motion()]), ("exact", EXACT)])
def test_it_is_the_mean_square_error_of_a_linear_method(inverse, motions, group):
    """``E e² = mean over T of T⁻¹ ((R A − I) T x̂)² + T⁻¹ diag(R Σ Rᵀ)``."""
    count = 600
    told = {"of": "fbp", "settings": FILTER, "motions": motions, "count": count}
    found = ct_dip.reconstruct(SCAN, method="bootstrap", bootstrap=told)
    image = fbp(torch.as_tensor(SCAN.sinogram.copy()), GEOMETRY, filter="hann").numpy()
    np.testing.assert_array_equal(found.mean, image)
    forward = ray_transform(GEOMETRY).dense().numpy()
    noise = SCAN.noise.std**2 * (inverse**2).sum(axis=1).reshape(SHAPE)
    expected = np.zeros(SHAPE)
    for motion in group:
        moved = motion.apply(image)
        bias = (inverse @ (forward @ moved.flatten())).reshape(SHAPE) - moved
        expected += motion.undo(bias**2 + noise) / len(group)
    ratio = found.std**2 / expected
    # A square of a Gaussian has a relative deviation of √2, those of mixed motions have more.
    assert ratio.mean() == pytest.approx(1, abs=0.03)
    assert np.abs(ratio - 1).max() < 5 * 2 / np.sqrt(count)
    spread = np.mean((found.samples - found.mean) ** 2, axis=0)
    np.testing.assert_allclose(spread, found.std**2, rtol=1e-3)


def test_what_the_other_method_chose_is_kept_and_can_be_repeated():
    plain = ct_dip.reconstruct(SCAN, method="tv")
    found = ct_dip.reconstruct(SCAN, method="bootstrap", count=2)
    np.testing.assert_array_equal(found.mean, plain.mean)
    assert found.settings["bootstrap"]["settings"]["tv"]["strength"] == plain.settings["tv"]["strength"]
    assert found.samples.shape == (2, *SHAPE)
    again = ct_dip.reconstruct(SCAN, **found.settings)
    np.testing.assert_array_equal(again.std, found.std)
    told = load_config(method="bootstrap", settings=["bootstrap.settings.tv.strength=2", "bootstrap.count=2"])
    assert not np.array_equal(ct_dip.reconstruct(SCAN, told).mean, plain.mean)


def test_repetitions_do_not_meet_checkpoints_of_one_another(tmp_path):
    told = {"of": "dip", "count": 2, "settings": {"dip": {"max_steps": 6, "cooldown_steps": 2}}}
    plain = ct_dip.reconstruct(SCAN, method="bootstrap", bootstrap=told)
    found = ct_dip.reconstruct(SCAN, method="bootstrap", bootstrap=told, run_folder=tmp_path)
    np.testing.assert_array_equal(found.std, plain.std)


def test_a_strength_at_the_end_of_its_range_is_told():
    wrong = dataclasses.replace(SCAN, noise=WhiteNoise(std=100 * SCAN.noise.std))
    found = ct_dip.reconstruct(wrong, method="bootstrap", count=2)
    assert found.diagnostics["tv_strength_at_bound"] == "weakest"
    assert any("weakest total variation" in warning for warning in found.warnings)


@pytest.mark.parametrize("noise", [NoiseLevel(photons=500), NoiseLevel()])
def test_other_noise_is_added_as_the_scan_has_it(noise):
    scan = simulate("ellipses", GEOMETRY, noise=noise, seed=3)
    found = ct_dip.reconstruct(scan, method="bootstrap", of="cgls", count=3)
    assert (found.std > 0).all()
    assert np.isfinite(found.samples).all()


def test_a_wrong_name_or_setting_is_refused_before_any_work():
    with pytest.raises(InputError, match=r"bootstrap\.of: a bootstrap of a bootstrap is not offered"):
        load_config(method="bootstrap", of="bootstrap")
    for settings, words in (
        ({"of": "magic"}, "method 'magic' is not known; choose one of .*tv"),
        ({"settings": {"tv": {"strenght": 1}}}, "did you mean 'strength'"),
        ({"settings": {"fbp": {}}}, "fbp is not a known key"),
    ):
        with pytest.raises(InputError, match=words):
            plan_run(SCAN, load_config(method="bootstrap", bootstrap=settings), budget=2**34)


def test_the_plan_holds_that_of_the_other_method():
    config = load_config(method="bootstrap", of="dip", count=7)
    plan = plan_run(SCAN, config, budget=2**34, measure=True)
    once = plan_run(SCAN, load_config(method="dip"), budget=2**34)
    assert [stage.name for stage in plan.stages] == ["ray transform", "deep image prior", "bootstrap"]
    assert plan.stages[2].passes == 7 * once.stages[1].passes
    assert plan.bytes > once.bytes
    assert plan.stages[2].seconds == pytest.approx(7 * plan.stages[1].seconds)
    assert plan.facts["network"] == once.facts["network"]
