"""Moments of views: trigonometric polynomials for every object, anything else for a wrong geometry."""

import math
from dataclasses import replace

import numpy as np
import pytest

from ct_dip.errors import ScanError
from ct_dip.geometry import FanBeam, ParallelBeam, Volume
from ct_dip.preprocess.consistency import ViewPolynomials, goes_round, inconsistency
from ct_dip.scanners import scanner, view_angles

VOLUME = Volume(shape=(64, 64))
DISKS = [(9.0, 4.0, 11.0, 1.0), (-8.0, 7.0, 6.0, 0.5), (2.0, -14.0, 3.0, -0.4)]  # x, y, radius, value
PARALLEL = scanner(VOLUME, views=50, detector_offset=1.7, detectors=160, detector_pitch=0.5)
FAN = scanner(
    VOLUME, views=150, detector_offset=1.7, detectors=160, source_origin=130.0, origin_detector=70.0
)
LISTS = {
    "half turn": PARALLEL,
    "full turn": replace(PARALLEL, angles=view_angles(50, 2 * math.pi)),
    "irregular": replace(PARALLEL, angles=np.random.default_rng(0).uniform(0, 2 * math.pi, 50)),
    "arc": replace(PARALLEL, angles=view_angles(50, math.radians(100), start=0.4)),
    "fan": FAN,
    "fan, clockwise": replace(FAN, angles=-FAN.angles + 0.3),
    "fan, axis aside": replace(FAN, center_of_rotation=2.5),
}


def exact_sinogram(geometry):
    """Mean chord lengths of disks, with eight rays to a bin: smooth enough for every order below."""
    fine = geometry.split_detectors(8)
    distances = fine.axis_distances(fine.detector_positions)[None, :]
    theta = geometry.angles[:, None] * np.ones_like(distances)
    if isinstance(geometry, FanBeam):
        theta = theta - np.arctan(
            fine.detector_positions / (geometry.source_origin + geometry.origin_detector)
        )
    sinogram = np.zeros(theta.shape)
    for x, y, radius, value in DISKS:
        aside = distances - x * np.cos(theta) - y * np.sin(theta)
        sinogram += value * 2 * np.sqrt(np.maximum(radius**2 - aside**2, 0))
    return sinogram.reshape(*geometry.range_shape, 8).mean(axis=-1)


def share(sinogram, geometry, orders=12):
    """Inconsistent part relative to the sinogram."""
    polynomials = ViewPolynomials(geometry.angles, orders)
    left = inconsistency(sinogram, geometry, polynomials).residuals
    return np.linalg.norm(left) / np.linalg.norm(sinogram)


@pytest.mark.parametrize("name", LISTS)
def test_sinograms_of_objects_are_consistent_and_those_of_a_shifted_detector_are_not(name):
    geometry = LISTS[name]
    sinogram = exact_sinogram(geometry)
    right = share(sinogram, geometry)
    shifted = replace(geometry, detector_offset=geometry.detector_offset + 2.0)
    assert right < 5e-4  # quadrature over bins
    assert share(sinogram, shifted) > 6 * right


def test_the_projection_of_rays_is_that_of_the_package():
    """The disks' sinogram and the ray transform agree, which fixes the signs of the fan's coordinates."""
    import torch

    from ct_dip.operators import ray_transform

    geometry = FAN.with_volume(Volume(shape=(256, 256), pixel_size=0.25))
    x, y = geometry.volume.pixel_centers()
    image = sum(v * (np.hypot(x - cx, y[:, None] - cy) < r) for cx, cy, r, v in DISKS)
    projected = ray_transform(geometry, "astra")(torch.as_tensor(image, dtype=torch.float32)).numpy()
    error = projected - exact_sinogram(FAN)
    assert np.sqrt(np.mean(error**2)) < 0.02 * exact_sinogram(FAN).max()


@pytest.mark.parametrize("name", LISTS)
def test_white_noise_is_white_in_the_residuals(name):
    geometry, rng = LISTS[name], np.random.default_rng(1)
    polynomials = ViewPolynomials(geometry.angles, 20)
    found = inconsistency(rng.standard_normal(geometry.range_shape), geometry, polynomials)
    freedom = found.freedom.sum()
    # Functionals of one parity overlap a little on a detector that is not centred: three standard errors.
    assert np.sum(found.residuals**2) / freedom == pytest.approx(1, abs=3 * math.sqrt(2 / freedom))
    assert found.freedom[3] == geometry.views - 4


def test_a_fan_that_does_not_go_round_cannot_be_compared():
    geometry = replace(FAN, angles=view_angles(150, 4.0))
    assert goes_round(FAN)
    assert not goes_round(geometry)
    with pytest.raises(ScanError, match="go round"):
        inconsistency(np.zeros(geometry.range_shape), geometry, ViewPolynomials(geometry.angles, 2))


def test_views_in_another_order_change_nothing():
    order = np.random.default_rng(2).permutation(FAN.views)
    sinogram = exact_sinogram(FAN) + np.random.default_rng(3).standard_normal(FAN.range_shape)
    shuffled = share(sinogram[order], FAN.select_views(order))
    assert shuffled == pytest.approx(share(sinogram, FAN), rel=1e-9)


def test_parallel_is_the_limit_of_a_distant_source():
    far = FanBeam(**{**vars(LISTS["full turn"]), "source_origin": 1e7, "origin_detector": 0.0})
    assert isinstance(LISTS["full turn"], ParallelBeam)
    sinogram = exact_sinogram(far)
    assert share(sinogram, far) == pytest.approx(share(sinogram, LISTS["full turn"]), rel=1e-3)
