"""Wrong files: exit code 2, one line with the file, the field and the fix, and nothing written."""

import h5py
import numpy as np
import pytest
import scipy.io
from PIL import Image

from ct_dip.cli import main
from tests.importers.files import exchange, htc, npz, walnut, walnut_readings


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def refused(folder, capsys):
    """Import ``in.mat`` and find the words in the one line of the error."""

    def check(*words, options=""):
        assert main(["import", "in.mat", "--out", "out.h5", *options.split()]) == 2
        output = capsys.readouterr()
        assert output.out == ""
        lines = output.err.splitlines()
        assert len(lines) == 1, output.err
        for word in words:
            assert word in lines[0], lines[0]
        assert [path.name for path in folder.iterdir()] in (["in.mat"], [])

    return check


def with_nan(values):
    values = np.array(values, dtype=np.float64)
    values[(3,) * values.ndim] = np.nan
    return values


@pytest.mark.parametrize("v73", [False, True])
@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"drop": ["sinogram"]}, ("CtDataFull", "'sinogram'")),
        ({"drop": ["angles"]}, ("CtDataFull.parameters", "'angles'")),
        ({"drop": ["distanceSourceOrigin"]}, ("'distanceSourceOrigin'",)),
        ({"distanceUnit": "cm"}, ("distanceUnit", "'cm'", "convert")),
        ({"pixelSizePost": "wide"}, ("pixelSizePost", "'wide'", "number")),
        ({"pixelSizePost": -1.0}, ("detector_pitch", "positive")),
        ({"distanceSourceDetector": 100.0}, ("origin_detector", "negative")),
        ({"sinogram": np.ones((40, 13))}, ("(40, 13)", "(13, 40)", "transpose")),
        ({"sinogram": np.ones((13, 39))}, ("(13, 39)", "(13, 40)")),
        ({"sinogram": with_nan(np.ones((13, 40)))}, ("sinogram[3, 3] is nan",)),
    ],
)
def test_htc(folder, refused, changes, words, v73):
    htc("in.mat", v73=v73, **changes)
    refused("in.mat", *words)


def put(readings, where, value):
    readings = readings.astype(np.float64)
    readings[where] = value
    return readings


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda r: r.T, ("(120, 2296)", "transpose")),
        (lambda r: r[:, :100], ("(2296, 100)", "(2296, 120)")),
        (lambda r: put(r, (5, 6), np.nan), ("sinogram120[5, 6] is nan", "dead detectors")),
        (lambda r: put(r, (5, 6), -3), ("sinogram120[5, 6] is -3", "negative", "--counts")),
        (lambda r: np.minimum(r, 1990), ("saturated", "1990", "exposure")),
        (lambda r: put(r, (slice(None), 4), 0), ("view 4", "air")),
        (lambda r: put(r, slice(1000, 1100), 0), ("no light", "column 1000")),
        (lambda r: r.astype(str), ("sinogram120",)),
    ],
)
def test_walnut(folder, refused, change, words):
    walnut("in.mat", change(walnut_readings()))
    refused("in.mat", *words, options="--format fips-walnut")


FRAMES = np.full((60, 1, 48), 1000.0)
FLATS = np.random.default_rng(0).normal(2000, 20, (9, 1, 48))


