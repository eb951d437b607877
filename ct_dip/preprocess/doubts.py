"""Whether the data contradict the geometry that a scan states, and agree with a likely slip instead.

For every likely slip, the views are read as they would be without it, and the inconsistency of both readings
(`ct_dip.preprocess.consistency`) is compared. With an unknown noise in every order k, the log-likelihood
ratio of readings 0 and 1 is ``½ Σ_k ν_k log(E0_k / E1_k)``, where E_k is the energy per freedom and ν_k the
freedom; a doubt is raised where the *geometric mean* of the ratios E0_k/E1_k is large. A mean over orders,
because beam hardening and air values spoil some of the low ones. Either reading may shift the detector to
where it fits best. Fans that do not go round are compared by opposite rays.

What no data can show, so that nobody looks for it here:

- Parallel views in the wrong direction: ``p(−θ, s)`` is the sinogram of the mirror image f(x, −y).
- Distances of a fan that are exchanged: a ray's direction depends only on ``source_origin + origin_detector``
  and its distance from the axis is proportional to ``source_origin``, so the data are those of a larger or
  smaller object. It shows where that object does not fit the grid any more.
- A wrong arc of an object that is round and in the middle: all of its views are the same.
"""

import math
from contextlib import suppress
from dataclasses import replace

import numpy as np

from ct_dip.arrays import Floats
from ct_dip.data.noise import estimate_white_std
from ct_dip.data.scan import Scan
from ct_dip.errors import ScanError
from ct_dip.geometry import FanBeam, Geometry
from ct_dip.preprocess.consistency import ViewPolynomials, goes_round, inconsistency, orders_of
from ct_dip.preprocess.offset import Estimate, axis_column, find_detector_offset, narrowed
from ct_dip.preprocess.opposite_rays import opposite_rays
from ct_dip.preprocess.slips import FULL_TURN_CLEAR, TINY_ARC_CLEAR, Reading, likely_slips, reversed_views
from ct_dip.preprocess.truncation import is_truncated

_ORDERS = 24
_VIEWS = 400  # more are not needed to tell readings apart
_DISCRETE = 0.01  # of the rms line integral: contradictions that bins and steps of angle may make
_NATS = 20.0  # by which a reading must be more likely
_OPPOSITE = (
    0.005,
    0.05,
)  # of their energy, that opposite rays differ by: as stated at least, as read at most
_OFFSET_BINS = 1.0
_OFFSET_ERRORS = 8.0
_OUTSIDE = 1.05  # radii of the grid
_OUTSIDE_SHARE = 0.05  # of the largest mean over views
_OUTSIDE_NOISE = 8.0  # deviations of such a mean

Energies = tuple[Floats, Floats]  # inconsistent energy and freedom of orders 1, 2, …


def doubts(scan: Scan, bin: int = 1) -> list[str]:
    """Return what the data say against the stated geometry, one sentence each; none for nearly all scans.

    At most one slip is named, the one that explains the data best. Without one, a wrong detector offset and
    an object that is larger than the grid are.

    Args:
        bin: detectors that make a bin of the scan; the rotation axis is said as a column of detectors.
    """
    sinogram, geometry = _fewer(scan.sinogram, scan.geometry)
    if _too_few(sinogram):
        return []
    slip = _slip(sinogram, geometry)
    findings = [slip] if slip else [_wrong_offset(scan, bin), _outside(sinogram, geometry)]
    return [finding for finding in findings if finding]


def find_slip(sinogram: Floats, geometry: Geometry) -> str | None:
    """Return the slip that explains the data best, for views of which no scan can be made."""
    sinogram, geometry = _fewer(sinogram, geometry)
    return None if _too_few(sinogram) else _slip(sinogram, geometry)


def _fewer(sinogram: Floats, geometry: Geometry) -> tuple[Floats, Geometry]:
    """Return views and bins that suffice."""
    some = slice(None, None, _step(geometry.views))
    return narrowed(np.asarray(sinogram, dtype=np.float64)[some], geometry.select_views(some))


def _too_few(sinogram: Floats) -> bool:
    views, detectors = sinogram.shape
    return views < 4 or detectors < 8 or not sinogram.any()


def _slip(sinogram: Floats, geometry: Geometry) -> str | None:
    """Return the clearest slip, by consistency where it can be had, or else by opposite rays."""
    # Views that do not see the whole object need not agree. But a transposed sinogram looks cut off, too.
    readings = [one for one in likely_slips(sinogram, geometry) if not is_truncated(one.sinogram)]
    if not readings:
        return None
    stated = _energies(sinogram, geometry)
    factors = [_consistency_factor(stated, reading) for reading in readings]
    if not any(factor > reading.clear for factor, reading in zip(factors, readings, strict=True)):
        factors = [_opposite_factor(sinogram, geometry, reading) for reading in readings]
    factor, reading = max(zip(factors, readings, strict=True), key=lambda pair: pair[0] / pair[1].clear)
    if factor <= reading.clear:
        return None
    times = math.sqrt(factor)
    less = f"{times:.2g} times less" if times > 1.2 else "less"
    return f"{reading.slip}. With the stated geometry the views are {less} consistent. {reading.fix}"


