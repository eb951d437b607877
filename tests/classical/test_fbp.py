"""Filtered back-projection recovers disks from every kind of scan, and agrees with ASTRA."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from ct_dip.classical.fbp import fbp
from ct_dip.classical.filters import FILTERS, ramp_response
from ct_dip.classical.redundancy import fan_redundancy, view_weights
from ct_dip.errors import InputError
from ct_dip.geometry import ParallelBeam, Volume
from ct_dip.operators.assembly import make_projector
from ct_dip.scanners import scanner, view_angles
from tests.geometries import disk_projection

VOLUME = Volume(shape=(96, 96), pixel_size=0.5)
CENTER, RADIUS, VALUE = (5.0, -8.0), 11.0, 0.02
PARALLEL = scanner(VOLUME, views=240)
FAN = scanner(VOLUME, views=480, source_origin=90.0, origin_detector=60.0)


def arc(geometry, degrees):
    return replace(geometry, angles=view_angles(geometry.views, math.radians(degrees)))


SCANS = {
    "parallel": PARALLEL,
    "parallel, full circle": arc(PARALLEL, 360),
    "parallel, 230°": arc(PARALLEL, 230),
    "parallel, random views": replace(
        PARALLEL, angles=np.random.default_rng(0).uniform(-math.pi, math.pi, 480)
    ),
    "parallel, shifted": replace(PARALLEL, detector_offset=1.7, center_of_rotation=-1.1),
    "fan": FAN,
    "fan, clockwise": replace(FAN, angles=-FAN.angles),
    "fan, 300°": arc(FAN, 300),
    "fan, 230°": arc(FAN, 230),
    "fan, shifted": replace(FAN, detector_offset=2.0, center_of_rotation=4.0),
    "parallel, one-sided detector, full turn": replace(
        arc(PARALLEL, 360), detectors=81, detector_pitch=0.5, detector_offset=15.0
    ),
    "fan, one-sided detector, full turn": replace(FAN, detectors=81, detector_offset=25.0),
    "fan, 270°, axis off centre": replace(arc(FAN, 270), center_of_rotation=-4.0),
}


@pytest.mark.parametrize("geometry", [PARALLEL, FAN], ids=["parallel", "fan"])
def test_a_view_that_is_measured_twelve_times_counts_as_one(geometry):
    one = replace(geometry, angles=[0.3])
    sinogram = torch.as_tensor(VALUE * disk_projection(one, CENTER, RADIUS))
    expected = fbp(sinogram, one)
    assert float(expected.max()) > VALUE
    torch.testing.assert_close(fbp(sinogram.tile(12, 1), replace(geometry, angles=[0.3] * 12)), expected)


def test_repeated_views_share_the_weight_of_one():
    """Also across the end of the circle, where rounding puts some of them just below a turn."""
    once = view_weights(np.array([0.0, 1.0, 2.5]), math.pi).weights
    twice = view_weights(np.array([0.0, 1.0, 2.5, 1.0, -1e-12, math.pi]), math.pi).weights
    np.testing.assert_allclose(twice[[0, 1, 2]], once / [3, 2, 1], rtol=1e-9)
    np.testing.assert_allclose(twice[[3, 4, 5]], once[[1, 0, 0]] / [2, 3, 3], rtol=1e-9)
    assert twice.sum() == pytest.approx(math.pi)


@pytest.mark.parametrize("geometry", SCANS.values(), ids=SCANS.keys())
def test_a_disk_comes_back_with_its_value(geometry):
    sinogram = torch.as_tensor(VALUE * disk_projection(geometry, CENTER, RADIUS))
    image = fbp(sinogram, geometry).numpy()
    x, y = VOLUME.pixel_centers()
    distance = np.hypot(x[None, :] - CENTER[0], y[:, None] - CENTER[1])
    inside = distance < 0.85 * RADIUS
    outside = (distance > 1.2 * RADIUS) & (np.hypot(x[None, :], y[:, None]) < 22)
    assert image[inside].mean() == pytest.approx(VALUE, rel=2e-3)
    assert abs(image[outside].mean()) < 2e-3 * VALUE
    assert image[inside].std() < 0.03 * VALUE
    assert image[outside].std() < 0.03 * VALUE


def test_agrees_with_astra_where_astra_can():
    import astra

    volume = Volume(shape=(96, 96))
    geometry = scanner(volume, views=90)
    sinogram = disk_projection(geometry, (10.0, -16.0), 22.0).astype(np.float32)
    projector = make_projector(geometry, "linear")
    numbers = []
    try:
        numbers.append(astra.data2d.create("-sino", astra.projector.projection_geometry(projector), sinogram))
        numbers.append(astra.data2d.create("-vol", astra.projector.volume_geometry(projector)))
        config = astra.astra_dict("FBP")
        config |= {
            "ProjectorId": projector,
            "ProjectionDataId": numbers[0],
            "ReconstructionDataId": numbers[1],
            "option": {"FilterType": "ram-lak"},
        }
        algorithm = astra.algorithm.create(config)
        astra.algorithm.run(algorithm)
        astra.algorithm.delete(algorithm)
        theirs = astra.data2d.get(numbers[1])
    finally:
        astra.data2d.delete(numbers)
        astra.projector.delete(projector)
    ours = fbp(torch.as_tensor(sinogram), geometry).numpy()
    assert np.linalg.norm(ours - theirs) < 0.03 * np.linalg.norm(theirs)


@pytest.mark.parametrize("name", FILTERS)
def test_filters_keep_the_mean_and_smooth_the_noise(name):
    geometry = PARALLEL
    rng = np.random.default_rng(0)
    clean = VALUE * disk_projection(geometry, CENTER, RADIUS)
    noise = rng.standard_normal(clean.shape)
    x, y = VOLUME.pixel_centers()
    inside = np.hypot(x[None, :] - CENTER[0], y[:, None] - CENTER[1]) < 0.8 * RADIUS
    image = fbp(torch.as_tensor(clean), geometry, filter=name).numpy()
    assert image[inside].mean() == pytest.approx(VALUE, rel=5e-3)
    grain = fbp(torch.as_tensor(noise), geometry, filter=name).numpy().std()
    sharpest = fbp(torch.as_tensor(noise), geometry, filter="ram-lak").numpy().std()
    assert grain <= sharpest
    if name == "hann":
        assert grain < 0.5 * sharpest


def test_the_ramp_is_a_ramp():
    response = ramp_response(512, 0.5, "ram-lak")
    frequency = np.fft.rfftfreq(512, d=0.5)
    np.testing.assert_allclose(response[5:], frequency[5:], rtol=0.02)
    half = ramp_response(512, 0.5, "hann", cutoff=0.5)
    assert not half[frequency > 0.5 + 1e-9].any()


@pytest.mark.parametrize("options", [{"filter": "butterworth"}, {"cutoff": 0.0}, {"cutoff": 1.5}])
def test_unknown_filters_are_refused(options):
    with pytest.raises(InputError):
        fbp(torch.zeros(PARALLEL.range_shape), PARALLEL, **options)


def test_view_weights_integrate_over_the_measured_arc():
    uniform = view_weights(view_angles(12), math.pi)
    np.testing.assert_allclose(uniform.weights, math.pi / 12)
    twice = view_weights(np.tile(view_angles(12), 2), math.pi)
    assert twice.weights.sum() == pytest.approx(math.pi)
    random = view_weights(np.random.default_rng(1).uniform(0, math.pi, 200), math.pi)
    assert random.weights.sum() == pytest.approx(math.pi)
    clustered = np.r_[np.linspace(0, 0.1, 500), np.linspace(0.4, 3.1, 12)]
    assert view_weights(clustered, math.pi).weights.sum() == pytest.approx(math.pi)
    limited = view_weights(view_angles(90, math.radians(90)), math.pi)
    np.testing.assert_allclose(limited.weights, math.radians(1))
    assert limited.arc == pytest.approx(math.radians(90))
    assert view_weights(np.array([0.3]), math.pi).weights == pytest.approx([math.pi])


def test_view_weights_of_mirrored_views_are_the_same():
    angles = np.random.default_rng(2).uniform(0, math.pi, 40)
    forward, backward = (view_weights(sign * angles, math.pi).weights for sign in (1, -1))
    np.testing.assert_allclose(forward, backward)
    assert np.ptp(forward) > 0.01  # views are spaced unevenly


@pytest.mark.parametrize("first", [0.0, 1.0, 5.0])
def test_a_measured_arc_is_centred_on_its_views(first):
    angles = first + view_angles(30, 2.0)
    found = view_weights(angles, 2 * math.pi)
    off = found.start + found.arc / 2 - (angles[0] + angles[-1]) / 2
    assert math.remainder(off, 2 * math.pi) == pytest.approx(0, abs=1e-9)
    assert found.arc == pytest.approx(2.0)


def test_every_line_of_a_fan_counts_once():
    """Shares of a ray and of its partner, at the angle where the fan sees it again, add up to one."""
    geometry = arc(FAN, 300)
    views = view_weights(geometry.angles, 2 * math.pi)
    share = fan_redundancy(geometry, views.start, views.arc)
    gamma = np.arctan2(geometry.detector_positions, 150.0)
    partner = np.mod(geometry.angles[:, None] + math.pi - 2 * gamma, 2 * math.pi)
    step = geometry.angles[1] - geometry.angles[0]
    view = np.round(partner / step).astype(int)
    seen = (view < geometry.views) & (np.abs(partner / step - view) < 0.02)
    mirrored = np.arange(geometry.detectors)[::-1][None, :].repeat(geometry.views, axis=0)
    both = share[seen] + share[view[seen], mirrored[seen]]
    assert seen.sum() > 100
    np.testing.assert_allclose(both, 1, atol=0.01)
    lonely = (partner > views.arc + views.start + 0.02) & (partner < 2 * math.pi - 0.02)
    np.testing.assert_allclose(share[lonely], 1)


def test_nothing_is_smeared_beyond_the_detector():
    """A pixel that no ray of a view comes near gets nothing from that view."""
    geometry = ParallelBeam(volume=Volume(shape=(40, 40)), angles=[0.0], detectors=11)
    image = fbp(torch.ones(geometry.range_shape), geometry)
    x, _ = geometry.volume.pixel_centers()
    assert not image[:, np.abs(x) > 6.1].any()
    assert image[:, np.abs(x) < 1].all()


def test_one_view_and_one_bin_are_enough_to_run():
    geometry = ParallelBeam(volume=Volume(shape=(3, 3)), angles=[0.0], detectors=1)
    assert torch.isfinite(fbp(torch.ones(1, 1), geometry)).all()
