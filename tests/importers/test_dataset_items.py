"""Single items of datasets: what an import writes is what the dataset's own reader gives."""

import numpy as np
import pytest

from ct_dip.data.datasets.lodopab import Layout, LoDoPaB, lodopab_geometry
from ct_dip.data.datasets.two_detect import TwoDetect
from ct_dip.errors import ScanError
from ct_dip.importers.content import look_into
from ct_dip.importers.formats import find_format
from ct_dip.importers.run import import_rows, import_scan
from tests.data.datasets.test_lodopab import write
from tests.data.datasets.test_two_detect import write_slice


@pytest.fixture
def folder(tmp_path):
    """Three items of LoDoPaB's layout."""
    geometry = lodopab_geometry(side=10, views=6)
    Layout(geometry=geometry, source="dots", items={"test": 3}).write(tmp_path)
    rng = np.random.default_rng(0)
    write(tmp_path / "observation_test_000.hdf5", rng.random((3, *geometry.range_shape)) / 50)
    write(tmp_path / "ground_truth_test_000.hdf5", rng.random((3, 10, 10)))
    return tmp_path


def test_an_item_of_lodopab_is_that_of_its_dataset(folder):
    path = folder / "observation_test_000.hdf5"
    assert find_format(look_into(path)).name == "lodopab"
    imported = dict(import_rows(path, rows="all"))
    assert len(imported) == 3
    ours, theirs = imported[2], LoDoPaB(folder)[2]
    assert np.array_equal(ours.sinogram, theirs.sinogram)
    assert (ours.geometry, ours.noise) == (theirs.geometry, theirs.noise)
    assert np.array_equal(ours.ground_truth, theirs.ground_truth)
    assert import_scan(path, row=2, size=20).ground_truth is None  # which is of another grid


def test_a_slice_of_2detect_is_that_of_its_dataset(tmp_path):
    place = write_slice(tmp_path, 3000, line_integrals=np.repeat(np.linspace(0, 2, 956), 2))
    assert find_format(look_into(place)).name == find_format(look_into(place.parent)).name == "2detect"
    ours, theirs = import_scan(place), TwoDetect(tmp_path)[0]
    assert np.array_equal(ours.sinogram, theirs.sinogram)
    assert (ours.geometry, ours.noise, ours.source) == (theirs.geometry, theirs.noise, theirs.source)
    with pytest.raises(ScanError, match="name one of them"):
        import_scan(place.parent)
