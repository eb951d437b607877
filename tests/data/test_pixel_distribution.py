"""The distribution of a pixel: unit variance, right tails, right scores."""

import itertools
import math

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import norm, t

from ct_dip.data.pixel_distribution import GAUSSIAN, PixelDistribution
from ct_dip.data.prediction import Prediction
from ct_dip.errors import InputError, MissingPartError

DISTRIBUTIONS = [PixelDistribution(v) for v in (2.5, 3.0, 8.0, math.inf)]


def density(distribution, z):
    return float(np.exp(distribution.log_density(np.array(z), np.array(1.0))))


@pytest.mark.parametrize("distribution", DISTRIBUTIONS)
def test_the_density_has_mass_one_and_the_stated_mean_size(distribution):
    assert quad(lambda z: density(distribution, z), -np.inf, np.inf)[0] == pytest.approx(1, rel=1e-6)
    mean = 2 * quad(lambda z: z * density(distribution, z), 0, np.inf)[0]
    assert distribution.mean_absolute == pytest.approx(mean, rel=1e-6)


@pytest.mark.parametrize("distribution", DISTRIBUTIONS[1:])
def test_the_variance_is_one(distribution):
    parts = itertools.pairwise([0, 10, 100, 1e3, 1e4])
    bulk = 2 * sum(quad(lambda z: z**2 * density(distribution, z), *ends)[0] for ends in parts)
    # Student's tail beyond 10⁴ has a variance of about 10⁻⁴ at three degrees of freedom.
    assert bulk == pytest.approx(1, abs=2e-4)


@pytest.mark.parametrize("distribution", DISTRIBUTIONS)
def test_intervals_tails_and_ranks_belong_to_one_distribution(distribution):
    for level in (0.5, 0.95):
        reach = distribution.reach(level)
        assert 1 - 2 * distribution.upper_tail(np.array(reach)) == pytest.approx(level)
        assert distribution.normal_scores(np.array([-reach, reach])) == pytest.approx(
            norm.ppf([(1 - level) / 2, (1 + level) / 2])
        )
    far = distribution.normal_scores(np.array([-40.0, 40.0]))
    assert np.isfinite(far).all()
    assert far[0] == -far[1] < 0


@pytest.mark.parametrize("distribution", DISTRIBUTIONS)
def test_crps_is_the_integral_that_defines_it(distribution):
    for error in (0.0, 0.7, -3.0):

        def gap(x, error=error):
            return (1 - float(distribution.upper_tail(np.array(x / 2))) - (x >= error)) ** 2

        expected = sum(quad(gap, *ends, limit=200)[0] for ends in ((-np.inf, error), (error, np.inf)))
        assert distribution.crps(np.array(error), np.array(2.0)) == pytest.approx(expected, rel=1e-4)
    assert distribution.crps(np.array([0.3]), np.array([0.0])).tolist() == [0.3]


def test_many_degrees_of_freedom_are_the_gaussian():
    z, ones = np.linspace(-4, 4, 9), np.ones(9)
    many = PixelDistribution(1e7)
    np.testing.assert_allclose(many.log_density(z, ones), GAUSSIAN.log_density(z, ones), atol=1e-5)
    np.testing.assert_allclose(many.crps(z, ones), GAUSSIAN.crps(z, ones), atol=1e-6)
    np.testing.assert_allclose(GAUSSIAN.log_density(z, ones), norm.logpdf(z))


def test_a_density_scales_with_the_deviation_and_needs_one():
    found = PixelDistribution(5).log_density(np.array([0.3, 0.3]), np.array([0.2, 0.0]))
    assert found[0] == pytest.approx(t.logpdf(0.3, 5, scale=0.2 * math.sqrt(3 / 5)))
    assert math.isnan(found[1])


def test_degrees_without_a_variance_are_refused():
    for degrees in (2.0, -1.0, math.nan):
        with pytest.raises(InputError, match="above 2"):
            PixelDistribution(degrees)


def test_a_prediction_answers_by_its_distribution():
    mean, std = np.zeros((2, 2)), np.array([[1.0, 2.0], [0.0, 0.5]])
    prediction = Prediction(mean=mean, std=std, degrees=3)
    low, high = prediction.interval(0.9)
    pixels = PixelDistribution(3)
    np.testing.assert_allclose(high, pixels.reach(0.9) * std)
    np.testing.assert_allclose(low, -high)
    above = prediction.probability_above(1.0)
    assert above[0, 0] == pytest.approx(pixels.upper_tail(np.array(1.0)))
    assert above[1, 0] == 0
    assert prediction.probability_above(-1.0)[1, 0] == 1
    assert (prediction.probability_above(0.0)[std > 0] == 0.5).all()
    with pytest.raises(MissingPartError, match="no error bars"):
        Prediction(mean=mean).interval()


@pytest.mark.parametrize("level", [95, 1.5, 0, 1, -0.5, math.nan, "95"])
@pytest.mark.parametrize("distribution", [GAUSSIAN, PixelDistribution(3.0)])
def test_a_level_is_a_probability(distribution, level):
    with pytest.raises(InputError, match=r"must be between 0 and 1, for example 0\.95"):
        distribution.reach(level)
