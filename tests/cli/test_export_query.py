"""``ct-dip export`` and ``ct-dip query`` as a user meets them."""

import json

import nibabel
import numpy as np
import pytest
import tifffile
from PIL import Image

from ct_dip.cli import main
from ct_dip.data.prediction import Prediction
from ct_dip.data.result_file import read_result, write_result

SHAPE, PIXEL = (6, 8), 0.5  # x from −2 to 2 mm, y from −1.5 to 1.5
CORNER = "-2,1,-1.5,1.5"  # the top-left pixel


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Two results: one with samples, around a bright pixel on the top left, and one without error bars."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    mean = np.full(SHAPE, 0.01)
    mean[0, 0] = 0.05
    samples = mean + 0.001 * rng.standard_normal((100, *SHAPE))
    parts = {"mean": mean, "pixel_size": PIXEL, "scan_digest": ""}
    std = np.full(SHAPE, 0.001)
    write_result(Prediction(method="lin-dip", std=std, samples=samples, **parts), "r.h5")
    write_result(Prediction(method="tv", **parts), "tv.h5")
    return tmp_path


def fails(capsys, arguments, *words):
    """Exit code 2 and one line."""
    assert main(arguments.split()) == 2
    output = capsys.readouterr()
    assert output.out == ""
    assert len(output.err.splitlines()) == 1, output.err
    for word in words:
        assert word in output.err


