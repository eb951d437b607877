"""How much each view, and each ray of a fan, counts in an integral over all lines."""

import math
from typing import NamedTuple

import numpy as np

from ct_dip.arrays import Floats
from ct_dip.geometry import FanBeam

# A gap between neighbouring views is an arc that was not measured if it is this many times the typical
# one and more than this part of the circle: randomly placed views have wide gaps, too.
_MISSING_GAPS = 4.0
_MISSING_PART = 1 / 18


class ViewWeights(NamedTuple):
    """Quadrature weights of a list of view angles on a circle of some period."""

    weights: Floats  # (views,), rad
    start: float  # where the measured arc begins, rad
    arc: float  # its length, or the whole period


def view_weights(angles: Floats, period: float) -> ViewWeights:
    """Half the gap to either neighbour, whatever the order and spacing of the views.

    A gap that was not measured counts as a typical one, so that the views beside it do not weigh for
    all that is missing.
    """
    wrapped = np.mod(angles, period)
    order = np.argsort(wrapped)
    gaps = np.diff(wrapped[order], append=wrapped[order[0]] + period)  # after each sorted view
    positive = gaps[gaps > 1e-12 * period]
    typical = float(np.median(positive)) if len(positive) > 1 else float(positive[0])
    missing = gaps > max(_MISSING_GAPS * typical, _MISSING_PART * period)
    closed = np.where(missing, typical, gaps)
    weights = np.empty(len(angles))
    weights[order] = (closed + np.roll(closed, 1)) / 2
    if not missing.any():
        return ViewWeights(weights, 0.0, period)
    last = int(np.argmax(gaps))
    start = wrapped[order[(last + 1) % len(angles)]] - typical / 2
    return ViewWeights(weights, float(start), period - float(gaps[last]) + typical)


def fan_redundancy(geometry: FanBeam, start: float, arc: float) -> Floats:
    """Share of every ray among the measurements of its line, (views, detectors).

    The ray at angle β and fan angle γ, counted from the ray through the axis, is seen again from the
    other side at ``β + π − 2γ``. With a membership m(β) that is 1 on the measured arc and falls smoothly
    to 0 at its ends, the share is ``m(β) / (m(β) + m(β + π − 2γ))``: a half on a full circle, 1 where
    there is no second ray, and in between a smooth weighting in the manner of Parker (1982).
    """
    length = geometry.source_origin + geometry.origin_detector
    gamma = np.arctan2(geometry.detector_positions, length)
    gamma -= math.atan2(geometry.center_of_rotation, geometry.source_origin)
    beta = geometry.angles[:, None]
    if arc >= 2 * math.pi - 1e-9:
        return np.full(geometry.range_shape, 0.5)
    here = _membership(beta, start, arc) * np.ones_like(gamma)
    there = _membership(beta + math.pi - 2 * gamma[None, :], start, arc)
    return np.asarray(here / (here + there))


def _membership(angle: Floats, start: float, arc: float) -> Floats:
    into = np.mod(angle - start, 2 * math.pi)
    edge = min(arc / 4, math.radians(20))
    ramp = np.clip(np.minimum(into, arc - into) / edge, 0, 1)
    inside = into <= arc
    # Never quite zero on the arc: a ray without a partner must keep its full weight.
    return np.where(inside, np.maximum(np.sin(ramp * math.pi / 2) ** 2, 1e-3), 0.0)
