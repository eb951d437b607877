"""Small scanners of every kind, and analytic objects to scan."""

from dataclasses import replace

import numpy as np

from ct_dip.convert.vectors import view_vectors
from ct_dip.geometry import FanBeam, ParallelBeam, Volume

VOLUME = Volume(shape=(13, 17), pixel_size=0.7)
IRREGULAR = [0.1, 2.0, 1.0, 4.0, -0.3]

PARALLEL = ParallelBeam(volume=VOLUME, angles=IRREGULAR, detectors=23, detector_pitch=0.8)
PARALLEL_SHIFTED = replace(PARALLEL, detector_offset=1.3, center_of_rotation=0.4)
FAN = FanBeam(
    volume=VOLUME,
    angles=IRREGULAR,
    detectors=31,
    detector_pitch=0.9,
    source_origin=30.0,
    origin_detector=15.0,
)
FAN_SHIFTED = replace(FAN, detector_offset=1.3, center_of_rotation=-2.0)
FAN_VIRTUAL = replace(FAN, detectors=23, detector_pitch=0.7, origin_detector=0.0)
ALL = {
    "parallel": PARALLEL,
    "parallel-shifted": PARALLEL_SHIFTED,
    "fan": FAN,
    "fan-shifted": FAN_SHIFTED,
    "fan-virtual": FAN_VIRTUAL,
}


def ray_lines(geometry):
    """A point and a unit direction of every ray, (views, detectors, 2) each, from the view vectors."""
    source, detector, step = view_vectors(geometry)
    index = np.arange(geometry.detectors) - (geometry.detectors - 1) / 2
    points = detector[:, None] + index[:, None] * step[:, None]
    if source is None:
        normal = np.stack([-step[:, 1], step[:, 0]], axis=1)
        directions = np.broadcast_to(normal[:, None], points.shape)
    else:
        directions = points - source[:, None]
    return points, directions / np.linalg.norm(directions, axis=-1, keepdims=True)


def disk_projection(geometry, center, radius):
    """Length of every ray inside a disk: ``2 √(r² − d²)``, d the ray's distance from the centre."""
    points, directions = ray_lines(geometry)
    to_center = np.asarray(center) - points
    distance = to_center[..., 0] * directions[..., 1] - to_center[..., 1] * directions[..., 0]
    return 2 * np.sqrt(np.maximum(0, radius**2 - distance**2))


def disk_image(volume, center, radius, oversampling=8):
    """A disk's share of every pixel."""
    x, y = volume.refine(oversampling).pixel_centers()
    inside = np.hypot(x[None, :] - center[0], y[:, None] - center[1]) <= radius
    rows, columns = volume.shape
    blocks = inside.reshape(rows, oversampling, columns, oversampling)
    return blocks.mean(axis=(1, 3))
