"""The methods whose models are of pixels: runs from a scan to a prediction. Their mathematics is tested in
`tests/image_space`."""

import dataclasses

import numpy as np
import pytest
import torch

import ct_dip
from ct_dip.data.simulate import NoiseLevel, simulate
from ct_dip.errors import MemoryBudgetError
from ct_dip.geometry import Volume
from ct_dip.image_space.problem import pixel_problem
from ct_dip.methods import load_config
from ct_dip.operators import ray_transform
from ct_dip.pipeline import plan_run
from ct_dip.scanners import scanner

SCAN = simulate(
    "ellipses", scanner(Volume(shape=(16, 16)), views=12), noise=NoiseLevel(relative=0.05), seed=3
)
FEW = {
    "tv-gauss": {"samples": 50},
    "tv-langevin": {"draws": 40, "burn_in": 10, "samples": 50},
    "gmrf": {"draws": 60, "burn_in": 20, "samples": 50},
    "lmrf": {"draws": 60, "burn_in": 20, "samples": 50},
    "matern-gp": {"samples": 50},
}


@pytest.fixture(scope="module")
def predictions():
    return {name: ct_dip.reconstruct(SCAN, method=name, **few) for name, few in FEW.items()}


@pytest.mark.parametrize("name", FEW)
def test_mean_deviations_and_samples_belong_together(predictions, name):
    found = predictions[name]
    assert found.samples.shape[0] in (50, 52)  # of four chains
    assert found.samples.dtype == np.float32
    assert (found.std > 0).all()
    deviations = np.sqrt(((found.samples.astype(float) - found.mean) ** 2).mean(axis=(1, 2)))
    assert deviations.mean() == pytest.approx(np.sqrt((found.std.astype(float) ** 2).mean()), rel=0.15)
    # Error bars of the size of the errors, near enough: most truths within two deviations.
    assert found.scores.coverage(0.95).value > 0.8
    assert found.scores.psnr.value > 20


@pytest.mark.parametrize("name", ["gmrf", "lmrf", "matern-gp", "tv-gauss"])
def test_the_noise_that_was_stated_is_found(predictions, name):
    facts = predictions[name].diagnostics
    assert facts["sigma_y_stated"] == pytest.approx(SCAN.noise.std)
    assert facts["sigma_y"] == pytest.approx(SCAN.noise.std, rel=0.3)


def test_few_draws_are_warned_of(predictions):
    found = predictions["lmrf"]
    assert found.diagnostics["effective_samples_low"] < 50
    assert any("effective samples" in warning for warning in found.warnings)


@pytest.mark.parametrize("name", ["tv-gauss", "tv-langevin"])
def test_total_variation_that_did_not_converge_is_told(name):
    config = load_config(method=name, settings=["tv.max_iterations=2", "tv.strength=0.5"])
    found = ct_dip.reconstruct(SCAN, config)
    assert any("Total variation stopped after 2 iterations" in warning for warning in found.warnings)


def test_units_do_not_matter():
    """A scan in which everything is fifty times as large has an image that is."""
    large = dataclasses.replace(
        SCAN,
        sinogram=50 * SCAN.sinogram,
        noise=dataclasses.replace(SCAN.noise, std=50 * SCAN.noise.std),
        ground_truth=None,
    )
    for name in ("matern-gp", "tv-gauss"):
        small, big = (ct_dip.reconstruct(scan, method=name, check="none") for scan in (SCAN, large))
        np.testing.assert_allclose(big.std, 50 * small.std, rtol=0.02)
        assert np.abs(big.mean - 50 * small.mean).max() < 5 * small.std.max()
        if name == "matern-gp":  # a density per unit of the sinogram
            shift = big.diagnostics["evidence"] - small.diagnostics["evidence"]
            assert shift == pytest.approx(-SCAN.sinogram.size * np.log(50), abs=0.1)


def test_samples_and_matrices_have_the_same_error_bars(predictions, monkeypatch):
    monkeypatch.setattr("ct_dip.methods.tv_gauss._DENSE_PIXELS", 0)
    sampled = ct_dip.reconstruct(SCAN, method="tv-gauss", samples=800)
    dense = predictions["tv-gauss"]
    assert sampled.diagnostics["prior_scale"] == pytest.approx(dense.diagnostics["prior_scale"], rel=0.2)
    np.testing.assert_allclose(sampled.std, dense.std, rtol=0.25)  # s by 16 probes, deviations by 800
    assert np.median(sampled.std / dense.std) == pytest.approx(1, abs=0.1)
    assert dense.std_error is None
    np.testing.assert_allclose(sampled.std_error, sampled.std / 40, rtol=1e-5)


def test_a_gaussian_process_that_does_not_fit_is_refused():
    config = load_config(method="matern-gp").resolved((16, 16))
    plan = plan_run(SCAN, config, budget=2**20)
    assert plan.bytes > 8 * SCAN.sinogram.size**2
    with pytest.raises(MemoryBudgetError, match=r"matern-gp needs .* or method gmrf"):
        plan.require()


def test_time_is_planned():
    for name in FEW:
        config = load_config(method=name).resolved((16, 16))
        assert plan_run(SCAN, config, budget=2**32, measure=True).seconds > 0


def test_the_problem_knows_photons():
    variance = torch.rand(SCAN.sinogram.shape) + 0.5
    sinogram = torch.as_tensor(SCAN.sinogram.copy())
    found = pixel_problem(ray_transform(SCAN.geometry), sinogram, variance)
    torch.testing.assert_close(found.data, (sinogram / variance.sqrt()).flatten())


def test_a_prior_that_runs_away_is_warned_of():
    """Three views: weights of UGLA and a noise that is sampled flatten the image; a stated noise does not."""
    geometry = scanner(Volume(shape=(12, 12)), views=3)
    scan = simulate("ellipses", geometry, noise=NoiseLevel(relative=0.05), seed=3)
    few = {"method": "lmrf", "draws": 10, "burn_in": 20, "samples": 10}
    sampled, stated = (ct_dip.reconstruct(scan, noise=noise, **few) for noise in ("sampled", "stated"))
    assert sampled.diagnostics["sigma_y"] > 3 * scan.noise.std
    assert any("ran away" in warning and "lmrf.noise=stated" in warning for warning in sampled.warnings)
    assert not any("ran away" in warning for warning in stated.warnings)
    assert stated.scores.psnr.value > sampled.scores.psnr.value
