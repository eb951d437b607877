"""The pipeline from Python: a reference, a fit that is at hand, a posterior that becomes a result."""

from dataclasses import replace

import numpy as np
import pytest

import ct_dip
from ct_dip.data.result_file import read_result, write_result
from ct_dip.data.simulate import NoiseLevel, simulate
from ct_dip.errors import InputError
from ct_dip.evaluation.coverage import coverage
from ct_dip.geometry import Volume
from ct_dip.methods import load_config
from ct_dip.progress import Progress
from ct_dip.quality import psnr
from ct_dip.scanners import scanner

SCAN = simulate("ellipses", scanner(Volume(shape=(12, 12)), views=8), noise=NoiseLevel(relative=0.05), seed=2)
BLIND = replace(SCAN, ground_truth=None)
CONFIG = load_config(
    method="lin-dip",
    settings=[
        *("dip.channels=[4,4]", "dip.max_steps=40", "dip.cooldown_steps=20"),
        *("inference.starts=1", "inference.samples=3", "inference.patch=6", "inference.calibrate=none"),
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
    assert whole.comparison.name == "truth"
    assert found.comparison.name == "reference"
    assert found.comparison.noise_std == 0
    for name in ("psnr", "ssim", "coverage_95", "log_likelihood_image", "log_likelihood_1"):
        assert found.scores.row()[name] == pytest.approx(whole.scores.row()[name]), name
    write_result(found, tmp_path / "r.h5")
    np.testing.assert_array_equal(read_result(tmp_path / "r.h5").comparison.image, SCAN.ground_truth)


def test_the_noise_of_a_reference_is_added_in_quadrature(whole):
    noise = 0.003
    reference = SCAN.ground_truth + noise * np.random.default_rng(0).standard_normal((12, 12))
    found = ct_dip.reconstruct(BLIND, CONFIG, reference=reference, reference_std=noise)
    assert found.comparison.noise_std == noise
    std, pixels = np.hypot(whole.std, noise), whole.pixel_distribution
    expected = coverage(reference, whole.mean, std, [0.5, 0.95], distribution=pixels)
    row = found.scores.row()
    assert [row["coverage_50"], row["coverage_95"]] == pytest.approx(list(expected))
    silent = ct_dip.reconstruct(BLIND, CONFIG, reference=reference)
    assert silent.scores.row()["coverage_50"] < row["coverage_50"]
    assert silent.scores.row()["log_likelihood_image"] != row["log_likelihood_image"]


@pytest.mark.parametrize("method", ["fbp", "cgls", "tv"])
def test_every_method_can_be_compared(method):
    found = ct_dip.reconstruct(BLIND, load_config(method=method), reference=SCAN.ground_truth)
    assert found.scores.psnr.value == pytest.approx(psnr(found.mean, SCAN.ground_truth))
    assert found.comparison.name == "reference"
    assert (found.std, found.samples, found.sinogram, found.images) == (None, None, None, {})


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
    assert found.diagnostics["misfit"] == whole.diagnostics["misfit"]
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
    with pytest.raises(InputError, match=r"the fit has shape \(12, 12\).*\(10, 12\)"):
        ct_dip.fit_posterior(fit, other, CONFIG.inference)
    same_scanner = replace(SCAN, sinogram=SCAN.sinogram + np.float32(0.01))
    for call in (
        lambda: ct_dip.fit_posterior(fit, same_scanner, CONFIG.inference),
        lambda: ct_dip.reconstruct(same_scanner, CONFIG, fit=fit),
    ):
        with pytest.raises(InputError, match="the fit is that of another scan"):
            call()


def test_a_fit_goes_with_a_scan_whose_noise_was_corrected(fit):
    corrected = replace(SCAN, noise=ct_dip.WhiteNoise(std=2 * SCAN.noise.std))
    assert ct_dip.fit_posterior(fit, corrected, CONFIG.inference).std.shape == (12, 12)


def test_a_posterior_becomes_a_result(whole, fit):
    posterior = ct_dip.fit_posterior(fit, SCAN, CONFIG.inference, seed=CONFIG.seed)
    found = ct_dip.reconstruct(SCAN, CONFIG, posterior=posterior)
    assert found.method == "lin-dip"
    for name in ("mean", "std", "samples"):
        np.testing.assert_allclose(getattr(found, name), getattr(whole, name), rtol=1e-6, err_msg=name)
    for ours, theirs in zip(found.patches, whole.patches, strict=True):
        np.testing.assert_allclose(ours.covariance, theirs.covariance, rtol=1e-6)
    of_the_run = {"steps", "misfit", "loss", "stopped_by", "noise_estimated"}
    assert set(whole.diagnostics) - set(found.diagnostics) == of_the_run
    assert found.diagnostics["evidence"] == pytest.approx(whole.diagnostics["evidence"])
    assert found.scores.coverage(0.95) == whole.scores.coverage(0.95)
    assert "dip" not in found.settings
    against = ct_dip.reconstruct(
        BLIND, method="lin-dip", posterior=posterior, reference=SCAN.ground_truth, reference_std=0.01
    )
    assert against.comparison.noise_std == 0.01
    assert len(against.samples) == 100  # what a run does by itself
    other = simulate("ellipses", scanner(Volume(shape=(10, 12)), views=8), seed=2)
    with pytest.raises(InputError, match="posterior has shape"):
        ct_dip.reconstruct(other, CONFIG, posterior=posterior)
