"""What all views of one object have in common: the conditions of Helgason and Ludwig, of every order.

Let p(θ, s) be the line integrals of an object that lies within a distance R of the rotation axis, and q_k a
polynomial of degree k that is even or odd as k is. Then the moment::

    m_k(θ) = ∫ p(θ, s) q_k(s/R) ds

is a trigonometric polynomial of degree k, with degrees of k's parity only, since s = x·u(θ) inside of the
integral. Order 0: the mass of every view is the same. Order 1: the centre of mass moves as a cos θ + b sin θ
around the axis. All orders together hold for sinograms of objects and no others, and for any list of angles.
With Legendre polynomials, white noise of a sinogram is white in its moments. What a moment has beside its
k + 1 trigonometric functions is noise, or contradicts the geometry; it is linear in the sinogram.

A full turn of a fan beam is taken to parallel coordinates by turning each detector's column by its fan angle
γ: ``p(θ, s) = y(θ + γ, γ)``, where s is the distance of the ray from the axis. The turn is a Fourier shift,
exact for views that resolve the object.
"""

import math
from typing import NamedTuple

import numpy as np
from numpy.polynomial.legendre import legvander

from ct_dip.arrays import Floats
from ct_dip.errors import ScanError
from ct_dip.geometry import FanBeam, Geometry

_DEPENDENT = 1e-7  # a function that differs by less from those before it adds nothing
_UNEVEN = 0.02  # of a step between views


class Inconsistency(NamedTuple):
    """The part of the moments that no object has; white noise has the same variance in it as in the sinogram.

    ``residuals`` is (orders + 1, views); ``freedom[k]`` is the number of independent values in row k;
    ``functionals``, (detectors, orders + 1), are unit vectors whose products with the views are the moments.
    """

    residuals: Floats
    freedom: Floats
    functionals: Floats


class ViewPolynomials:
    """Orthonormal bases of trigonometric polynomials on a list of view angles, for orders 0 to ``orders``."""

    def __init__(self, angles: Floats, orders: int) -> None:
        self.orders = orders
        self._bases: list[Floats] = []  # of even and of odd degrees: (views, functions)
        self._counts = np.zeros(orders + 1, dtype=int)  # functions of the basis that order k may use
        for parity in (0, 1):
            basis = np.zeros((len(angles), 0))
            for degree in range(parity, orders + 1, 2):
                functions = [np.cos(degree * angles), np.sin(degree * angles)]
                for function in functions if degree else functions[:1]:
                    for _ in range(2):  # once more for rounding
                        function = function - basis @ (basis.T @ function)
                    size = float(np.linalg.norm(function))
                    if size > _DEPENDENT * math.sqrt(len(angles)):
                        basis = np.column_stack([basis, function / size])
                self._counts[degree] = basis.shape[1]
            self._bases.append(basis)
        self.freedom = len(angles) - self._counts

    def residuals(self, moments: Floats) -> Floats:
        """Return what the trigonometric polynomials cannot show of moments, (orders + 1, views)."""
        left = np.array(moments)
        for parity, basis in enumerate(self._bases):
            coefficients = basis.T @ moments[parity::2].T  # (functions, orders of this parity)
            coefficients[np.arange(basis.shape[1])[:, None] >= self._counts[parity::2]] = 0
            left[parity::2] -= (basis @ coefficients).T
        return left


def orders_of(geometry: Geometry, most: int) -> int:
    """Orders that views and detectors resolve, ``most`` at most."""
    return max(1, min(most, geometry.views - 2, geometry.detectors // 3))


def inconsistency(sinogram: Floats, geometry: Geometry, polynomials: ViewPolynomials) -> Inconsistency:
    """Compute what contradicts the geometry, for a sinogram (views, detectors).

    Raises:
        ScanError: a fan beam whose views do not go round evenly.
    """
    distances = geometry.axis_distances(geometry.detector_positions)
    widths = np.gradient(distances)
    radius = max(abs(end) for end in geometry.reach)
    functionals = legvander(distances / radius, polynomials.orders) * widths[:, None]
    functionals /= np.linalg.norm(functionals, axis=0)
    moments = (parallel_views(sinogram, geometry) @ functionals).T
    return Inconsistency(polynomials.residuals(moments), polynomials.freedom, functionals)


def parallel_views(sinogram: Floats, geometry: Geometry) -> Floats:
    """Return p(θ, s_j) at the views' angles and the detectors' `axis_distances`, (views, detectors).

    Raises:
        ScanError: a fan beam whose views do not go round evenly.
    """
    sinogram = np.asarray(sinogram, dtype=np.float64)
    if not isinstance(geometry, FanBeam):
        return sinogram
    if not goes_round(geometry):
        raise ScanError("views of a fan beam can be compared if they go round evenly, once")
    views = geometry.views
    order = np.argsort(np.mod(geometry.angles, 2 * math.pi))
    gamma = np.arctan(geometry.detector_positions / (geometry.source_origin + geometry.origin_detector))
    spectrum = np.fft.rfft(sinogram[order], axis=0)
    spectrum *= np.exp(1j * np.arange(len(spectrum))[:, None] * gamma)
    turned = np.empty_like(sinogram)
    turned[order] = np.fft.irfft(spectrum, n=views, axis=0)
    return turned


def goes_round(geometry: Geometry) -> bool:
    """Whether the views are evenly spaced over exactly one full turn."""
    return angles_go_round(geometry.angles)


def angles_go_round(angles: Floats) -> bool:
    """Whether angles, rad, are evenly spaced over exactly one full turn."""
    step = 2 * math.pi / len(angles)
    angles = np.sort(np.mod(angles, 2 * math.pi))
    return bool(np.abs(np.diff(angles, append=angles[0] + 2 * math.pi) - step).max() < _UNEVEN * step)
