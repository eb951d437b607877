"""Repairs that an import is asked for, on single detectors and in order."""

import json

import numpy as np
import pytest

from ct_dip.cli import main
from ct_dip.data.noise import mean_intensity
from ct_dip.data.scan_file import read_scan
from ct_dip.data.simulate import NoiseLevel, simulate
from ct_dip.errors import InputError, ScanError
from ct_dip.geometry import Volume
from ct_dip.importers.run import import_scan
from ct_dip.preprocess.air import normalise_air
from ct_dip.preprocess.beam_hardening import correct_hardening
from ct_dip.scanners import scanner

GEOMETRY = scanner(Volume(shape=(40, 40)), views=60, detectors=64)
SCAN = simulate("ellipses", GEOMETRY, noise=NoiseLevel(photons=20000), attenuation=0.05, seed=2)
DETECTOR, RAY = 40, (7, 31)
ALL = ("remove_outliers", "normalise_air", "remove_stripes")


def spoilt():
    """A detector that is wrong in every view, one reading that is, and air that drifts."""
    sinogram = SCAN.sinogram.astype(np.float64) + 0.1 * np.linspace(-1, 1, 60)[:, None]
    sinogram[:, DETECTOR] += 0.3
    sinogram[RAY] -= 1.0
    return sinogram


def write(path, sinogram, **more):
    np.savez(path, sinogram=sinogram, angles=GEOMETRY.angles, detector_pitch=GEOMETRY.detector_pitch, **more)
    return path


def rms(values):
    return float(np.sqrt(np.mean(np.square(values))))


@pytest.mark.parametrize("counts", [False, True])
@pytest.mark.parametrize("bin", [1, 4])
def test_what_is_spoilt_is_repaired_before_detectors_are_averaged(tmp_path, counts, bin):
    options = {"counts": True, "flat": "1000"} if counts else {}
    values = 1000 * np.exp(-spoilt()) if counts else spoilt()
    path = write(tmp_path / "a.npz", values)
    clean, _ = normalise_air(SCAN.sinogram.astype(np.float64))
    clean = mean_intensity(clean.reshape(60, -1, bin))
    before = import_scan(path, bin=bin, **options)
    after = import_scan(path, bin=bin, **options, **dict.fromkeys(ALL, True))
    assert rms(after.sinogram - clean) < 0.15 * rms(before.sinogram - clean)
    words = ["outliers: 1 of 3840", "air: ", "stripes: "] + ["counts of 4"] * (bin > 1)
    begins = 2 if counts else 0
    for step, start in zip(after.steps[begins:], words, strict=False):
        assert step.startswith(start)
    assert not any(step.startswith(tuple(words[:3])) for step in before.steps)  # nobody asked


def test_beam_hardening_is_corrected_as_by_the_function_itself(tmp_path):
    c, ideal = 0.15, simulate("rectangles", GEOMETRY, attenuation=0.08, seed=1).sinogram.astype(np.float64)
    hardened = (np.sqrt(1 + 4 * c * ideal) - 1) / (2 * c)
    scan = import_scan(write(tmp_path / "a.npz", hardened), linearise=True)
    expected, words = correct_hardening(hardened, GEOMETRY)
    np.testing.assert_allclose(scan.sinogram, expected, rtol=1e-5)
    assert scan.steps[0] == words
    assert "p + c p²" in words


def test_an_import_by_command_shows_its_steps_and_keeps_them(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    write("a.npz", spoilt())
    assert main(["import", "a.npz", "--out", "s.h5", *(f"--{name.replace('_', '-')}" for name in ALL)]) == 0
    assert "step: stripes: " in capsys.readouterr().out
    kept = read_scan("s.h5").steps
    assert kept == import_scan("a.npz", **dict.fromkeys(ALL, True)).steps
    assert main(["info", "s.h5", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["steps"] == list(kept)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"counts": True, "air": 3, "normalise_air": True}, "--normalise-air has no effect.*drop it"),
        ({"noise": "loud"}, "--noise 'loud' is not known; choose one of auto, white, photons, none"),
        ({"noise_std": 0.1, "photons": 100}, "--noise-std and --photons exclude each other"),
        ({"photons": 100, "noise": "none"}, "--photons and --noise none exclude each other"),
        ({"photons": -1}, "--photons -1 must be a positive number"),
        ({"sise": 3}, "option 'sise' is not known; did you mean 'size'"),
        ({"remove_stripe": True}, "option 'remove_stripe' is not known; did you mean 'remove_stripes'"),
    ],
)
def test_options_that_exclude_each_other_are_refused(tmp_path, options, words):
    path = write(tmp_path / "a.npz", 1000 * np.exp(-spoilt()) if "counts" in options else spoilt())
    with pytest.raises(InputError, match=words):
        import_scan(path, **options)


def test_views_without_air_cannot_be_set_to_it(tmp_path):
    path = write(tmp_path / "a.npz", spoilt()[:, 20:44])
    with pytest.raises(ScanError, match=r"--normalise-air: neither end .* skip this step"):
        import_scan(path, normalise_air=True)


def test_python_takes_views_and_a_mask_as_the_command_does(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write("a.npz", spoilt())
    mask = np.zeros((40, 40), bool)
    mask[5:9, 5:9] = True
    np.save("m.npy", mask)
    assert main("import a.npz --out s.h5 --views 20 --size 40 --mask m.npy".split()) == 0
    scan = read_scan("s.h5")
    for given in ("m.npy", mask):
        ours = import_scan("a.npz", views=20, size=40, mask=given)
        assert ours.digest == scan.digest
        assert np.array_equal(ours.mask, mask)
        assert ours.steps == scan.steps
    assert import_scan("a.npz", size=40, mask="all").mask.all()
