"""LoDoPaB's layout: against ODL's geometry and skimage's metrics, and one fault per item."""

import json
import pickle

import h5py
import numpy as np
import pytest
import torch

from ct_dip.classical.fbp import fbp
from ct_dip.convert.odl import from_odl, to_odl_image
from ct_dip.data.datasets import open_dataset
from ct_dip.data.datasets.hdf5_stacks import PER_FILE
from ct_dip.data.datasets.lodopab import SCALE, Layout, LoDoPaB, lodopab_geometry
from ct_dip.data.noise import PhotonNoise
from ct_dip.errors import InputError, ScanError
from ct_dip.quality import psnr, ssim

GEOMETRY = lodopab_geometry(side=10, views=6)


def write(path, arrays):
    with h5py.File(path, "w") as file:
        chunk = (1, *arrays.shape[1:])
        file.create_dataset("data", data=arrays.astype(np.float32), chunks=chunk, fletcher32=True)


def arrays(count, seed=0):
    """(observations, truths) as such files hold them."""
    generator = np.random.default_rng(seed)
    return generator.random((count, *GEOMETRY.range_shape)) / 50, generator.random((count, 10, 10))


@pytest.fixture
def folder(tmp_path):
    """130 scans in two files."""
    Layout(geometry=GEOMETRY, source="dots", items={"test": PER_FILE + 2}).write(tmp_path)
    observations, truths = arrays(PER_FILE + 2)
    for kind, values in (("observation", observations), ("ground_truth", truths)):
        write(tmp_path / f"{kind}_test_000.hdf5", values[:PER_FILE])
        write(tmp_path / f"{kind}_test_001.hdf5", values[PER_FILE:])
    return tmp_path


def test_the_geometry_is_that_of_odl():
    import odl
    from odl.applications import tomo

    space = odl.uniform_discr([-130, -130], [130, 130], (362, 362))
    theirs = from_odl(space, tomo.parallel_beam_geometry(space, num_angles=1000, det_shape=(513,)))
    ours = lodopab_geometry()
    assert (ours.domain_shape, ours.range_shape) == ((362, 362), (1000, 513))
    np.testing.assert_allclose(ours.angles, theirs.angles, atol=1e-12)
    np.testing.assert_allclose(ours.detector_positions, theirs.detector_positions, atol=1e-9)
    assert ours.reach == pytest.approx((-183.8478, 183.8478))
    assert ours.volume.pixel_size == pytest.approx(theirs.volume.pixel_size)
    assert ours.field_of_view_mask().all()  # so that scores count every pixel, as the authors' do


def test_a_scan_is_what_odl_projects_and_dival_stores(folder):
    """Stored observations are odl's ray transform of stored truths: so are ours, in other units."""
    import odl
    from odl.applications import tomo

    side = 40
    geometry = lodopab_geometry(side=side, views=12)
    space = odl.uniform_discr([-0.13, -0.13], [0.13, 0.13], (side, side), dtype="float32")
    theirs = tomo.parallel_beam_geometry(space, num_angles=12)
    x, y = np.meshgrid(*[np.linspace(-1, 1, side)] * 2, indexing="ij")
    stored = np.exp(-8 * ((x - 0.3) ** 2 + (y + 0.2) ** 2) - 4 * x * y).astype(np.float32)
    observed = tomo.RayTransform(space, theirs, impl="astra_cpu")(stored).asarray()
    Layout(geometry=geometry).write(folder)
    write(folder / "observation_validation_000.hdf5", observed[None])
    write(folder / "ground_truth_validation_000.hdf5", stored[None])
    scan = LoDoPaB(folder, "validation")[0]
    from ct_dip.operators import ray_transform

    projected = ray_transform(geometry)(torch.as_tensor(scan.ground_truth.copy())).numpy()
    np.testing.assert_allclose(projected, scan.sinogram, atol=0.01 * scan.sinogram.max())
    torch.testing.assert_close(to_odl_image(torch.tensor(scan.ground_truth)) / SCALE, torch.tensor(stored))


def test_images_go_back_as_they_were_stored(folder):
    _, truths = arrays(PER_FILE + 2)
    dataset = open_dataset(folder)
    stored = dataset.stored_image(dataset[129].ground_truth)
    assert stored.dtype == np.float32
    np.testing.assert_allclose(stored, truths[129], rtol=1e-6)


def test_it_reads_every_item_of_every_file(folder):
    observations, _ = arrays(PER_FILE + 2)
    dataset = open_dataset(folder)
    assert len(dataset) == PER_FILE + 2
    assert dataset.label(128) == "test_00128"
    for index in (0, 127, 128, 129):
        np.testing.assert_allclose(dataset[index].sinogram, observations[index] * 81.35858, rtol=1e-6)
    assert dataset[0].noise == PhotonNoise(photons=4096)
    assert dataset[0].geometry == dataset.geometry == GEOMETRY
    assert "dots, part test: 130 scans of 6 views × 17 bins" in dataset.describe()
    with pytest.raises(InputError, match=r"no part 'train'.*choose from test"):
        open_dataset(folder, part="train")


def test_without_a_stated_length_the_last_file_has_it(folder):
    Layout(geometry=GEOMETRY).write(folder)
    assert len(open_dataset(folder)) == PER_FILE + 2
    (folder / "observation_test_001.hdf5").write_bytes(b"")  # nobody knows: what is not there says so
    assert len(open_dataset(folder)) == 2 * PER_FILE
    (folder / "observation_test_027.hdf5").write_bytes(b"")
    assert len(open_dataset(folder)) == 3553  # of LoDoPaB itself


