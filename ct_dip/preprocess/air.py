"""Air of every view: the detector's ends should read a line integral of zero, whatever the tube did."""

import numpy as np

from ct_dip.arrays import Floats
from ct_dip.errors import ScanError

_LEVEL = 0.1  # of the range of line integrals, by which an end that sees the object differs
_OPAQUE = 0.3  # of the largest line integral, more than any drift
_SHARE = 0.1  # of the views, in which it may


def normalise_air(sinogram: Floats, *, edge: int | None = None) -> tuple[Floats, str]:
    """Subtract from every view the median of its ends; returns the step in words, too.

    Args:
        sinogram: line integrals, (views, detectors).
        edge: bins at either end that see air; one in twenty-five if not given. An end that sees the object
            is left out.

    Raises:
        ScanError: neither end sees air, or they are too wide.
    """
    detectors = sinogram.shape[1]
    edge = max(1, detectors // 25) if edge is None else edge
    if not 1 <= edge <= detectors // 2:
        raise ScanError(f"air at {edge} bins of either end: the detector has {detectors}; give fewer")
    ends = sinogram[:, :edge], sinogram[:, -edge:]
    beside = sinogram[:, edge : 2 * edge], sinogram[:, -2 * edge : -edge]
    limit = _LEVEL * float(sinogram.max() - sinogram.min())
    clear = []
    for end, next_one, other in zip(ends, beside, ends[::-1], strict=True):
        level = end.mean(axis=1)  # air is flat, and as bright as the other end or brighter
        object_ = (np.abs(level - next_one.mean(axis=1)) > limit) | (level - other.mean(axis=1) > limit)
        object_ |= level > _OPAQUE * float(sinogram.max())
        clear.append(float(object_.mean()) <= _SHARE)
    if not any(clear):
        raise ScanError("neither end of the detector sees air in all views; skip this step")
    seen = np.concatenate([end for end, sees in zip(ends, clear, strict=True) if sees], axis=1)
    air = np.median(seen, axis=1, keepdims=True)
    words = f"air: {air.min():.3g} to {air.max():.3g} subtracted from the views, the median of "
    return sinogram - air, words + f"{edge} bins at {'either end' if all(clear) else 'one end'}"
