"""Whether error bars of means are right: of square blocks, and of regions that a user drew.

A mean's deviation comes from samples as in `ct_dip.evaluation.region`: with s² from n samples, the error over
s follows Student's distribution with n degrees of freedom. A reference adds the variance ``ν²/pixels`` of its
own noise, which is known and taken as independent from pixel to pixel; the degrees of freedom of the sum are
Satterthwaite's, ``n (1 + ν²/(pixels s²))²``. Without samples, the covariances of patches give a variance that
is taken as exact.
"""

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, stdtr

from ct_dip.arrays import Bools, Floats
from ct_dip.data.scores import LEVELS, MeanScores
from ct_dip.evaluation.clusters import TILE, clustered_mean, root

_MANY = 1e6  # degrees of freedom: Student's distribution is the normal one


class Deviations(NamedTuple):
    """Standard deviations of numbers, and how well they are known."""

    std: Floats
    degrees: Floats  # of freedom; infinite if the deviation is exact

    def standardised(self, errors: Floats) -> Floats:
        """Return ``|error|/std``; where std is 0, 0 for no error and infinity for any."""
        certain = np.where(errors == 0, 0.0, np.inf)
        return np.divide(np.abs(errors), self.std, out=certain, where=self.std > 0)

    def levels(self, errors: Floats) -> Floats:
        """Return the level of the narrowest central interval that holds each, ``2 T(|error|/std) − 1``."""
        z, many = self.standardised(errors), self.degrees > _MANY
        return 2 * np.where(many, ndtr(z), stdtr(np.where(many, 1.0, self.degrees), z)) - 1


def sampled_deviations(samples: Floats, known_variance: Floats | float = 0.0) -> Deviations:
    """Return the deviation of numbers from samples of their errors and a variance that is known besides.

    Args:
        samples: of the errors, with a mean of 0 that is not estimated, (n, …).
        known_variance: of an independent part of the error, (…).
    """
    sampled = np.mean(np.square(samples, dtype=np.float64), axis=0)
    with np.errstate(divide="ignore", invalid="ignore"):
        degrees = len(samples) * (1 + known_variance / sampled) ** 2
    return Deviations(np.sqrt(sampled + known_variance), np.where(sampled > 0, degrees, np.inf))


def mean_scores(errors: Floats, deviations: Deviations, clusters: NDArray[np.intp]) -> MeanScores:
    """Return coverage and size of the standardised errors of one or more means, (means,) each.

    Args:
        clusters: number of every mean's cluster; see `ct_dip.evaluation.clusters`.
    """
    levels = deviations.levels(errors)
    covered = {level: clustered_mean((levels <= level).astype(float), clusters) for level in LEVELS}
    return MeanScores(
        count=len(errors),
        coverage={level: mean for level, mean in covered.items() if mean is not None},
        rms_z=root(clustered_mean(deviations.standardised(errors) ** 2, clusters)),
    )


class Blocks(NamedTuple):
    """Squares of ``width`` pixels, by their place among those that tile the image."""

    width: int
    rows: NDArray[np.intp]  # (blocks,)
    columns: NDArray[np.intp]

    def means(self, images: Floats) -> Floats:
        """Return the blocks' means of images (…, rows, columns), (…, blocks)."""
        return _tile_means(images, self.width)[..., self.rows, self.columns]

    def variances(self, patches: Iterable[tuple[slice, slice, Floats]]) -> Floats:
        """Return the variance of every block's mean, (blocks,), from covariances of patches of its width."""
        by_place = {
            (rows.start // self.width, columns.start // self.width): covariance.mean(dtype=np.float64)
            for rows, columns, covariance in patches
        }
        return np.array([by_place[place] for place in zip(self.rows, self.columns, strict=True)])

    @property
    def clusters(self) -> NDArray[np.intp]:
        """Number of the tile that every block's first pixel is in, (blocks,)."""
        rows, columns = (place * self.width // TILE for place in (self.rows, self.columns))
        return np.asarray(rows * (columns.max(initial=0) + 1) + columns)


def blocks_inside(part: Bools, width: int) -> Blocks:
    """Return the blocks all of whose pixels are in a part of the image, (rows, columns)."""
    return Blocks(width, *np.nonzero(_tile_means(part.astype(np.float64), width) == 1))


def _tile_means(images: Floats, width: int) -> Floats:
    """Means over the whole squares that tile images (…, rows, columns), (…, rows/width, columns/width)."""
    *batch, rows, columns = images.shape
    rows, columns = rows // width, columns // width
    tiled = images[..., : rows * width, : columns * width].reshape(*batch, rows, width, columns, width)
    return np.asarray(tiled.mean(axis=(-3, -1), dtype=np.float64))
