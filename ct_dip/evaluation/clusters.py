"""Standard errors of means over pixels or rays that are correlated.

Neighbours err together, so n pixels are worth fewer than n observations. Observations are therefore gathered
in clusters, which are taken to be independent: square tiles of an image, or the views of a sinogram. With
sums ``S_g`` and counts ``n_g`` of G clusters, the mean is a ratio with the usual robust standard error,

    m = Σ_g S_g / Σ_g n_g,        se² = G/(G − 1) Σ_g (S_g − m n_g)² / (Σ_g n_g)².

Errors that reach further than a tile, as streaks do, make it too small: where correlations of Gaussian errors
fell to 1/e after 2, 4 and 6 pixels, it was 0.9, 0.85 and 0.7 of the spread of repeated draws (150, of 48²). A
figure that differs from part to part of the object, as SSIM does, varies from tile to tile for that reason,
too, so that its error is larger than the spread over draws of the noise alone.
"""

import math

import numpy as np
from numpy.typing import NDArray

from ct_dip.arrays import Floats
from ct_dip.data.scores import Mean

TILE = 8  # pixels


def tile_numbers(shape: tuple[int, int], width: int = TILE) -> NDArray[np.intp]:
    """Return the number of the square tile that every pixel is in, (rows, columns)."""
    rows, columns = (np.arange(count) // width for count in shape)
    return np.asarray(rows[:, None] * (columns[-1] + 1) + columns)


def clustered_mean(
    values: Floats, clusters: NDArray[np.intp], counts: NDArray[np.integer] | None = None
) -> Mean | None:
    """Return ``Σ values / Σ counts`` with its standard error; ``None`` without values, or if not finite.

    Args:
        values: (n,).
        clusters: number of the cluster of every value, (n,).
        counts: how many observations every value is the sum of, (n,); 1 if ``None``.
    """
    if values.size == 0 or not np.isfinite(values).all():
        return None
    counts = np.ones(len(values), dtype=int) if counts is None else counts
    total = int(counts.sum())
    value = float(values.sum(dtype=np.float64)) / total
    present, cluster = np.unique(clusters, return_inverse=True)
    groups = len(present)
    if groups == 1:
        return Mean(value, None, total)
    rests = np.bincount(cluster, values - value * counts)
    return Mean(value, math.sqrt(groups / (groups - 1) * float(rests @ rests)) / total, total)


def root(mean: Mean | None) -> Mean | None:
    """Return the root of a mean of squares; its error is ``se(m) / (2 √m)`` to first order."""
    if mean is None:
        return None
    value = math.sqrt(mean.value)
    error = mean.standard_error
    if error is not None and value > 0:
        error /= 2 * value
    return Mean(value, error, mean.count)
