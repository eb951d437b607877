"""Stripes of a sinogram, which FBP draws as rings: detectors that read too much or too little in every view.

A running median along the detector follows the views, also over steps. What a detector differs from it in
the median over views is its own error: edges of the object move on from view to view, and are forgotten. An
error that changes its sign from one quarter of the views to another is the object's, too. A shell around the
axis does not move, but is seen on either side of the axis, and a detector on one: errors that their mirror
image shares are left alone. Stripes that come and go with the views, and those of more than half of the
window in a row, are not found.
"""

import math

import numpy as np
from scipy.ndimage import maximum_filter1d, median_filter

from ct_dip.arrays import Floats
from ct_dip.geometry import Geometry

_LARGE = 3.0  # robust deviations of detectors from the running median
_SIGNIFICANT = 5.0  # standard errors
_PARTS = 4  # of the views, in all of which an error has the same sign
_MIRRORED = 0.4  # of an error, on the other side of the axis, that makes it the object's
_NORMAL = 0.6744897501960817


def remove_stripes(sinogram: Floats, geometry: Geometry, *, window: int = 9) -> tuple[Floats, str]:
    """Subtract the error of every detector that has a significant one; returns the step in words, too.

    Args:
        sinogram: line integrals, (views, detectors).
        geometry: says which detectors are mirror images of one another.
        window: detectors of the running median.
    """
    values = np.asarray(sinogram, dtype=np.float64)
    away = values - median_filter(values, size=(1, window), mode="nearest")
    error = np.median(away, axis=0)
    # Nearby errors that are as large are the object's; in air there is hardly any.
    local = median_filter(np.abs(error), size=2 * window + 1, mode="nearest")
    overall = float(np.median(np.abs(error[error != 0]))) if error.any() else 0.0
    significant = np.abs(error) > _LARGE * np.maximum(local, overall) / _NORMAL
    spread = np.median(np.abs(away - error), axis=0) / _NORMAL
    significant &= np.abs(error) > _SIGNIFICANT * math.sqrt(math.pi / 2 / len(values)) * spread  # of a median
    by_angle = np.argsort(geometry.angles, kind="stable")
    parts = [np.median(part, axis=0) for part in np.array_split(away[by_angle], min(_PARTS, len(values)))]
    significant &= np.all(np.sign(parts) == np.sign(error), axis=0)
    distances = geometry.axis_distances(geometry.detector_positions)
    for sign in (1, -1):
        near = maximum_filter1d(np.maximum(sign * error, 0), size=3)
        mirrored = np.interp(-distances, distances, near, left=0.0, right=0.0)
        significant &= (sign * error <= 0) | (mirrored < _MIRRORED * np.abs(error))
    count = int(significant.sum())
    if not count:
        return sinogram, "stripes: none found"
    error[~significant] = 0
    words = f"stripes: {count} of {len(error)} detectors corrected by up to {np.abs(error).max():.3g}"
    return sinogram - error, words
