"""Which pixels are in the object or next to it: where error bars matter."""

import numpy as np
from scipy.ndimage import binary_dilation

from ct_dip.arrays import Bools, Floats
from ct_dip.data.prediction import Prediction

_OBJECT = 0.02  # of the truth's range above its minimum
_BACKGROUND = 0.05  # quantile of a reconstruction that is taken for the background
_BETWEEN = 0.2  # of the way from the background to the dense parts of a reconstruction


def near_object(image: Floats, mask: Bools | None = None, *, noisy: bool = False) -> Bools:
    """Pixels in the object or next to it, diagonally too, (rows, columns).

    The object is where the truth exceeds its minimum by more than 2 % of its range; a constant image has
    none. A reconstruction has noise of that size where nothing is. There the object begins a fifth of the way
    from the background to the dense parts, which are the median above Otsu's threshold.

    Args:
        mask: the pixels that count; all if ``None``.
        noisy: the image is a reconstruction rather than the truth.
    """
    image = np.asarray(image, dtype=np.float64)  # the object of an image is that of its copy in float32
    where = np.ones(image.shape, dtype=bool) if mask is None else mask
    values = image[where]
    low, high = float(values.min()), float(values.max())
    if high == low:
        return np.zeros(image.shape, dtype=bool)
    start = low + _OBJECT * (high - low)
    if noisy:
        from skimage.filters import threshold_otsu

        background = float(np.quantile(values, _BACKGROUND))
        dense = float(np.median(values[values > threshold_otsu(values)]))
        start = background + _BETWEEN * (dense - background)
    inside = (image > start) & where
    return np.asarray(binary_dilation(inside, structure=np.ones((3, 3), dtype=bool)), dtype=bool) & where


def near_object_of(result: Prediction) -> Bools:
    """`near_object` of what a result is known to show: the truth if there is one, else its own image.

    A reference is no help: it is noise where nothing is.
    """
    compared, seen = result.comparison, result.evaluated
    if compared is not None and compared.name == "truth":
        return near_object(compared.image, seen)
    return near_object(result.mean, seen, noisy=True)
