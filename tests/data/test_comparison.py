"""A reference is checked, never called truth, and its noise is counted."""

from dataclasses import replace

import numpy as np
import pytest
import tifffile
from scipy import stats

from ct_dip.config import InferenceConfig
from ct_dip.data.comparison import (
    Comparison,
    comparison_of_result,
    comparison_of_scan,
    read_reference,
)
from ct_dip.data.result import Result, write_result
from ct_dip.errors import InputError, ResultError
from ct_dip.evaluation.coverage import coverage
from ct_dip.posterior.fit import fit_posterior
from tests import tiny

SCAN = tiny.scan()
BLIND = replace(SCAN, ground_truth=None)
IMAGE = SCAN.ground_truth.astype(np.float64)
HOLE = IMAGE.copy()
HOLE[2, 3] = np.inf


def result(**parts):
    return Result(method="fbp", mean=SCAN.ground_truth, pixel_size=1.0, scan_digest="", **parts)


def test_a_scan_is_compared_with_its_truth_or_a_reference_or_nothing():
    assert comparison_of_scan(BLIND) is None
    truth = comparison_of_scan(SCAN)
    assert truth.metrics == {"compared_with": "truth"}
    reference = comparison_of_scan(BLIND, IMAGE)
    assert reference.metrics == {"compared_with": "reference"}
    noisy = comparison_of_scan(BLIND, IMAGE, 0.01)
    assert noisy.metrics == {"compared_with": "reference", "reference_std": 0.01}
    np.testing.assert_array_equal(noisy.image, SCAN.ground_truth)


@pytest.mark.parametrize(
    ("scan", "reference", "std", "words"),
    [
        (SCAN, IMAGE, None, "ground truth and a reference"),
        (BLIND, IMAGE.T, None, r"shape \(5, 6\).*transpose"),
        (BLIND, IMAGE[1:], None, r"shape \(5, 5\).*resample"),
        (BLIND, IMAGE[None], None, "shape"),
        (BLIND, (255 * IMAGE).astype(np.uint8), None, "uint8.*1/mm"),
        (BLIND, HOLE, None, r"reference\[2, 3\] is inf"),
        (BLIND, IMAGE, 0.0, "positive"),
        (BLIND, IMAGE, float("nan"), "positive"),
        (BLIND, None, 0.1, "no effect without a reference"),
    ],
)
def test_what_cannot_be_compared_is_refused(scan, reference, std, words):
    with pytest.raises(InputError, match=words):
        comparison_of_scan(scan, reference, std)


def test_a_result_knows_what_it_was_compared_with():
    assert comparison_of_result(result()) is None
    assert comparison_of_result(result(arrays={"truth": IMAGE})).name == "truth"
    found = comparison_of_result(result(arrays={"reference": IMAGE}, metrics={"reference_std": 0.02}))
    assert (found.name, found.noise_std) == ("reference", 0.02)
    with pytest.raises(ResultError, match="reference_std 'much'"):
        comparison_of_result(result(arrays={"reference": IMAGE}, metrics={"reference_std": "much"}))


def test_references_are_read_from_arrays_pictures_and_results(tmp_path):
    np.save(tmp_path / "r.npy", IMAGE)
    tifffile.imwrite(tmp_path / "r.tif", SCAN.ground_truth)
    write_result(tmp_path / "r.h5", result())
    for name in ("r.npy", "r.tif", "r.h5"):
        np.testing.assert_array_equal(read_reference(tmp_path / name, 1.0), SCAN.ground_truth)
    with pytest.raises(InputError, match=r"pixels of 1 mm, the scan of 0\.5 mm"):
        read_reference(tmp_path / "r.h5", 0.5)


@pytest.mark.parametrize("name", ["absent.npy", "text.npy", "text.tif", "text.h5", "text.png", "text"])
def test_files_that_are_no_reference(tmp_path, name):
    for kind in ("npy", "tif", "h5", "png"):
        (tmp_path / f"text.{kind}").write_text("no image at all, but a text of some length")
    (tmp_path / "text").write_text("nor this")
    with pytest.raises(InputError, match=name) as caught:
        read_reference(tmp_path / name)
    assert "pickle" not in str(caught.value)


def test_noise_of_the_reference_is_counted():
    """Right error bars cover a noisy reference as often as they promise, once widened by its noise."""
    rng = np.random.default_rng(0)
    shape, noise = (200, 200), 0.03
    std = rng.uniform(0.01, 0.04, shape)
    truth = rng.random(shape)
    mean = truth + std * rng.standard_normal(shape)
    known = Comparison(name="reference", image=truth + noise * rng.standard_normal(shape), noise_std=noise)
    levels = np.array([0.5, 0.9])
    error = 4 * np.sqrt(levels * (1 - levels) / truth.size)
    assert (np.abs(coverage(known.image, mean, known.widened(std), levels) - levels) < error).all()
    assert (coverage(known.image, mean, std, levels) < levels - 0.1).all()
    # Samples stand in for it with the same noise.
    samples = np.zeros((50, *shape))
    assert np.std(known.in_its_place(samples)) == pytest.approx(noise, rel=0.01)
    exact = replace(known, noise_std=0.0)
    assert exact.widened(std) is std
    assert exact.in_its_place(samples) is samples


def test_log_likelihood_of_a_noisy_reference():
    posterior = fit_posterior(tiny.dip_fit(), SCAN, InferenceConfig(starts=1))
    (whole,) = posterior.covariance()
    noise = 0.05
    expected = stats.multivariate_normal(
        posterior.mean.ravel(), whole.covariance + noise**2 * np.eye(30)
    ).logpdf(IMAGE.ravel())
    assert posterior.log_likelihood(IMAGE, noise_std=noise) == pytest.approx(expected / 30)
    single = stats.norm(posterior.mean, np.hypot(posterior.std, noise)).logpdf(IMAGE).mean()
    assert posterior.log_likelihood(IMAGE, 1, noise_std=noise) == pytest.approx(single)
