"""Slips that people make when they state a geometry, each with the reading that would be right then.

What to do instead is said in options of ``ct-dip import``; those of `ct_dip.import_scan` have the same names.
"""

import math
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace

import numpy as np

from ct_dip.arrays import Floats
from ct_dip.errors import GeometryError
from ct_dip.geometry import FanBeam, Geometry, ParallelBeam, Volume
from ct_dip.preprocess.consistency import goes_round

# Factors of inconsistent energy by which a reading must be better than the stated one. Against right
# geometries, readings were 1.1 times as bad at least (a disk with four holes, HTC 01a), mostly ten times.
CLEAR = 2.5
FULL_TURN_CLEAR = 1.5  # a full turn obeys more conditions than a half
TINY_ARC_CLEAR = 1.1  # nobody scans an arc of a few degrees
# Right arcs other than 180° and 360°, read as either: of 864 seeded readings (nine objects with drift,
# stripes, beam hardening or a wobbling axis), the largest factor was 1.02 if stretched. Squeezed to half a
# turn, where fewer conditions are left, a centred disk had 1.1 from 200° and 1.7 from 320°: that limit grows
# with the arc.
SHORT_ARC_CLEAR = 1.05
_SAME_ARC = 0.05  # relative: an arc with or without its last step
# Half of the angle of a fan whose distances nobody has stated, rad: one of them is near enough. Of seven
# objects at 2 and 5 % noise, fans had factors of 1.9 to 43, parallel beams of 1.0 at most.
_FANS = (0.05, 0.1, 0.2, 0.35)
_TINY_ARC = 0.12  # rad; a full turn in radians, read as degrees


@dataclass(frozen=True)
class Reading:
    """A sinogram with the geometry that it may have, what was stated wrongly then, and what to state."""

    sinogram: Floats
    geometry: Geometry
    slip: str
    fix: str
    clear: float = CLEAR


def likely_slips(sinogram: Floats, geometry: Geometry) -> Iterator[Reading]:
    """Yield the readings that are worth comparing with the stated geometry."""
    yield from _angle_slips(sinogram, geometry)
    yield from _transposed(sinogram, geometry)
    if isinstance(geometry, FanBeam):
        yield from _fan_slips(sinogram, geometry)
    elif goes_round(geometry):
        yield from _forgotten_fans(sinogram, geometry)


def reversed_views(geometry: Geometry) -> Geometry:
    """Return the same views in the other direction."""
    return replace(geometry, angles=np.mod(-geometry.angles, 2 * math.pi))


def _direction(geometry: Geometry) -> int:
    """1 for views that are counted counter-clockwise, −1 otherwise."""
    return 1 if np.median(np.diff(geometry.angles)) >= 0 else -1


def _arc(geometry: Geometry) -> float:
    return float(np.ptp(geometry.angles)) * geometry.views / (geometry.views - 1)


def _angle_slips(sinogram: Floats, geometry: Geometry) -> Iterator[Reading]:
    """Angles that are too large for radians are refused by the geometry itself."""
    arc = _arc(geometry)
    half, full = (math.isclose(arc, turn, rel_tol=_SAME_ARC) for turn in (math.pi, 2 * math.pi))
    if 0 < arc < _TINY_ARC:
        looks, fix = "look like radians that were taken for degrees", "Drop --degrees, or use --arc DEGREES."
        yield _turned(sinogram, geometry, 180 / math.pi * arc, looks, fix, TINY_ARC_CLEAR)
    elif full or half or 0 < arc < 2 * math.pi:
        sign = "-" if _direction(geometry) < 0 else ""
        if not half:
            clear = max(SHORT_ARC_CLEAR, 1 + (CLEAR - 1) * (min(arc, 2 * math.pi) / math.pi - 1))
            turn, looks = arc / 2 if full else math.pi, "the views look like half a turn"
            yield _turned(sinogram, geometry, turn, looks, f"Use --arc {sign}180.", clear)
        if not full:
            turn, looks = 2 * arc if half else 2 * math.pi, "the views look like a full turn"
            yield _turned(sinogram, geometry, turn, looks, f"Use --arc {sign}360.", FULL_TURN_CLEAR)


def _turned(sinogram: Floats, geometry: Geometry, arc: float, looks: str, fix: str, clear: float) -> Reading:
    """Read the same views as evenly stretched over another arc, in radians."""
    start, stated = float(geometry.angles.min()), _arc(geometry)
    angles = np.mod(start + (geometry.angles - start) * (arc / stated), 2 * math.pi)
    slip = f"angles cover {math.degrees(stated):.3g}°, but {looks}"
    return Reading(sinogram, replace(geometry, angles=angles), slip, fix, clear)


def _transposed(sinogram: Floats, geometry: Geometry) -> Iterator[Reading]:
    views, detectors = geometry.range_shape
    angles = float(geometry.angles.min()) + _arc(geometry) * np.arange(detectors) / detectors
    try:
        swapped = replace(
            geometry, angles=angles, detectors=views, detector_offset=geometry.center_of_rotation
        )
    except GeometryError:  # so few bins that the object is missed
        return
    slip = f"The sinogram has {views} views of {detectors} detectors, but looks transposed"
    yield Reading(sinogram.T, swapped, slip, "Transpose it (--transpose).")


def _fan_slips(sinogram: Floats, geometry: FanBeam) -> Iterator[Reading]:
    arc = -_direction(geometry) * round(math.degrees(_arc(geometry)), 3)
    yield Reading(
        sinogram,
        reversed_views(geometry),
        "angles grow counter-clockwise, but the views look clockwise, or the detector is mirrored",
        f"Change the sign of the angles (--arc {arc:g}), or reverse the detectors.",
    )
    source, detector = geometry.source_origin, geometry.origin_detector
    if detector > source:
        yield Reading(
            sinogram,
            replace(geometry, origin_detector=detector - source),
            f"origin_detector is {detector:g} mm, but looks like the distance from source to detector",
            f"Use --origin-detector {detector - source:g}.",
        )
    parallel = ParallelBeam(
        volume=geometry.volume,
        angles=geometry.angles,
        detectors=geometry.detectors,
        detector_pitch=geometry.origin_pitch,
        detector_offset=geometry.detector_offset / geometry.magnification,
        center_of_rotation=geometry.center_of_rotation,
    )
    slip = f"source_origin is {source:g} mm, but the rays look parallel"
    yield Reading(sinogram, parallel, slip, "Import a parallel beam, or check the distances.")


def _forgotten_fans(sinogram: Floats, geometry: ParallelBeam) -> Iterator[Reading]:
    """With the detector at the axis: how far it is away is only a matter of scale."""
    half = geometry.detectors * geometry.detector_pitch / 2
    for angle in _FANS:
        with suppress(GeometryError):  # the detector is far from the axis
            fan = FanBeam(
                volume=Volume(shape=(1, 1), pixel_size=half),
                angles=geometry.angles,
                detectors=geometry.detectors,
                detector_pitch=geometry.detector_pitch,
                detector_offset=geometry.detector_offset - geometry.center_of_rotation,
                source_origin=half / math.tan(angle),
                origin_detector=0.0,
            )
            slip = "The beam is stated as parallel, but the rays look like a fan"
            fix = "State --source-origin and --origin-detector."
            yield Reading(sinogram, fan, slip, fix, FULL_TURN_CLEAR)
