"""Scanners' own files: the line integrals that were written come back, with the geometry of the file."""

import re

import h5py
import numpy as np
import pytest
import tifffile

from ct_dip.cli import main
from ct_dip.errors import ScanError
from ct_dip.geometry import FanBeam, ParallelBeam
from ct_dip.importers.content import look_into
from ct_dip.importers.describe import describe
from ct_dip.importers.formats import FORMATS, find_format
from ct_dip.importers.formats.fips_lotus import fitted_pitch
from ct_dip.importers.options import Options
from ct_dip.importers.run import import_scan
from ct_dip.scanners import view_angles
from tests.importers.files import AIR, disk, lotus, nikon, nxtomo, readings, tiff_folder, walnut

ROUNDED = 2e-3  # of counts of some hundred to whole numbers, and of four flats; five deviations
FLATS = 5 / np.sqrt(4 * AIR)


def test_formats_have_different_names_and_known_options():
    names = [known.name for known in FORMATS]
    assert len(set(names)) == len(names)
    for known in FORMATS:
        assert set(known.options) <= set(Options.__dataclass_fields__)


@pytest.mark.parametrize("nested", [False, True])
def test_a_folder_of_projections(tmp_path, nested):
    truth = tiff_folder(tmp_path / "scan", nested=nested, axis=14.0)
    assert find_format(look_into(tmp_path / "scan")).name == "tiff-folder"
    scan = import_scan(tmp_path / "scan", row=1, arc=np.pi, detector_pitch=0.5)
    np.testing.assert_allclose(scan.sinogram, truth[:, 1], atol=ROUNDED + FLATS)
    assert scan.geometry.center_of_rotation == pytest.approx((14.0 - 15.5) * 0.5, abs=0.25)  # found
    assert scan.noise.photons == pytest.approx(AIR, rel=0.6)  # 4 flats × 32 columns
    assert scan.steps[:2] == (
        "dark current subtracted, mean of 2 frames",
        "divided by the air, mean of 4 flat frames",
    )


@pytest.mark.parametrize("nested", [False, True])
def test_flats_of_any_name_are_no_views(tmp_path, nested):
    """Neither if they are beside the views, nor in a subfolder beside that of the views."""
    folder = tmp_path / "scan"
    truth = tiff_folder(folder, nested=nested, axis=14.0, views=12)
    if nested:
        (folder / "flats").rename(folder / "ff")
    for path in (folder / "ff" if nested else folder).glob("flat*"):
        path.rename(path.with_name(f"ff_{path.name}"))
    options = {"row": 1, "arc": np.pi, "center": 14.0, "detector_pitch": 1.0}
    scan = import_scan(folder, flat="ff" if nested else "ff_*.tif", **options)
    np.testing.assert_allclose(scan.sinogram, truth[:, 1], atol=ROUNDED + FLATS)
    if nested:
        with pytest.raises(ScanError, match=r"2 subfolders .* \(ff, proj\); .*--flat SUBFOLDER"):
            import_scan(folder, **options)


def test_flats_may_be_elsewhere_but_not_in_an_empty_folder(tmp_path, monkeypatch):
    truth = tiff_folder(tmp_path / "scan", nested=True, axis=14.0, views=12)
    options = {"row": 1, "arc": np.pi, "center": 14.0, "detector_pitch": 1.0}
    (tmp_path / "scan" / "flats").rename(tmp_path / "elsewhere")
    monkeypatch.chdir(tmp_path)
    for flat in ("elsewhere", "../elsewhere", "elsewhere/*.tif", str(tmp_path / "elsewhere")):
        scan = import_scan("scan", flat=flat, **options)
        np.testing.assert_allclose(scan.sinogram, truth[:, 1], atol=ROUNDED + FLATS)
    (tmp_path / "scan" / "flats").mkdir()
    with pytest.raises(ScanError, match="flats is empty; copy the flats into it"):
        import_scan("scan", **options)


def test_a_geometry_file_says_what_options_say_unless_these_say_otherwise(tmp_path):
    text = "arc: -360\ndetector_pitch: 0.1\nsource_origin: 50\norigin_detector: 25\ncenter: 15.5\n"
    tiff_folder(tmp_path / "scan", geometry=text, rows=1)
    geometry = import_scan(tmp_path / "scan").geometry
    assert isinstance(geometry, FanBeam)
    assert (geometry.source_origin, geometry.origin_detector, geometry.center_of_rotation) == (50, 25, 0)
    np.testing.assert_allclose(geometry.angles, -view_angles(40, 2 * np.pi))
    changed = import_scan(tmp_path / "scan", detector_pitch=0.2, arc=np.pi).geometry
    assert (changed.detector_pitch, changed.source_origin) == (0.2, 50)
    assert changed.angles[-1] == pytest.approx(np.pi * 39 / 40)


