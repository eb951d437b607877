"""Stripes, outliers, air and beam hardening: repaired where they are, and next to nothing done where not."""

import itertools
import math

import numpy as np
import pytest
import torch

from ct_dip.classical.fbp import fbp
from ct_dip.data.simulate import NoiseLevel, simulate
from ct_dip.errors import ScanError
from ct_dip.geometry import Volume
from ct_dip.preprocess.air import normalise_air
from ct_dip.preprocess.beam_hardening import correct_hardening, hardening
from ct_dip.preprocess.outliers import remove_outliers
from ct_dip.preprocess.stripes import remove_stripes
from ct_dip.quality import psnr
from ct_dip.scanners import scanner
from tests.preprocess.measured import walnut

OBJECTS = ("ellipses", "rectangles", "walnut", "shepp-logan", "grains")
BEAMS = (
    {"views": 60},
    {"views": 60, "arc": 2 * math.pi},
    {"views": 60, "source_origin": 180.0, "origin_detector": 120.0},
)


def scanned(kind, *, size=64, noise=0.02, attenuation=0.02, seed=0, **beam):
    geometry = scanner(Volume(shape=(size, size)), **(beam or BEAMS[0]))
    level = NoiseLevel(relative=noise) if noise else None
    return simulate(kind, geometry, noise=level, attenuation=attenuation, seed=seed)


def quality(sinogram, scan):
    image = fbp(torch.as_tensor(np.array(sinogram, dtype=np.float32)), scan.geometry, filter="hann")
    return psnr(image.numpy(), scan.ground_truth)


def root_mean_square(values):
    return float(np.sqrt(np.mean(np.square(values))))


@pytest.mark.parametrize("kind", OBJECTS)
def test_stripes_are_removed(kind):
    scan, rng = scanned(kind), np.random.default_rng(1)
    detectors = scan.sinogram.shape[1]
    stripes = np.zeros(detectors)
    stripes[rng.choice(np.arange(3, detectors - 3), 8, replace=False)] = 0.15 * scan.sinogram.max()
    striped = scan.sinogram + stripes * rng.choice([-1, 1], detectors)
    repaired, words = remove_stripes(striped, scan.geometry)
    assert "detectors corrected by up to" in words
    assert quality(repaired, scan) > quality(striped, scan) + 0.7 * (
        quality(scan.sinogram, scan) - quality(striped, scan)
    )


def test_stripes_are_told_from_the_object():
    """30 scans: next to no detector of a clean one is corrected, and more than half of faint stripes."""
    wrong = found = 0
    for kind, beam, noise in itertools.product(OBJECTS, BEAMS, (0.005, 0.02)):
        scan = scanned(kind, noise=noise, attenuation=0.05, seed=1, **(beam | {"views": 180}))
        largest, detectors = scan.sinogram.max(), scan.sinogram.shape[1]
        clean, _ = remove_stripes(scan.sinogram, scan.geometry)
        wrong += int(np.sum(np.abs(clean - scan.sinogram).max(axis=0) > 1e-3 * largest))
        rng, stripes = np.random.default_rng(5), np.zeros(detectors)
        at = rng.choice(np.arange(8, detectors - 8), 6, replace=False)
        stripes[at] = 0.05 * largest * rng.choice([-1, 1], 6)
        repaired, _ = remove_stripes(scan.sinogram + stripes, scan.geometry)
        left = np.abs(np.mean(repaired - scan.sinogram, axis=0)[at])
        found += int(np.sum(left < 0.5 * 0.05 * largest))
    assert wrong <= 2
    assert found >= 90


@pytest.mark.parametrize("kind", OBJECTS)
def test_repairs_leave_clean_sinograms_within_their_noise(kind):
    scan = scanned(kind)
    for repaired, words in (
        remove_stripes(scan.sinogram, scan.geometry),
        remove_outliers(scan.sinogram),
        normalise_air(scan.sinogram),
    ):
        assert root_mean_square(repaired - scan.sinogram) < 0.5 * scan.noise.std, words
    assert quality(remove_stripes(scan.sinogram, scan.geometry)[0], scan) > quality(scan.sinogram, scan) - 0.2


@pytest.mark.parametrize("kind", OBJECTS)
def test_outliers_are_replaced(kind):
    scan, rng = scanned(kind), np.random.default_rng(2)
    hit = rng.random(scan.sinogram.shape) < 0.002
    assert hit.any()
    spoilt = np.where(hit, scan.sinogram - 0.8 * scan.sinogram.max(), scan.sinogram)
    repaired, words = remove_outliers(spoilt)
    assert "replaced by the median of five views" in words
    clean = root_mean_square(scan.sinogram - simulate(kind, scan.geometry).sinogram)
    assert root_mean_square((repaired - scan.sinogram)[hit]) < 0.3 * 0.8 * scan.sinogram.max()
    assert root_mean_square((repaired - scan.sinogram)[~hit]) < 0.5 * clean


