"""Geometries: what they refuse, what they keep, and where their rays go."""

import math
from dataclasses import FrozenInstanceError, replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ct_dip.errors import GeometryError
from ct_dip.geometry import FanBeam, ParallelBeam, Volume, geometry_from_dict
from ct_dip.scanners import scanner, view_angles
from tests import geometries
from tests.geometries import FAN, PARALLEL, VOLUME, ray_lines

lengths = st.floats(0.05, 50.0)
every_geometry = pytest.mark.parametrize("geometry", geometries.ALL.values(), ids=geometries.ALL.keys())


@st.composite
def any_geometry(draw):
    volume = Volume(shape=(draw(st.integers(1, 40)), draw(st.integers(1, 40))), pixel_size=draw(lengths))
    pitch = draw(lengths)
    common = {
        "volume": volume,
        "angles": draw(st.lists(st.floats(-3, 3), min_size=1, max_size=9)),
        "detectors": draw(st.integers(1, 60)),
        "detector_pitch": pitch,
        "detector_offset": draw(st.floats(-0.4, 0.4)) * volume.radius,
        "center_of_rotation": draw(st.floats(-0.4, 0.4)) * volume.radius,
    }
    if draw(st.booleans()):
        return ParallelBeam(**common)
    source = volume.radius * draw(st.floats(1.5, 10))
    return FanBeam(**common, source_origin=source, origin_detector=source * draw(st.floats(0, 3)))


@given(any_geometry())
def test_a_geometry_survives_its_dictionary(geometry):
    again = geometry_from_dict(geometry.to_dict())
    assert again == geometry
    assert hash(again) == hash(geometry)
    assert type(again) is type(geometry)


@given(any_geometry(), st.sampled_from(["detector_pitch", "detector_offset", "center_of_rotation"]))
def test_every_field_is_part_of_the_identity(geometry, name):
    changed = replace(geometry, **{name: getattr(geometry, name) * 1.01 + 1e-6})
    assert changed != geometry
    assert changed.digest != geometry.digest


@given(any_geometry())
def test_axis_distances_are_those_of_the_rays(geometry):
    points, directions = ray_lines(geometry)
    cross = points[..., 0] * directions[..., 1] - points[..., 1] * directions[..., 0]
    expected = geometry.axis_distances(geometry.detector_positions)
    scale = geometry.volume.radius + np.abs(expected).max()
    np.testing.assert_allclose(cross, np.tile(expected, (geometry.views, 1)), atol=1e-9 * scale)


@every_geometry
def test_geometries_are_frozen_and_take_keywords_only(geometry):
    with pytest.raises(FrozenInstanceError):
        geometry.detectors = 3
    with pytest.raises(ValueError, match="read-only"):
        geometry.angles[0] = 1
    with pytest.raises(TypeError):
        ParallelBeam(VOLUME, [0.0], 3)


@every_geometry
def test_binning_keeps_the_detector_in_place(geometry):
    odd = replace(geometry, detectors=24)
    binned = odd.bin_detectors(4)
    assert binned.detectors == 6
    assert binned.reach == pytest.approx(odd.reach)
    groups = odd.detector_positions.reshape(6, 4).mean(axis=1)
    np.testing.assert_allclose(binned.detector_positions, groups, atol=1e-12)
    assert binned.split_detectors(4).detector_positions == pytest.approx(odd.detector_positions)
    with pytest.raises(GeometryError, match="divisor of 24"):
        odd.bin_detectors(5)


@every_geometry
def test_views_are_selected_by_slice_list_or_mask(geometry):
    expected = geometry.angles[[1, 3]]
    mask = np.array([False, True, False, True, False])
    for index in (slice(1, None, 2), [1, 3], np.array([1, 3]), mask):
        assert np.array_equal(geometry.select_views(index).angles, expected)
    for wrong in ([7], [-6], mask[:3], [], slice(5, 9), [0.5], ["a"]):
        with pytest.raises(GeometryError):
            geometry.select_views(wrong)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"angles": np.arange(0, 180, 1.5)}, "degrees"),
        ({"angles": np.arange(0, 10, 0.5)}, "degrees"),
        ({"angles": [1j]}, "list of numbers"),
        ({"angles": []}, "one or more views"),
        ({"angles": [0.0, math.nan]}, r"angles\[1\] is nan"),
        ({"angles": [[0.0]]}, "shape"),
        ({"angles": "all of them"}, "list of numbers"),
        ({"detectors": 0}, "detectors"),
        ({"detectors": 2.5}, "detectors"),
        ({"detectors": True}, "detectors"),
        ({"detectors": 10**10}, "at most 1,000,000"),
        ({"detector_pitch": 1e-300}, "from 1e-06"),
        ({"detector_pitch": 0}, "detector_pitch"),
        ({"detector_pitch": -1.0}, "detector_pitch"),
        ({"detector_pitch": "wide"}, "detector_pitch"),
        ({"detector_offset": math.inf}, "detector_offset"),
        ({"detector_offset": 400.0}, "misses the object"),
        ({"center_of_rotation": -400.0}, "misses the object"),
        ({"volume": (13, 17)}, "Volume"),
    ],
)
@pytest.mark.parametrize("geometry", [PARALLEL, FAN], ids=["parallel", "fan"])
def test_nonsense_is_refused_by_name(geometry, change, words):
    with pytest.raises(GeometryError, match=words):
        replace(geometry, **change)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"source_origin": 3.0}, "inside the volume"),
        ({"source_origin": -30.0}, "source_origin"),
        ({"origin_detector": -1.0}, "negative"),
    ],
)
def test_impossible_fans_are_refused(change, words):
    with pytest.raises(GeometryError, match=words):
        replace(FAN, **change)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"shape": (4, 4), "pixel_size": (1.0, 2.0)}, "square"),
        ({"shape": (4, 4), "pixel_size": 0.0}, "pixel_size"),
        ({"shape": (4, 0)}, "shape"),
        ({"shape": (4,)}, "rows, columns"),
        ({"shape": 5}, "rows, columns"),
        ({"shape": (4, 4, 4)}, "rows, columns"),
    ],
)
def test_impossible_volumes_are_refused(options, words):
    with pytest.raises(GeometryError, match=words):
        Volume(**options)


