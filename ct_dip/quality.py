"""How close an image is to the truth."""

import math

import numpy as np

from ct_dip.arrays import Bools, Floats


def psnr(image: Floats, truth: Floats, mask: Bools | None = None) -> float:
    """Peak signal-to-noise ratio, dB: ``10 log₁₀(range² / mean squared error)``.

    The range is that of the truth; with a ``mask``, range and error are taken inside it.
    """
    if mask is not None:
        image, truth = image[mask], truth[mask]
    error = float(np.mean((np.asarray(image, float) - truth) ** 2))
    spread = float(np.ptp(truth))
    if error == 0:
        return math.inf
    return 10 * math.log10(spread**2 / error) if spread > 0 else -math.inf


def ssim(image: Floats, truth: Floats) -> float:
    """Structural similarity (Wang et al. 2004), with the truth's range; 1 is perfect.

    NaN where it has no meaning: for a constant truth, or one thinner than 3 pixels.
    """
    if min(truth.shape) < 3 or np.ptp(truth) == 0:
        return math.nan
    from skimage.metrics import structural_similarity

    side = min(7, *truth.shape)
    return float(
        structural_similarity(
            np.asarray(truth, float),
            np.asarray(image, float),
            data_range=float(np.ptp(truth)),
            win_size=side - 1 + side % 2,
        )
    )
