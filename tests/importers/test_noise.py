"""The noise of an imported scan: who states it, who measures it, what the views say of it."""

import re

import numpy as np
import pytest
from scipy.ndimage import convolve1d

from ct_dip.cli import main
from ct_dip.data.simulate import simulate
from ct_dip.geometry import Volume
from ct_dip.importers.noise import find_noise
from ct_dip.importers.run import import_scan
from ct_dip.scanners import scanner

GEOMETRY = scanner(Volume(shape=(64, 64)), views=120, detectors=96)
IDEAL = simulate("ellipses", GEOMETRY, attenuation=0.03, seed=3).sinogram.astype(np.float64)
STD = 0.03 * IDEAL.mean()
PHOTONS = 5000


def write(path, sinogram, **more):
    np.savez(path, sinogram=sinogram, angles=GEOMETRY.angles, detector_pitch=1.0, **more)
    return path


def white(blur=(1.0,)):
    noise = np.random.default_rng(1).standard_normal(IDEAL.shape)
    return STD * convolve1d(noise, np.array(blur) / np.linalg.norm(blur), axis=1, mode="wrap")


@pytest.mark.parametrize("bin", [1, 2])
def test_what_the_user_states_counts_more_than_the_file_and_that_more_than_the_views(tmp_path, bin):
    path = write(tmp_path / "a.npz", IDEAL + white(), noise_std=7.0)
    found = [
        import_scan(path, bin=bin, **options).noise
        for options in ({"noise_std": 3.0}, {}, {"noise": "white"}, {"noise": "none"})
    ]
    assert [one.std for one in found[:2]] == pytest.approx(np.array([3, 7]) / np.sqrt(bin))
    assert found[2].std == pytest.approx(STD / np.sqrt(bin), rel=0.1)
    assert found[3] is None
    stated = import_scan(path, bin=bin).steps[-1]
    assert stated.startswith("noise stated: white, ")
    assert "by the views, white, " in stated


def test_counts_have_photon_weights_also_without_repeated_flats(tmp_path):
    counts = np.random.default_rng(2).poisson(PHOTONS * np.exp(-IDEAL))
    path = write(tmp_path / "a.npz", 3.0 * counts)  # a gain, which says nothing about photons
    scan = import_scan(path, counts=True, flat=str(3.0 * PHOTONS))
    assert scan.noise.photons == pytest.approx(PHOTONS, rel=0.1)
    assert "photons per bin" in scan.steps[-1]
    integrals = write(tmp_path / "b.npz", -np.log(counts / PHOTONS))  # of which nobody knows the weights
    assert import_scan(integrals, noise="photons").noise.photons == pytest.approx(PHOTONS, rel=0.1)
    left_open = import_scan(integrals)
    assert left_open.noise is None
    assert left_open.steps[-1].startswith("noise left open; by the views, white, ")


def test_an_import_tells_what_photons_do_not_explain_whether_views_are_dropped_or_not(tmp_path, capsys):
    """As `ct-dip info` and every reconstruction do; a scan of some views stores what all of them say."""
    counts = np.random.default_rng(2).poisson(1e6 * np.exp(-IDEAL - white()))
    path = str(write(tmp_path / "a.npz", counts))
    words = ["--counts", "--flat", "1e6", "--photons", "1e6", "--out", str(tmp_path / "s.h5")]
    assert main(["import", path, *words]) == 0
    every = capsys.readouterr().out
    assert main(["import", path, *words, "--views", "30"]) == 0
    few = capsys.readouterr().out
    (constant,) = {re.search("plus a constant std of ([^;]*);", told)[1] for told in (every, few)}
    assert float(constant) == pytest.approx(STD, rel=0.2)


def test_noise_that_neighbours_share_is_told_and_warned_of(tmp_path):
    shared = import_scan(write(tmp_path / "a.npz", IDEAL + white([1, 2, 1])))
    assert "neighbouring detectors correlate by 0.6" in shared.steps[-1]
    assert any("Error bars take rays to be independent" in warning for warning in shared.warnings)
    independent = import_scan(write(tmp_path / "b.npz", IDEAL + white()))
    assert independent.warnings == ()


def test_no_noise_is_made_up(tmp_path):
    alike = np.tile(IDEAL[:1], (120, 1))
    assert find_noise(alike, GEOMETRY, choice="auto", counts=False, stated=None, air=None).model is None
    few = write(tmp_path / "b.npz", IDEAL + white())
    found = import_scan(few, views=20, noise="white").noise  # all views are seen before some are dropped
    assert found.std == pytest.approx(STD, rel=0.1)
