import numpy as np
import pytest

from ct_dip.data.noise import (
    PhotonNoise,
    WhiteNoise,
    add_photon_noise,
    add_white_noise,
    estimate_photons,
    estimate_white_std,
    unexplained_variance,
)
from ct_dip.data.phantoms import PHANTOMS
from ct_dip.data.simulate import NoiseLevel, simulate
from ct_dip.errors import ScanError
from ct_dip.geometry import Volume
from ct_dip.scanners import scanner

IDEAL = np.tile(np.sin(np.linspace(0, np.pi, 200)) ** 2, (500, 1)) * 2.0


def test_white_noise_has_its_level():
    noisy, noise = add_white_noise(IDEAL, np.random.default_rng(0), relative=0.05)
    assert noise.std == pytest.approx(0.05 * IDEAL.mean())
    # The deviation of 10⁵ samples is known to about 1/√(2·10⁵) = 0.2 %.
    assert (noisy - IDEAL).std() == pytest.approx(noise.std, rel=0.01)
    assert noise.variance(noisy) == pytest.approx(noise.std**2)
    _, absolute = add_white_noise(IDEAL, np.random.default_rng(0), std=0.3)
    assert absolute.std == 0.3


def test_photon_noise_has_its_stated_variance():
    noisy, noise = add_photon_noise(IDEAL, np.random.default_rng(0), photons=4096)
    standardised = (noisy - IDEAL) / np.sqrt(noise.variance(IDEAL))
    assert standardised.std() == pytest.approx(1, rel=0.01)
    assert abs(standardised.mean()) < 0.03  # the log is biased by 1/(2√N), here 1 % of a deviation
    counts = noise.counts(noisy)
    np.testing.assert_allclose(counts, np.round(counts), atol=1e-6)


def test_bins_without_photons_are_treated_as_lodopab_does():
    deep = np.full((1, 1000), 5.5)
    noisy, noise = add_photon_noise(deep, np.random.default_rng(0), photons=300)
    counts = noise.counts(noisy)
    empty = counts < 0.5
    assert empty.mean() == pytest.approx(np.exp(-300 * np.exp(-5.5)), abs=0.05)
    np.testing.assert_allclose(counts[empty], 0.1, rtol=1e-9)
    assert np.isfinite(noise.variance(noisy)).all()


def test_an_opaque_object_is_refused():
    with pytest.raises(ScanError, match=r"opaque.*--attenuation"):
        add_photon_noise(np.full((3, 3), 30.0), np.random.default_rng(0), photons=4096)


def test_binning_keeps_the_noise_model_true():
    rng = np.random.default_rng(0)
    flat = np.full((400, 400), 1.0)
    noisy, white = add_white_noise(flat, rng, std=0.2)
    assert white.bin_sinogram(noisy, 4).std() == pytest.approx(white.binned(4).std, rel=0.01)
    counted, photon = add_photon_noise(flat, rng, photons=500)
    merged = photon.bin_sinogram(counted, 4)
    deviation = np.sqrt(photon.binned(4).variance(flat[:, :100])).mean()
    assert merged.std() == pytest.approx(deviation, rel=0.01)
    assert merged.mean() == pytest.approx(1.0, abs=0.002)


@pytest.mark.parametrize("level", [0.003, 0.05, 0.5])
def test_the_noise_level_is_found_in_the_sinogram(level):
    noisy, noise = add_white_noise(IDEAL, np.random.default_rng(1), std=level)
    assert estimate_white_std(noisy) == pytest.approx(noise.std, rel=0.02)


def test_views_may_differ_as_they_like():
    """Every view has an air value of its own, which is no noise of the detectors."""
    rng = np.random.default_rng(2)
    noisy, noise = add_white_noise(IDEAL, rng, std=0.05)
    assert estimate_white_std(noisy + rng.standard_normal((500, 1))) == pytest.approx(noise.std, rel=0.02)


