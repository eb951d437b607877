"""Source, detector centre and detector step of every view: what all libraries can express."""

from typing import NamedTuple

import numpy as np

from ct_dip.arrays import Floats
from ct_dip.errors import GeometryError
from ct_dip.geometry import FanBeam, Geometry, ParallelBeam, Volume


class ViewVectors(NamedTuple):
    """Each (views, 2), x and y in mm; ``source`` is None for a parallel beam along v."""

    source: Floats | None
    detector: Floats  # centre of the detector
    step: Floats  # from one detector bin to the next


def view_vectors(geometry: Geometry) -> ViewVectors:
    """Vectors of a geometry, by the frame that `ct_dip.geometry` states."""
    u, v, c = geometry.detector_axes, geometry.beam_axes, geometry.center_of_rotation
    detector = (geometry.detector_offset - c) * u
    step = geometry.detector_pitch * u
    if isinstance(geometry, ParallelBeam):
        return ViewVectors(None, detector, step)
    detector = detector + geometry.origin_detector * v
    return ViewVectors(-c * u - geometry.source_origin * v, detector, step)


def geometry_from_vectors(vectors: ViewVectors, detectors: int, volume: Volume) -> Geometry:
    """The geometry that has these vectors; angles come back within (−π, π].

    Raises:
        GeometryError: the views are not rotations of one another about the origin.
    """
    pitch = _same(np.hypot(*vectors.step.T), "detector pitch")
    u = vectors.step / pitch
    v = np.stack([-u[:, 1], u[:, 0]], axis=1)
    angles = np.arctan2(u[:, 1], u[:, 0])
    lateral = _same(np.sum(vectors.detector * u, axis=1), "lateral detector position")
    if vectors.source is None:
        return ParallelBeam(
            volume=volume,
            angles=angles,
            detectors=detectors,
            detector_pitch=pitch,
            detector_offset=lateral,
        )
    c = -_same(np.sum(vectors.source * u, axis=1), "lateral source position")
    return FanBeam(
        volume=volume,
        angles=angles,
        detectors=detectors,
        detector_pitch=pitch,
        detector_offset=lateral + c,
        center_of_rotation=c,
        source_origin=-_same(np.sum(vectors.source * v, axis=1), "source distance"),
        origin_detector=_same(np.sum(vectors.detector * v, axis=1), "detector distance"),
    )


def _same(values: Floats, name: str) -> float:
    if np.ptp(values) > 1e-6 * max(1.0, float(np.abs(values).max())):
        raise GeometryError(
            f"the {name} changes between views ({values.min():.6g} to {values.max():.6g} mm); "
            "only circular scans about the origin are supported"
        )
    return float(values.mean())
