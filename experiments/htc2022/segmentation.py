"""Which pixels are plastic: by a threshold, and how sure error bars are of it."""

import numpy as np
import scipy.io
from skimage.filters import threshold_otsu

from benchmarks.kmnist import data_folder
from ct_dip.arrays import Bools
from ct_dip.data.prediction import Prediction

SURE = 0.95  # probability from which on a pixel counts as decided


def given_segmentation(which: str, side: int) -> Bools:
    """Return the challenge's segmentation on our grid, (side, side): where most of a pixel is plastic.

    Its 512 pixels of 0.1483 mm are oriented as ours, and 0.08 % less wide than 76 mm.
    """
    path = data_folder() / "htc2022" / f"htc2022_{which}_recon_fbp_seg.mat"
    fine = scipy.io.loadmat(path)["reconFullFbpSeg"] > 0
    return np.asarray(fine.reshape(side, 512 // side, side, -1).mean(axis=(1, 3)) > 0.5)


def segmentation_figures(which: str, prediction: Prediction) -> dict[str, float]:
    """Compare the segmentation of a prediction with the given one, inside the field of view."""
    return compare(prediction, given_segmentation(which, len(prediction.mean)))


def compare(prediction: Prediction, true: Bools) -> dict[str, float]:
    """Segment by Otsu's threshold c of the image itself, or by ``p = P(x > c) > 1/2`` with error bars.

    Both are the same pixels, since the distribution of a pixel is symmetric. What error bars add is how sure
    each is: pixels with p above `SURE` or below 1 − `SURE`, and the expected share of wrong ones,
    ``mean(min(p, 1 − p))``.

    Args:
        true: pixels that are plastic, (rows, columns).
    """
    seen = prediction.evaluated
    true = true[seen]
    threshold = float(threshold_otsu(prediction.mean[seen]))
    if prediction.std is None:
        dense = prediction.mean[seen] > threshold
        return {"matthews": matthews(dense, true), "wrong": float(np.mean(dense != true))}
    probability = prediction.probability_above(threshold)[seen]
    dense = probability > 0.5
    sure = np.maximum(probability, 1 - probability) > SURE
    return {
        "matthews": matthews(dense, true),
        "wrong": float(np.mean(dense != true)),
        "expected_wrong": float(np.mean(np.minimum(probability, 1 - probability))),
        "sure": float(np.mean(sure)),
        "wrong_where_sure": float(np.sum((dense != true) & sure) / max(1, np.sum(sure))),
    }


def matthews(found: Bools, true: Bools) -> float:
    """Return Matthews' coefficient, the correlation of two binary images; 0 if one of them is constant."""
    if found.all() or true.all() or not (found.any() and true.any()):
        return 0.0
    return float(np.corrcoef(found, true)[0, 1])
