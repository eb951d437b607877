"""How close an image is to the truth."""

import math

import numpy as np

from ct_dip.arrays import Bools, Floats


def psnr(image: Floats, truth: Floats, mask: Bools | None = None) -> float:
    """Compute the peak signal-to-noise ratio in dB: ``10 log₁₀(range² / mean squared error)``.

    The range is that of the truth; with a ``mask``, range and error are taken inside it.
    """
    if mask is not None:
        image, truth = image[mask], truth[mask]
    error = float(np.mean((np.asarray(image, float) - truth) ** 2))
    value_range = float(np.ptp(truth))
    if error == 0:
        return math.inf
    return 10 * math.log10(value_range**2 / error) if value_range > 0 else -math.inf


def ssim(image: Floats, truth: Floats, mask: Bools | None = None) -> float:
    """Compute the structural similarity (Wang et al. 2004), with the truth's range; 1 is perfect.

    With a ``mask``, the range is taken and the similarity of windows averaged over the pixels inside it,
    and what is outside counts as 0 in both images. NaN where it has no meaning: for a constant truth, or one
    thinner than 3 pixels.
    """
    similarity = similarities(image, truth, mask)
    counted = np.isfinite(similarity)
    return float(similarity[counted].mean()) if counted.any() else math.nan


def similarities(
    image: Floats, truth: Floats, mask: Bools | None = None, *, value_range: float | None = None
) -> Floats:
    """Structural similarity of the 7×7 window around every pixel, (rows, columns); NaN where none counts.

    Those count that are inside the mask and whose windows lie inside the image whole, as skimage averages.

    Args:
        value_range: in place of the truth's.
    """
    where = np.ones(truth.shape, dtype=bool) if mask is None else mask
    value_range = float(np.ptp(truth[where])) if value_range is None else value_range
    if min(truth.shape) < 3 or value_range == 0:
        return np.full(truth.shape, math.nan)
    from skimage.metrics import structural_similarity

    side = min(7, *truth.shape)
    window = side - 1 + side % 2
    _, similarity = structural_similarity(
        np.where(where, truth, 0.0),
        np.where(where, image, 0.0),
        data_range=value_range,
        win_size=window,
        full=True,
    )
    inner = np.zeros(truth.shape, dtype=bool)
    edge = window // 2
    inner[edge : truth.shape[0] - edge, edge : truth.shape[1] - edge] = True
    return np.where(where & inner, similarity, math.nan)