@pytest.mark.parametrize(
    ("yaml", "options", "words"),
    [
        (None, {}, "give --arc DEGREES"),
        ("arc: 180\npitch: 1", {}, "'pitch' is not known"),
        ("arc: half", {}, "arc is 'half', expected a number"),
        ("- 1", {}, "must have lines"),
        (None, {"arc": 3.1, "flat": "ff_*"}, r"--flat ff_\* is neither"),
        (None, {"arc": 3.1, "flat": "../x"}, r"--flat \.\./x is neither"),
        ("arc: 180\nflat: ../x", {}, "must be in the folder; give --flat"),
        (None, {"arc": 3.1, "source_origin": 9.0}, "--origin-detector MM; .*--detector-pitch MM"),
    ],
)
def test_what_a_folder_lacks_is_asked_for(tmp_path, yaml, options, words):
    tiff_folder(tmp_path / "scan", geometry=yaml, rows=1, views=3)
    with pytest.raises(ScanError, match=words):
        import_scan(tmp_path / "scan", **options)


def test_projections_of_different_shapes_are_refused(tmp_path):
    tiff_folder(tmp_path / "scan", rows=1, views=3)
    tifffile.imwrite(tmp_path / "scan" / "view2.tif", np.ones((2, 32), np.uint16))
    with pytest.raises(ScanError, match=r"view2\.tif has 1 pages of 2 × 32 pixels, expected 1 of 1 × 32"):
        import_scan(tmp_path / "scan", arc=np.pi, center=15.5)
    (tmp_path / "scan" / "view1.tif").write_bytes(b"damaged")  # and not left out
    with pytest.raises(ScanError, match=r"view1\.tif is not a TIFF file"):
        import_scan(tmp_path / "scan", arc=np.pi, center=15.5)


def test_one_tiff_is_a_sinogram_or_a_stack(tmp_path):
    truth = disk(view_angles(40))
    counts, flats, darks = readings(truth)
    options = {"arc": np.pi, "counts": True, "center": 15.5, "detector_pitch": 1.0}
    tifffile.imwrite(tmp_path / "one.tif", counts[:, 0])
    tifffile.imwrite(tmp_path / "turned.tif", counts[:, 0].T)
    tifffile.imwrite(tmp_path / "stack.tif", counts, photometric="minisblack")
    tifffile.imwrite(tmp_path / "imagej.tif", counts, imagej=True)
    tifffile.imwrite(tmp_path / "flat.tif", flats, photometric="minisblack")
    tifffile.imwrite(tmp_path / "dark.tif", darks, photometric="minisblack")
    light = {"flat": str(AIR + 20), "dark": "20"}
    one = import_scan(tmp_path / "one.tif", **options, **light)
    np.testing.assert_allclose(one.sinogram, truth[:, 0], atol=ROUNDED)
    turned = import_scan(tmp_path / "turned.tif", transpose=True, **options, **light)
    assert np.array_equal(turned.sinogram, one.sinogram)
    for name in ("stack", "imagej"):
        scan = import_scan(tmp_path / f"{name}.tif", row=0, **options, **light)
        assert np.array_equal(scan.sinogram, one.sinogram)
    files = {"flat": str(tmp_path / "flat.tif"), "dark": str(tmp_path / "dark.tif")}
    scan = import_scan(tmp_path / "stack.tif", row=2, **options, **files)
    np.testing.assert_allclose(scan.sinogram, truth[:, 2], atol=ROUNDED + FLATS)
    noise = np.random.default_rng(1).integers(-30, 30, counts[:, 0].shape)  # or air would look clipped
    tifffile.imwrite(tmp_path / "noisy.tif", (counts[:, 0] + noise).astype(np.uint16))
    by_air = import_scan(tmp_path / "noisy.tif", air=3, dark="20", **options)
    np.testing.assert_allclose(by_air.sinogram, truth[:, 0], atol=0.05)


def test_nxtomo_with_its_frames_in_the_folder_beside(tmp_path):
    truth = nxtomo(tmp_path / "scan.nxs", linked=True)
    assert find_format(look_into(tmp_path / "scan.nxs")).name == "nxtomo"
    scan = import_scan(tmp_path / "scan.nxs", row=1, center=15.5)
    np.testing.assert_allclose(scan.sinogram, truth[:, 1], atol=ROUNDED + FLATS)
    assert isinstance(scan.geometry, ParallelBeam)
    assert scan.geometry.detector_pitch == pytest.approx(0.05)  # 50 µm
    np.testing.assert_allclose(scan.geometry.angles, view_angles(40))


