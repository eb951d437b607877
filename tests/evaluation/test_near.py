"""Which pixels are near the object, in a truth and in a noisy reconstruction."""

import numpy as np

from ct_dip.data.comparison import Comparison
from ct_dip.data.prediction import Prediction
from ct_dip.evaluation.near import near_object, near_object_of


def test_near_is_one_pixel_around_what_rises_above_2_percent():
    truth = np.full((7, 8), 3.0)
    truth[3, 4], truth[0, 0] = 13.0, 3.19
    expected = np.zeros((7, 8), dtype=bool)
    expected[2:5, 3:6] = True
    np.testing.assert_array_equal(near_object(truth), expected)
    truth[0, 0] = 3.21
    expected[:2, :2] = True
    np.testing.assert_array_equal(near_object(truth), expected)
    assert not near_object(np.ones((4, 4))).any()


def disk(noise):
    """A disk of 0.02 in 40 × 40 pixels whose background has noise, and where it is."""
    y, x = np.mgrid[:40, :40] - 19.5
    inside = np.hypot(x, y) < 9
    return 0.02 * inside + noise * np.abs(np.random.default_rng(0).standard_normal((40, 40))), inside


def test_noise_in_the_background_is_no_object():
    """Noise of 3 % of the range is beyond the 2 % that a truth needs; the disk grows by a pixel all round."""
    image, inside = disk(0.03 * 0.02)
    assert near_object(image).mean() > 0.9
    found = near_object(image, noisy=True)
    assert found[inside].all()
    assert found.sum() < 1.5 * inside.sum()


def test_pixels_outside_of_the_mask_neither_count_nor_decide():
    image, inside = disk(0.0)
    image[:3] = 5.0  # what no view sees can be anything
    mask = np.ones((40, 40), dtype=bool)
    mask[:3] = False
    for noisy in (False, True):
        found = near_object(image, mask, noisy=noisy)
        assert found[inside].all()
        assert found.sum() < 1.5 * inside.sum()
        assert not found[:3].any()


def test_an_object_does_not_grow_out_of_the_mask():
    image, _ = disk(0.0)
    mask = np.zeros((40, 40), dtype=bool)
    mask[:20] = True  # whose edge cuts the disk
    for noisy in (False, True):
        found = near_object(image, mask, noisy=noisy)
        assert found[19].any()
        assert not found[~mask].any()


def test_neither_the_unit_nor_the_zero_of_a_reconstruction_matters():
    image, _ = disk(0.03 * 0.02)
    expected = near_object(image, noisy=True)
    np.testing.assert_array_equal(near_object(7 * image, noisy=True), expected)
    np.testing.assert_array_equal(near_object(image + 0.1, noisy=True), expected)


def test_a_reference_does_not_say_where_the_object_is():
    image, inside = disk(0.001 * 0.02)
    reference = (image + 0.002 * np.random.default_rng(1).standard_normal((40, 40))).astype(np.float32)
    result = Prediction(mean=image, comparison=Comparison(name="reference", image=reference))
    assert near_object_of(result).sum() < 1.5 * inside.sum()
