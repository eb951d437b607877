"""Parts of an image: they divide it, and edges are where the image jumps."""

import numpy as np

from ct_dip.evaluation.image_parts import image_parts
from ct_dip.evaluation.near import near_object

SQUARE = np.zeros((20, 22))
SQUARE[5:13, 4:15] = 1.0


def test_parts_divide_the_evaluated_pixels():
    mask = np.random.default_rng(0).random(SQUARE.shape) > 0.2
    parts = image_parts(SQUARE, mask)
    np.testing.assert_array_equal(parts["all"], mask)
    np.testing.assert_array_equal(parts["near"], near_object(SQUARE, mask))
    np.testing.assert_array_equal(parts["flat"] ^ parts["edges"], parts["near"])
    np.testing.assert_array_equal(parts["near"] ^ parts["background"], mask)


def test_a_step_has_one_edge_pixel_on_either_side():
    edges = np.zeros(SQUARE.shape, dtype=bool)
    edges[4:14, 3:16] = True
    edges[6:12, 5:14] = False
    np.testing.assert_array_equal(image_parts(SQUARE)["edges"], edges)


def test_small_steps_are_no_edges():
    image = SQUARE.copy()
    image[8:, 4:15] *= 0.92
    image[13:, :] = 0
    np.testing.assert_array_equal(image_parts(image)["edges"], image_parts(SQUARE)["edges"])
    image[8:13, 4:15] = 0.88
    assert image_parts(image)["edges"][7:9, 6:13].all()


def test_what_is_outside_of_the_mask_makes_no_edge():
    image, mask = SQUARE.copy(), np.ones(SQUARE.shape, dtype=bool)
    image[8, 8], mask[8, 8] = 50.0, False
    parts = image_parts(image, mask)
    np.testing.assert_array_equal(parts["edges"], image_parts(SQUARE)["edges"])
    assert not parts["all"][8, 8]


def test_an_image_without_an_object_is_background():
    assert sorted(image_parts(np.ones((4, 5)))) == ["all", "background"]
