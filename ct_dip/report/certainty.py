"""How sure an image is of itself: the widths of its error bars."""

from statistics import NormalDist

import numpy as np

from ct_dip.data.prediction import Prediction
from ct_dip.evaluation.near import near_object_of

WIDTH_95 = NormalDist().inv_cdf(0.975)  # standard deviations to the end of a 95 % interval


def certainty(result: Prediction) -> dict[str, float] | None:
    """Half the width of 95 % error bars on and near the object, in 1/mm, and the object's range."""
    if result.std is None:
        return None
    near, seen = near_object_of(result), result.evaluated
    half = WIDTH_95 * result.std[near if near.any() else seen]  # a constant image has no object
    return {
        "typical": float(np.median(half)),
        "wide": float(np.quantile(half, 0.95)),
        "range": float(np.ptp(result.mean[seen])),
    }