def test_air_that_drifts_is_set_to_zero():
    scan = scanned("ellipses")
    drift = 0.1 * np.sin(np.linspace(0, 5, 60))[:, None]
    repaired, words = normalise_air(scan.sinogram + drift)
    expected = normalise_air(scan.sinogram)[0]
    np.testing.assert_allclose(repaired, expected, atol=1e-6)
    assert words.startswith("air: ")
    assert "bins at either end" in words


def test_an_end_that_sees_the_object_is_no_air():
    geometry = scanner(Volume(shape=(40, 40)), views=60, arc=2 * math.pi, detectors=38, detector_offset=12.0)
    scan = simulate("ellipses", geometry, noise=NoiseLevel(relative=0.02), allow_truncation=True)
    repaired, words = normalise_air(scan.sinogram)
    assert "at one end" in words
    assert root_mean_square(repaired - scan.sinogram) < 1.5 * scan.noise.std
    with pytest.raises(ScanError, match="neither end"):
        normalise_air(scan.sinogram[:, 8:20])
    with pytest.raises(ScanError, match="give fewer"):
        normalise_air(scan.sinogram, edge=30)


def hardened(line_integrals, c):
    """p such that p + c p² are the line integrals."""
    return (np.sqrt(1 + 4 * c * line_integrals) - 1) / (2 * c)


def test_the_coefficient_of_beam_hardening_is_found_with_its_standard_error():
    """30 scans: five kinds of objects, three beams; both with hardening and without."""
    z = []
    for seed in range(15):
        ideal = scanned(OBJECTS[seed % 5], size=40, noise=0, attenuation=0.08, seed=seed, **BEAMS[seed % 3])
        noise = (
            0.02 * ideal.sinogram.mean() * np.random.default_rng(seed).standard_normal(ideal.sinogram.shape)
        )
        for c in (0.08, 1e-9):
            found = hardening(hardened(ideal.sinogram.astype(float), c) + noise, ideal.geometry)
            z.append((found.value - c) / found.standard_error)
    assert 0.7 < root_mean_square(z) < 1.5
    assert np.abs(z).max() < 4


def test_linearised_views_make_a_better_image():
    ideal = scanned("rectangles", size=40, noise=0, attenuation=0.08, seed=1)
    measured = hardened(ideal.sinogram.astype(float), 0.15)
    repaired, words = correct_hardening(measured, ideal.geometry)
    assert words.startswith("beam hardening: p + c p², c = 0.1")
    assert quality(repaired, ideal) > quality(measured, ideal) + 0.5
    again, words = correct_hardening(repaired, ideal.geometry)
    assert np.abs(again - repaired).max() < 0.1 * np.abs(repaired - measured).max(), words


@pytest.mark.parametrize("beam", BEAMS)
@pytest.mark.parametrize("kind", OBJECTS)
def test_a_drift_of_the_air_is_not_taken_for_beam_hardening(kind, beam):
    """A drift by 0.3 % of the largest line integral, either slow or a step, changes next to nothing."""
    ideal = scanned(kind, noise=0, attenuation=0.05, seed=1, **(beam | {"views": 180}))
    p = ideal.sinogram.astype(float) * (1.6 / ideal.sinogram.max())
    view, noise = np.arange(180)[:, None], 0.005 * np.random.default_rng(0).standard_normal(p.shape)
    for c in (1e-9, 0.05):
        steady = hardening(hardened(p, c) + noise, ideal.geometry)
        assert abs(steady.value - c) < 3.5 * steady.standard_error
        for drift in (0.005 * np.sin(view / 20), 0.005 * (view > 90)):
            drifting = hardening(hardened(p, c) + noise + drift, ideal.geometry)
            assert drifting.value == pytest.approx(steady.value, abs=0.3 * steady.standard_error)


def test_both_scans_of_the_walnut_have_the_same_beam_hardening(real_data):
    found = [
        hardening(scan.sinogram, scan.geometry) for scan in (walnut(real_data, n, bin=8) for n in (120, 1200))
    ]
    error = math.hypot(found[0].standard_error, found[1].standard_error)
    assert found[0].value == pytest.approx(found[1].value, abs=3 * error)
    assert found[0].value > 5 * found[0].standard_error