def test_links_of_nxtomo_out_of_its_folder_are_not_followed(tmp_path):
    nxtomo(tmp_path / "scan.nxs", linked=True)
    inner = tmp_path / "inner"
    inner.mkdir()
    (tmp_path / "scan.nxs").rename(inner / "scan.nxs")
    with pytest.raises(ScanError, match=r"refers to 'scan/frames\.h5', which does not exist"):
        import_scan(inner / "scan.nxs", row=1)
    with h5py.File(inner / "scan.nxs", "r+") as file:
        del file["entry/instrument/detector/data"]
        file["entry/instrument/detector/data"] = h5py.ExternalLink("../scan/frames.h5", "/entry/data")
    with pytest.raises(ScanError, match="only files in the scan's own folder are read"):
        import_scan(inner / "scan.nxs", row=1)


def test_nxtomo_takes_angles_that_it_is_told(tmp_path):
    nxtomo(tmp_path / "scan.nxs", rows=1, drop=["rotation_angle"])
    with pytest.raises(ScanError, match=r"give --arc DEGREES.*or --angles NAME") as caught:
        import_scan(tmp_path / "scan.nxs")
    assert caught.value.__notes__ == ["As arguments in Python: --arc is arc, in radians."]
    with h5py.File(tmp_path / "scan.nxs", "r+") as file:
        file["stage"] = np.arange(46.0)
    scan = import_scan(tmp_path / "scan.nxs", angles="stage", center=15.5)
    np.testing.assert_allclose(np.rad2deg(scan.geometry.angles), np.arange(4, 44))
    with pytest.raises(ScanError, match="no dataset motor with the angles"):
        import_scan(tmp_path / "scan.nxs", angles="motor")


def test_nikon_by_its_file_or_folder(tmp_path):
    counts = nikon(tmp_path / "scan")
    for path in (tmp_path / "scan", tmp_path / "scan" / "tiny.xtekct"):
        assert find_format(look_into(path)).name == "nikon"
        scan = import_scan(path, row=1)
        np.testing.assert_allclose(scan.sinogram, -np.log(counts[:, 1, ::-1] / 6e4), rtol=1e-5)
        geometry = scan.geometry
        assert (geometry.source_origin, geometry.origin_detector, geometry.detector_pitch) == (100, 300, 0.8)
        assert geometry.center_of_rotation == pytest.approx(-0.6 / 4)  # 0.6 mm on the detector
        np.testing.assert_allclose(np.rad2deg(geometry.angles), 10 + 30 * np.arange(12))


def test_rows_of_a_cone_beam_that_leave_the_slice_are_reported(tmp_path):
    nikon(tmp_path / "scan", rows=81)
    assert import_scan(tmp_path / "scan", row=40).warnings == ()
    (warning,) = import_scan(tmp_path / "scan", row=0).warnings
    # 32 mm up at a distance of 400 mm, where the field of view casts a shadow of nearly 16 columns.
    assert "32 mm off the middle" in warning
    assert "tilted by 4.6° and cross 1.2 rows" in warning


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda text: text.replace("SrcToObject=100", ""), "no line 'SrcToObject=…'"),
        (lambda text: text.replace("=400", "=far"), "SrcToDetector is 'far', expected a number"),
        (lambda text: text.replace("Projections=12", "Projections=13"), "12 files tiny_….tif, expected 13"),
        (
            lambda text: text.replace("PixelsX=16", "PixelsX=17"),
            "another shape than DetectorPixelsY × X, 3 × 17",
        ),
        (lambda text: text + "InputFolderName=../other\n", "only files in the folder of the scan"),
    ],
)
def test_wrong_nikon_files(tmp_path, change, words):
    nikon(tmp_path / "scan")
    file = tmp_path / "scan" / "tiny.xtekct"
    file.write_text(change(file.read_text()))
    with pytest.raises(ScanError, match=words):
        import_scan(tmp_path / "scan", row=1)


@pytest.mark.parametrize("v73", [False, True])
def test_the_rays_of_a_lotus_matrix_tell_the_pitch(tmp_path, v73):
    geometry, m = lotus(tmp_path / "lotus.mat", v73=v73)
    assert find_format(look_into(tmp_path / "lotus.mat")).name == "fips-lotus"
    scan = import_scan(tmp_path / "lotus.mat")
    assert np.array_equal(scan.sinogram, m.T.astype(np.float32))
    assert scan.geometry.detector_pitch == pytest.approx(
        geometry.detector_pitch, rel=0.02
    )  # pixels are 2.5 mm
    assert (scan.geometry.source_origin, scan.geometry.origin_detector) == (540, 90)
    np.testing.assert_allclose(scan.geometry.angles, geometry.angles)
    assert "fitted to the rays" in scan.steps[1]
    assert import_scan(tmp_path / "lotus.mat", detector_pitch=3.0).geometry.detector_pitch == 3


