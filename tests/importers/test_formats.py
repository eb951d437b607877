"""What importers make of right files."""

import h5py
import numpy as np
import pytest

from ct_dip.cli import main
from ct_dip.data.noise import PhotonNoise, WhiteNoise
from ct_dip.data.result_file import read_result
from ct_dip.data.scan_file import read_scan
from ct_dip.errors import ScanError
from ct_dip.geometry import FanBeam
from ct_dip.importers.content import look_into
from ct_dip.importers.formats import find_format
from ct_dip.importers.grid import scan_on_grid, spread_views
from ct_dip.importers.reference import reference_image
from ct_dip.importers.run import import_scan
from tests.importers.files import exchange, htc, npz, walnut, walnut_readings


@pytest.mark.parametrize("v73", [False, True])
def test_htc_either_kind_of_matlab_file(tmp_path, v73):
    data = htc(tmp_path / "scan", v73=v73)
    scan = import_scan(tmp_path / "scan")
    assert np.array_equal(
        scan.sinogram, data["sinogram"][:-1].astype(np.float32)
    )  # the repeated view is gone
    assert isinstance(scan.geometry, FanBeam)
    assert scan.geometry.origin_detector == pytest.approx(143.08)
    assert scan.geometry.angles[-1] == pytest.approx(np.deg2rad(330))
    assert scan.noise is None
    assert any("noise left open; by the views, white, 0.2" in step for step in scan.steps)  # 12**-0.5
    assert "09z full" in scan.source
    assert "CC BY 4.0" in scan.source


def test_htc_limited_keeps_its_last_view(tmp_path):
    data = htc(tmp_path / "scan", name="CtDataLimited", angles=np.arange(90, 151, 10.0))
    scan = import_scan(tmp_path / "scan", bin=2)
    counts = np.exp(-data["sinogram"]).reshape(7, 20, 2).mean(-1)
    assert np.allclose(scan.sinogram, -np.log(counts))
    assert np.rad2deg(scan.geometry.angles[[0, -1]]) == pytest.approx([90, 150])


