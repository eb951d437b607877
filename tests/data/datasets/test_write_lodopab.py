"""Simulated datasets in LoDoPaB's layout: read back, they are scans of what went in."""

import numpy as np
import pytest
import torch

from ct_dip.cli import main
from ct_dip.data.datasets import open_dataset
from ct_dip.data.datasets.lodopab import SCALE
from ct_dip.data.datasets.slices import FileSlices, PhantomSlices
from ct_dip.data.datasets.write_lodopab import write_lodopab
from ct_dip.errors import InputError
from ct_dip.operators import ray_transform


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    write_lodopab(folder, PhantomSlices("ellipses", 3, seed=5), side=40, views=20, seed=1)
    return folder


def test_scans_are_noisy_projections_of_their_truths(folder):
    dataset = open_dataset(folder)
    assert len(dataset) == 3
    transform = ray_transform(dataset.geometry)
    for scan in dataset:
        assert scan.geometry.range_shape == (20, 59)
        projected = transform(torch.tensor(scan.ground_truth)).numpy()
        standardised = (scan.sinogram - projected) / np.sqrt(scan.variance)
        # Noise of deviation 1, and what linear interpolation to the finer grid changes at edges.
        assert 0.9 < standardised.std() < 1.2
        assert abs(standardised.mean()) < 0.1
    assert not np.array_equal(dataset[0].ground_truth, dataset[1].ground_truth)


def test_the_same_seed_gives_the_same_dataset(folder, tmp_path):
    again = write_lodopab(tmp_path / "a", PhantomSlices("ellipses", 3, seed=5), side=40, views=20, seed=1)
    assert [scan.digest for scan in again] == [scan.digest for scan in open_dataset(folder)]
    other = write_lodopab(tmp_path / "b", PhantomSlices("ellipses", 3, seed=5), side=40, views=20, seed=2)
    assert other[0].digest != again[0].digest
    np.testing.assert_array_equal(other[0].ground_truth, again[0].ground_truth)


def test_the_standard_scanner_has_lodopabs_finer_grid(tmp_path, monkeypatch):
    """362 pixels are projected on 1000: here 36 on 99, which must leave a disk's mass as it is."""
    disk = np.hypot(*np.mgrid[-1:1:36j, -1:1:36j]) < 0.6
    np.save(tmp_path / "disk.npy", disk.astype(float))
    seen = []
    monkeypatch.setattr(
        "ct_dip.data.datasets.write_lodopab.ray_transform",
        lambda geometry, backend: seen.append(geometry) or ray_transform(geometry, backend),
    )
    scan = write_lodopab(tmp_path / "d", FileSlices(tmp_path / "disk.npy"), side=36, views=30, photons=1e9)[0]
    assert seen[0].volume.shape == (99, 99)
    mass = scan.sinogram.sum(axis=1) * scan.geometry.detector_pitch
    truth = scan.ground_truth.sum() * scan.geometry.volume.pixel_size**2
    np.testing.assert_allclose(mass, truth, rtol=0.02)


def test_opaque_bins_have_a_tenth_of_a_photon(tmp_path):
    image = np.zeros((20, 20))
    image[8:12, 2:18] = 4.0  # 4 × water over 208 mm: exp(−16)
    np.save(tmp_path / "bar.npy", image)
    scan = write_lodopab(tmp_path / "d", FileSlices(tmp_path / "bar.npy"), side=20, views=40)[0]
    assert scan.sinogram.max() == pytest.approx(np.log(4096 / 0.1), rel=1e-5)
    assert scan.ground_truth.max() <= SCALE * (1 + 1e-6)


def test_hounsfield_units_become_attenuation_as_in_lodopab(tmp_path):
    units = np.full((2, 16, 16), -1024, dtype=np.int16)
    units[:, 4:12, 4:12] = 1000
    np.savez(tmp_path / "ct.npz", slices_hu=units)
    slices = FileSlices(tmp_path / "ct.npz", hounsfield=True)
    assert len(slices) == 2
    image = slices.attenuation(1, 16, np.random.default_rng(0))
    assert image[0, 0] == 0
    inside = image[5:11, 5:11]
    assert inside.min() >= 0.02 + 0.01998
    assert inside.max() < 0.02 + 1.001 * 0.01998
    assert np.ptp(inside) > 0  # spread over a unit


def test_slices_come_again_turned_and_mirrored(tmp_path):
    image = np.zeros((12, 12))
    image[2:5, 3:6] = image[6:10, 3:4] = 1
    np.save(tmp_path / "image.npy", image)
    dataset = write_lodopab(tmp_path / "d", FileSlices(tmp_path / "image.npy"), items=8, side=12, views=5)
    truths = {scan.ground_truth.tobytes() for scan in dataset}
    assert len(truths) == 8
    assert {np.isclose(scan.ground_truth, 0.02).sum() for scan in dataset} == {13}
    with pytest.raises(InputError, match=r"9 items cannot be made of 1 slices.*ask for 8"):
        write_lodopab(tmp_path / "e", FileSlices(tmp_path / "image.npy"), items=9, side=12, views=5)


