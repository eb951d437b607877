"""Stripes of a sinogram, which FBP draws as rings: detectors that read too much or too little in every view.

A running median along the detector follows the views, also over steps. What a detector differs from it in
the median over views is its own error: edges of the object move on from view to view, and are forgotten. A
shell around the axis does not move, but is seen on either side of the axis, and a detector on one: errors
that their mirror image shares are left alone. Stripes that come and go with the views, and those of more than
half of the window in a row, are not found.
"""

import numpy as np
from scipy.ndimage import maximum_filter1d, median_filter

from ct_dip.arrays import Floats
from ct_dip.geometry import Geometry

_SIGNIFICANT = 5.0  # robust deviations of detectors from the running median
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
    error = np.median(values - median_filter(values, size=(1, window), mode="nearest"), axis=0)
    # Nearby errors that are as large are the object's; in air there is hardly any.
    local = median_filter(np.abs(error), size=2 * window + 1, mode="nearest")
    overall = float(np.median(np.abs(error[error != 0]))) if error.any() else 0.0
    significant = np.abs(error) > _SIGNIFICANT * np.maximum(local, overall) / _NORMAL
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
