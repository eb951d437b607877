import math

import numpy as np
import pytest

from ct_dip.errors import InputError
from ct_dip.evaluation.sparsification import error_by_std, sparsification

RNG = np.random.default_rng
SHAPE = (90, 100)
MEAN = RNG(0).normal(size=SHAPE)
STD = RNG(1).gamma(1.0, size=SHAPE) + 0.01
TRUTH = MEAN + STD * RNG(2).normal(size=SHAPE)


@pytest.mark.parametrize("measure", ["mae", "rmse"])
def test_the_true_error_is_the_oracle(measure):
    found = sparsification(TRUTH, MEAN, np.abs(TRUTH - MEAN), measure=measure)
    np.testing.assert_allclose(found.error, found.oracle)
    assert found.ause == pytest.approx(0, abs=1e-12)


def test_small_example():
    truth, mean = np.array([1.0, -3.0, 2.0, 0.0]), np.zeros(4)
    found = sparsification(truth, mean, np.array([4.0, 3.0, 2.0, 1.0]))
    assert found.removed.tolist() == [0, 0.25, 0.5, 0.75]
    np.testing.assert_allclose(found.error, [6 / 4, 5 / 3, 1, 0])
    np.testing.assert_allclose(found.oracle, [6 / 4, 1, 0.5, 0])
    assert found.ause == pytest.approx((0 + 2 / 3 + 0.5 + 0) / 4 / 1.5)
    squares = sparsification(truth, mean, np.array([4.0, 3.0, 2.0, 1.0]), measure="rmse")
    np.testing.assert_allclose(squares.error**2, [14 / 4, 13 / 3, 2, 0])


@pytest.mark.parametrize("measure", ["mae", "rmse"])
def test_no_order_beats_the_oracle(measure):
    found = sparsification(TRUTH, MEAN, STD, measure=measure)
    assert np.all(found.error >= found.oracle - 1e-12)
    assert 0 < found.ause < found.ause_of_no_knowledge < 1


def test_a_random_deviation_gives_a_flat_curve():
    found = sparsification(TRUTH, MEAN, RNG(3).uniform(size=SHAPE))
    half = TRUTH.size // 2
    # half of the pixels, without replacement: √((1 − ½)/(n/2)) deviations of an absolute error
    error = np.abs(TRUTH - MEAN).std() / math.sqrt(TRUTH.size)
    np.testing.assert_allclose(found.error[:half], found.error[0], atol=4.5 * error)
    assert found.ause == pytest.approx(found.ause_of_no_knowledge, rel=0.05)


def test_a_constant_deviation_is_in_no_order():
    found = sparsification(TRUTH, MEAN, np.ones(SHAPE))
    np.testing.assert_allclose(found.error, found.error[0])
    assert found.ause == pytest.approx(found.ause_of_no_knowledge)


def test_only_the_order_of_the_deviations_matters():
    first, second = (sparsification(TRUTH, MEAN, std).error for std in (STD, 7 * STD**3))
    np.testing.assert_allclose(first, second)


@pytest.mark.parametrize("measure", ["mae", "rmse"])
def test_exact_draws_have_the_expected_curve(measure):
    found = sparsification(TRUTH, MEAN, STD, measure=measure)
    kept = TRUTH.size * (1 - found.removed)
    many = kept > 2000  # where a relative error of a few per cent is left: ~1/√kept, times the spread of STD
    np.testing.assert_allclose(found.error[many], found.expected[many], rtol=4.5 * 1.6 / math.sqrt(2000))


def test_an_image_without_error_has_no_ause():
    assert sparsification(MEAN, MEAN, STD).ause == 0


def test_a_mask_leaves_pixels_out():
    mask = STD < 1
    found = sparsification(TRUTH, MEAN, STD, mask=mask)
    assert len(found.removed) == mask.sum()
    assert found.error[0] == pytest.approx(np.abs(TRUTH - MEAN)[mask].mean())


def test_binned_errors_of_exact_draws_follow_the_deviation():
    """E|N(0, s²)| = √(2/π) s in every bin, with a standard error that fits."""
    found = error_by_std(TRUTH, MEAN, STD, bins=20)
    assert np.all(np.diff(found.std) > 0)
    assert found.pixels.sum() == TRUTH.size
    assert np.ptp(found.pixels) <= 1
    score = (found.error - math.sqrt(2 / math.pi) * found.std) / found.standard_error
    assert np.abs(score).max() < 4
    assert np.sqrt(np.mean(score**2)) == pytest.approx(1, abs=4 / math.sqrt(2 * 20))


def test_there_are_never_more_bins_than_pixels():
    found = error_by_std(np.ones(3), np.zeros(3), np.array([3.0, 1.0, 2.0]), bins=10)
    assert found.std.tolist() == [1, 2, 3]
    assert found.error.tolist() == [1, 1, 1]


def test_bad_input_is_named():
    with pytest.raises(InputError, match="'mse' is not known; use 'mae' or 'rmse'"):
        sparsification(TRUTH, MEAN, STD, measure="mse")
    with pytest.raises(InputError, match="at least 1"):
        error_by_std(TRUTH, MEAN, STD, bins=0)