def test_parts_share_a_folder_and_a_geometry(folder):
    slices = PhantomSlices("ellipses", 2)
    challenge = write_lodopab(folder, slices, part="challenge", side=40, views=20)
    assert challenge[1].ground_truth is None
    assert len(open_dataset(folder, part="test")) == 3
    for options, words in [
        ({}, "has a part 'test' already"),
        ({"part": "train", "side": 20}, "another geometry"),
        ({"part": "other"}, "not known"),
    ]:
        with pytest.raises(InputError, match=words):
            write_lodopab(folder, slices, **{"side": 40, "views": 20, **options})


def test_a_slice_that_is_refused_leaves_the_folder_as_it_was(tmp_path):
    class Uneven(PhantomSlices):
        def attenuation(self, index, side, rng):
            return super().attenuation(index, side, rng)[: side if index == 0 else side // 2]

    with pytest.raises(InputError, match="cut it to a square"):
        write_lodopab(tmp_path / "new", Uneven("ellipses", 2), side=16, views=5)
    assert not (tmp_path / "new").exists()
    write_lodopab(tmp_path / "old", PhantomSlices("ellipses", 1), side=16, views=5)
    before = {path.name: path.read_bytes() for path in (tmp_path / "old").iterdir()}
    with pytest.raises(InputError, match="cut it to a square"):
        write_lodopab(tmp_path / "old", Uneven("ellipses", 2), part="train", side=16, views=5)
    assert {path.name: path.read_bytes() for path in (tmp_path / "old").iterdir()} == before


def test_dicom_slices(tmp_path):
    pydicom = pytest.importorskip("pydicom")
    from pydicom.dataset import FileDataset, FileMetaDataset
    from pydicom.uid import CTImageStorage, ExplicitVRLittleEndian, generate_uid

    meta = FileMetaDataset()
    meta.TransferSyntaxUID, meta.MediaStorageSOPClassUID = ExplicitVRLittleEndian, CTImageStorage
    meta.MediaStorageSOPInstanceUID = generate_uid()
    file = FileDataset(str(tmp_path / "slice.dcm"), {}, file_meta=meta, preamble=b"\0" * 128)
    stored = np.full((20, 20), 24, dtype=np.int16)
    stored[3:17, 3:17] = 1024
    file.Rows = file.Columns = 20
    file.BitsAllocated = file.BitsStored = 16
    file.HighBit, file.PixelRepresentation, file.SamplesPerPixel = 15, 1, 1
    file.PhotometricInterpretation = "MONOCHROME2"
    file.RescaleSlope, file.RescaleIntercept = 1, -1024
    file.PixelData = stored.tobytes()
    pydicom.dcmwrite(tmp_path / "slice.dcm", file, enforce_file_format=True)
    slices = FileSlices(tmp_path)
    image = slices.attenuation(0, 14, np.random.default_rng(0))
    assert image.shape == (14, 14)  # the square inside the circle
    np.testing.assert_allclose(image, 0.02, atol=2.1e-5)
    (tmp_path / "broken.dcm").write_bytes(b"no DICOM")
    with pytest.raises(InputError, match=r"broken\.dcm cannot be read as a CT slice"):
        FileSlices(tmp_path).attenuation(0, 14, np.random.default_rng(0))


def test_a_folder_without_dicom_files_is_refused(tmp_path):
    with pytest.raises(InputError, match="holds no DICOM files"):
        FileSlices(tmp_path)


def test_the_command_line_writes_a_dataset(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.savez("ct.npz", slices_hu=np.full((2, 16, 16), 50, dtype=np.int16))
    assert (
        main("simulate --dataset lodopab --images ct.npz --hu --items 3 --size 16 --views 7 --out d".split())
        == 0
    )
    dataset = open_dataset("d")
    assert (len(dataset), dataset.geometry.views) == (3, 7)
    assert "LoDoPaB's simulation of ct.npz, part test: 3 scans" in capsys.readouterr().out
    for options, words in [
        ("--dataset other --out e", "choose lodopab"),
        ("--dataset lodopab --out e", "--items is needed"),
        ("--dataset lodopab --items 2 --hu --out e", "--hu belongs to --images"),
        (
            "--dataset lodopab --items 2 --noise 0.1 --detectors 30 --out e",
            "--detectors, --noise: a dataset has",
        ),
        ("--dataset lodopab --items 2 --out ct.npz", "is a file"),
        ("--items 2 --out e.h5", "belong to --dataset"),
    ]:
        assert main(["simulate", *options.split()]) == 2
        assert words in " ".join(capsys.readouterr().err.split())
