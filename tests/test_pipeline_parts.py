"""The pipeline from Python: a reference, a fit that is at hand, a posterior that becomes a result."""

from dataclasses import replace

import numpy as np
import pytest

import ct_dip
from ct_dip.config import load_config
from ct_dip.data.result import read_result, write_result
from ct_dip.data.simulate import NoiseLevel, simulate
from ct_dip.errors import InputError
from ct_dip.evaluation.coverage import coverage
from ct_dip.geometry import Volume
from ct_dip.progress import Progress
from ct_dip.quality import psnr
from ct_dip.scanners import scanner

SCAN = simulate("ellipses", scanner(Volume(shape=(12, 12)), views=8), noise=NoiseLevel(relative=0.05), seed=2)
BLIND = replace(SCAN, ground_truth=None)
CONFIG = load_config(
    method="lin-dip",
    settings=[
        *("dip.channels=[4,4]", "dip.max_steps=40", "dip.cooldown_steps=20"),
        *("inference.starts=1", "inference.samples=3", "inference.patch=6"),
    ],
    seed=4,
)


@pytest.fixture(scope="module")
def whole():
    return ct_dip.reconstruct(SCAN, CONFIG)


@pytest.fixture(scope="module")
def fit():
    return ct_dip.fit_dip(SCAN, CONFIG.dip, seed=CONFIG.seed)


def test_a_reference_changes_the_words_and_not_the_image(whole, tmp_path):
    found = ct_dip.reconstruct(BLIND, CONFIG, reference=SCAN.ground_truth)
    np.testing.assert_array_equal(found.mean, whole.mean)
    np.testing.assert_array_equal(found.std, whole.std)
    # An exact reference gives the numbers of the truth.
    assert whole.metrics["compared_with"] == "truth"
    assert found.metrics["compared_with"] == "reference"
    assert "reference_std" not in found.metrics
    for name in ("psnr", "ssim", "coverage_95", "log_likelihood_per_pixel", "log_likelihood_per_pixel_1x1"):
        assert found.metrics[name] == pytest.approx(whole.metrics[name]), name
    assert set(whole.arrays) ^ set(found.arrays) == {"truth", "reference"}
    write_result(tmp_path / "r.h5", found)
    np.testing.assert_array_equal(read_result(tmp_path / "r.h5").arrays["reference"], SCAN.ground_truth)


def test_the_noise_of_a_reference_is_added_in_quadrature(whole):
    noise = 0.003
    reference = SCAN.ground_truth + noise * np.random.default_rng(0).standard_normal((12, 12))
    found = ct_dip.reconstruct(BLIND, CONFIG, reference=reference, reference_std=noise)
    assert found.metrics["reference_std"] == noise
    expected = coverage(reference, whole.mean, np.hypot(whole.std, noise), [0.5, 0.95])
    assert [found.metrics["coverage_50"], found.metrics["coverage_95"]] == pytest.approx(list(expected))
    silent = ct_dip.reconstruct(BLIND, CONFIG, reference=reference)
    assert silent.metrics["coverage_50"] < found.metrics["coverage_50"]
    assert silent.metrics["log_likelihood_per_pixel"] != found.metrics["log_likelihood_per_pixel"]


@pytest.mark.parametrize("method", ["fbp", "cgls", "tv"])
def test_every_method_can_be_compared(method):
    found = ct_dip.reconstruct(BLIND, load_config(method=method), reference=SCAN.ground_truth)
    assert found.metrics["psnr"] == pytest.approx(psnr(found.mean, SCAN.ground_truth))
    assert found.metrics["compared_with"] == "reference"
    assert list(found.arrays) == ["reference"]


def test_a_contradicting_reference_is_refused_before_any_work():
    progress = Progress()
    for scan, reference in ((SCAN, SCAN.ground_truth), (BLIND, SCAN.ground_truth[1:])):
        with pytest.raises(InputError, match="reference"):
            ct_dip.reconstruct(scan, CONFIG, reference=reference, progress=progress)
    assert not progress.seconds


def test_a_fit_that_is_at_hand_is_used(whole, fit, monkeypatch):
    def refuse(*_, **__):
        raise AssertionError("the network was fitted before")

    monkeypatch.setattr("ct_dip.dip.ensemble.Ensemble.step", refuse)
    found = ct_dip.reconstruct(SCAN, CONFIG, fit=fit)
    np.testing.assert_array_equal(found.mean, whole.mean)
    np.testing.assert_array_equal(found.std, whole.std)
    assert found.metrics["misfit"] == whole.metrics["misfit"]
    assert "dip" not in found.settings  # nobody knows how it was fitted
    assert found.settings["inference"] == whole.settings["inference"]
    image = ct_dip.reconstruct(SCAN, load_config(method="dip"), fit=fit)
    np.testing.assert_array_equal(image.mean, fit.image)


def test_a_fit_of_something_else_is_refused(fit):
    with pytest.raises(InputError, match="no effect with method 'tv'"):
        ct_dip.reconstruct(SCAN, load_config(method="tv"), fit=fit)
    other = simulate("ellipses", scanner(Volume(shape=(10, 12)), views=8), seed=2)
    with pytest.raises(InputError, match=r"\(12, 12\).*\(10, 12\)"):
        ct_dip.reconstruct(other, CONFIG, fit=fit)


def test_a_posterior_becomes_a_result(whole, fit):
    posterior = ct_dip.fit_posterior(fit, SCAN, CONFIG.inference, seed=CONFIG.seed)
    found = ct_dip.posterior_result(posterior, SCAN, CONFIG)
    assert found.method == "lin-dip"
    assert set(found.arrays) == set(whole.arrays)
    for name, values in whole.arrays.items():
        np.testing.assert_allclose(found.arrays[name], values, rtol=1e-6, err_msg=name)
    of_the_run = {"steps", "misfit", "loss", "stopped_by", "noise_estimated", "peak_memory_mb"}
    assert set(whole.metrics) - set(found.metrics) == of_the_run
    assert found.metrics["evidence"] == pytest.approx(whole.metrics["evidence"])
    assert found.metrics["coverage_95"] == whole.metrics["coverage_95"]
    assert "dip" not in found.settings
    against = ct_dip.posterior_result(posterior, BLIND, reference=SCAN.ground_truth, reference_std=0.01)
    assert against.metrics["reference_std"] == 0.01
    assert len(against.arrays["samples"]) == 100  # what a run does by itself
    other = simulate("ellipses", scanner(Volume(shape=(10, 12)), views=8), seed=2)
    with pytest.raises(InputError, match="posterior has shape"):
        ct_dip.posterior_result(posterior, other)
