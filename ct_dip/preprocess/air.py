"""Air of every view: the detector's ends should read a line integral of zero, whatever the tube did."""

import numpy as np

from ct_dip.arrays import Bools, Floats
from ct_dip.errors import ScanError

_LEVEL = 0.1  # of the range of line integrals, by which an end that sees the object differs
_OPAQUE = 0.3  # of the largest line integral, more than any drift
_SHARE = 0.1  # of the views, in which it may


def air_bins(sinogram: Floats, edge: int | None = None) -> Bools:
    """Return the bins at the detector's ends that see air, (detectors,).

    Args:
        sinogram: line integrals, (views, detectors).
        edge: bins at either end; one in twenty-five if not given. An end that sees the object is left out.

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
    clear = np.zeros(detectors, dtype=bool)
    for end, next_one, other, bins in zip(
        ends, beside, ends[::-1], (clear[:edge], clear[-edge:]), strict=True
    ):
        level = end.mean(axis=1)  # air is flat, and as bright as the other end or brighter
        object_ = (np.abs(level - next_one.mean(axis=1)) > limit) | (level - other.mean(axis=1) > limit)
        object_ |= level > _OPAQUE * float(sinogram.max())
        bins[:] = float(object_.mean()) <= _SHARE
    if not clear.any():
        raise ScanError("neither end of the detector sees air in all views; skip this step")
    return clear


def normalise_air(sinogram: Floats, *, edge: int | None = None) -> tuple[Floats, str]:
    """Subtract from every view the median of its `air_bins`; returns the step in words, too."""
    bins = air_bins(sinogram, edge)
    air = np.median(sinogram[:, bins], axis=1, keepdims=True)
    both = bool(bins[0] and bins[-1])
    words = f"air: {air.min():.3g} to {air.max():.3g} subtracted from the views, the median of "
    count = int(bins.sum()) // (2 if both else 1)
    return sinogram - air, words + f"{count} bins at {'either end' if both else 'one end'}"
