"""Slips that people make when they state a geometry, each with the reading that would be right then."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from ct_dip.arrays import Floats
from ct_dip.errors import GeometryError
from ct_dip.geometry import FanBeam, Geometry, ParallelBeam

# Factors of inconsistent energy by which a reading must be better than the stated one. Against right
# geometries, readings were 1.1 times as bad at least (a disk with four holes, HTC 01a), mostly ten times.
CLEAR = 2.5
FULL_TURN_CLEAR = 1.5  # a full turn obeys more conditions than a half
TINY_ARC_CLEAR = 1.1  # nobody scans an arc of a few degrees
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


def reversed_views(geometry: Geometry) -> Geometry:
    """Return the same views in the other direction."""
    return replace(geometry, angles=np.mod(-geometry.angles, 2 * math.pi))


def _arc(geometry: Geometry) -> float:
    return float(np.ptp(geometry.angles)) * geometry.views / (geometry.views - 1)


def _angle_slips(sinogram: Floats, geometry: Geometry) -> Iterator[Reading]:
    """Angles that are too large for radians are refused by the geometry itself."""
    arc, start = _arc(geometry), float(geometry.angles.min())
    if 0 < arc < _TINY_ARC:
        factor, looks, fix = 180 / math.pi, "look like radians that were taken for degrees", "radians"
        clear = TINY_ARC_CLEAR
    elif math.isclose(arc, 2 * math.pi, rel_tol=0.05):
        factor, looks, fix, clear = 0.5, "the views look like half a turn", "an arc of 180°", CLEAR
    elif math.isclose(arc, math.pi, rel_tol=0.05):
        factor, looks, fix, clear = 2.0, "the views look like a full turn", "an arc of 360°", FULL_TURN_CLEAR
    else:
        return
    angles = np.mod(start + (geometry.angles - start) * factor, 2 * math.pi)
    slip = f"angles cover {math.degrees(arc):.3g}°, but {looks}"
    yield Reading(sinogram, replace(geometry, angles=angles), slip, f"State {fix}.", clear)


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
    yield Reading(sinogram.T, swapped, slip, "Transpose it.")


def _fan_slips(sinogram: Floats, geometry: FanBeam) -> Iterator[Reading]:
    yield Reading(
        sinogram,
        reversed_views(geometry),
        "angles grow counter-clockwise, but the views look clockwise, or the detector is mirrored",
        "Change the sign of the angles, or reverse the detectors.",
    )
    source, detector = geometry.source_origin, geometry.origin_detector
    if detector > source:
        yield Reading(
            sinogram,
            replace(geometry, origin_detector=detector - source),
            f"origin_detector is {detector:g} mm, but looks like the distance from source to detector",
            f"State {detector - source:g} mm.",
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
    yield Reading(sinogram, parallel, slip, "State a parallel beam, or check the distances.")