@pytest.mark.parametrize(
    ("changes", "options", "words"),
    [
        ({"drop": ["data_white"]}, "", ("exchange/data_white",)),
        ({"drop": ["theta"]}, "", ("angles", "--arc DEGREES", "--angles NAME")),
        ({}, "--angles exchange/thet", ("exchange/thet", "--angles", "--arc DEGREES")),
        ({"theta": np.arange(59.0)}, "", ("exchange/theta", "(59,)", "(60,)")),
        ({"theta": np.full(60, np.nan)}, "--center 20", ("angles[0] is nan",)),
        ({"data": FRAMES[:, 0]}, "", ("exchange/data", "(60, 48)", "(frames, rows, columns)")),
        ({"data_dark": np.zeros((2, 1, 47))}, "", ("data_dark", "1 × 47", "1 × 48")),
        ({"data": with_nan(np.repeat(FRAMES, 4, 1))[:, 3:]}, "", ("[3, 3] is nan",)),
        ({"data": -FRAMES}, "", ("exchange/data", "negative", "set them to 0 first")),
        ({"data": 0 * FRAMES}, "", ("no light",)),
        ({"data_white": np.full((9, 1, 48), 65535)}, "", ("saturated", "65535")),
        ({"data_white": FLATS * (np.arange(48) != 7)}, "", ("column 7", "dead detector")),
        ({"rows": 2}, "", ("2 rows", "--row 0…1")),
        ({"rows": 2}, "--row 2", ("--row 2", "0…1")),
        ({"rows": 2}, "--row -1", ("--row -1", "0…1")),
        ({}, "--center 99", ("--center 99", "0…47")),
        ({}, "--center nan", ("--center nan",)),
        ({}, "--center left", ("--center 'left'", "auto")),
        ({}, "--center 0", ("no field of view", "--width")),
        ({}, "--detector-pitch 0", ("detector_pitch", "positive")),
    ],
)
def test_data_exchange(folder, refused, changes, options, words):
    exchange("in.mat", **changes)
    refused(*words, options=options)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"drop": ["angles"]}, ("angles", "--arc DEGREES", "--angles NAME")),
        ({"angles": np.arange(0, 180, 9.0)}, ("angles", "np.deg2rad")),
        ({"angles": np.arange(19) / 10}, ("(19,)", "(20,)", "(20, 24)")),
        ({"sinogram": np.ones(24)}, ("sinogram", "(views, detectors)")),
        ({"sinogram": with_nan(np.ones((20, 24)))}, ("sinogram[3, 3] is nan",)),
        ({"sinogram": np.array([[None]])}, ("pickle",)),
        ({"detector_pitch": [1, 2]}, ("detector_pitch", "one number")),
        ({"source_origin": 100}, ("from the axis to the detector", "--origin-detector MM")),
        ({"detector_ofset": 1}, ("'detector_ofset'", "'detector_offset'")),
        ({"noise_std": 1, "photons": 1}, ("noise_std", "photons")),
        ({"photons": -1}, ("photons", "positive")),
    ],
)
def test_numpy(folder, refused, changes, words):
    npz(folder / "in.mat", **changes)
    refused("in.mat", *words)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ("--format dicom", ("dicom", "htc2022")),
        ("--format tiff-folder", ("in.mat", "not a folder")),
        ("--format tiff-sinogram", ("in.mat", "TIFF")),
        ("--format nikon", ("in.mat", "Projections")),
        ("--format nxtomo", ("in.mat", "NXtomo")),
        ("--format fips-lotus", ("in.mat", "MATLAB")),
        ("--views 21", ("--views 21", "at most 20")),
        ("--views 0", ("views", "at least 1")),
        ("--bin 5", ("--bin 5", "24 detectors", "2, 3, 4, 6, 8, 12")),
        ("--bin 0", ("bin", "at least 1")),
        ("--size 1", ("--size 1", "at least 2")),
        ("--width -3", ("width", "positive")),
        ("--row 1", ("--row 1", "0…0")),
        ("--row 0 --rows 0", ("--row 0", "--rows 0", "exclude")),
        ("--rows some", ("--rows 'some'", "10:20 or all")),
        ("--rows 0:3", ("--rows 0:3", "0…0")),
        ("--rows all --reference-out r.npy", ("--reference-out", "--row")),
        ("--center 24", ("--center 24", "0…23")),
        ("--flat 3", ("'flat'", "--counts")),
        ("--counts --air 12", ("--air 12", "half of 24")),
        ("--arc 180 --angles angles", ("--arc", "--angles", "exclude")),
        ("--arc 180 --degrees", ("--arc", "--degrees", "exclude")),
        ("--counts --flat 3 --air 5", ("--air 5", "flat", "drop one")),
        ("--sinogram p", ("--sinogram p", "no such array", "sinogram (20, 24)")),
        ("--source-origin 9", ("--origin-detector MM",)),
        ("--transpose", ("angles", "(24,)", "drop --transpose?")),
        ("--out out.png", (".h5",)),
        ("--reference-out out.png", (".npy",)),
        ("--reference-out /proc/nowhere/r.npy", ("cannot write",)),
        ("--format htc2022", ("in.mat", "MATLAB")),
        ("--format data-exchange", ("in.mat", "Data Exchange")),
    ],
)
def test_options(folder, refused, options, words):
    npz(folder / "in.mat")
    refused(*words, options=options)


@pytest.mark.parametrize(
    "option",
    "sinogram=x angles=x arc=180 degrees transpose counts flat=1 dark=1 air=9 center=3 detector-pitch=1 "
    "source-origin=1 origin-detector=1 detector-offset=1".split(),
)
def test_an_option_that_a_format_does_not_read_is_refused(folder, refused, option):
    htc("in.mat")
    name, _, value = option.partition("=")
    refused(
        f"--{name} {value}".rstrip(), "no meaning with format htc2022", "drop it", options=f"--{name} {value}"
    )


def test_counts_whose_axes_are_exchanged(folder, refused):
    """The ends of the rows are then the first and the last view, and no air."""
    walnut("in.mat")
    options = "--format arrays --sinogram sinogram120 --counts --air 10 --arc 360"
    refused("add up to -", "are the axes exchanged (ct-dip import --transpose)?", options=options)


