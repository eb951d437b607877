"""The pixels that a comparison with the truth, or with a reference, counts."""

import numpy as np

from ct_dip.arrays import Bools, Floats
from ct_dip.errors import InputError


def errors_and_stds(
    truth: Floats, mean: Floats, std: Floats, mask: Bools | None = None
) -> tuple[Floats, Floats]:
    """``truth − mean`` and ``std`` of the pixels inside the mask, each (pixels,) in float64.

    Args:
        truth: (rows, columns), or any shape that all share.
        mask: the pixels that count; all if ``None``.
    """
    for name, values in {"mean": mean, "std": std, "mask": mask}.items():
        if values is not None and values.shape != truth.shape:
            raise InputError(f"{name} has shape {values.shape}, the truth {truth.shape}")
    where = np.ones(truth.shape, dtype=bool) if mask is None else np.asarray(mask, dtype=bool)
    if not where.any():
        raise InputError("the mask leaves no pixel to compare with the truth")
    error = np.asarray(truth, dtype=np.float64)[where] - mean[where]
    deviation = np.asarray(std, dtype=np.float64)[where]
    if not (np.isfinite(error).all() and np.isfinite(deviation).all()):
        raise InputError("truth, mean and std must be finite")
    if (deviation < 0).any():
        raise InputError("a standard deviation is negative")
    return error, deviation
