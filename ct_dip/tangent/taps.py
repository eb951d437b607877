"""The taps of a filter: their distances, and how to sum over all pairs of a distance cheaply.

A prior of taps that depends on distance alone needs ``Σ_{‖p−q‖=d} j_p j_qᵀ`` for the six distances d of a
3×3 stencil, with j_p the features of tap p: 45 products of features. The matrices ``M_d[p, q] = [‖p−q‖ = d]``
share the symmetries of the square, which reduces that. By its symmetry the nine taps split into centre,
corner sum, edge sum (which mix with each other), the x² − y² of the edges, the xy of the corners, and the
two pairs (x, y) of corners and of edges (which mix with each other, in x as in y). So 14 vectors v are
enough: ``M_d = Σ_v c_dv v vᵀ``, and with features ``X_v = Σ_p v_p j_p`` the sums are ``Σ_v c_dv X_v X_vᵀ``,
each a symmetric product, of which half is computed. For other stencils, which only a user's own network has,
the v are simply the eigenvectors of every M_d.
"""

from functools import cache
from typing import NamedTuple

import torch
from torch import Tensor


class TapPairs(NamedTuple):
    """Constants of a stencil, float64."""

    distances: Tensor  # (distances,): ascending, in taps
    pairs: Tensor  # (distances, taps, taps): M_d
    vectors: Tensor  # (vectors, taps): v
    coefficients: Tensor  # (distances, vectors): c_dv


@cache
def tap_pairs(kernel: int) -> TapPairs:
    """Return the pairs of a square stencil, taps in row-major order."""
    if kernel == 1:
        one = torch.ones(1, 1, dtype=torch.float64)
        return TapPairs(torch.zeros(1, dtype=torch.float64), one[None], one, one)
    steps = torch.arange(kernel, dtype=torch.float64) - kernel // 2
    y, x = (axis.flatten() for axis in torch.meshgrid(steps, steps, indexing="ij"))
    squares = (y[:, None] - y) ** 2 + (x[:, None] - x) ** 2  # integers: compared exactly
    kinds = torch.unique(squares)
    pairs = torch.stack([(squares == kind).double() for kind in kinds])
    if kernel != 3:
        values, bases = torch.linalg.eigh(pairs)
        coefficients = (torch.eye(len(kinds))[:, :, None] * values).flatten(1)
        used = coefficients.abs().amax(dim=0) > 1e-9
        return TapPairs(kinds.sqrt(), pairs, bases.mT.reshape(-1, kernel**2)[used], coefficients[:, used])
    vectors = _symmetric_vectors(x, y)
    products = torch.einsum("vp,vq->pqv", vectors, vectors).reshape(81, -1)
    coefficients = torch.linalg.lstsq(products, pairs.reshape(-1, 81).T, driver="gelsd").solution.T
    return TapPairs(kinds.sqrt(), pairs, vectors, coefficients)


def _symmetric_vectors(x: Tensor, y: Tensor) -> Tensor:
    reach = x.abs() + y.abs()
    centre, edge, corner = ((reach == r).double() for r in (0, 1, 2))
    return torch.stack(
        [
            *(centre, corner, edge, centre + corner, centre + edge, corner + edge),
            *(edge * (x**2 - y**2), corner * x * y),
            *(corner * x, edge * x, (corner + edge) * x),
            *(corner * y, edge * y, (corner + edge) * y),
        ]
    )
