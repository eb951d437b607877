"""Beam hardening: thick parts of the object look too thin, since soft X-rays are absorbed first.

Line integrals are made linear by ``p + c p²``. Inconsistency is linear in the sinogram (see
`ct_dip.preprocess.consistency`), so that the coefficient is that of a linear regression::

    r_k(p) + c r_k(p²) = noise,        c = −Σ_k r_k(p²)·r_k(p) / Σ_k |r_k(p²)|²

The lowest orders tell most: mass that is the same in every view. Noise of p is in p², too; what that adds to
both sums, 2 p σ² and 4 p² σ² per freedom, is taken off. A disk is consistent whatever c is, and determines
nothing. Air that drifts makes p and p² grow together, and c negative: normalise the air first.
"""

import math

import numpy as np

from ct_dip.arrays import Floats
from ct_dip.errors import ScanError
from ct_dip.geometry import Geometry
from ct_dip.preprocess.consistency import ViewPolynomials, inconsistency, orders_of
from ct_dip.preprocess.noise_level import consistency_std
from ct_dip.preprocess.offset import Estimate
from ct_dip.preprocess.truncation import is_truncated

_ORDERS = 8
_SIGNIFICANT = 3.0  # standard errors
_LARGEST = 0.5  # of p, that c p² may add to the largest line integral


def hardening(sinogram: Floats, geometry: Geometry) -> Estimate:
    """Find c in ``p + c p²``, which makes the views consistent.

    Raises:
        ScanError: the views cannot be compared, or every c fits them.
    """
    if is_truncated(sinogram):
        raise ScanError("views that do not see the whole object cannot be compared; skip this step")
    p = np.asarray(sinogram, dtype=np.float64)
    polynomials = ViewPolynomials(geometry.angles, orders_of(geometry, _ORDERS))
    plain, squared = (inconsistency(values, geometry, polynomials) for values in (p, p**2))
    freedom, noise = plain.freedom, consistency_std(p, geometry).value ** 2
    weight = plain.functionals**2  # (detectors, orders + 1)
    product = np.sum(squared.residuals * plain.residuals, axis=1)
    product -= freedom * 2 * noise * (p.mean(axis=0) @ weight)
    energy = np.sum(squared.residuals**2, axis=1)
    signal = energy - freedom * 4 * noise * ((p**2).mean(axis=0) @ weight)
    information = float(np.maximum(signal, 0).sum())
    if not information > 0:
        raise ScanError("the views are consistent whatever the beam hardening is: a round object, or noise")
    c = -float(product[signal > 0].sum()) / information
    left = plain.residuals + c * squared.residuals
    variance = np.sum(left**2, axis=1) / np.maximum(freedom, 1)
    return Estimate(c, math.sqrt(float((variance * energy)[signal > 0].sum())) / information)


def correct_hardening(sinogram: Floats, geometry: Geometry) -> tuple[Floats, str]:
    """Linearise line integrals where c is positive and significant; returns the step in words, too."""
    try:
        found = hardening(sinogram, geometry)
    except ScanError as error:
        return sinogram, f"beam hardening: not corrected, {error}"
    most = found.value * float(sinogram.max())
    if found.value < -_SIGNIFICANT * found.standard_error:
        return sinogram, f"beam hardening: not corrected, c = {found} is negative; does the air drift?"
    if not found.value > _SIGNIFICANT * found.standard_error:
        return sinogram, f"beam hardening: none found, c = {found}"
    if most > _LARGEST:
        return sinogram, f"beam hardening: not corrected, c = {found} would change p by {most:.0%}"
    return (
        sinogram + found.value * sinogram**2,
        f"beam hardening: p + c p², c = {found}, up to {most:.1%} of p",
    )