def test_dictionaries_that_are_not_geometries_are_refused():
    good = FAN.to_dict()
    for wrong, words in [
        (good | {"kind": "helix"}, "helix"),
        ({k: v for k, v in good.items() if k != "pixel_size"}, "pixel_size"),
        (good | {"colour": 3}, "colour"),
        ({k: v for k, v in good.items() if k != "source_origin"}, "source_origin"),
    ]:
        with pytest.raises(GeometryError, match=words):
            geometry_from_dict(wrong)


@given(st.integers(2, 300), lengths, st.one_of(st.none(), st.tuples(st.floats(1.2, 9), st.floats(0, 3))))
def test_the_default_scanner_sees_every_pixel(size, pixel, beam):
    volume = Volume(shape=(size, size), pixel_size=pixel)
    distances = {}
    if beam is not None:
        source = volume.radius * beam[0]
        distances = {"source_origin": source, "origin_detector": source * beam[1]}
    geometry = scanner(volume, views=7, **distances)
    assert geometry.field_of_view >= volume.radius * (1 - 1e-9)
    assert geometry.detectors % 2 == 1
    assert geometry.origin_pitch == pytest.approx(pixel)
    arc = 2 * math.pi if beam else math.pi
    assert geometry.angles == pytest.approx(np.arange(7) * arc / 7)


@pytest.mark.parametrize("offset", [-2.0, 0.0, 2.0])
@pytest.mark.parametrize("turns", [0.5, 1.0])
def test_the_field_of_view_is_where_every_line_is_measured(turns, offset):
    """By a view, wherever the turn begins; on a full turn by the opposite view otherwise."""
    volume = Volume(shape=(9, 14), pixel_size=0.97)
    geometry = ParallelBeam(
        volume=volume, angles=view_angles(90, turns * 2 * math.pi), detectors=9, detector_offset=offset
    )
    low, high = geometry.reach
    x, y = volume.pixel_centers()
    angle = view_angles(720, 2 * math.pi)[:, None, None]
    place = x * np.cos(angle) + y[:, None] * np.sin(angle)  # on the detector, (angles, rows, columns)
    measured = (low <= place) & (place <= high)
    if turns == 1:
        measured |= np.roll(measured, 360, axis=0)
    np.testing.assert_array_equal(geometry.field_of_view_mask(), measured.all(axis=0))


def test_without_a_field_of_view_every_pixel_counts():
    volume = Volume(shape=(4, 6))
    beside = ParallelBeam(volume=volume, angles=view_angles(9), detectors=2, detector_offset=2.0)
    assert beside.field_of_view == 0
    assert beside.field_of_view_mask().all()


def test_the_default_scanner_refuses_half_a_fan():
    with pytest.raises(GeometryError, match="both"):
        scanner(VOLUME, views=3, source_origin=100.0)
    with pytest.raises(GeometryError, match="inside"):
        scanner(VOLUME, views=3, source_origin=1.0, origin_detector=1.0)


@pytest.mark.parametrize(("views", "arc"), [(0, 1.0), (3, 0.0), (3, math.nan)])
def test_impossible_views_are_refused(views, arc):
    with pytest.raises(GeometryError):
        view_angles(views, arc)


def test_degrees_for_radians_are_named():
    with pytest.raises(
        GeometryError, match=r"arc 180 is more than a turn; it is in radians, write math\.radians"
    ):
        scanner(VOLUME, 40, arc=180)


def test_pixels_are_where_the_picture_shows_them():
    x, y = Volume(shape=(2, 3), pixel_size=2.0).pixel_centers()
    assert x.tolist() == [-2, 0, 2]
    assert y.tolist() == [1, -1]  # first row on top
