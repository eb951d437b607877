"""lin-dip holds views out: for the image, for the width of its error bars, and as evidence of both."""

from dataclasses import replace

import numpy as np
import pytest

import ct_dip
from ct_dip.data.simulate import NoiseLevel, simulate
from ct_dip.evaluation.heldout import heldout_views, misses_directions
from ct_dip.geometry import FanBeam, ParallelBeam, Volume
from ct_dip.posterior.fit import fit_posterior
from ct_dip.progress import Progress
from ct_dip.scanners import scanner
from tests.tiny import dip_fit

VOLUME = Volume(shape=(14, 14))
QUICK = {"channels": (4, 4), "max_steps": 60, "cooldown_steps": 30, "starts": 1}


@pytest.fixture(scope="module")
def scan():
    return simulate("walnut", scanner(VOLUME, views=15), noise=NoiseLevel(relative=0.02), seed=103)


@pytest.fixture(scope="module")
def calibrated(scan):
    return ct_dip.reconstruct(scan, method="lin-dip", **QUICK)


@pytest.fixture(scope="module")
def plain(scan):
    return ct_dip.reconstruct(scan, method="lin-dip", calibrate="none", **QUICK)


class Notes(Progress):
    def __init__(self):
        super().__init__()
        self.notes = []

    def note(self, text):
        self.notes.append(text)


def test_the_covariance_is_multiplied_by_one_factor(calibrated, plain):
    factor = calibrated.diagnostics["widening"]
    assert factor != 1
    np.testing.assert_allclose(calibrated.std, np.sqrt(factor) * plain.std, rtol=1e-5)
    ours, theirs = (p.covariances(3)[4].covariance for p in (calibrated, plain))
    np.testing.assert_allclose(ours, factor * theirs, rtol=1e-5, atol=1e-12)
    if calibrated.settings["inference"]["image"] == plain.settings["inference"]["image"]:
        np.testing.assert_array_equal(calibrated.mean, plain.mean)
        deviations = [p.samples - p.posterior.mean for p in (calibrated, plain)]
        np.testing.assert_allclose(deviations[0], np.sqrt(factor) * deviations[1], rtol=1e-4, atol=1e-9)


def test_held_out_views_are_explained_afterwards(calibrated, plain):
    assert plain.heldout is None
    assert calibrated.heldout.views == 3
    before, after = calibrated.diagnostics["heldout_rms_z_before"], calibrated.heldout.rms_z.value
    assert abs(np.log(after)) < max(abs(np.log(before)), 0.2)


def test_nobody_looked_at_the_truth(scan, calibrated):
    blind = ct_dip.reconstruct(replace(scan, ground_truth=None), method="lin-dip", **QUICK)
    np.testing.assert_array_equal(blind.std, calibrated.std)
    np.testing.assert_array_equal(blind.mean, calibrated.mean)
    assert blind.heldout == calibrated.heldout


def test_the_settings_of_a_result_repeat_it(scan, calibrated):
    again = ct_dip.reconstruct(scan, **calibrated.settings)
    np.testing.assert_array_equal(again.mean, calibrated.mean)
    np.testing.assert_array_equal(again.std, calibrated.std)


def test_total_variation_can_be_shown(scan):
    shown = ct_dip.reconstruct(scan, method="lin-dip", image="tv", **QUICK)
    np.testing.assert_allclose(shown.mean, shown.images["tv"], rtol=1e-6)
    classical = ct_dip.reconstruct(scan, method="tv", strength=shown.settings["dip"]["strength"])
    np.testing.assert_allclose(shown.mean, classical.mean, rtol=1e-5, atol=1e-7)
    assert (shown.std > 0).all()


@pytest.mark.parametrize(
    ("misfit", "of_tv", "unfinished"),
    [(1.4, 0.7, False), (1.6, 0.7, True), (2.9, 2.0, False), (3.1, 2, True)],
)
def test_a_fit_is_unfinished_far_above_tv_and_the_noise(misfit, of_tv, unfinished):
    assert replace(dip_fit(), misfit=misfit, tv_misfit=of_tv).unfinished == unfinished


def test_an_unfinished_network_is_not_shown(scan, monkeypatch):
    monkeypatch.setattr("ct_dip.dip.ensemble._UNFINISHED", 0.0)
    progress = Notes()
    found = ct_dip.reconstruct(scan, method="lin-dip", progress=progress, **QUICK)
    np.testing.assert_allclose(found.mean, found.images["tv"], rtol=1e-6)
    assert found.shows_total_variation
    assert any("total variation is shown" in note for note in progress.notes)


def test_held_out_views_are_predicted_by_the_same_model(scan, calibrated, monkeypatch):
    """Also with TV in the posterior, whose widening is its own."""
    asked = []

    def noted(fit, part, config, **options):
        asked.append((part.sinogram.shape[0], config.tv))
        return fit_posterior(fit, part, config, **options)

    monkeypatch.setattr("ct_dip.methods.lin_dip.inference.fit_posterior", noted)
    found = ct_dip.reconstruct(scan, method="lin-dip", tv="majorant", **QUICK)
    assert asked == [(12, "majorant"), (15, "majorant")]
    assert found.diagnostics["widening"] != calibrated.diagnostics["widening"]


def test_what_is_lost_is_said(scan):
    few = simulate("ellipses", scanner(VOLUME, views=4), noise=NoiseLevel(relative=0.05), seed=103)
    for given, settings, word in ((few, {}, "fewer than 5 views"), (scan, {"calibrate": "none"}, "no views")):
        progress = Notes()
        ct_dip.reconstruct(given, method="lin-dip", progress=progress, **settings, **QUICK)
        assert any(word in note for note in progress.notes)


def parallel(degrees, views=20):
    angles = np.deg2rad(np.linspace(0, degrees, views, endpoint=False))
    return ParallelBeam(volume=VOLUME, angles=angles, detectors=21)


def fan(degrees, views=20):
    angles = np.deg2rad(np.linspace(0, degrees, views, endpoint=False))
    return FanBeam(volume=VOLUME, angles=angles, detectors=21, source_origin=40.0, origin_detector=20.0)


def test_the_ends_of_an_arc_are_held_out():
    assert [misses_directions(parallel(d)) for d in (180, 360, 170, 120, 90)] == [
        False,
        False,
        False,
        True,
        True,
    ]
    assert [misses_directions(fan(d)) for d in (360, 200, 120)] == [False, False, True]
    assert not misses_directions(parallel(180, views=4))  # few views are no missing wedge
    assert np.flatnonzero(heldout_views(parallel(120))).tolist() == [0, 1, 18, 19]
    assert np.flatnonzero(heldout_views(parallel(180))).tolist() == [2, 7, 12, 17]
    assert np.flatnonzero(heldout_views(parallel(120), step=1)).tolist() == [3, 8, 13, 18]
