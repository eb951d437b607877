"""A challenge submission holds every image, in the dataset's units and order of axes."""

import zipfile

import h5py
import numpy as np
import pytest

from ct_dip.data.datasets.lodopab import SCALE, Layout, LoDoPaB, lodopab_geometry
from ct_dip.data.datasets.submission import is_uploadable, write_submission
from ct_dip.errors import InputError

COUNT = 130


@pytest.fixture
def dataset(tmp_path):
    Layout(geometry=lodopab_geometry(side=6, views=2), items={"challenge": COUNT}).write(tmp_path)
    (tmp_path / "observation_challenge_000.hdf5").touch()  # a submission reads no observations
    return LoDoPaB(tmp_path, "challenge")


def image(index):
    values = np.zeros((6, 6))
    values[0, 5] = (index + 1) * SCALE  # at the top right: largest x, largest y
    return values


def test_the_files_are_numbered_and_hold_images_in_order(dataset, tmp_path):
    write_submission(tmp_path / "s.zip", dataset, image)
    with zipfile.ZipFile(tmp_path / "s.zip") as packed:
        assert packed.namelist() == ["reco_000.hdf5", "reco_001.hdf5"]
        assert packed.testzip() is None
        packed.extractall(tmp_path / "unpacked")
    stacks = []
    for name in ("reco_000", "reco_001"):
        with h5py.File(tmp_path / "unpacked" / f"{name}.hdf5") as file:
            assert (file["data"].shape, file["data"].dtype) == ((128, 6, 6), np.float32)
            stacks.append(file["data"][()])
    stored = np.concatenate(stacks)
    np.testing.assert_allclose(stored[:COUNT, 5, 5], np.arange(COUNT) + 1)
    assert np.count_nonzero(stored[:COUNT]) == COUNT
    assert np.isnan(stored[COUNT:]).all()


def test_the_same_images_give_the_same_bytes(dataset, tmp_path):
    for name in "ab":
        write_submission(tmp_path / f"{name}.zip", dataset, image)
    assert (tmp_path / "a.zip").read_bytes() == (tmp_path / "b.zip").read_bytes()


@pytest.mark.parametrize(
    ("images", "message"),
    [
        (lambda i: None if i == 129 else image(i), "no reconstruction of challenge_00129, .* all 130"),
        (lambda i: image(i)[:5], r"challenge_00000 has shape \(5, 6\), expected \(6, 6\)"),
    ],
)
def test_nothing_is_left_of_an_incomplete_one(dataset, tmp_path, images, message):
    before = sorted(tmp_path.iterdir())
    with pytest.raises(InputError, match=message):
        write_submission(tmp_path / "s.zip", dataset, images)
    assert sorted(tmp_path.iterdir()) == before


@pytest.mark.parametrize(("part", "side"), [("challenge", 362), ("challenge", 32), ("test", 362)])
def test_the_challenge_takes_its_own_part_and_grid_alone(tmp_path, part, side):
    Layout(geometry=lodopab_geometry(side=side, views=2), items={part: 1}).write(tmp_path)
    (tmp_path / f"observation_{part}_000.hdf5").touch()
    assert is_uploadable(LoDoPaB(tmp_path, part)) == (part == "challenge" and side == 362)


def test_it_is_a_zip_file(dataset, tmp_path):
    with pytest.raises(InputError, match=r"does not end in \.zip"):
        write_submission(tmp_path / "s.h5", dataset, image)