def test_a_detector_that_is_dead_in_every_view_does_not_count():
    noisy, noise = add_white_noise(IDEAL, np.random.default_rng(3), std=0.05)
    noisy[:, -1] = 1e6
    assert estimate_white_std(noisy) == pytest.approx(noise.std, rel=0.03)


@pytest.mark.parametrize("name", PHANTOMS)
@pytest.mark.parametrize("relative", [0.03, 0.1])
def test_the_estimated_noise_of_a_scan_is_an_upper_one(name, relative):
    geometry = scanner(Volume(shape=(128, 128)), views=60)
    scan = simulate(name, geometry, noise=NoiseLevel(relative=relative), seed=1)
    assert 0.97 < estimate_white_std(scan.sinogram) / scan.noise.std < 1.3


def test_photons_are_found_where_views_are_close():
    """Counts behind the object are down to a seventh of those in air: one number fits both."""
    geometry = scanner(Volume(shape=(32, 32)), views=1500)
    scan = simulate("ellipses", geometry, noise=NoiseLevel(photons=5000), attenuation=0.15)
    assert scan.sinogram.max() > 2
    assert 0.85 < estimate_photons(scan.sinogram) / 5000 < 1.02
    assert estimate_photons(np.ones((5, 3))) is None
    with pytest.raises(ScanError, match="at least 4 views"):
        estimate_photons(np.ones((3, 5)))


@pytest.mark.parametrize("make", [WhiteNoise, PhotonNoise])
@pytest.mark.parametrize("value", [0, -1.0, np.nan, np.inf, "loud"])
def test_impossible_levels_are_refused(make, value):
    field = "std" if make is WhiteNoise else "photons"
    with pytest.raises(ScanError, match="positive"):
        make(**{field: value})


def test_one_kind_of_level_at_a_time():
    for levels in ({}, {"relative": 0.1, "std": 0.1}):
        with pytest.raises(ScanError, match="either"):
            add_white_noise(IDEAL, np.random.default_rng(0), **levels)


def test_photon_noise_alone_leaves_nothing_unexplained():
    noisy, noise = add_photon_noise(IDEAL, np.random.default_rng(0), photons=4096)
    variance = noise.variance(noisy)
    assert unexplained_variance(noisy, variance) < 0.02 * np.median(variance)


@pytest.mark.parametrize("photons", [1e3, 1e4, 1e5])
def test_a_dense_object_before_half_a_detector_of_air_leaves_nothing_unexplained(photons):
    # Noise levels of two kinds of rays: the deviation of all third differences is not that of a typical ray.
    across = np.linspace(-1, 1, 512) / 0.47
    ideal = np.tile(4 * np.sqrt(np.clip(1 - across**2, 0, None)), (60, 1))
    noisy, noise = add_photon_noise(ideal, np.random.default_rng(0), photons=photons)
    variance = noise.variance(noisy)
    # A little is left of the disk's rim.
    assert unexplained_variance(noisy, variance) < 0.1 * np.median(variance)


def test_a_constant_is_settled_once():
    rng = np.random.default_rng(0)
    noisy, noise = add_photon_noise(IDEAL, rng, photons=1e5)
    noisy = noisy + 0.01 * rng.standard_normal(noisy.shape)
    settled = noise.settled(noisy)
    assert settled.constant == pytest.approx(0.01, rel=0.1)
    assert settled.settled(IDEAL) == settled
    assert np.allclose(settled.variance(noisy), noise.variance(noisy) + settled.constant**2)
    with pytest.raises(ScanError, match="constant added to photon noise"):
        PhotonNoise(photons=1e5, constant=-0.01)


def test_an_error_beside_photons_is_found_at_its_size():
    rng = np.random.default_rng(0)
    noisy, noise = add_photon_noise(IDEAL, rng, photons=1e5)
    variance = noise.variance(noisy)
    extra = 3 * np.sqrt(np.median(variance))
    found = unexplained_variance(noisy + extra * rng.standard_normal(noisy.shape), variance)
    assert found == pytest.approx(extra**2, rel=0.1)