@pytest.mark.parametrize("bin", [1, 8])
def test_walnut_measures_its_noise_in_air(tmp_path, bin):
    walnut(tmp_path / "w.mat")
    scan = import_scan(tmp_path / "w.mat", bin=bin)
    assert scan.sinogram.shape == (120, 2296 // bin)
    assert scan.sinogram.max(axis=1) == pytest.approx(np.full(120, 1.5), abs=0.1)  # no drift is left
    assert abs(scan.sinogram[:, : 100 // bin].mean()) < 1e-3
    assert scan.noise.photons == pytest.approx(1e4 * bin, rel=0.1)
    assert scan.geometry.detector_pitch == pytest.approx(0.05 * bin)


def test_a_walnut_detector_that_is_moved_sees_the_same_object_moved(tmp_path):
    """The disk in the readings is at the detector's centre, which the offset places."""
    walnut(tmp_path / "w.mat")
    for offset in (-0.5, 0.28):
        scan = import_scan(tmp_path / "w.mat", bin=8, detector_offset=offset)
        mass = scan.sinogram.mean(axis=0)
        assert mass @ scan.geometry.detector_positions / mass.sum() == pytest.approx(offset, abs=0.02)
    found = import_scan(tmp_path / "w.mat", bin=8)
    assert found.geometry.detector_offset == pytest.approx(0, abs=0.02)  # in the middle, where the disk is
    assert any("detector offset found" in step for step in found.steps)
    assert scan.offset_error == 0  # which was stated
    assert 0 < found.offset_error < 0.05
    assert import_scan(tmp_path / "w.mat", bin=8, offset_error=0.1).offset_error == 0.1


def test_walnut_prefers_all_views(tmp_path):
    import scipy.io

    scipy.io.savemat(
        tmp_path / "w",
        {"sinogram120": walnut_readings(), "sinogram1200": walnut_readings(1200)},
        appendmat=False,
    )
    assert import_scan(tmp_path / "w").geometry.views == 1200


def test_a_ray_without_light_is_as_dark_as_the_darkest(tmp_path):
    readings = walnut_readings()
    readings[1000, 7] = 0
    walnut(tmp_path / "w.mat", readings)
    scan = import_scan(tmp_path / "w.mat")
    assert scan.sinogram[7, 1000] == scan.sinogram.max() < 2


@pytest.mark.parametrize("axis", [20.0, 21.3, 25.75])
def test_data_exchange_finds_the_axis(tmp_path, axis):
    truth = exchange(tmp_path / "e", axis=axis)
    scan = import_scan(tmp_path / "e")
    assert scan.geometry.center_of_rotation == pytest.approx(axis - 23.5, abs=0.25)
    assert np.sqrt(np.mean((scan.sinogram - truth) ** 2)) < 0.02
    assert scan.noise.photons == pytest.approx(2e4, rel=0.15)
    assert any("found" in step for step in scan.steps)


def test_a_dark_current_of_any_size_cancels(tmp_path):
    """It is in data, flats and darks alike, so that only what is above it was light."""
    exchange(tmp_path / "e")
    before = import_scan(tmp_path / "e", center=21.3)
    current = np.random.default_rng(5).integers(0, 20_000, 48)  # of every column its own
    with h5py.File(tmp_path / "e", "r+") as file:
        for name in ("data", "data_white", "data_dark"):
            file[f"exchange/{name}"][...] += current
    after = import_scan(tmp_path / "e", center=21.3)
    np.testing.assert_allclose(after.sinogram, before.sinogram, atol=1e-6)
    assert after.noise.photons == pytest.approx(before.noise.photons, rel=1e-9)


def test_data_exchange_without_angles_takes_those_it_is_told(tmp_path, capsys):
    exchange(tmp_path / "e")
    usual = import_scan(tmp_path / "e", center=21.3)
    exchange(tmp_path / "t", drop=["theta"])
    with h5py.File(tmp_path / "t", "r+") as file:
        file["exchange/turned"] = np.rad2deg(usual.geometry.angles)
    assert main(["info", str(tmp_path / "t")]) == 0
    assert "angles not stated" in capsys.readouterr().out
    for options in ({"arc": np.pi}, {"angles": "exchange/turned"}):
        told = import_scan(tmp_path / "t", center=21.3, **options)
        assert np.allclose(told.geometry.angles, usual.geometry.angles)


def test_data_exchange_takes_row_axis_and_pitch(tmp_path):
    exchange(tmp_path / "e", rows=3)
    scan = import_scan(tmp_path / "e", row=2, center=21.3, detector_pitch=0.01, bin=4)
    assert scan.sinogram.shape == (60, 12)
    assert scan.geometry.detector_pitch == pytest.approx(0.04)
    assert scan.geometry.center_of_rotation == pytest.approx((21.3 - 23.5) * 0.01)
    assert "row 2" in scan.source


def test_a_flux_that_changes_from_flat_to_flat_is_no_noise(tmp_path):
    rng = np.random.default_rng(6)
    steady = rng.poisson(2e4, (20, 1, 48)).astype(np.float64)
    flux = rng.uniform(0.8, 1.2, (20, 1, 1))
    photons = []
    for factor in (1.0, flux):
        exchange(tmp_path / "e", data_white=100 + factor * steady)
        photons.append(import_scan(tmp_path / "e", center=21.3).noise.photons)
    assert photons[1] == pytest.approx(photons[0], rel=1e-9)


def test_one_flat_says_nothing_about_noise_but_views_do(tmp_path):
    flat = np.random.default_rng(0).normal(2e4, 100, (1, 1, 48))
    exchange(tmp_path / "e", data_white=flat)
    scan = import_scan(tmp_path / "e", center=20)
    assert scan.noise.photons == pytest.approx(2e4, rel=0.2)
    assert "noise estimated from the views" in scan.steps[-1]


def test_numpy_parallel_and_fan(tmp_path):
    fields = npz(tmp_path / "n", photons=500, source="mine")
    scan = import_scan(tmp_path / "n")
    assert np.array_equal(scan.sinogram, fields["sinogram"].astype(np.float32))
    assert (scan.noise, scan.source, scan.geometry.kind) == (PhotonNoise(photons=500), "mine", "parallel")
    assert scan.geometry.domain_shape == (24, 24)
    npz(tmp_path / "n", source_origin=50, origin_detector=50, noise_std=0.1, detector_offset=0.5)
    scan = import_scan(tmp_path / "n", bin=4)
    assert scan.noise == WhiteNoise(std=0.05)
    assert (scan.geometry.kind, scan.geometry.detectors, scan.geometry.detector_offset) == ("fan", 6, 0.5)


def test_numpy_lengths_are_those_of_the_geometry(tmp_path):
    lengths = {
        "source_origin": 50.0,
        "origin_detector": 20.0,
        "detector_offset": 0.5,
        "center_of_rotation": -0.25,
        "detector_pitch": 0.75,
    }
    npz(tmp_path / "n", **lengths)
    geometry = import_scan(tmp_path / "n").geometry
    assert {name: getattr(geometry, name) for name in lengths} == lengths


def test_content_tells_the_format(tmp_path):
    for make, name in (
        (htc, "htc2022"),
        (walnut, "fips-walnut"),
        (exchange, "data-exchange"),
        (npz, "arrays"),
    ):
        path = tmp_path / "scan.txt"
        path.unlink(missing_ok=True)
        make(path) if make not in (htc, walnut) else _exactly(make, path)
        assert find_format(look_into(path)).name == name
        assert import_scan(path).sinogram.ndim == 2


def _exactly(make, path):
    make(path.with_suffix(".mat"))  # SciPy adds the ending
    path.with_suffix(".mat").rename(path)


def test_the_grid_is_the_field_of_view_and_a_pixel_a_ray(tmp_path):
    npz(tmp_path / "n")
    scan = import_scan(tmp_path / "n")
    assert scan.geometry.volume.size == (12, 12)
    assert scan_on_grid(scan, size=6).geometry.volume.pixel_size == 2
    assert scan_on_grid(scan, width=6.0).geometry.domain_shape == (12, 12)


def test_a_pixel_of_a_fan_is_a_ray_at_the_axis(tmp_path):
    """Where the fan is half as wide as at a detector twice as far from the source."""
    npz(tmp_path / "n", source_origin=50, origin_detector=50, detector_pitch=0.5)
    volume = import_scan(tmp_path / "n").geometry.volume
    # A whole number of pixels fills the field of view.
    assert volume.pixel_size == pytest.approx(0.25, rel=0.5 / volume.shape[0])


def test_views_are_spread_by_angle(tmp_path):
    order = np.random.default_rng(0).permutation(20)
    fields = npz(tmp_path / "n", angles=np.linspace(0, 3, 20)[order])
    few = spread_views(import_scan(tmp_path / "n"), 5)
    assert np.sort(few.geometry.angles) == pytest.approx(np.linspace(0, 3, 20)[::4])
    rows = [int(np.flatnonzero(fields["angles"] == angle)[0]) for angle in few.geometry.angles]
    assert rows == sorted(rows)
    assert np.array_equal(few.sinogram, fields["sinogram"][rows].astype(np.float32))
    with pytest.raises(ScanError, match="--views 21 is more"):
        spread_views(import_scan(tmp_path / "n"), 21)


def test_a_width_helps_where_there_is_no_field_of_view(tmp_path):
    exchange(tmp_path / "e")
    assert import_scan(tmp_path / "e", center=0, width=60.0).geometry.domain_shape == (60, 60)


def test_a_finer_reference_is_an_average(tmp_path):
    npz(tmp_path / "n")
    scan = import_scan(tmp_path / "n")
    assert reference_image(scan).shape == reference_image(scan, finer=3).shape == (24, 24)


def test_corners_that_no_view_sees_whole_count_nowhere(tmp_path, monkeypatch, capsys):
    """Not in the reference, not in a comparison; unless the user says that every pixel counts."""
    monkeypatch.chdir(tmp_path)
    npz(tmp_path / "a.npz", sinogram=np.random.default_rng(0).uniform(0.4, 0.6, (20, 24)), noise_std=0.05)
    assert main("import a.npz --out a.h5 --reference-out a.npy".split()) == 0
    assert main("import a.npz --out all.h5 --mask all --reference-out all.npy".split()) == 0
    scan, reference = read_scan("a.h5"), np.load("a.npy")
    assert 0.7 < scan.evaluated.mean() < 0.85  # π/4 of a square around a disk
    assert not reference[~scan.evaluated].any()
    assert np.load("all.npy")[~scan.evaluated].any()
    assert read_scan("all.h5").evaluated.all()
    np.save("spoiled.npy", np.where(scan.evaluated, reference, 1e3).astype(np.float32))
    for name in ("a", "spoiled"):
        words = f"reconstruct a.h5 --method fbp --reference {name}.npy --out {name}-result.h5"
        assert main(words.split()) == 0
    scores = [read_result(f"{name}-result.h5").scores for name in ("a", "spoiled")]
    assert scores[0].psnr == scores[1].psnr
    assert scores[0].ssim == scores[1].ssim
    np.save("half.npy", np.arange(24)[:, None] * np.ones(24) > 11)
    assert main("import a.npz --out half.h5 --mask half.npy --views 10".split()) == 0
    assert read_scan("half.h5").evaluated.sum() == 12 * 24
    capsys.readouterr()
    assert main("import a.npz --out b.h5 --mask missing.npy".split()) == 2
    assert "mask missing.npy does not exist" in capsys.readouterr().err


@pytest.mark.parametrize("bin", [1, 2])
def test_counts_become_line_integrals_with_their_noise(tmp_path, bin):
    """Poisson readings with a dark current of 50, and 400 flats: photons are known to 1 %."""
    rng = np.random.default_rng(0)
    integrals, air = rng.uniform(0.5, 1.5, (20, 12, 1)) * np.ones(2), 1000 * (1 + 0.1 * np.arange(24) / 24)
    integrals = integrals.reshape(20, 24)
    fields = {
        "sinogram": 50 + air * np.exp(-integrals),
        "flat": 50 + rng.poisson(air, (400, 24)),
        "dark": np.full(24, 50.0),
    }
    npz(tmp_path / "a.npz", **fields)
    scan = import_scan(tmp_path / "a.npz", counts=True, bin=bin)
    np.testing.assert_allclose(scan.sinogram, integrals[:, ::bin], atol=0.02)
    assert scan.noise.photons == pytest.approx(bin * air.mean(), rel=0.05)
    npz(tmp_path / "b.npz", **(fields | {"photons": 77.0}))
    assert import_scan(tmp_path / "b.npz", counts=True, bin=bin).noise.photons == 77 * bin
    npz(tmp_path / "c.npz", sinogram=fields["sinogram"] - 50, flat=air)
    np.testing.assert_allclose(import_scan(tmp_path / "c.npz", counts=True).sinogram, integrals, rtol=1e-5)


@pytest.mark.parametrize(
    ("fields", "counts", "words"),
    [
        ({}, True, "--flat NAME"),
        ({"flat": np.ones(5)}, True, r"flat has shape \(5,\), expected \(24,\)"),
        ({"flat": np.zeros(24)}, True, "a dead detector"),
        ({"flat": np.ones(24)}, False, "import them with --counts"),
    ],
)
def test_readings_and_line_integrals_are_not_mixed_up(tmp_path, fields, counts, words):
    npz(tmp_path / "a.npz", **fields)
    with pytest.raises(ScanError, match=words):
        import_scan(tmp_path / "a.npz", counts=counts)


def test_counts_are_asked_for_where_they_pass_as_line_integrals(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    npz(tmp_path / "a.npz", sinogram=np.random.default_rng(0).uniform(2e4, 6e4, (20, 24)))
    assert main("import a.npz --out a.h5".split()) == 2
    assert "look like counts" in capsys.readouterr().err
    assert not (tmp_path / "a.h5").exists()
