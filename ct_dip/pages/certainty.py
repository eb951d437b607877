"""The widths of an image's error bars, on and near the object."""

import numpy as np

from ct_dip.data.prediction import Prediction
from ct_dip.evaluation.near import near_object_of


def certainty(result: Prediction) -> dict[str, float] | None:
    """Summarise half the widths of 95 % error bars on and near the object, in 1/mm, and its range."""
    if result.std is None:
        return None
    near, seen = near_object_of(result), result.evaluated
    std = result.std[near if near.any() else seen]  # a constant image has no object
    half = result.pixel_distribution.reach(0.95) * std
    return {
        "typical": float(np.median(half)),
        "wide": float(np.quantile(half, 0.99)),
        "range": float(np.ptp(result.mean[seen])),
    }