def answer(capsys, arguments):
    assert main([*arguments.split(), "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_export_writes_what_it_says(folder, capsys):
    for kind in ("tiff", "nifti", "npy"):
        assert main(f"export r.h5 --format {kind} --out out/image".split()) == 0
        said = capsys.readouterr()
        assert said.err == ""
        assert len(said.out.splitlines()) == 1
        assert "mean and standard deviation of 6 × 8 pixels of 0.5 mm" in said.out
    written = sorted(path.name for path in (folder / "out").iterdir())
    kinds = [f"image-{what}.{ending}" for what in ("mean", "std") for ending in ("nii", "npy", "tif")]
    assert written == sorted([*kinds, "image-grid.json"])
    mean = read_result("r.h5").mean
    np.testing.assert_array_equal(tifffile.imread("out/image-mean.tif"), mean)
    np.testing.assert_array_equal(np.load("out/image-mean.npy"), mean)
    np.testing.assert_array_equal(nibabel.load("out/image-mean.nii").get_fdata()[:, ::-1, 0].T, mean)


def test_the_format_follows_the_ending(folder):
    assert main("export r.h5 --out a".split()) == 0
    assert main("export r.h5 --out b.nii.gz".split()) == 0
    names = {path.name for path in folder.iterdir()} - {"r.h5", "tv.h5"}
    assert names == {"a-mean.tif", "a-std.tif", "b-mean.nii.gz", "b-std.nii.gz"}


def test_a_folder_of_results_is_a_volume(folder, capsys):
    (folder / "results").mkdir()
    for name in ("b", "a"):
        write_result(read_result("r.h5"), f"results/{name}.h5")
    (folder / "results/a.png").write_bytes(b"a picture of it")
    fails(capsys, "export results --out volume", "how far apart these 2 slices are", "--spacing MM")
    assert main("export results --spacing 0.7 --out volume".split()) == 0
    assert "2 slices of 6 × 8 pixels of 0.5 mm, 0.7 mm apart" in capsys.readouterr().out
    assert tifffile.imread("volume-mean.tif").shape == (2, 6, 8)
    fails(capsys, "export . --out results --format npy", "results is a folder; give a name")
    fails(capsys, "export r.h5 --out image.png", ".png is not an ending of an export", ".nii.gz")
    assert main("export r.h5 --out slice-0.5mm".split()) == 0  # no ending


def test_export_says_when_there_is_no_deviation(folder, capsys):
    assert main("export tv.h5 --format tiff --out tv".split()) == 0
    assert "method tv gives no standard deviation" in capsys.readouterr().out
    assert [path.name for path in folder.glob("*.tif")] == ["tv-mean.tif"]


def test_export_of_what_cannot_be(folder, capsys):
    before = sorted(folder.iterdir())
    fails(capsys, "export r.h5 --format dicom --out a", "dicom", "tiff, npy, nifti")
    fails(capsys, "export r.h5 --format tiff --out a.npy", "a.npy", "choose format npy")
    fails(capsys, "export r.h5 --format tiff --out r.h5/a", "cannot write")
    fails(capsys, "export r.h5 --format tiff --out .", "is a folder")
    fails(capsys, "export r.h5 --format tiff", "--out")
    fails(capsys, "export nowhere.h5 --format tiff --out a", "nowhere.h5", "does not exist")
    assert sorted(folder.iterdir()) == before


def test_query_finds_the_bright_corner(folder, capsys):
    found = answer(capsys, f"query r.h5 --roi {CORNER} --above 0.03")
    assert (found["pixels"], found["area"], found["samples"], found["level"]) == (1, 0.25, 100, 0.95)
    assert found["attenuation"]["mean"] == pytest.approx(0.05)
    # One pixel of standard deviation 0.001; four standard errors of it from 100 samples.
    assert found["attenuation"]["std"] == pytest.approx(0.001, rel=4 / np.sqrt(200))
    assert found["attenuation"]["low"] < 0.05 < found["attenuation"]["high"]
    assert found["area_above"]["mean"] == found["area_above"]["low"] == 0.25
    assert found["probability_above"] > 0.999
    assert found["roi"] == [-2, 1, -1.5, 1.5]

    rest = answer(capsys, "query r.h5 --roi -1.4,-1.5,2,1.5 --above 0.03")
    assert rest["area_above"]["high"] == 0
    assert rest["probability_above"] < 0.001
    wide = answer(capsys, f"query r.h5 --roi {CORNER} --level 0.99")["attenuation"]
    assert wide["low"] < found["attenuation"]["low"]


def test_query_in_words(folder, capsys):
    assert main(f"query r.h5 --roi {CORNER} --above 0.03".split()) == 0
    output = capsys.readouterr()
    assert output.err == ""
    for words in (
        "1 pixel, 0.25 mm²",
        "0.05 ± 0.00",
        "/mm (95 %: 0.04",
        "standard deviation 0.00",
        "above 0.999",
        "area above 0.03 /mm",
        "100;",
    ):
        assert words in output.out
    assert main(f"query r.h5 --roi {CORNER}".split()) == 0
    assert "area above" not in capsys.readouterr().out


def masks():
    white = np.zeros(SHAPE, dtype=np.uint8)
    white[0, 0] = 255
    seen = np.full((*SHAPE, 4), 255, dtype=np.uint8)  # white everywhere, but transparent
    seen[..., 3] = white
    empty = np.where(white, 3.0, np.nan)
    return {
        "grey.png": Image.fromarray(white),
        "one.png": Image.fromarray(white // 255),
        "bit.png": Image.fromarray(white).convert("1"),
        "deep.png": Image.fromarray(white.astype(np.uint16)),
        "transparent.png": Image.fromarray(seen),
        "float.tif": Image.fromarray(white.astype(np.float32)),
        "labels.npy": white.astype(np.int64) * 2,
        "bool.npy": white > 0,
        "nan.npy": empty,
    }


@pytest.mark.parametrize("name", masks())
def test_masks_of_any_kind_mark_the_same_region(folder, capsys, name):
    mask = masks()[name]
    if isinstance(mask, np.ndarray):
        np.save(name, mask)
    else:
        mask.save(name)
    found = answer(capsys, f"query r.h5 --mask {name}")
    assert found["mask"] == name
    assert found["attenuation"] == answer(capsys, f"query r.h5 --roi {CORNER}")["attenuation"]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ("", ("neither --roi nor --mask", "x0,y0,x1,y1")),
        (f"--roi {CORNER} --mask m.png", ("both --roi and --mask",)),
        ("--roi 1,2,3", ("--roi '1,2,3'", "four numbers")),
        ("--roi 1,2,3,4,5", ("four numbers",)),
        ("--roi a,b,c,d", ("four numbers",)),
        ("--roi nan,0,1,1", ("finite",)),
        ("--roi 10,10,20,20", ("10,10,20,20 is outside of the image", "x from -2 to 2")),
        ("--roi 0.1,0.1,0.2,0.2", ("holds no pixel centre", "0.5 mm")),
        (f"--roi {CORNER} --level 0", ("--level 0 must", "between 0 and 1")),
        (f"--roi {CORNER} --level 95", ("--level 95 must",)),
        (f"--roi {CORNER} --above nan", ("--above nan", "finite")),
        ("--roi 0,0,9,9 --level 1", ("--level 1 must",)),  # one line, although there would be a note
        (f"--roi {CORNER} --above much", ("--above",)),
        ("--mask nowhere.png", ("nowhere.png", "does not exist")),
        ("--mask text.png", ("text.png", "cannot be read")),
        ("--mask small.png", ("(3, 3)", "(6, 8)")),
        ("--mask black.png", ("no pixels", "mark the region")),
        ("--mask words.npy", ("cannot be read", "not numbers")),
    ],
)
def test_queries_that_cannot_be_answered(folder, capsys, options, words):
    Image.fromarray(np.ones((3, 3), dtype=np.uint8)).save("small.png")
    Image.fromarray(np.zeros(SHAPE, dtype=np.uint8)).save("black.png")
    (folder / "text.png").write_text("hello")
    np.save("words.npy", np.full(SHAPE, "inside"))
    fails(capsys, f"query r.h5 {options}", *words)


def test_a_result_without_samples_says_how_to_get_them(folder, capsys):
    fails(capsys, f"query tv.h5 --roi {CORNER}", "no posterior samples", "lin-dip", "tv-gauss")


def test_notes_stand_beside_the_numbers(folder, capsys):
    assert main("query r.h5 --roi 0,0,4,4 --above 0 --level 0.999 --json".split()) == 0
    output = capsys.readouterr()
    assert json.loads(output.out)["pixels"] == 12
    beyond, few, caveat = output.err.splitlines()
    assert "reaches beyond the image, which ends at x ±2 and y ±1.5 mm" in beyond
    assert "100 samples are few" in few
    assert "can be too narrow" in caveat
    assert main(f"query r.h5 --roi {CORNER} --above 0 --json".split()) == 0
    assert capsys.readouterr().err == ""


def test_an_area_that_its_threshold_biases_is_told_of(folder, capsys):
    """The background is half a deviation above the threshold, and its pixels are independent."""
    assert main("query r.h5 --roi=-2,-1.5,2,1.5 --above 0.0095 --json".split()) == 0
    output = capsys.readouterr()
    report = json.loads(output.out)
    assert report["image_area_above"] == 48 * PIXEL**2
    assert report["area_above"]["high"] < report["image_area_above"]
    assert "threshold is within the error bars of 98 % of the region: this area is biased" in output.err
