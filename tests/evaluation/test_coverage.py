import numpy as np
import pytest
from scipy.stats import norm

from ct_dip.errors import InputError
from ct_dip.evaluation.coverage import CURVE_LEVELS, coverage, coverage_curve

RNG = np.random.default_rng
SHAPE = (100, 120)
PIXELS = SHAPE[0] * SHAPE[1]
MEAN = RNG(0).normal(size=SHAPE)
STD = RNG(1).uniform(0.1, 3.0, SHAPE)


def draw(seed, std=STD):
    return MEAN + std * RNG(seed).normal(size=SHAPE)


def test_exact_draws_are_covered_as_stated():
    found = coverage(draw(2), MEAN, STD)
    error = np.sqrt(CURVE_LEVELS * (1 - CURVE_LEVELS) / PIXELS)
    assert np.all(np.abs(found - CURVE_LEVELS) < 4.5 * error)


def test_overconfidence_covers_less_and_underconfidence_more():
    truth = draw(3)
    middle = (CURVE_LEVELS > 0.05) & (CURVE_LEVELS < 0.97)
    assert np.all(coverage(truth, MEAN, STD / 2)[middle] < CURVE_LEVELS[middle])
    assert np.all(coverage(truth, MEAN, STD * 2)[middle] > CURVE_LEVELS[middle])
    # 95 % intervals of half the width hold what 67 % ones should: 2 Φ(0.98) − 1.
    assert coverage(truth, MEAN, STD / 2, np.array([0.95]))[0] == pytest.approx(0.6729, abs=0.018)


def test_one_sigma_holds_a_known_count():
    truth, mean = np.array([0.9, -0.9, 1.1, 5.0]), np.zeros(4)
    assert coverage(truth, mean, np.ones(4), np.array([0.6827]))[0] == 0.5
    mask = np.array([True, True, True, False])
    assert coverage(truth, mean, np.ones(4), np.array([0.6827]), mask)[0] == pytest.approx(2 / 3)


def test_the_ends_of_an_interval_belong_to_it():
    _, end = norm.interval(0.95)
    truth, beyond = np.array([end, -end]), np.nextafter([end, -end], [9.0, -9.0])
    assert coverage(truth, np.zeros(2), np.ones(2), [0.95]).tolist() == [1.0]
    assert coverage(beyond, np.zeros(2), np.ones(2), [0.95]).tolist() == [0.0]


def test_a_curve_inside_a_mask_is_that_of_its_pixels_alone():
    mask = STD < 1
    inside = coverage_curve(draw(8), MEAN, STD, mask=mask)
    alone = coverage_curve(draw(8)[mask], MEAN[mask], STD[mask])
    assert inside.pixels == alone.pixels == mask.sum()
    np.testing.assert_array_equal(inside.empirical, alone.empirical)
    np.testing.assert_array_equal(inside.band.lower, alone.band.lower)
    np.testing.assert_array_equal(inside.band.upper, alone.band.upper)


def test_a_certain_pixel_is_covered_if_it_is_right():
    truth, mean, std = np.array([1.0, 2.0]), np.array([1.0, 2.1]), np.zeros(2)
    assert coverage(truth, mean, std, np.array([0.01, 0.99])).tolist() == [0.5, 0.5]


def test_the_binomial_band_holds_independent_pixels():
    curve = coverage_curve(draw(4), MEAN, STD)
    inside = (curve.empirical >= curve.band.lower) & (curve.empirical <= curve.band.upper)
    assert curve.band.source == "independent pixels"
    assert curve.pixels == PIXELS
    # Levels are strongly correlated, so one bad image can leave the band over a stretch of them.
    assert inside.mean() > 0.6
    assert curve.calibration_error < 0.01


def test_the_band_of_samples_knows_of_correlation():
    """Pixels in rows that move together: 100 observations, not 12,000."""
    rows = RNG(5).normal(size=(200, SHAPE[0], 1))
    samples = MEAN + STD * np.broadcast_to(rows, (200, *SHAPE))
    truth = MEAN + STD * RNG(6).normal(size=(SHAPE[0], 1))
    honest = coverage_curve(truth, MEAN, STD, samples=samples).band
    narrow = coverage_curve(truth, MEAN, STD).band
    ratio = (honest.upper - honest.lower)[49] / (narrow.upper - narrow.lower)[49]
    # √120, with the relative error √(1/2n) of a deviation that 200 samples tell, and more for quantiles
    assert ratio == pytest.approx(np.sqrt(120), rel=0.25)
    assert honest.source == "samples"


def test_too_few_samples_give_the_binomial_band():
    curve = coverage_curve(draw(7), MEAN, STD, samples=np.stack([MEAN] * 5))
    assert curve.band.source == "independent pixels"


def test_bad_input_is_named():
    with pytest.raises(InputError, match=r"mean has shape \(3,\), the truth \(4,\)"):
        coverage(np.zeros(4), np.zeros(3), np.ones(4))
    with pytest.raises(InputError, match="no pixel"):
        coverage(np.zeros(4), np.zeros(4), np.ones(4), mask=np.zeros(4, dtype=bool))
    with pytest.raises(InputError, match="negative"):
        coverage(np.zeros(4), np.zeros(4), -np.ones(4))
    with pytest.raises(InputError, match="finite"):
        coverage(np.full(4, np.nan), np.zeros(4), np.ones(4))
    with pytest.raises(InputError, match="between 0 and 1"):
        coverage(np.zeros(4), np.zeros(4), np.ones(4), np.array([0.5, 1.0]))
