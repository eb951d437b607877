import numpy as np
import pytest

from ct_dip.errors import InputError
from ct_dip.evaluation.bands import binomial_band, enough_samples, sample_band

RNG = np.random.default_rng


def test_39_samples_are_enough_for_95_percent():
    assert enough_samples(39)
    assert not enough_samples(38)
    assert enough_samples(19, 0.9)
    with pytest.raises(InputError, match="38 samples cannot give a band of 95%"):
        sample_band(np.ravel, np.zeros((38, 2, 2)))


def test_the_band_of_39_samples_is_their_extremes():
    samples = RNG(0).normal(size=(39, 3, 4))
    band = sample_band(np.ravel, samples)
    np.testing.assert_allclose(band.lower, samples.min(axis=0).ravel())
    np.testing.assert_allclose(band.upper, samples.max(axis=0).ravel())
    assert band.source == "samples"


def test_a_truth_from_the_same_posterior_is_inside_as_often_as_stated():
    """Correlated pixels, a statistic that is no Gaussian, 79 samples: ranks 2 and 78 of 80 give 95 %."""
    rng, trials, hits = RNG(1), 600, 0
    mixing = rng.normal(size=(30, 3))
    for _ in range(trials):
        draws = rng.normal(size=(80, 3)) @ mixing.T
        band = sample_band(lambda image: np.array([np.max(np.abs(image))]), draws[1:])
        hits += band.lower[0] <= np.max(np.abs(draws[0])) <= band.upper[0]
    assert hits / trials == pytest.approx(0.95, abs=4 * np.sqrt(0.95 * 0.05 / trials))


def test_a_binomial_fraction_is_inside_the_binomial_band():
    """Discrete quantiles enclose at least what they state."""
    expected = np.array([0.1, 0.5, 0.97])
    band = binomial_band(expected, 400)
    drawn = RNG(2).binomial(400, expected, size=(20_000, 3)) / 400
    inside = ((drawn >= band.lower) & (drawn <= band.upper)).mean(axis=0)
    assert (inside > 0.95 - 4 * np.sqrt(0.95 * 0.05 / 20_000)).all()
    assert (inside < 0.985).all()


@pytest.mark.parametrize("probability", [0.0, 1.0, 1.5])
def test_probabilities_are_between_0_and_1(probability):
    with pytest.raises(InputError, match="between 0 and 1"):
        binomial_band(np.array([0.5]), 10, probability)
