"""A reference is checked, never called truth, and its noise is counted."""

from dataclasses import replace

import h5py
import numpy as np
import pytest
import tifffile
from scipy import stats

from ct_dip.data.comparison import Comparison, comparison_of_scan
from ct_dip.data.prediction import Prediction
from ct_dip.data.reference_file import read_reference
from ct_dip.data.result_file import read_result, write_result
from ct_dip.errors import InputError, ResultError
from ct_dip.evaluation.coverage import coverage
from ct_dip.posterior.config import InferenceConfig
from ct_dip.posterior.fit import fit_posterior
from tests import tiny

SCAN = tiny.scan()
BLIND = replace(SCAN, ground_truth=None)
IMAGE = SCAN.ground_truth.astype(np.float64)
HOLE = IMAGE.copy()
HOLE[2, 3] = np.inf


def result(**parts):
    return Prediction(method="fbp", mean=SCAN.ground_truth, pixel_size=1.0, scan_digest="", **parts)


def test_a_scan_is_compared_with_its_truth_or_a_reference_or_nothing():
    assert comparison_of_scan(BLIND) is None
    truth = comparison_of_scan(SCAN)
    assert (truth.name, truth.noise_std) == ("truth", 0)
    reference = comparison_of_scan(BLIND, IMAGE)
    assert (reference.name, reference.noise_std) == ("reference", 0)
    noisy = comparison_of_scan(BLIND, IMAGE, 0.01)
    assert (noisy.name, noisy.noise_std) == ("reference", 0.01)
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


@pytest.mark.parametrize(
    "compared",
    [
        None,
        Comparison(name="truth", image=SCAN.ground_truth),
        Comparison(name="reference", image=SCAN.ground_truth),
        Comparison(name="reference", image=SCAN.ground_truth, noise_std=0.02),
    ],
)
def test_the_file_of_a_result_knows_what_it_was_compared_with(tmp_path, compared):
    write_result(result(comparison=compared), tmp_path / "r.h5")
    again = read_result(tmp_path / "r.h5")
    assert again.diagnostics == {}
    if compared is None:
        assert again.comparison is None
    else:
        assert (again.comparison.name, again.comparison.noise_std) == (compared.name, compared.noise_std)
        np.testing.assert_array_equal(again.comparison.image, compared.image)


def test_a_files_noise_of_a_reference_is_a_number(tmp_path):
    write_result(result(comparison=Comparison(name="reference", image=SCAN.ground_truth)), tmp_path / "r.h5")
    with h5py.File(tmp_path / "r.h5", "r+") as file:
        file.attrs["metrics"] = '{"reference_std": "much"}'
    with pytest.raises(ResultError, match=r"r\.h5: .*reference_std 'much'.*; reconstruct again"):
        read_result(tmp_path / "r.h5")


def test_references_are_read_from_arrays_pictures_and_results(tmp_path):
    np.save(tmp_path / "r.npy", IMAGE)
    tifffile.imwrite(tmp_path / "r.tif", SCAN.ground_truth)
    write_result(result(), tmp_path / "r.h5")
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
