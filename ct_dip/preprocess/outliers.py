"""Single readings that are far off: particles that hit the detector, bits that flipped."""

import numpy as np
from scipy.ndimage import median_filter

from ct_dip.arrays import Floats

_LEAST = 0.15  # of the largest line integral: smaller ones may be corners of the object
_NORMAL = 0.6744897501960817


def remove_outliers(sinogram: Floats, *, deviations: float = 8.0) -> tuple[Floats, str]:
    """Replace outliers by the median of five views; returns the step in words, too.

    An outlier differs from the medians along the views *and* along the detector, by so many robust deviations
    from both: an edge of the object agrees with its neighbours in one direction at least.
    """
    values = np.asarray(sinogram, dtype=np.float64)
    along_views = median_filter(values, size=(5, 1), mode="mirror")
    along_detector = median_filter(values, size=(1, 5), mode="mirror")
    far = np.ones(values.shape, dtype=bool)
    for median in (along_views, along_detector):
        away = np.abs(values - median)
        # Where the object changes fast, so do readings that are right; and nowhere is the noise smaller.
        typical = np.maximum(np.median(away), median_filter(away, size=(5, 5), mode="mirror"))
        far &= away > np.maximum(deviations * typical / _NORMAL, _LEAST * np.quantile(values, 0.999))
    if not far.any():
        return sinogram, "outliers: none found"
    words = f"outliers: {far.sum()} of {far.size} measurements replaced by the median of five views"
    return np.where(far, along_views, values), words