def test_files_that_are_no_scans(folder, refused, capsys):
    refused("does not exist")
    (folder / "in.mat").write_bytes(b"")
    refused("neither MATLAB, HDF5, NPZ nor TIFF", "numpy.savez")
    (folder / "in.mat").write_text("1,2,3")
    refused("neither MATLAB, HDF5, NPZ nor TIFF", "docs/howto/import.md")
    Image.new("L", (4, 4)).save("in.mat", format="PNG")
    refused("but a picture", "as TIFF", "simulate --images")
    (folder / "in.mat").write_bytes(b"\0" * 128 + b"DICM" + b"\0" * 40)
    refused("but a DICOM image", "ct-dip simulate --images in.mat")
    scipy.io.savemat("in.mat", {"other": np.ones(3)})
    refused("other", "--sinogram NAME")
    with h5py.File("in.mat", "w") as file:
        file["deep/other"] = np.ones(3)
    refused("deep/other (3,)", "--sinogram NAME")
    np.savez("in.npz", x=1)
    (folder / "in.npz").rename("in.mat")
    refused("'sinogram'")
    assert main("simulate --size 8 --views 3 --out scan.h5".split()) == 0
    (folder / "scan.h5").rename("in.mat")
    capsys.readouterr()
    refused("scan file already")


def test_variables_that_unpack_to_more_than_memory(folder, refused, monkeypatch):
    monkeypatch.setenv("CT_DIP_MEMORY", "100M")
    scipy.io.savemat("in.mat", {"sinogram120": np.zeros((3000, 3000))}, do_compression=True)
    refused("in.mat", "unpacked", "memory budget")
    with h5py.File("in.mat", "w") as file:
        file.create_dataset("CtDataFull/sinogram", (10**5, 10**5), np.float32, chunks=(10, 10))
    refused("in.mat", "CtDataFull.sinogram", "memory budget")


def test_rows_of_more_than_memory(folder, refused, monkeypatch):
    monkeypatch.setenv("CT_DIP_MEMORY", "100M")
    exchange("in.mat")
    with h5py.File("in.mat", "r+") as file:
        del file["exchange/data_white"]
        file.create_dataset("exchange/data_white", (10**7, 1, 48), np.uint16, chunks=(9, 1, 48))
    refused("in.mat", "exchange/data_white[:, 0, :]", "memory budget")


@pytest.mark.parametrize("link", [h5py.ExternalLink("/etc/hostname", "x"), h5py.SoftLink("/nowhere")])
def test_links_that_lead_nowhere(folder, refused, link):
    exchange("in.mat", drop=["data_dark"])
    with h5py.File("in.mat", "r+") as file:
        file["exchange/data_dark"] = link
    refused("in.mat", "exchange/data_dark")
    htc("in.mat", v73=True, drop=["angles"])
    with h5py.File("in.mat", "r+") as file:
        file["CtDataFull/parameters/angles"] = link
    refused("in.mat", "CtDataFull/parameters/angles")


@pytest.mark.parametrize("v73", [False, True])
@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"numDetectorsPost": np.nan}, ("numDetectorsPost", "nan")),
        ({"numDetectorsPost": 40.5}, ("numDetectorsPost", "40.5")),
        ({"distanceSourceOrigin": np.inf}, ("distanceSourceOrigin", "inf")),
        ({"angles": np.array(["a", "b"])}, ("angles", "numbers")),
    ],
)
def test_htc_parameters_that_are_no_numbers(folder, refused, changes, words, v73):
    if "angles" in changes and v73:
        pytest.skip("version 7.3 has no arrays of text like this")
    htc("in.mat", v73=v73, **changes)
    refused("in.mat", *words)


def test_angles_that_are_text(folder, refused):
    exchange("in.mat", theta=np.array([b"1"] * 60))
    refused("in.mat", "exchange/theta", "expected numbers")
    npz(folder / "in.mat", angles=np.array(["1"] * 20))
    refused("in.mat", "angles", "expected numbers")


@pytest.mark.parametrize("share", [0.02, 0.5, 0.95, 0.999])
@pytest.mark.parametrize("make", [htc, walnut, exchange, npz, lambda path: htc(path, v73=True)])
def test_truncated_files(folder, refused, make, share):
    make(folder / "in.mat")
    content = (folder / "in.mat").read_bytes()
    (folder / "in.mat").write_bytes(content[: int(share * len(content))])
    refused("in.mat")


def test_the_measured_scan_is_not_overwritten(folder, capsys):
    exchange(folder / "in.h5")
    before = (folder / "in.h5").read_bytes()
    assert main("import in.h5 --out in.h5".split()) == 2
    assert "itself" in capsys.readouterr().err
    assert (folder / "in.h5").read_bytes() == before
