"""Where a parallel scan's rotation axis is, found in the sinogram itself.

A first guess comes from an identity: the centre of mass of the views moves on a sinusoid around the axis.
Beam hardening and a drifting air value bias it by half a column. The axis is then taken where FBP has the
least negative attenuation (Donath et al. 2006): a wrong axis opens every edge, with undershoots beside it.
"""

import numpy as np
import torch

from ct_dip.arrays import Floats
from ct_dip.classical.fbp import fbp
from ct_dip.errors import ScanError
from ct_dip.geometry import ParallelBeam, Volume

_REACH = 2.0  # columns to either side of a guess; where it is wider, the detector's ends take part
_GUESSES = 6
_PIXELS = 256


def find_axis(sinogram: Floats, angles: Floats) -> float:
    """Column of the rotation axis; column j is centred at j.

    Args:
        sinogram: line integrals, (views, detectors); no view may cut the object off.
        angles: radians, (views,), over about half a turn or more.

    Raises:
        ScanError: the views do not determine it.
    """
    guess = start = _center_of_mass(sinogram, angles)
    for _ in range(_GUESSES):
        step = _downhill(sinogram, angles, guess)
        guess += step
        if abs(step) <= _REACH / 2:
            return guess
    raise _undetermined(f"FBP is not best near column {start:.1f}, the centre of mass")


def _downhill(sinogram: Floats, angles: Floats, guess: float) -> float:
    """From a guess to where FBP is least negative, in columns, `_REACH` at most."""
    detectors = sinogram.shape[1]
    data = torch.as_tensor(np.asarray(sinogram, dtype=np.float32).copy())
    volume = Volume(shape=(_PIXELS, _PIXELS), pixel_size=detectors / _PIXELS)  # unit: a column
    offsets = np.arange(-_REACH, _REACH + 0.25, 0.5)
    negative = []
    for column in guess + offsets:
        geometry = ParallelBeam(
            volume=volume,
            angles=angles,
            detectors=detectors,
            center_of_rotation=column - (detectors - 1) / 2,
        )
        image = fbp(data, geometry, filter="hann").numpy()
        negative.append(float(-np.minimum(image, 0).sum()))
    # A parabola through all of them: single values jump with the interpolation between pixels.
    curvature, slope, _ = np.polyfit(offsets, negative, 2)
    if curvature <= 0:
        return float(-np.sign(slope) * _REACH)
    return float(np.clip(-slope / (2 * curvature), -_REACH, _REACH))


def _center_of_mass(sinogram: Floats, angles: Floats) -> float:
    if np.ptp(angles) < np.deg2rad(150):
        raise _undetermined(f"the views cover {np.rad2deg(np.ptp(angles)):.0f}°, less than 150°")
    mass = sinogram.sum(axis=1)
    if not mass.min() > 0.8 * mass.max():
        raise _undetermined(f"the mass of a view varies from {mass.min():.3g} to {mass.max():.3g}: cut off?")
    centers = sinogram @ np.arange(sinogram.shape[1]) / mass
    basis = np.stack([np.ones_like(angles), np.cos(angles), np.sin(angles)], axis=1)
    return float(np.linalg.lstsq(basis, centers, rcond=None)[0][0])


def _undetermined(reason: str) -> ScanError:
    return ScanError(f"the rotation axis cannot be found ({reason}); give its column, --center COLUMN")
