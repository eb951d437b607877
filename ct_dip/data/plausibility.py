"""Check whether a scan is plausible: wrong units or preprocessing would go unnoticed later.

A finding is a sentence for the user: what looks wrong, and what it may be. Where a sinogram cannot be one of
line integrals at all, that is an error.
"""

import math

import numpy as np

from ct_dip.arrays import Floats
from ct_dip.data.noise import estimate_white_std, third_difference_ratio
from ct_dip.data.scan import Scan
from ct_dip.errors import ScanError
from ct_dip.geometry import Geometry

_OPAQUE = 20.0  # line integral; of 5·10⁸ photons one gets through
_IMPOSSIBLE = 100.0  # of 10⁴³ photons one would get through
_DENSEST = 300.0  # 1/mm; heavy metals at the lowest energies of a laboratory
_THINNEST = 1e-6  # 1/mm; a tenth of air's
_NOISE_UNDERSTATED = 10.0  # times, so that no detail of a small object is taken for noise
_NOISE_OVERSTATED = 0.3  # times; noise that neighbouring detectors share looks smaller than it is
_BELOW_ZERO = 5.0  # deviations of the noise
_BELOW_ZERO_SHARE = 0.01  # of the measurements
_DRIFT = 0.02  # of the largest line integral, that an air value may be off by
_FEWEST_BINS = 8  # or views, that tell noise from signal
_CUT = 0.1  # of the largest line integral, at the detector's end
_CUT_SHARE = 0.1  # of the views


def implausible(scan: Scan) -> list[str]:
    """List what looks wrong with a scan, one sentence each, its own warnings first; mostly nothing.

    The sizes of line integrals and attenuation are not questioned where a ground truth says that the scan was
    simulated: published test problems have objects that no light would penetrate.

    Raises:
        ScanError: the sinogram cannot hold line integrals.
    """
    sinogram = np.asarray(scan.sinogram, dtype=np.float64)
    if scan.ground_truth is None:
        refuse_impossible(sinogram)
    findings = [
        None if scan.ground_truth is not None else _size(sinogram),
        None if scan.ground_truth is not None else _attenuation(sinogram, scan.geometry),
        _negative(scan, sinogram),
        _noise(scan, sinogram),
        _cut_off(scan, sinogram),
        _one_direction(scan.geometry),
    ]
    return [*scan.warnings, *(finding for finding in findings if finding is not None)]


def refuse_impossible(sinogram: Floats) -> None:
    """Refuse a sinogram that cannot hold line integrals of any object.

    Raises:
        ScanError: with what it may be instead.
    """
    largest, total = float(sinogram.max()), float(sinogram.sum())
    if largest > _IMPOSSIBLE:
        raise ScanError(
            f"the largest line integral is {largest:.4g}, but no light gets through more than about "
            f"{_OPAQUE:g}: these look like counts or grey values; import counts with their air readings "
            "(ct-dip import --counts), or store −log(counts/air)"
        )
    if total < 0:
        raise ScanError(
            f"the line integrals add up to {total:.4g}, but no object has negative mass; was the sign of "
            "−log(counts/air) lost, the air taken too dark, or are the axes exchanged (ct-dip import "
            "--transpose)?"
        )


def _size(sinogram: Floats) -> str | None:
    largest = float(sinogram.max())
    if largest <= _OPAQUE:
        return None
    return (
        f"The largest line integral is {largest:.3g}: of {math.exp(min(largest, 700)):.0e} photons one gets "
        "through. Are these counts rather than line integrals (ct-dip import --counts)?"
    )


def _attenuation(sinogram: Floats, geometry: Geometry) -> str | None:
    """Check the ray that is attenuated most: the object is at most as long as the grid's diagonal."""
    mean = float(sinogram.max()) / (2 * geometry.volume.radius)
    if mean > _DENSEST:
        return (
            f"The attenuation along a ray is {mean:.3g} /mm in the mean, more than any material has; are "
            f"lengths in mm? The pixel size is {geometry.volume.pixel_size:g} mm."
        )
    if 0 < mean < _THINNEST:
        return (
            f"The attenuation along the darkest ray is {mean:.1e} /mm in the mean, less than air has; are "
            f"lengths in mm? The pixel size is {geometry.volume.pixel_size:g} mm."
        )
    return None


def _negative(scan: Scan, sinogram: Floats) -> str | None:
    std = _std(scan)
    share = float(np.mean(sinogram < -_BELOW_ZERO * np.maximum(std, _DRIFT * sinogram.max())))
    if share <= _BELOW_ZERO_SHARE:
        return None
    return (
        f"{share:.0%} of the line integrals are negative, beyond what noise would do. Was the air taken too "
        "dark, or the sign of −log(counts/air) lost in a part of them?"
    )


def _noise(scan: Scan, sinogram: Floats) -> str | None:
    """Compare the stated noise with third differences along the detector, and from view to view.

    Bins may be too wide to tell noise from the object, or views too far apart: the smaller difference says
    how much of it can be noise.
    """
    if scan.noise is None or sinogram.shape[1] < _FEWEST_BINS:
        return None
    variance = scan.noise.variance(scan.sinogram)
    ratio = least = third_difference_ratio(sinogram, variance)
    if len(sinogram) >= _FEWEST_BINS:
        order = np.argsort(scan.geometry.angles, kind="stable")
        least = min(ratio, third_difference_ratio(sinogram[order].T, variance[order].T))
    if least > _NOISE_UNDERSTATED:
        return (
            f"Neighbouring measurements differ {least:.0f} times as much as the stated noise allows. State "
            "the noise that the data have, or none: it will be estimated."
        )
    if ratio < _NOISE_OVERSTATED:
        return (
            f"Neighbouring measurements differ by {ratio:.2g} of what the stated noise would do. State the "
            "noise that the data have, or none: it will be estimated."
        )
    return None


def _cut_off(scan: Scan, sinogram: Floats) -> str | None:
    """Look for the object at the detector's end; a detector that is short on one side may cut it off."""
    low, high = scan.geometry.reach
    ends = np.abs(sinogram[:, [0, -1]])
    if scan.geometry.sees_one_side:
        ends = ends[:, [0]] if -low > high else ends[:, [1]]
    limit = max(_CUT * float(sinogram.max()), _BELOW_ZERO * float(np.median(_std(scan))))
    share = float(np.mean((ends > limit).any(axis=1)))
    if share <= _CUT_SHARE:
        return None
    return (
        f"In {share:.0%} of the views the object reaches the end of the detector. What lies outside of the "
        "field of view is missing there, and makes the image wrong towards its edge."
    )


def _one_direction(geometry: Geometry) -> str | None:
    directions = len(np.unique(np.round(np.mod(geometry.angles, 2 * math.pi), 9)))
    if geometry.views == 1 or directions > 1:
        return None
    return f"All {geometry.views} views have the same angle: they show the object from one side only."


def _std(scan: Scan) -> Floats:
    """Return the larger of the stated noise and of what the data show, as the stated one may be wrong."""
    shown = estimate_white_std(scan.sinogram) if scan.geometry.detectors >= _FEWEST_BINS else 0.0
    stated = 0.0 if scan.noise is None else np.sqrt(scan.noise.variance(scan.sinogram))
    return np.broadcast_to(np.maximum(stated, shown), scan.sinogram.shape)
