"""How much rays of a fan differ from those that run the same way back, for any arc of views.

The ray at view angle β and fan angle γ is seen again from the other side at ``β + π − 2γ`` and −γ. On less
than a full turn some rays have a partner still.
"""

import math
from typing import NamedTuple

import numpy as np

from ct_dip.arrays import Floats
from ct_dip.geometry import FanBeam

_FEWEST = 50  # rays with a partner


class OppositeRays(NamedTuple):
    """Mean square difference of opposite rays, and the same relative to the mean square of these rays."""

    mean_square: float
    relative: float


def opposite_rays(sinogram: Floats, geometry: FanBeam) -> OppositeRays | None:
    """Compare opposite rays; ``None`` if too few have a partner.

    The axis is taken to be on the central ray.
    """
    start = float(geometry.angles.min())
    order = np.argsort(geometry.angles)
    views, detectors = sinogram.shape
    gamma = np.arctan(geometry.detector_positions / (geometry.source_origin + geometry.origin_detector))
    angles, rows = geometry.angles[order] - start, sinogram[order]
    gap = 2 * math.pi - float(angles[-1])
    if gap < 1.5 * float(np.median(np.diff(angles))):  # a full turn: after the last view comes the first
        angles, rows = np.append(angles, 2 * math.pi), np.vstack([rows, rows[:1]])
    partner = np.mod(angles[:views, None] + math.pi - 2 * gamma, 2 * math.pi)  # (views, detectors)
    column = np.broadcast_to(-geometry.detector_positions, partner.shape)
    column = (column - geometry.detector_positions[0]) / geometry.detector_pitch
    row = np.interp(partner, angles, np.arange(len(angles)))
    seen = (partner <= angles[-1]) & (column >= 0) & (column <= detectors - 1)
    if seen.sum() < _FEWEST:
        return None
    row, column = row[seen], column[seen]
    top, left = np.minimum(row.astype(int), len(rows) - 2), np.minimum(column.astype(int), detectors - 2)
    down, right = row - top, column - left
    upper = (1 - right) * rows[top, left] + right * rows[top, left + 1]
    lower = (1 - right) * rows[top + 1, left] + right * rows[top + 1, left + 1]
    one, other = rows[:views][seen], (1 - down) * upper + down * lower
    mean_square = float(np.mean((one - other) ** 2))
    return OppositeRays(mean_square, mean_square / max(float(np.mean(one**2 + other**2)), 1e-300))
