import math

import numpy as np
import pytest

from ct_dip.quality import psnr, ssim

TRUTH = np.linspace(0, 2, 100).reshape(10, 10)


def test_psnr_counts_decibels_of_the_range():
    assert psnr(TRUTH + 0.2, TRUTH) == pytest.approx(20.0)
    assert psnr(10 * (TRUTH + 0.2), 10 * TRUTH) == pytest.approx(20.0)
    assert psnr(TRUTH, TRUTH) == math.inf
    assert psnr(TRUTH, 0 * TRUTH) == -math.inf
    assert math.isnan(psnr(TRUTH * math.nan, TRUTH))


def test_psnr_does_not_depend_on_where_zero_is():
    assert psnr(TRUTH + 5.2, TRUTH + 5) == pytest.approx(psnr(TRUTH + 0.2, TRUTH))
    assert psnr(TRUTH - 8.8, TRUTH - 9) == pytest.approx(psnr(TRUTH + 0.2, TRUTH))


def test_psnr_inside_a_mask_ignores_the_rest():
    mask = np.zeros((10, 10), dtype=bool)
    mask[:5] = True
    spoiled = TRUTH.copy()
    spoiled[5:] += 100
    assert psnr(spoiled, TRUTH, mask) == math.inf


def test_ssim_inside_a_mask_ignores_the_rest():
    mask = np.zeros((10, 10), dtype=bool)
    mask[:5] = True
    spoiled = TRUTH.copy()
    spoiled[5:] += 100
    assert ssim(spoiled, TRUTH, mask) == pytest.approx(1)
    noisy = TRUTH + 0.1 * np.random.default_rng(0).normal(size=(10, 10))
    assert ssim(noisy, TRUTH, mask) < 0.99
    assert ssim(noisy, TRUTH, np.ones((10, 10), dtype=bool)) == pytest.approx(ssim(noisy, TRUTH))


def test_ssim_inside_a_mask_is_not_diluted_by_the_rest():
    truth = np.random.default_rng(0).integers(0, 2, (20, 20)).astype(float)  # of the same range everywhere
    mask = np.zeros((20, 20), dtype=bool)
    mask[:, :6] = True
    wrong = np.where(mask, 1 - truth, truth)
    assert ssim(wrong, truth, mask) < ssim(wrong, truth) - 0.2


def test_ssim_inside_a_mask_does_not_depend_on_a_truth_far_away():
    """Beyond the reach of a window, 3 pixels, the truth may have any range."""
    rng = np.random.default_rng(1)
    truth, mask = rng.random((20, 20)), np.zeros((20, 20), dtype=bool)
    mask[:, :6] = True
    image, other = truth + 0.3 * rng.standard_normal((20, 20)), truth.copy()
    other[:, 12:] *= 50
    assert ssim(image, other, mask) == pytest.approx(ssim(image, truth, mask))


def test_ssim_is_one_for_the_truth_only():
    assert ssim(TRUTH, TRUTH) == pytest.approx(1)
    assert ssim(np.random.default_rng(0).normal(size=(10, 10)), TRUTH) < 0.5
    assert ssim(TRUTH[:4, :4], TRUTH[:4, :4]) == pytest.approx(1)
    assert math.isnan(ssim(TRUTH[:2], TRUTH[:2]))
    assert math.isnan(ssim(TRUTH, 0 * TRUTH))
