"""How much each view, and each ray of a fan, counts in an integral over all lines."""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ct_dip.arrays import Floats
from ct_dip.geometry import FanBeam, Geometry

# The widest gap between neighbouring views is an arc that was not measured if it is this many times the
# next one, and more than this part of the circle: randomly placed views have wide gaps, too.
_MISSING_GAPS = 4.0
_MISSING_PART = 1 / 18
_SAME = 1e-9  # of the period: angles that differ by less are one


class ViewWeights(NamedTuple):
    """Quadrature weights of a list of view angles on a circle of some period."""

    weights: Floats  # (views,), rad
    start: float  # where the measured arc begins, rad
    arc: float  # its length, or the whole period


def view_weights(angles: Floats, period: float) -> ViewWeights:
    """Half the gap to either neighbour, whatever the order and spacing of the views.

    An arc that was not measured counts as a typical gap, so that the views beside it do not weigh for all
    that is missing. Views of the same angle share its weight.
    """
    wrapped, view, repeats = _distinct(np.mod(angles, period), period)
    gaps = np.diff(wrapped, append=wrapped[0] + period)  # after each angle
    widest = int(np.argmax(gaps))
    others = np.delete(gaps, widest)
    next_one = float(others.max(initial=0.0))
    missing = len(others) > 0 and gaps[widest] > max(_MISSING_GAPS * next_one, _MISSING_PART * period)
    start, arc = 0.0, period
    if missing:
        typical = float(np.median(others))
        start = float(wrapped[(widest + 1) % len(wrapped)] - typical / 2)
        arc = period - float(gaps[widest]) + typical
        gaps[widest] = typical
    weights = (gaps + np.roll(gaps, 1)) / 2 / repeats
    return ViewWeights(weights[view], start, arc)


def _distinct(angles: Floats, period: float) -> tuple[Floats, NDArray[np.intp], NDArray[np.intp]]:
    """The angles that differ, in order; which of them each view has, (views,); how many views each has."""
    order = np.argsort(angles, kind="stable")
    new = np.diff(angles[order], prepend=-np.inf) > _SAME * period
    if len(angles) > 1 and angles[order[0]] + period - angles[order[-1]] <= _SAME * period:
        angles = np.where(angles > period / 2, angles - period, angles)  # 0 and a whole turn less rounding
        return _distinct(angles, period)
    view = np.empty(len(angles), dtype=np.intp)
    view[order] = np.cumsum(new) - 1
    return angles[order][new], view, np.bincount(view)


def one_sided_share(geometry: Geometry) -> Floats:
    """Share of every ray of a full turn when the detector is short on one side, (detectors,).

    Rays at distance r from the axis that the short side reaches, too, are measured twice, from opposite
    sides; the weight rises smoothly from 0 at its end to 1 at the mirrored distance, and those of a ray and
    its partner add up to 1.
    """
    low, high = geometry.reach
    short = max(1e-9, min(-low, high))
    towards_long = geometry.axis_distances(geometry.detector_positions) * (1 if high > -low else -1)
    return np.asarray(0.5 + 0.5 * np.sin(np.clip(towards_long / short, -1, 1) * math.pi / 2))


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
        if geometry.sees_one_side:
            return np.tile(one_sided_share(geometry), (geometry.views, 1))
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