def _consistency_factor(stated: Energies | None, reading: Reading) -> float:
    """How many times the inconsistent energy is larger as stated than as read; 0 if nobody can tell."""
    other = _energies(reading.sinogram, reading.geometry)
    if other is None:
        return 0.0
    if stated is None and reading.clear == TINY_ARC_CLEAR:  # a fan; compare with what is surely wrong
        stated = _energies(reading.sinogram, reversed_views(reading.geometry))
    return 0.0 if stated is None else _likelihood_ratio(stated, other)


def _opposite_factor(sinogram: Floats, geometry: Geometry, reading: Reading) -> float:
    """Return the same by opposite rays, for fans of which only one goes round."""
    other = reading.geometry
    if not (isinstance(geometry, FanBeam) and isinstance(other, FanBeam)) or reading.sinogram is not sinogram:
        return 0.0
    if goes_round(geometry) == goes_round(other):
        return 0.0
    before, after = opposite_rays(sinogram, geometry), opposite_rays(sinogram, other)
    if not before or not after or after.relative > _OPPOSITE[1] or before.relative < _OPPOSITE[0]:
        return 0.0
    # The same absolutely, which is fair to noise, and relative to these rays, of which many may be in air.
    return min(before.mean_square / after.mean_square, before.relative / after.relative)


def _energies(sinogram: Floats, geometry: Geometry) -> Energies | None:
    """At the stated offset or the one that fits best; ``None`` for a fan that does not go round."""
    if isinstance(geometry, FanBeam) and not goes_round(geometry):
        return None
    found = [_energies_at(sinogram, geometry)]
    with suppress(ScanError):  # views that contradict one another may not determine the offset
        best = find_detector_offset(sinogram, geometry).value
        found.append(_energies_at(sinogram, replace(geometry, detector_offset=best)))
    return min(found, key=lambda one: float(one[1] @ np.log(np.maximum(one[0], 1e-30))))


def _energies_at(sinogram: Floats, geometry: Geometry) -> Energies:
    polynomials = ViewPolynomials(geometry.angles, orders_of(geometry, _ORDERS))
    found = inconsistency(sinogram, geometry, polynomials)
    freedom = found.freedom[1:].astype(float)
    floor = _DISCRETE**2 * float(np.mean(sinogram**2))
    return np.sum(found.residuals[1:] ** 2, axis=1) + floor * freedom, freedom


def _likelihood_ratio(one: Energies, other: Energies) -> float:
    """Geometric mean of E_one/E_other, or 1 where it is less than `_NATS` nats that tell them apart."""
    common = min(len(one[0]), len(other[0]))
    (energy, freedom), (energy_, freedom_) = ((e[:common], f[:common]) for e, f in (one, other))
    count = np.minimum(freedom, freedom_)
    used = (count > 0) & (energy > 0) & (energy_ > 0)
    total = float(count[used] @ np.log((energy / freedom)[used] / (energy_ / freedom_)[used]))
    return math.exp(total / float(count[used].sum())) if abs(total) / 2 > _NATS else 1.0


def _wrong_offset(scan: Scan, bin: int) -> str | None:
    sinogram, geometry = _fewer(scan.sinogram, scan.geometry)
    try:
        found = find_detector_offset(sinogram, geometry)
    except ScanError:
        return None
    away = found.value - geometry.detector_offset
    if abs(away) < max(_OFFSET_BINS * geometry.detector_pitch, _OFFSET_ERRORS * found.standard_error):
        return None
    moved = _energies_at(sinogram, replace(geometry, detector_offset=found.value))
    if _likelihood_ratio(_energies_at(sinogram, geometry), moved) < FULL_TURN_CLEAR:
        return None
    stated, detectors = scan.geometry.detector_offset, scan.geometry.split_detectors(bin)
    offset = Estimate(stated + away, found.standard_error)  # `geometry` may have lost columns at an end
    told = f"The detector offset is {stated:.4g} mm, but the views say {offset} mm"
    if isinstance(geometry, FanBeam):
        return f"{told}. Use --detector-offset {offset.value:.4g}, or check --center."
    column, axis = axis_column(offset, detectors), axis_column(Estimate(stated, 0.0), detectors).value
    return (
        f"{told}: the rotation axis is at column {column} rather than {axis:.5g}. "
        f"Use --center {column.value:.5g}, or drop --center to have it found."
    )


def _outside(sinogram: Floats, geometry: Geometry) -> str | None:
    """Attenuated rays that pass the grid by: what they met cannot be in the image."""
    if is_truncated(sinogram):
        return None
    distances = np.abs(geometry.axis_distances(geometry.detector_positions))
    mean = sinogram.mean(axis=0)
    noise = estimate_white_std(sinogram) / math.sqrt(geometry.views)
    met = mean > max(_OUTSIDE_SHARE * float(mean.max()), _OUTSIDE_NOISE * noise)
    reach, end = float(distances[met].max(initial=0.0)), geometry.volume.radius
    if reach <= _OUTSIDE * end:
        return None
    hint = ""
    if isinstance(geometry, FanBeam) and reach * geometry.origin_detector / geometry.source_origin < end:
        hint = " (are --source-origin and --origin-detector exchanged?)"
    return (
        f"The object reaches {reach:.3g} mm from the rotation axis, but the corners of the grid are at "
        f"{end:.3g} mm. Check the rotation axis (--center), --detector-pitch and distances{hint}, or use a "
        "larger --width."
    )


def _step(views: int) -> int:
    """Every how many views suffice, such that a full turn stays even."""
    least = math.ceil(views / _VIEWS)
    return next((step for step in range(least, 4 * least) if views % step == 0), 1)
