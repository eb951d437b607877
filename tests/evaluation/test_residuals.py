import numpy as np
import pytest
from scipy.stats import kstest, norm

from ct_dip.errors import InputError
from ct_dip.evaluation.residuals import quantile_band, quantile_pairs, residual_histogram, standardised

RNG = np.random.default_rng
MEAN = RNG(0).normal(size=(60, 50))
STD = RNG(1).uniform(0.1, 3.0, MEAN.shape)
TRUTH = MEAN + STD * RNG(2).normal(size=MEAN.shape)


def test_residuals_of_exact_draws_are_standard_normal():
    assert kstest(standardised(TRUTH, MEAN, STD), "norm").pvalue > 0.01
    assert kstest(standardised(TRUTH, MEAN, 0.9 * STD), "norm").pvalue < 1e-3
    assert kstest(standardised(TRUTH + 0.1 * STD, MEAN, STD), "norm").pvalue < 1e-3


def test_a_residual_has_the_sign_of_the_truth():
    truth, mean, std = (
        np.array([3.0, 1.0, 2.0, 2.0]),
        np.array([1.0, 2.0, 2.0, 1.0]),
        np.array([0.5, 2, 0, 0]),
    )
    assert standardised(truth, mean, std).tolist() == [4.0, -0.5, 0.0, np.inf]
    assert standardised(truth, mean, std, np.array([False, True, False, False])).tolist() == [-0.5]


def test_the_histogram_is_a_density_of_all_residuals():
    z = np.array([-7.0, -0.1, 0.1, 0.2, np.inf])
    found = residual_histogram(z, limit=4, bins=8)
    assert found.outside == pytest.approx(2 / 5)
    assert (found.density * np.diff(found.edges)).sum() == pytest.approx(3 / 5)
    assert found.density[4] == pytest.approx(2 / 5)


def test_the_histogram_of_normal_draws_is_the_normal_density():
    z = RNG(3).normal(size=100_000)
    found = residual_histogram(z)
    width = np.diff(found.edges)
    error = np.sqrt(found.normal / width / z.size)
    assert np.all(np.abs(found.density - found.normal) <= 4.5 * error + 1 / z.size / width)
    assert (found.normal * width).sum() == pytest.approx(1, abs=1e-6)
    # the mean over a bin, so with the curvature of the middle
    assert found.normal[20] == pytest.approx(norm.pdf(0.125), rel=5e-3)


def test_scaled_normals_lie_on_a_line_of_that_slope():
    pairs = quantile_pairs(0.5 * RNG(4).normal(size=20_000) + 1.0)
    middle = np.abs(pairs.normal) < 2
    slope, offset = np.polyfit(pairs.normal[middle], pairs.observed[middle], 1)
    assert (slope, offset) == pytest.approx((0.5, 1.0), abs=0.02)


def test_every_residual_is_a_point_if_there_are_few():
    z = np.array([3.0, -1.0, 2.0])
    pairs = quantile_pairs(z)
    assert pairs.observed.tolist() == [-1.0, 2.0, 3.0]
    np.testing.assert_allclose(pairs.normal, norm.ppf([1 / 6, 1 / 2, 5 / 6]), atol=1e-12)
    assert len(quantile_pairs(RNG(0).normal(size=10**5), points=50).normal) <= 50
    with pytest.raises(InputError, match="no residuals"):
        quantile_pairs(np.array([]))


def test_the_quantile_band_holds_independent_normals():
    band = quantile_band(500, points=60)
    inside = [
        (pairs.observed >= band.lower) & (pairs.observed <= band.upper)
        for pairs in (quantile_pairs(RNG(seed).normal(size=500), points=60) for seed in range(800))
    ]
    error = np.sqrt(0.95 * 0.05 / 800)
    np.testing.assert_allclose(np.mean(inside, axis=0), 0.95, atol=4.5 * error)
