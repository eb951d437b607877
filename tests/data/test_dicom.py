"""DICOM images: Hounsfield units by the file's line, and its pixel size, as the simulated object."""

import numpy as np
import pytest

from ct_dip.cli import main
from ct_dip.data.dicom import is_dicom, read_dicom
from ct_dip.data.scan_file import read_scan
from ct_dip.errors import InputError

pydicom = pytest.importorskip("pydicom", reason="pydicom is not installed: pip install '.[dicom]'")


def write(path, stored, *, drop=(), **changes):
    """A CT image: HU = 0.5 · stored − 1024."""
    from pydicom.dataset import FileDataset, FileMetaDataset
    from pydicom.uid import CTImageStorage, ExplicitVRLittleEndian, generate_uid

    meta = FileMetaDataset()
    meta.TransferSyntaxUID = ExplicitVRLittleEndian
    meta.MediaStorageSOPClassUID, meta.MediaStorageSOPInstanceUID = CTImageStorage, generate_uid()
    dataset = FileDataset(str(path), {}, file_meta=meta, preamble=b"\0" * 128)
    stored = np.asarray(stored, dtype=np.uint16)
    fields = {
        "SOPClassUID": CTImageStorage,
        "SOPInstanceUID": meta.MediaStorageSOPInstanceUID,
        "Modality": "CT",
        "Rows": stored.shape[-2],
        "Columns": stored.shape[-1],
        "SamplesPerPixel": 1,
        "PhotometricInterpretation": "MONOCHROME2",
        "BitsAllocated": 16,
        "BitsStored": 16,
        "HighBit": 15,
        "PixelRepresentation": 0,
        "RescaleSlope": 0.5,
        "RescaleIntercept": -1024,
        "PixelSpacing": [0.7, 0.7],
    }
    if stored.ndim == 3:
        fields["NumberOfFrames"] = len(stored)
    for name, value in (fields | changes).items():
        if name not in drop:
            setattr(dataset, name, value)
    dataset.PixelData = stored.tobytes()
    dataset.save_as(path, enforce_file_format=True)


STORED = np.zeros((16, 16), np.uint16)
STORED[4:12, 4:12] = 2048  # 0 HU: water
STORED[6:8, 6:8] = 4048  # 1000 HU: twice as much


def test_stored_values_become_hounsfield_units(tmp_path):
    write(tmp_path / "a", STORED)
    assert is_dicom(tmp_path / "a")
    image, pixel_size = read_dicom(tmp_path / "a")
    assert pixel_size == 0.7
    assert image[5, [0, 5, 6]].tolist() == [-1024, 0, 0]
    assert (image[6:8, 6:8] == 1000).all()
    write(tmp_path / "b", np.stack([0 * STORED, STORED]), drop=["PixelSpacing"])
    second, unknown = read_dicom(tmp_path / "b", index=1)
    assert np.array_equal(second, image)
    assert unknown is None


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"Modality": "MR"}, "'MR', expected 'CT'"),
        ({"PixelSpacing": [0.7, 0.9]}, "expected square ones"),
        ({"Rows": 20}, "cannot be read"),
        ({"drop": ["RescaleSlope"]}, "RescaleSlope"),
        ({"RescaleIntercept": -9000}, "nothing but air"),
    ],
)
def test_wrong_files_are_refused(tmp_path, changes, words):
    write(tmp_path / "a", STORED, **changes)
    with pytest.raises(InputError, match=words):
        read_dicom(tmp_path / "a")
    (tmp_path / "a").write_bytes((tmp_path / "a").read_bytes()[:300])
    with pytest.raises(InputError, match=r"cannot be read|expected 'CT'"):
        read_dicom(tmp_path / "a")


def test_a_scan_of_a_dicom_image_has_its_lengths(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "a.dcm", STORED)
    assert main("simulate --images a.dcm --views 8 --out a.h5".split()) == 0
    scan = read_scan("a.h5")
    assert scan.geometry.volume.pixel_size == pytest.approx(0.7)
    np.testing.assert_allclose(scan.ground_truth[9, 9], 0.02, rtol=1e-5)  # water, 1/mm
    assert main("simulate --images a.dcm --size 8 --views 8 --out b.h5".split()) == 0
    assert read_scan("b.h5").geometry.volume.size == pytest.approx((11.2, 11.2))  # 16 × 0.7 mm
    capsys.readouterr()
    write(tmp_path / "c.dcm", STORED, drop=["PixelSpacing"])
    assert main("simulate --images c.dcm --views 8 --out c.h5".split()) == 2
    assert "--pixel-size MM" in capsys.readouterr().err
    assert main("simulate --images c.dcm --pixel-size 2 --views 8 --out c.h5".split()) == 0
    assert read_scan("c.h5").geometry.volume.pixel_size == 2
