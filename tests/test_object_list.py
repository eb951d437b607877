"""What is chosen on is never reported on, and the lists hold what they promise."""

import numpy as np
import pytest
import torch

from benchmarks.object_list import CHOOSE, LISTS, REPORT, make_scan, pick
from ct_dip.classical.cgls import cgls
from ct_dip.data.simulate import simulate
from ct_dip.errors import InputError
from ct_dip.operators import ray_transform


def test_no_object_is_on_both_lists():
    chosen, reported = ({(i.kind, i.which or i.seed) for i in items} for items in (CHOOSE, REPORT))
    assert not chosen & reported
    assert not {i.seed for i in CHOOSE} & {i.seed for i in REPORT if i.kind != "kmnist" and not i.measured}


def test_what_settings_were_chosen_on_before_is_not_reported():
    """Head slices, characters from 50 on, and seeds of generated objects; see experiments/README.md."""
    used = {"head": {"3", "7"}, "kmnist": {str(n) for n in range(50, 100)}}
    assert not [item.label for item in REPORT if item.which in used.get(item.kind, ())]
    assert all(item.seed >= 1000 for item in REPORT if not item.which and not item.measured)


@pytest.mark.parametrize(("items", "scans", "kinds"), [(CHOOSE, 14, 8), (REPORT, 24, 11)])
def test_the_lists_are_varied(items, scans, kinds):
    assert len({item.label for item in items}) == len(items) >= scans
    assert len({item.kind for item in items}) >= kinds
    assert {item.side for item in items} >= {28, 40, 48, 64, 128}
    assert {item.arc for item in items} >= {None, 90, 120}
    assert {item.fan for item in items} == {True, False}
    assert any(item.measured for item in items)
    assert 0 < sum(item.quick for item in items) <= 10
    assert min(item.views for item in items) == 5
    assert max(item.views for item in items) == 60


def test_scans_are_picked_by_how_their_labels_begin():
    assert pick(REPORT, None, quick=False) == list(REPORT)
    assert {item.kind for item in pick(REPORT, ["grains", "head5"], quick=False)} == {"grains", "head"}
    assert all(item.quick for item in pick(REPORT, [], quick=True))
    with pytest.raises(InputError, match="--cases other: no scan's label begins like this; choose from kmn"):
        pick(REPORT, ["grains", "other"], quick=False)


@pytest.mark.parametrize("item", [i for i in (*CHOOSE, *REPORT) if i.kind == "ellipses"][:3], ids=str)
def test_a_scan_has_the_noise_and_the_views_that_its_item_names(item):
    scan, comparison = make_scan(item)
    assert comparison.name == "truth"
    assert scan.geometry.domain_shape == (item.side, item.side)
    step = np.rad2deg(scan.geometry.angles[1])
    assert scan.geometry.views == item.views
    assert step * item.views == pytest.approx(item.arc or 180)
    ideal = simulate(item.kind, scan.geometry, seed=item.seed).sinogram
    residual = (scan.sinogram - ideal) / np.sqrt(scan.noise.variance(ideal))
    # of n squared standard normal numbers the mean has a standard error of √(2/n), four of which are allowed
    assert np.mean(residual**2) == pytest.approx(1, abs=4 * np.sqrt(2 / residual.size) + 0.01)


def test_characters_are_their_own_truth(real_data):
    """They are constant on every pixel of the finer grid."""
    _, comparison = make_scan(CHOOSE[0])
    image = np.load(real_data / "kmnist_test_first100.npz")["images"][50] / 255
    np.testing.assert_allclose(comparison.image, image, atol=1e-6)


@pytest.mark.usefixtures("real_data")
def test_measured_scans_have_a_reference_with_noise():
    """Thirty views of a quarter turn of HTC; the reference of all of them is like CGLS of those."""
    item = next(item for item in REPORT if item.kind == "htc" and item.arc)
    scan, comparison = make_scan(item)
    assert comparison.name == "reference"
    assert 0 < comparison.noise_std < 0.02 * np.ptp(comparison.image)
    assert scan.geometry.views == item.views
    assert 80 < np.rad2deg(np.ptp(scan.geometry.angles)) < item.arc
    image = cgls(ray_transform(scan.geometry), torch.as_tensor(scan.sinogram.copy()), max_iterations=20).image
    inside = scan.evaluated
    assert np.corrcoef(image.numpy()[inside], comparison.image[inside])[0, 1] > 0.8


def test_the_lists_have_names():
    assert LISTS == {"choose": CHOOSE, "report": REPORT}
