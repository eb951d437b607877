"""Exported images: the same numbers, at the same places, with the same pixel size, or no file."""

import dataclasses
import json

import nibabel
import numpy as np
import pytest
import tifffile
from nibabel.affines import apply_affine

from ct_dip.data.export import export
from ct_dip.data.prediction import Prediction
from ct_dip.errors import InputError, OutputError
from ct_dip.geometry import Volume

SHAPE, PIXEL = (5, 8), 0.7


def result(*, std=True, pixel_size=PIXEL):
    rng = np.random.default_rng(0)
    mean, deviation = rng.random((2, *SHAPE))
    return Prediction(
        method="lin-dip",
        mean=mean,
        std=deviation if std else None,
        pixel_size=pixel_size,
        scan_digest="0" * 64,
    )


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def read_tiff(path):
    return tifffile.imread(path)


def read_nifti(path):
    return nibabel.load(path).get_fdata(dtype=np.float32)[:, ::-1, 0].T


@pytest.mark.parametrize(
    ("format", "ending", "read"),
    [("tiff", ".tif", read_tiff), ("npy", ".npy", np.load), ("nifti", ".nii", read_nifti)],
)
def test_values_come_back_as_float32(tmp_path, format, ending, read):
    original = result()
    files = export(original, tmp_path / "a.b", format)
    assert files[:2] == [tmp_path / f"a.b-mean{ending}", tmp_path / f"a.b-std{ending}"]
    assert names(tmp_path) == sorted(path.name for path in files)
    for path, image in zip(files, (original.mean, original.std), strict=False):
        found = read(path)
        assert found.dtype == np.float32
        np.testing.assert_array_equal(found, image.astype(np.float32))

    alone = export(result(std=False), tmp_path / "alone", format)
    assert [path.name for path in alone if path.suffix != ".json"] == [f"alone-mean{ending}"]


@pytest.mark.parametrize("pixel_size", [1e-6, 0.013, 0.7, 1.0, 123.4])
def test_imagej_finds_the_pixel_size_in_its_own_unit(tmp_path, pixel_size):
    path, _ = export(result(pixel_size=pixel_size), tmp_path / "a", "tiff")
    with tifffile.TiffFile(path) as file:
        assert len(file.pages) == 1
        assert file.imagej_metadata["unit"] == "mm"
        assert file.imagej_metadata["Labels"] == "mean, 1/mm"
        tags = file.pages[0].tags
        for name in ("XResolution", "YResolution"):
            pixels, length = tags[name].value
            assert length / pixels == pytest.approx(pixel_size, rel=1e-6)
        # 1: no unit of TIFF's own, which would contradict the metadata.
        assert tags["ResolutionUnit"].value == 1


