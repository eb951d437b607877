from dataclasses import replace

import numpy as np
import pytest
import torch

from ct_dip.data.noise import PhotonNoise, WhiteNoise
from ct_dip.data.simulate import NoiseLevel, simulate
from ct_dip.errors import ScanError
from ct_dip.geometry import Volume
from ct_dip.operators import ray_transform
from ct_dip.scanners import scanner
from tests.geometries import disk_projection

GEOMETRY = scanner(Volume(shape=(32, 32), pixel_size=2.0), views=15)
FAN = scanner(Volume(shape=(32, 32)), views=15, source_origin=80.0, origin_detector=40.0)


def project(scan):
    transform = ray_transform(scan.geometry)
    return transform(torch.as_tensor(scan.ground_truth.copy())).numpy()


@pytest.mark.parametrize("geometry", [GEOMETRY, FAN], ids=["parallel", "fan"])
def test_the_inverse_crime_is_committed_only_on_request(geometry):
    crime = simulate("walnut", geometry, same_grid=True)
    np.testing.assert_allclose(crime.sinogram, project(crime), rtol=1e-4, atol=1e-5)
    honest = simulate("walnut", geometry)
    mismatch = np.linalg.norm(honest.sinogram - project(honest)) / np.linalg.norm(honest.sinogram)
    assert 0.005 < mismatch < 0.1


def test_a_disk_is_scanned_as_a_disk():
    """Against analytic projections averaged over each bin: right to the discretisation, and no bias."""
    x = np.linspace(-1, 1, 601)
    disk = (np.hypot(x[None, :] - 0.1, x[::-1, None] + 0.2) <= 0.5).astype(float)
    scan = simulate(disk, GEOMETRY, attenuation=0.03)
    fine = GEOMETRY.split_detectors(8)
    exact = 0.03 * disk_projection(fine, (3.2, -6.4), 16.0).reshape(15, -1, 8).mean(axis=-1)
    assert np.linalg.norm(scan.sinogram - exact) < 0.01 * np.linalg.norm(exact)
    assert scan.ground_truth.max() == pytest.approx(0.03)


def test_noise_models_are_recorded():
    white = simulate("ellipses", GEOMETRY, noise=NoiseLevel(relative=0.05))
    clean = simulate("ellipses", GEOMETRY)
    assert clean.noise is None
    assert isinstance(white.noise, WhiteNoise)
    assert white.noise.std == pytest.approx(0.05 * np.abs(clean.sinogram).mean(), rel=1e-5)
    assert (white.sinogram - clean.sinogram).std() == pytest.approx(white.noise.std, rel=0.1)
    counted = simulate("ellipses", GEOMETRY, noise=NoiseLevel(photons=4096))
    assert counted.noise == PhotonNoise(photons=4096)
    error = (counted.sinogram - clean.sinogram) / np.sqrt(counted.variance)
    assert error.std() == pytest.approx(1, rel=0.1)


def test_a_counting_detector_averages_intensities():
    """Where a bin is half behind an edge, −log of the mean intensity is below the mean line integral."""
    sharp = np.zeros((96, 96))
    sharp[24:72, 31:59] = 1
    geometry = replace(GEOMETRY, angles=[0.0])
    counted, averaged = (
        simulate(sharp, geometry, attenuation=0.2, noise=level)
        for level in (NoiseLevel(photons=1e12), NoiseLevel())
    )
    difference = averaged.sinogram - counted.sinogram
    assert difference.max() > 0.5
    assert np.sum(np.abs(difference) > 0.01) == 2  # the two edges


def test_other_proportions_are_refused():
    with pytest.raises(ScanError, match="proportions"):
        simulate(np.ones((20, 40)), GEOMETRY)


def test_seeds_decide_everything():
    level = NoiseLevel(relative=0.05)
    first, again, other = (simulate("ellipses", GEOMETRY, noise=level, seed=s) for s in (4, 4, 5))
    assert first.digest == again.digest
    assert first.digest != other.digest
    # The noise is not a function of the object's randomness: the same seed, another phantom.
    clean = simulate("ellipses", GEOMETRY, seed=4)
    wall, wall_clean = (simulate("walnut", GEOMETRY, noise=n, seed=4) for n in (level, NoiseLevel()))
    ours = (first.sinogram - clean.sinogram) / first.noise.std
    theirs = (wall.sinogram - wall_clean.sinogram) / wall.noise.std
    np.testing.assert_allclose(ours, theirs, atol=1e-3)


def test_an_object_beyond_the_detector_is_refused_unless_wanted():
    narrow = replace(GEOMETRY, detectors=9)
    with pytest.raises(ScanError, match=r"misses part of the object.*--allow-truncation"):
        simulate("walnut", narrow)
    assert simulate("walnut", narrow, allow_truncation=True).sinogram.shape == (15, 9)


def test_one_kind_of_noise():
    with pytest.raises(ScanError, match="one kind"):
        NoiseLevel(relative=0.1, photons=100)
