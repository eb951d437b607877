import numpy as np
import pytest

from ct_dip.data.phantoms import PHANTOMS, phantom
from ct_dip.errors import InputError


@pytest.mark.parametrize("name", PHANTOMS)
def test_phantoms_are_objects_of_unit_scale_inside_the_disk(name):
    image = phantom(name, (90, 90), seed=3)
    assert image.min() == 0
    assert 0.3 < image.max() <= 1
    assert 0.05 < (image > 0).mean() < 0.9
    y, x = np.mgrid[1:-1:90j, -1:1:90j]
    assert not image[np.hypot(x, y) > 1.01].any()


@pytest.mark.parametrize("name", PHANTOMS)
def test_every_resolution_shows_the_same_object(name):
    coarse = phantom(name, (60, 60), seed=5)
    fine = phantom(name, (300, 300), seed=5).reshape(60, 5, 60, 5).mean(axis=(1, 3))
    assert np.corrcoef(coarse.ravel(), fine.ravel())[0, 1] > 0.9


@pytest.mark.parametrize("name", ["rectangles", "ellipses", "walnut", "grains", "cracks"])
def test_seeds_make_different_objects_and_the_same_seed_the_same(name):
    first, again, other = (phantom(name, (50, 50), seed) for seed in (1, 1, 2))
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)


def test_the_walnut_has_fine_structure():
    """A median over 7 of 256 pixels, which keeps large regions and their edges, destroys much of it."""
    from scipy.ndimage import median_filter

    def lost(name):
        image = phantom(name, (256, 256), seed=0)
        return (np.abs(image - median_filter(image, 7)) > 0.1).mean()

    assert lost("walnut") > 0.02
    assert lost("walnut") > 5 * lost("ellipses")


def test_grains_are_many_plateaus():
    image = phantom("grains", (384, 384), seed=0)
    assert len(np.unique(image)) > 100
    assert (np.diff(image) == 0).mean() > 0.85


def test_cracks_are_narrow_and_leave_a_smooth_slab():
    """A closing over 11 of 384 pixels, wider than any crack, fills them all and nothing else."""
    from scipy.ndimage import grey_closing

    image = phantom("cracks", (384, 384), seed=0)
    filled = grey_closing(image, size=(11, 11))
    assert 0.01 < (filled - image > 0.1).mean() < 0.1
    assert np.abs(np.diff(filled[120:264, 120:264])).max() < 0.05


def test_rectangular_grids_show_the_object_undistorted():
    tall = phantom("ellipses", (120, 80), seed=0)
    assert np.array_equal(tall[20:100], phantom("ellipses", (80, 80), seed=0))


def test_unknown_phantoms_are_refused():
    with pytest.raises(InputError, match="shepp-logan"):
        phantom("apple", (8, 8))
