"""The log-likelihood of patches: whether the correlations of errors are right, too."""

from collections.abc import Iterable

import numpy as np
from scipy.linalg import solve_triangular

from ct_dip.arrays import Bools, Floats
from ct_dip.data.scores import Mean
from ct_dip.evaluation.clusters import clustered_mean, tile_numbers


def patch_log_likelihood(
    error: Floats,
    patches: Iterable[tuple[slice, slice, Floats]],
    mask: Bools,
    *,
    noise_std: float = 0.0,
) -> Mean | None:
    """Return the mean over pixels of ``log N(error; 0, C + ν² I)``, a density in (1/mm)⁻¹, nats.

    Pixels of different patches are taken as independent. ``None`` if a covariance is singular.

    Args:
        error: truth − mean, (rows, columns), 1/mm.
        patches: rows, columns and covariance C of each, (pixels, pixels), 1/mm², row-major inside.
        mask: the pixels that count, (rows, columns).
        noise_std: ν of a reference, 1/mm.
    """
    totals, counts, clusters = [], [], []
    tiles = tile_numbers((error.shape[0], error.shape[1]))
    for rows, columns, covariance in patches:
        counted = np.flatnonzero(mask[rows, columns])
        if not len(counted):
            continue
        covered = np.asarray(covariance, dtype=np.float64)[np.ix_(counted, counted)]  # a copy
        covered[np.diag_indices(len(counted))] += noise_std**2
        try:
            lower = np.linalg.cholesky(covered)
        except np.linalg.LinAlgError:
            return None
        white = solve_triangular(lower, error[rows, columns].ravel()[counted], lower=True)
        constant = len(counted) * np.log(2 * np.pi) / 2
        totals.append(-0.5 * float(white @ white) - float(np.log(lower.diagonal()).sum()) - constant)
        counts.append(len(counted))
        clusters.append(tiles[rows.start, columns.start])
    return clustered_mean(np.array(totals), np.array(clusters, dtype=np.intp), np.array(counts, dtype=int))
