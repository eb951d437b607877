"""Beam hardening: thick parts of the object look too thin, since soft X-rays are absorbed first.

Line integrals are made linear by ``p + c p²``. Inconsistency is linear in the sinogram (see
`ct_dip.preprocess.consistency`), so that the coefficient is that of a linear regression::

    r_k(p) + c r_k(p²) = noise,        c = −Σ_k r_k(p²)·r_k(p) / Σ_k |r_k(p²)|²

The lowest orders tell most: mass that is the same in every view. Air that drifts from view to view changes
that mass, too, and with it c in either direction. So p is taken relative to the air of its own view, the mean
of the detector's ends, which costs precision: the noise of this mean is in all bins of a view. A disk is
consistent whatever c is, and determines nothing.

Noise e of p, with that of the air, is in p² as well, as 2 p e. What it adds to both sums, and its share of
the standard error, is the mean over simulated e.
"""

import math

import numpy as np

from ct_dip.arrays import Floats
from ct_dip.errors import ScanError
from ct_dip.geometry import Geometry
from ct_dip.preprocess.air import air_bins
from ct_dip.preprocess.consistency import ViewPolynomials, inconsistency, orders_of
from ct_dip.preprocess.noise_level import consistency_std
from ct_dip.preprocess.offset import Estimate, narrowed
from ct_dip.preprocess.truncation import is_truncated

_ORDERS = 8
_SIGNIFICANT = 3.0  # standard errors
_SIMULATED = 16  # sinograms of noise
_LARGEST = 0.5  # of p, that c p² may add to the largest line integral


def hardening(sinogram: Floats, geometry: Geometry) -> Estimate:
    """Find c in ``p + c p²``, which makes the views consistent.

    Raises:
        ScanError: the views cannot be compared, show no air, or every c fits them.
    """
    if is_truncated(sinogram):
        raise ScanError("views that do not see the whole object cannot be compared; skip this step")
    sinogram, geometry = narrowed(np.asarray(sinogram, dtype=np.float64), geometry)
    air = air_bins(sinogram)
    polynomials = ViewPolynomials(geometry.angles, orders_of(geometry, _ORDERS))

    def beside_air(values: Floats) -> Floats:
        return values - values[:, air].mean(axis=1, keepdims=True)

    def residuals(values: Floats) -> Floats:  # (orders + 1, views)
        return inconsistency(values, geometry, polynomials).residuals

    p = beside_air(sinogram)
    plain, squared = residuals(p), residuals(p**2)
    product, energy = np.sum(squared * plain, axis=1), np.sum(squared**2, axis=1)
    # Drift is in the one, noise of the air in the other.
    noise = min(consistency_std(values, geometry).value for values in (sinogram, p))
    signal = energy.copy()
    rng, by_noise = np.random.default_rng(0), []
    for _ in range(_SIMULATED):
        e = beside_air(noise * rng.standard_normal(p.shape))
        once, twice = residuals(e), residuals(2 * p * e)
        product -= np.sum(twice * once, axis=1) / _SIMULATED
        signal -= np.sum(twice**2, axis=1) / _SIMULATED
        by_noise.append(np.sum(squared * once, axis=1))
    used = signal > 0
    information = float(signal[used].sum())
    if not information > 0:
        raise ScanError("the views are consistent whatever the beam hardening is: a round object, or noise")
    c = -float(product[used].sum()) / information
    left = np.sum((plain + c * squared) ** 2, axis=1) / np.maximum(polynomials.freedom, 1)
    # Orders are independent but for the noise of the air, which only the simulation knows.
    variances = float((left * energy)[used].sum()), float(np.mean(np.sum(by_noise, axis=1, where=used) ** 2))
    return Estimate(c, math.sqrt(max(variances)) / information)


def correct_hardening(sinogram: Floats, geometry: Geometry) -> tuple[Floats, str]:
    """Linearise line integrals where c is positive and significant; returns the step in words, too."""
    try:
        found = hardening(sinogram, geometry)
    except ScanError as error:
        return sinogram, f"beam hardening: not corrected, {error}"
    most = found.value * float(sinogram.max())
    if found.value < -_SIGNIFICANT * found.standard_error:
        return sinogram, f"beam hardening: not corrected, c = {found} is negative: something else is wrong"
    if not found.value > _SIGNIFICANT * found.standard_error:
        return sinogram, f"beam hardening: none found, c = {found}"
    if most > _LARGEST:
        return sinogram, f"beam hardening: not corrected, c = {found} would change p by {most:.0%}"
    return (
        sinogram + found.value * sinogram**2,
        f"beam hardening: p + c p², c = {found}, up to {most:.1%} of p",
    )
