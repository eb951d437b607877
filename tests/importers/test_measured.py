"""The measured scans themselves, where they are."""

import h5py
import numpy as np
import pytest

from ct_dip.cli import main
from ct_dip.data.scan_file import read_scan
from ct_dip.importers.reference import reference_image
from ct_dip.importers.run import import_scan


def test_htc_full_and_limited_are_the_same_rays(real_data):
    full = import_scan(real_data / "htc2022" / "htc2022_02b_full.mat")
    limited = import_scan(real_data / "htc2022" / "htc2022_02b_limited.mat")
    assert (full.geometry.views, limited.geometry.views) == (720, 161)
    first = int(np.argmin(np.abs(full.geometry.angles - limited.geometry.angles[0])))
    assert np.array_equal(full.sinogram[first : first + 161], limited.sinogram)


def test_the_htc_disk_has_its_size(real_data):
    """Its diameter is 70 mm, a length that only the right distances give."""
    scan = import_scan(real_data / "htc2022" / "htc2022_01a_full.mat", bin=4, size=128)
    image = reference_image(scan)
    area = np.sum(image > 0.5 * np.median(image[48:80, 48:80])) * scan.geometry.volume.pixel_size**2
    holes = 4 * np.pi * 2.1**2  # four, measured in the picture; half a millimetre of diameter
    assert 2 * np.sqrt((area + holes) / np.pi) == pytest.approx(70, abs=0.7)


def test_bins_of_the_walnut_share_light(real_data):
    """Eight of its detectors are worth four: noise must be measured on the bins that are used."""
    one, eight = (import_scan(real_data / "fips_walnut.mat", bin=n) for n in (1, 8))
    assert one.noise.photons == pytest.approx(7e4, rel=0.1)
    assert eight.noise.photons == pytest.approx(2.5e5, rel=0.1)


@pytest.mark.parametrize("row", [0, 1])
def test_the_axis_of_the_tooth(real_data, row):
    scan = import_scan(real_data / "tooth.h5", row=row)
    column = scan.geometry.center_of_rotation + 319.5
    assert column == pytest.approx(296, abs=0.5)  # described as "near 296 to 298"; both rows agree
    # Noise by the flats is that of the scan: the air beside the tooth, from view to view.
    air = scan.sinogram[:, 20:60]
    assert 2 / np.diff(air, axis=0).var(axis=0).mean() == pytest.approx(scan.noise.photons, rel=0.2)


def test_from_file_to_picture(real_data, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    source = real_data / "htc2022" / "htc2022_01a_full.mat"
    words = ["--views", "30", "--bin", "4", "--pixels", "64", "--width", "76", "--reference-out", "r.npy"]
    assert main(["import", str(source), "--out", "s.h5", *words]) == 0
    assert "30 of 720 views × 140 bins" in capsys.readouterr().out
    scan = read_scan("s.h5")
    assert scan.geometry.volume.size == (76, 76)
    assert scan.ground_truth is None
    assert np.load("r.npy").shape == (64, 64)
    whole = import_scan(source, bin=4)
    assert np.array_equal(scan.sinogram, whole.sinogram[::24])
    assert main("reconstruct s.h5 --method fbp --out f.h5".split()) == 0


def test_the_neutron_sinogram(real_data):
    options = {"arc": 2 * np.pi, "counts": True, "air": 30, "center": 245.2}
    scan = import_scan(real_data / "neutron_sinogram_360.tif", **options)
    assert scan.sinogram.shape == (459, 503)
    assert abs(np.median(scan.sinogram[:, :30])) < 0.01  # air
    assert "rays have no light" in scan.warnings[0]
    # A parallel beam sees the same from both sides, mirrored about the axis.
    columns = np.arange(60, 430)
    view, opposite = 100, 100 + 459 // 2
    seen = scan.sinogram[view, columns]
    mirrored = np.interp(2 * 245.2 - columns, np.arange(503), scan.sinogram[opposite])
    assert np.corrcoef(seen, mirrored)[0, 1] > 0.97


def test_the_beamlines_nxtomo(real_data):
    path = real_data / "nxtomo" / "k11-18014.nxs"
    scan = import_scan(path, row=11, center=12.5)
    assert scan.sinogram.shape == (3001, 26)
    assert np.rad2deg(scan.geometry.angles[[0, -1]]) == pytest.approx([90, 270], abs=0.01)
    with h5py.File(path.with_suffix("") / "k11-18014-imaging.h5") as file:
        frames = file["entry/detector/detector"][100:3101, 11].astype(float)
    assert np.corrcoef(frames.mean(axis=1), scan.sinogram.mean(axis=1))[0, 1] < -0.99  # darker is more