def test_subsets_have_a_geometry_before_any_scan_is_read(folder):
    dataset = open_dataset(folder, views=3, bin=17)
    assert dataset.geometry == dataset[0].geometry
    np.testing.assert_array_equal(dataset.geometry.angles, GEOMETRY.angles[::2])
    assert dataset[0].noise.photons == 4096 * 17


def test_a_pickled_dataset_opens_its_own_files(folder):
    dataset = open_dataset(folder)
    first = dataset[0].digest
    assert dataset._stacks._handles
    again = pickle.loads(pickle.dumps(dataset))
    assert not again._stacks._handles
    assert again[0].digest == first


def test_the_challenge_has_no_truth(folder):
    (folder / "observation_test_001.hdf5").rename(folder / "observation_challenge_000.hdf5")
    dataset = open_dataset(folder, part="challenge")
    assert len(dataset) == 2
    assert open_dataset(folder).part == "test"
    (folder / "observation_test_000.hdf5").unlink()
    assert open_dataset(folder).part == "challenge"  # the only one
    assert dataset[1].ground_truth is None
    assert "no ground truth" in dataset.describe()


def damage(path):
    """Flip bytes of the last array of a file."""
    content = bytearray(path.read_bytes())
    with h5py.File(path) as file:
        place = file["data"].id.get_chunk_info(file["data"].shape[0] - 1)
    content[place.byte_offset] ^= 0xFF
    path.write_bytes(content)


def change(path, index, value):
    with h5py.File(path, "r+") as file:
        file["data"][index, 0, 0] = value


FAULTS = {
    "damaged": (lambda f: damage(f / "observation_test_001.hdf5"), [129], "001.hdf5 is damaged"),
    "truncated": (
        lambda f: (f / "observation_test_001.hdf5").write_bytes(b"\x89HDF"),
        [128, 129],
        "001.hdf5",
    ),
    "missing": (lambda f: (f / "observation_test_000.hdf5").unlink(), range(128), "000.hdf5 does not exist"),
    "no truth": (
        lambda f: (f / "ground_truth_test_001.hdf5").unlink(),
        [128, 129],
        "001.hdf5 does not exist",
    ),
    "shape": (
        lambda f: write(f / "observation_test_001.hdf5", np.ones((2, 6, 16))),
        [128, 129],
        r"shape \(6, 16\), expected \(6, 17\)",
    ),
    "short": (
        lambda f: write(f / "observation_test_000.hdf5", np.ones((100, 6, 17))),
        range(100, 128),
        "holds 100 arrays, none of number",
    ),
    "nan": (lambda f: change(f / "observation_test_000.hdf5", 5, np.nan), [5], "test_00005 in .* is nan"),
    "nan truth": (lambda f: change(f / "ground_truth_test_001.hdf5", 1, np.nan), [129], "ground_truth"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_that_of_its_items_alone(folder, fault):
    make, bad, message = FAULTS[fault]
    make(folder)
    dataset = open_dataset(folder)
    assert len(dataset) == 130
    for index in bad:
        with pytest.raises(ScanError, match=message):
            dataset[index]
    for index in {0, 4, 6, 99, 128} - set(bad):
        assert dataset[index].ground_truth is not None


def test_a_strange_description_is_refused(folder):
    for change in ({"format": "other"}, {"photons": -1}, {"geometry": {}}, {"items": 3}):
        Layout(geometry=GEOMETRY).write(folder)
        plain = json.loads((folder / "geometry.json").read_text())
        (folder / "geometry.json").write_text(json.dumps(plain | change))
        with pytest.raises(InputError, match=r"geometry\.json does not describe a dataset"):
            open_dataset(folder)


def test_metrics_are_those_of_the_dataset(folder):
    """PSNR and SSIM of images in 1/mm are skimage's for stored ones, with the range of each truth."""
    from skimage.metrics import peak_signal_noise_ratio, structural_similarity

    truth = open_dataset(folder)[0].ground_truth
    image = truth + 0.01 * np.random.default_rng(1).standard_normal(truth.shape).astype(np.float32)
    stored, theirs = LoDoPaB.stored_image(image), LoDoPaB.stored_image(truth)
    span = float(np.ptp(theirs))
    assert psnr(image, truth) == pytest.approx(
        peak_signal_noise_ratio(theirs, stored, data_range=span), abs=1e-4
    )
    assert ssim(image, truth) == pytest.approx(
        structural_similarity(theirs, stored, data_range=span), abs=1e-5
    )


def test_the_reference_fbp_filters_as_odl_does():
    """``filter=hann, cutoff=0.641`` is ODL's ``Hann`` with ``frequency_scaling=0.641``."""
    import odl
    from odl.applications import tomo

    side, views = 64, 90
    space = odl.uniform_discr([-130, -130], [130, 130], (side, side), dtype="float32")
    transform = tomo.RayTransform(
        space, tomo.parallel_beam_geometry(space, num_angles=views), impl="astra_cpu"
    )
    x, y = np.meshgrid(*[np.linspace(-1, 1, side)] * 2, indexing="ij")
    image = (np.hypot(x - 0.1, y) < 0.5) - 0.5 * (np.hypot(x, y - 0.2) < 0.2)
    sinogram = transform(image.astype(np.float32))
    theirs = tomo.fbp_op(transform, filter_type="Hann", frequency_scaling=0.641)(sinogram).asarray()
    geometry = lodopab_geometry(side=side, views=views)
    ours = fbp(torch.tensor(sinogram.asarray()), geometry, filter="hann", cutoff=0.641)
    difference = to_odl_image(ours).numpy() - theirs
    assert np.sqrt(np.mean(difference[np.hypot(x, y) < 0.9] ** 2)) < 0.02  # of a range of 1; kernels differ
