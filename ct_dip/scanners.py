"""Make plausible scanners for a grid: views, detectors and distances."""

import math

import numpy as np

from ct_dip.arrays import Floats
from ct_dip.checks import check_count, check_positive, check_type
from ct_dip.errors import GeometryError
from ct_dip.geometry import FanBeam, Geometry, ParallelBeam, Volume


def view_angles(views: int, arc: float = math.pi, start: float = 0.0) -> Floats:
    """Return ``views`` equally spaced angles over [start, start + arc), the end not included."""
    if not math.isfinite(arc) or arc == 0:
        raise GeometryError(f"arc {arc} must be a finite angle other than 0, in radians")
    if abs(arc) > 2 * math.pi * (1 + 1e-6):
        raise GeometryError(
            f"arc {arc:g} is more than a turn; it is in radians, write math.radians({arc:g}) for degrees"
        )
    return start + arc * np.arange(check_count(views, "views")) / views


def scanner(
    volume: Volume,
    views: int,
    *,
    arc: float | None = None,
    detectors: int | None = None,
    detector_pitch: float | None = None,
    detector_offset: float = 0.0,
    source_origin: float | None = None,
    origin_detector: float | None = None,
) -> Geometry:
    """Make a plausible scanner for a grid: a fan beam if its two distances are given, parallel otherwise.

    Args:
        arc: that the equally spaced views cover, rad; π, or 2π for a fan, if not given.
        detectors: enough to see the circle around the whole grid if not given, and an odd number, so
            that one bin looks through the centre.
        detector_pitch: one pixel at the rotation axis if not given, mm.
    """
    check_type(volume, Volume, "volume", "a Volume, for example Volume(shape=(28, 28))")
    if (source_origin is None) != (origin_detector is None):
        raise GeometryError("a fan beam needs both distances in mm, source_origin and origin_detector")
    if source_origin is None or origin_detector is None:
        pitch = volume.pixel_size if detector_pitch is None else detector_pitch
        return ParallelBeam(
            volume=volume,
            angles=view_angles(views, math.pi if arc is None else arc),
            detectors=_covering(2 * volume.radius, pitch) if detectors is None else detectors,
            detector_pitch=pitch,
            detector_offset=detector_offset,
        )
    if not source_origin > volume.radius:
        raise GeometryError(
            f"source_origin {source_origin:g} mm puts the source inside the volume, which reaches "
            f"{volume.radius:.4g} mm from the axis"
        )
    length = source_origin + origin_detector
    pitch = volume.pixel_size * length / source_origin if detector_pitch is None else detector_pitch
    shadow = 2 * length * math.tan(math.asin(volume.radius / source_origin))
    return FanBeam(
        volume=volume,
        angles=view_angles(views, 2 * math.pi if arc is None else arc),
        detectors=_covering(shadow, pitch) if detectors is None else detectors,
        detector_pitch=pitch,
        detector_offset=detector_offset,
        source_origin=source_origin,
        origin_detector=origin_detector,
    )


def _covering(shadow: float, pitch: float) -> int:
    count = math.ceil(shadow / check_positive(pitch, "detector_pitch", "mm"))
    return count + 1 - count % 2
