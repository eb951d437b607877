"""The level, the kind and the correlation of noise, found in sinograms of smooth and of edgy objects."""

import math

import numpy as np
import pytest
from scipy.ndimage import convolve1d

from ct_dip.data.noise import PhotonNoise, WhiteNoise, estimate_white_std
from ct_dip.data.simulate import NoiseLevel, simulate
from ct_dip.errors import ScanError
from ct_dip.geometry import Volume
from ct_dip.preprocess.noise_level import consistency_std, estimate_noise, view_differences
from ct_dip.scanners import scanner
from tests.preprocess.measured import walnut

BEAMS = {
    "half turn": {"views": 30},
    "full turn": {"views": 40, "arc": 2 * math.pi},
    "fan": {"views": 40, "source_origin": 120.0, "origin_detector": 80.0},
}
OBJECTS = ("ellipses", "rectangles", "walnut", "shepp-logan", "grains")


def noisy(beam, kind, level=0.05, size=40, blur=None, seed=0):
    """A sinogram with noise of a known deviation, blurred along the detector or not."""
    geometry = scanner(Volume(shape=(size, size)), **BEAMS[beam])
    ideal = simulate(kind, geometry, seed=3).sinogram.astype(np.float64)
    std = level * np.abs(ideal).mean()
    noise = np.random.default_rng(seed).standard_normal(ideal.shape)
    if blur is not None:
        noise = convolve1d(noise, np.array(blur) / np.linalg.norm(blur), axis=1, mode="wrap")
    return ideal + std * noise, geometry, std


def test_white_noise_is_found_within_its_standard_error():
    """Also at edges, where third differences along the detector overstate it up to twice."""
    errors, third = [], []
    for seed, kind in enumerate(OBJECTS):
        for beam in BEAMS:
            sinogram, geometry, std = noisy(beam, kind, seed=seed)
            found = consistency_std(sinogram, geometry)
            errors.append((found.value - std) / found.standard_error)
            third.append(estimate_white_std(sinogram) / std)
            assert estimate_noise(sinogram, geometry).std.value == pytest.approx(std, rel=0.15)
    assert np.sqrt(np.mean(np.square(errors))) < 1.5
    assert np.abs(errors).max() < 3.5
    assert max(third) > 1.5


@pytest.mark.parametrize("kind", OBJECTS)
def test_noise_that_neighbours_share_is_recognised(kind):
    """Blurred by [1, 2, 1]/4 it has the correlations 2/3 and 1/6; signal between views takes some off."""
    geometry = scanner(Volume(shape=(64, 64)), views=120)
    ideal = simulate(kind, geometry, seed=3).sinogram
    noise = np.random.default_rng(1).standard_normal(ideal.shape)
    level = 0.03 * np.abs(ideal).mean()
    shared = convolve1d(noise, np.array([1, 2, 1]) / math.sqrt(6), axis=1, mode="wrap")
    white, blurred = (estimate_noise(ideal + level * one, geometry) for one in (noise, shared))
    assert not white.correlated
    assert white.correlation[0].value == pytest.approx(0, abs=4 * white.correlation[0].standard_error + 0.05)
    assert blurred.correlated
    assert blurred.correlation[0].value == pytest.approx(2 / 3, abs=0.12)
    assert blurred.correlation[1].value == pytest.approx(1 / 6, abs=0.12)


@pytest.mark.parametrize("photons", [500, 4000])
def test_photons_are_told_from_white_noise(photons):
    geometry = scanner(Volume(shape=(64, 64), pixel_size=200 / 64), views=180)
    for seed, kind in enumerate(("ellipses", "walnut", "grains")):
        scan = simulate(kind, geometry, noise=NoiseLevel(photons=photons), seed=seed)
        found = estimate_noise(scan.sinogram, geometry)
        assert isinstance(found.model, PhotonNoise)
        assert found.photons.value == pytest.approx(photons, rel=0.1)
        white = simulate(kind, geometry, noise=NoiseLevel(std=0.05), seed=seed)
        model = estimate_noise(white.sinogram, geometry).model
        assert isinstance(model, WhiteNoise)
        assert model.std == pytest.approx(0.05, rel=0.1)


def test_sparse_views_do_not_make_photons_of_edges():
    for kind in OBJECTS:
        sinogram, geometry, _ = noisy("half turn", kind, level=0.02)
        assert isinstance(estimate_noise(sinogram, geometry).model, WhiteNoise)


def test_views_at_uneven_angles_are_compared_at_their_distances():
    angles = np.array([0.0, 0.1, 0.4, 0.5])
    linear = np.outer(angles, np.arange(8.0)) + 1
    left, rows = view_differences(linear[[2, 0, 3, 1]], angles[[2, 0, 3, 1]])
    np.testing.assert_allclose(left, 0, atol=1e-12)
    np.testing.assert_allclose(rows, linear[1:3])


def test_too_little_is_refused():
    geometry = scanner(Volume(shape=(8, 8)), views=5)
    with pytest.raises(ScanError, match="8 views"):
        estimate_noise(np.ones(geometry.range_shape), geometry)


def test_detectors_of_the_walnut_share_light(real_data):
    scan = walnut(real_data, 1200, bin=1).select_views(slice(0, 200))
    found = estimate_noise(scan.sinogram, scan.geometry)
    assert found.correlated
