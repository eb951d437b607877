import numpy as np
import pytest

from ct_dip.data.motions import Motion, draw_motion


def test_exact_motions_are_undone_to_the_bit_and_keep_values():
    rng = np.random.default_rng(0)
    for shape in ((7, 7), (6, 9)):
        image = rng.random(shape)
        drawn = [draw_motion(shape, "exact", rng) for _ in range(60)]
        assert len(set(drawn)) > 30
        for motion in drawn:
            moved = motion.apply(image)
            assert moved.shape == shape
            np.testing.assert_array_equal(np.sort(moved, axis=None), np.sort(image, axis=None))
            np.testing.assert_array_equal(motion.undo(moved), image)
    assert draw_motion((5, 5), "none", rng) == Motion()


def test_a_rotation_turns_a_smooth_image_and_is_undone():
    x, y = np.meshgrid(np.arange(31) - 15.0, np.arange(31) - 15.0)

    def blob(angle):
        c, s = np.cos(np.deg2rad(angle)), np.sin(np.deg2rad(angle))
        return np.exp(-((c * x + s * y) ** 2) / 25 - (-s * x + c * y) ** 2 / 10)

    motion = Motion(quarters=1, mirrored=True, angle=9.0, shift=(1, -2))
    np.testing.assert_allclose(motion.undo(motion.apply(blob(0))), blob(0), atol=2e-3)
    turned = Motion(angle=9.0).apply(blob(0))
    assert min(np.abs(turned - blob(a)).max() for a in (9, -9)) < 2e-3
    angles = [draw_motion((5, 5), "all", np.random.default_rng(seed)).angle for seed in range(200)]
    assert max(np.abs(angles)) == pytest.approx(10, abs=0.3)
