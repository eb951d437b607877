"""Whether the object reaches beyond the detector: then its ends do not see air."""

import math

import numpy as np

from ct_dip.arrays import Floats
from ct_dip.data.noise import estimate_white_std

_ENDS = 50  # one bin in so many, at either end, is compared with air
_LEVEL = 0.1  # of the largest line integral, above which a view's end is not air
_NOISE = 5.0  # deviations
_SHARE = 0.1  # of the views, that may be cut off by chance


def truncated_views(sinogram: Floats) -> Floats:
    """Share of views whose first, and whose last bins are not air: two numbers from 0 to 1."""
    count = max(1, sinogram.shape[1] // _ENDS)
    ends = np.stack([sinogram[:, :count].mean(axis=1), sinogram[:, -count:].mean(axis=1)])
    noise = estimate_white_std(sinogram) / math.sqrt(count)
    limit = max(_LEVEL * float(sinogram.max()), _NOISE * noise)
    return np.asarray(np.mean(ends > limit, axis=1))


def is_truncated(sinogram: Floats) -> bool:
    """Whether the object reaches beyond either end of the detector in more than a tenth of the views."""
    return bool(truncated_views(sinogram).max() > _SHARE)
