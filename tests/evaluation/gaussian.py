"""Predictions with a Gaussian error of known covariance, for tests of scores."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from scipy.ndimage import gaussian_filter

from ct_dip.data.pixel_distribution import GAUSSIAN, PixelDistribution
from ct_dip.errors import MissingPartError


@dataclass(frozen=True)
class Predicted:
    """A prediction as `ct_dip.evaluation.score` sees it, with the covariance of all of its pixels or none."""

    mean: np.ndarray
    std: np.ndarray | None = None
    samples: np.ndarray | None = None
    covariance: np.ndarray | None = None
    diagnostics: dict[str, Any] = field(default_factory=dict)
    pixel_distribution: PixelDistribution = GAUSSIAN

    def covariances(self, width):
        if self.covariance is None:
            raise MissingPartError("no covariance")
        rows, columns = self.mean.shape
        index = np.arange(rows * columns).reshape(rows, columns)
        patches = []
        for top in range(0, rows, width):
            for left in range(0, columns, width):
                where = slice(top, min(top + width, rows)), slice(left, min(left + width, columns))
                inside = index[where].ravel()
                patches.append((*where, self.covariance[np.ix_(inside, inside)]))
        return patches


def smooth_factor(shape, length):
    """A square root of a covariance whose pixels have variance 1 and err together, (pixels, pixels)."""
    units = np.eye(shape[0] * shape[1]).reshape(-1, *shape)
    factor = np.stack([gaussian_filter(unit, length, mode="constant").ravel() for unit in units], axis=1)
    return factor / np.linalg.norm(factor, axis=1, keepdims=True)


def disk(shape, radius):
    """1/mm inside a disk in the middle, 0 outside."""
    rows, columns = np.indices(shape) - (np.array(shape) - 1)[:, None, None] / 2
    return np.where(np.hypot(rows, columns) < radius, 0.02, 0.0)
