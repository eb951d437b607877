"""2DeteCT: readings that are made of known line integrals come back as these, where the authors put them."""

import pickle

import numpy as np
import pytest
import tifffile
import torch

from ct_dip.cli import main
from ct_dip.data.datasets import open_dataset
from ct_dip.data.result_file import read_result
from ct_dip.errors import InputError, ScanError

VIEWS, COLUMNS = 3601, 1912
LIGHT, DARK = 20000, 300


def write_slice(folder, number, *, mode=2, line_integrals=None):
    """Readings behind line integrals of single columns, (columns,), with the noise of photons."""
    place = folder / f"slice{number:05d}" / f"mode{mode}"
    place.mkdir(parents=True)
    share = np.exp(-(np.zeros(COLUMNS) if line_integrals is None else line_integrals))
    generator = np.random.default_rng(number)
    readings = DARK + generator.poisson(np.broadcast_to(LIGHT * share, (VIEWS, COLUMNS)))
    tifffile.imwrite(place / "sinogram.tif", readings.astype(np.uint16))
    for name, value in (("dark", DARK), ("flat1", DARK + LIGHT - 200), ("flat2", DARK + LIGHT + 200)):
        tifffile.imwrite(place / f"{name}.tif", np.full((1, COLUMNS), value, dtype=np.uint16))
    return place


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("two_detect")
    profile = np.repeat(np.linspace(0, 2, COLUMNS // 2), 2)  # pairs are alike
    write_slice(folder, 2, line_integrals=profile)
    write_slice(folder, 3000, line_integrals=profile)
    (folder / "slice00007").mkdir()
    return folder


def test_readings_become_line_integrals(folder):
    scan = open_dataset(folder)[0]
    assert scan.geometry.range_shape == (3600, 956)
    expected = np.linspace(0, 2, 956)
    # Mean over views: noise of √(e²/40000/3600), and a bias of half the variance, 1/80000 · e².
    np.testing.assert_allclose(scan.sinogram.mean(axis=0), expected, atol=1.5e-3)
    assert scan.noise.photons == pytest.approx(2 * LIGHT, rel=0.02)
    assert scan.ground_truth is None


def test_labels_count_every_slice(folder):
    dataset = open_dataset(folder, part="mode2")
    labels = [dataset.label(i) for i in range(len(dataset))]
    assert labels == ["slice00002_mode2", "slice00007_mode2", "slice03000_mode2"]
    assert "3 measured slices" in dataset.describe()
    assert dataset.geometry is None  # two detectors


def test_early_slices_have_the_authors_shift(folder):
    """They move the values of summed bins by one to the left, and leave the detector where it is."""
    early, late = (open_dataset(folder, views=60, side=64)[i].geometry for i in (0, 2))
    np.testing.assert_allclose(early.detector_positions[1:], late.detector_positions[:-1])
    np.testing.assert_allclose(late.angles, np.arange(60) * np.pi / 30)
    assert late.source_origin + late.origin_detector == pytest.approx(529.000488)
    assert late.volume.size[0] == pytest.approx(956 * 0.1496 * 431.019989 / 529.000488)
    assert late.domain_shape == (64, 64)


def test_the_size_of_images_is_an_option_of_evaluate(folder, tmp_path):
    command = ["evaluate", str(folder), "--methods", "fbp", "--items", "0", "--views", "12", "--bin", "4"]
    assert main([*command, "--size", "32", "--workers", "0", "--out", str(tmp_path)]) == 0
    assert read_result(tmp_path / "items/slice00002_mode2/fbp.h5").mean.shape == (32, 32)


@pytest.mark.parametrize(
    ("number", "early"), [(1, 1), (2830, 1), (2831, 0), (5520, 0), (5521, 1), (5870, 1), (5871, 0)]
)
def test_the_detector_was_exchanged_once(number, early, tmp_path):
    (tmp_path / f"slice{number:05d}").mkdir()
    assert open_dataset(tmp_path, views=3).geometry.detector_offset == pytest.approx(-0.1496 * early)


def test_its_frame_is_the_one_of_astra(folder):
    """A disk to the right of the axis throws its shadow there in ASTRA's first view."""
    from ct_dip.operators import ray_transform

    geometry = open_dataset(folder, views=4, side=64)[2].geometry
    image = torch.zeros(64, 64)
    image[32, 50] = 1.0
    shadow = ray_transform(geometry, "astra")(image)[0].numpy()
    x = geometry.volume.pixel_centers()[0][50]
    middle = (shadow * geometry.detector_positions).sum() / shadow.sum()
    assert middle == pytest.approx(x * 529.000488 / 431.019989, abs=0.5)


def test_it_can_be_pickled(folder):
    dataset = open_dataset(folder, views=5)
    assert pickle.loads(pickle.dumps(dataset))[0].digest == dataset[0].digest


def test_a_fault_is_that_of_its_slice_alone(folder, tmp_path):
    dataset = open_dataset(folder)
    with pytest.raises(ScanError, match=r"slice00007/mode2/sinogram\.tif does not exist"):
        dataset[1]
    with pytest.raises(ScanError, match=r"mode1/sinogram\.tif does not exist"):
        open_dataset(folder, part="mode1")[0]
    place = write_slice(tmp_path, 1)
    tifffile.imwrite(place / "flat2.tif", np.zeros((1, 100), dtype=np.uint16))
    with pytest.raises(ScanError, match=r"flat2\.tif cannot be read \(it has shape \(1, 100\)"):
        open_dataset(tmp_path)[0]
    for name in ("flat1", "flat2"):
        tifffile.imwrite(place / f"{name}.tif", np.zeros(COLUMNS, dtype=np.uint16))
    with pytest.raises(ScanError, match="no more light in the flats"):
        open_dataset(tmp_path)[0]
    (place / "sinogram.tif").write_bytes(b"no TIFF")
    with pytest.raises(ScanError, match=r"sinogram\.tif cannot be read"):
        open_dataset(tmp_path)[0]


def test_unknown_modes_are_refused(folder):
    with pytest.raises(InputError, match="no part 'test'; choose one of mode1"):
        open_dataset(folder, part="test")