@pytest.mark.parametrize("shape", [(5, 8), (8, 5), (1, 1)])
def test_a_bright_pixel_is_where_it_was_in_the_world(tmp_path, shape):
    for row, column in {(0, 0), (0, shape[1] - 1), (shape[0] - 1, 0), (shape[0] // 2, shape[1] // 3)}:
        mean = np.zeros(shape)
        mean[row, column] = 1
        bright = Prediction(method="tv", mean=mean, pixel_size=PIXEL, scan_digest="")
        (path,) = export(bright, tmp_path / "a", "nifti")
        image = nibabel.load(path)
        voxel = np.unravel_index(np.argmax(image.get_fdata()), image.shape)
        x, y = Volume(shape=shape, pixel_size=PIXEL).pixel_centers()
        for affine in (image.affine, image.get_qform(), image.get_sform()):
            np.testing.assert_allclose(apply_affine(affine, voxel), [x[column], y[row], 0], atol=1e-6)


def test_nifti_says_millimetres_upright_and_scanner(tmp_path):
    path, _ = export(result(), tmp_path / "a", "nifti")
    header = nibabel.load(path).header
    assert header.get_xyzt_units()[0] == "mm"
    np.testing.assert_allclose(header.get_zooms(), [PIXEL] * 3, rtol=1e-6)
    assert (header["sform_code"], header["qform_code"]) == (1, 1)
    assert nibabel.aff2axcodes(nibabel.load(path).affine) == ("R", "A", "S")


def test_npy_has_the_pixel_size_beside_it(tmp_path):
    *_, grid = export(result(), tmp_path / "a", "npy")
    assert grid.name == "a-grid.json"
    assert json.loads(grid.read_text())["pixel_size_mm"] == PIXEL


def test_the_ending_may_be_given(tmp_path):
    export(result(std=False), tmp_path / "a.tiff", "tiff")
    export(result(std=False), tmp_path / "a.nii.gz", "nifti")
    export(result(std=False), tmp_path / "a.nii", "nifti")
    assert names(tmp_path) == ["a-mean.nii", "a-mean.nii.gz", "a-mean.tiff"]
    packed, plain = (read_nifti(tmp_path / f"a-mean.nii{ending}") for ending in (".gz", ""))
    np.testing.assert_array_equal(packed, plain)


@pytest.mark.parametrize("format", ["tiff", "npy", "nifti"])
def test_the_same_result_gives_the_same_bytes(tmp_path, format):
    ending = ".nii.gz" if format == "nifti" else ""
    first, second = (export(result(), tmp_path / f / f"a{ending}", format) for f in "12")
    assert [path.read_bytes() for path in first] == [path.read_bytes() for path in second]


@pytest.mark.parametrize(
    ("name", "format", "words"),
    [
        ("a", "dicom", "'dicom' is not known; choose one of tiff, npy, nifti"),
        ("a.npy", "tiff", "ends like a npy file"),
        ("a.tif", "nifti", "choose format tiff, or the ending .nii"),
        (".tif", "tiff", "no name"),
        ("", "tiff", "is a folder"),
    ],
)
def test_names_and_formats_that_cannot_be(tmp_path, name, format, words):
    with pytest.raises(InputError, match=words.replace("(", r"\(")):
        export(result(), tmp_path / name, format)
    assert not names(tmp_path)


@pytest.mark.parametrize("format", ["tiff", "npy", "nifti"])
def test_two_files_or_none(tmp_path, format):
    """The second one cannot be written: the first is not there either, or is still the old one."""
    (blocked,) = [path for path in export(result(), tmp_path / "a", format) if "std" in path.name]
    before = {path: path.read_bytes() for path in tmp_path.iterdir() if path != blocked}
    blocked.unlink()
    blocked.mkdir()
    other = Prediction(method="tv", mean=result().mean + 1, std=result().std, pixel_size=2.0, scan_digest="")
    with pytest.raises(OutputError, match=blocked.name):
        export(other, tmp_path / "a", format)
    assert {path: path.read_bytes() for path in tmp_path.iterdir() if path != blocked} == before


def test_a_failing_encoder_leaves_nothing(tmp_path, monkeypatch):
    def fail(*_, **__):
        raise MemoryError

    monkeypatch.setattr("tifffile.imwrite", fail)
    with pytest.raises(MemoryError):
        export(result(), tmp_path / "a", "tiff")
    assert not names(tmp_path)


@pytest.mark.parametrize("format", ["tiff", "nifti", "npy"])
def test_several_results_are_a_volume_in_their_order(tmp_path, format):
    first, second = result(), result()
    second = dataclasses.replace(second, mean=second.mean + 1, std=second.std + 1)
    files = export([first, second], tmp_path / "v", format, spacing=0.75)
    for path, name in zip(files[:2], ("mean", "std"), strict=True):
        if format == "tiff":
            with tifffile.TiffFile(path) as file:
                assert file.imagej_metadata["spacing"] == 0.75
                values = file.asarray()
        elif format == "nifti":
            picture = nibabel.load(path)
            assert picture.header.get_zooms()[2] == 0.75
            values = picture.get_fdata()[:, ::-1].T
        else:
            values = np.load(path)
            assert json.loads(files[2].read_text())["slice_spacing_mm"] == 0.75
        np.testing.assert_allclose(values, np.stack([getattr(first, name), getattr(second, name)]), rtol=1e-6)


@pytest.mark.parametrize(
    ("rows", "distances", "spacing"),
    [
        ((4, 2, 6), (0.5, 0.5, 0.5), 1.0),
        ((0, 1, 3), (0.5, 0.5, 0.5), None),
        ((1, 1, 1), (0.5, 0.5, 0.5), None),
        ((0, 1, 2), (0.5, 0.5, 0.6), None),
        ((0, 1, 2), (0.5, 0.5, None), None),
        ((0, 1, None), (0.5, 0.5, 0.5), None),
    ],
)
def test_rows_of_a_detector_say_order_and_spacing_where_they_are_even(tmp_path, rows, distances, spacing):
    slices = [
        dataclasses.replace(result(), mean=np.full(SHAPE, float(number)), detector_row=row, row_spacing=apart)
        for number, (row, apart) in enumerate(zip(rows, distances, strict=True))
    ]
    if spacing is None:
        with pytest.raises(InputError, match="how far apart these 3 slices are"):
            export(slices, tmp_path / "v", "npy")
    mean, _, grid = export(slices, tmp_path / "v", "npy", spacing=None if spacing else 2.0)
    assert json.loads(grid.read_text())["slice_spacing_mm"] == (spacing or 2.0)
    distinct = None not in rows and len(set(rows)) == 3
    order = sorted(range(3), key=rows.__getitem__) if distinct else range(3)
    assert np.load(mean)[:, 0, 0].tolist() == list(order)


def test_slices_that_do_not_fit_together_are_refused(tmp_path):
    first = result()
    for other, words in (
        (result(pixel_size=2 * first.pixel_size), "share a grid"),
        (result(std=False), "standard deviation"),
    ):
        with pytest.raises(InputError, match=words):
            export([first, other], tmp_path / "v", "npy", spacing=1.0)
    with pytest.raises(InputError, match="do not say how far apart"):
        export([first, first], tmp_path / "v", "npy")
    with pytest.raises(InputError, match="spacing"):
        export([first, first], tmp_path / "v", "npy", spacing=-1.0)
    assert not list(tmp_path.iterdir())