def test_a_pitch_is_fitted_exactly_to_exact_rays():
    number = np.arange(-5, 6)
    angle = np.arctan(number * 2.5 / 630)
    assert fitted_pitch(np.stack([number, 540 * np.sin(angle)], axis=1), 540, 630) == pytest.approx(2.5)
    with pytest.raises(ScanError, match="--detector-pitch MM"):
        fitted_pitch(np.zeros((1, 2)), 540, 630)


def write_parts(path, parts):
    """The same arrays in a file of a kind."""
    if path.suffix == ".npz":
        np.savez(path, **parts)
    elif path.suffix == ".mat":
        import scipy.io

        scipy.io.savemat(path, parts)
    else:
        with h5py.File(path, "w") as file:
            for name, values in parts.items():
                file[f"entry/{name}"] = values


@pytest.mark.parametrize("ending", ["npz", "mat", "h5"])
def test_arrays_by_their_names(tmp_path, ending):
    """Counts of a fan beam, stored as detectors × views, with angles in degrees and other things."""
    truth = disk(view_angles(40, 2 * np.pi), rows=1)
    counts, flats, darks = (values[:, 0] for values in readings(truth))
    parts = {
        "p": counts.T,
        "theta": np.rad2deg(view_angles(40, 2 * np.pi)),
        "open": flats.T,
        "d": darks.T,
        "x": 1,
    }
    write_parts(tmp_path / f"a.{ending}", parts)
    prefix = "entry/" if ending == "h5" else ""
    names = {"sinogram": "p", "angles": "theta", "flat": "open", "dark": "d"}
    options = {option: prefix + name for option, name in names.items()}
    geometry = {"detector_pitch": 0.2, "source_origin": 100.0, "origin_detector": 50.0}
    options |= {"transpose": True, "degrees": True, "counts": True, **geometry}
    scan = import_scan(tmp_path / f"a.{ending}", **options)
    np.testing.assert_allclose(scan.sinogram, truth[:, 0], atol=ROUNDED + FLATS)
    np.testing.assert_allclose(scan.geometry.angles, view_angles(40, 2 * np.pi), atol=1e-12)
    assert {name: getattr(scan.geometry, name) for name in geometry} == geometry
    if ending == "h5":  # slower, and the same
        return
    with pytest.raises(ScanError, match="--transpose"):
        import_scan(tmp_path / f"a.{ending}", **(options | {"transpose": False}))
    with pytest.raises(ScanError, match="--degrees"):
        import_scan(tmp_path / f"a.{ending}", **(options | {"degrees": False}))
    with pytest.raises(ScanError, match=f"--flat {prefix}full: there is no such array"):
        import_scan(tmp_path / f"a.{ending}", **(options | {"flat": prefix + "full"}))


@pytest.mark.parametrize("ending", ["npz", "mat", "h5"])
@pytest.mark.parametrize("text", ["my scanner", b"my scanner"])
def test_the_source_is_text_in_any_kind_of_file(tmp_path, ending, text):
    path = tmp_path / f"a.{ending}"
    parts = {"sinogram": disk(view_angles(40))[:, 0], "angles": view_angles(40), "source": text}
    if ending == "h5":
        with h5py.File(path, "w") as file:
            for name, values in parts.items():
                file[name] = values
    else:
        write_parts(path, parts)
    assert import_scan(path).source.startswith("my scanner, pitch not stated")


def test_info_says_what_is_missing_and_an_import_with_that_works(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    tiff_folder(tmp_path / "scan", views=6, rows=2)
    assert main("info scan".split()) == 0
    said = capsys.readouterr().out
    for word in (
        "tiff-folder",
        "2 rows × 32 columns",
        "--detector-pitch MM",
        "counts",
        "4, mean 50",
        "--arc",
        "--row",
    ):
        assert word in said
    assert main("import scan --out a.h5 --arc -180 --row 1 --center 15.5 --detector-pitch 0.1".split()) == 0
    capsys.readouterr()
    assert main("info a.h5 --json".split()) == 0
    steps = re.search(r'"steps": \[(.*?)\]', capsys.readouterr().out, re.DOTALL)[1]
    assert "dark current subtracted" in steps
    walnut(tmp_path / "walnut.mat")
    assert "the detector offset will be found" in describe(tmp_path / "walnut.mat")["rotation axis"]
    nikon(tmp_path / "nikon", rows=1)
    assert "needs no further options" in describe(tmp_path / "nikon")["to import"]
    np.savez("parts.npz", p=np.ones((3, 4)))
    assert "p (3, 4)" in describe("parts.npz")["to import"]
