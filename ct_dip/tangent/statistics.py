"""Exact feature statistics: the constant matrices of which every prior covariance is a weighted sum.

For a block b whose filters have tap covariance ``σ² exp(−‖p − q‖/ℓ)`` the image's prior covariance is
``J_b Σ_b J_bᵀ = σ² Σ_d exp(−d/ℓ) G_{b,d}``, with ``G_{b,d} = Σ_filters Σ_{‖p−q‖=d} j_p j_qᵀ``. The G are
computed once; from then on no hyperparameter needs the network.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from ct_dip.dip.unet import WeightBlock
from ct_dip.progress import Progress
from ct_dip.tangent.grams import add_lower_gram, block_columns, mirror_
from ct_dip.tangent.jacobian import Jacobian
from ct_dip.tangent.taps import tap_pairs


class FeatureStatistics(NamedTuple):
    """``G_{b,d}`` of every block and tap distance."""

    grams: Tensor  # (terms, pixels, pixels)
    terms: dict[str, slice]  # of every block, by ascending distance


def difference_variances(grams: Tensor, shape: tuple[int, int]) -> Tensor:
    """Return ``T = diag(D G Dᵀ)`` of the row and the column differences, (terms, differences).

    The variance of ``x_i − x_j`` is ``G_ii + G_jj − 2 G_ij``; see `image_differences`.
    """
    first, second = _neighbours(shape, grams.device)
    diagonal = grams.diagonal(dim1=1, dim2=2).double()
    return diagonal[:, first] + diagonal[:, second] - 2 * grams[:, first, second].double()


def streamed_difference_variances(jacobian: Jacobian, progress: Progress | None = None) -> Tensor:
    """Compute the same T by passes of Jᵀ, one for every difference, where the G are too large."""
    rows, columns = jacobian.range_shape
    like = jacobian.image
    first, second = _neighbours((rows, columns), like.device)
    variances = like.new_empty(count_terms(jacobian.blocks), len(first), dtype=torch.float64)
    with (progress or Progress()).stage("variances of differences", len(first)) as stage:
        for begin in range(0, len(first), jacobian.chunk):
            where = slice(begin, min(begin + jacobian.chunk, len(first)))
            each = torch.arange(where.stop - begin, device=like.device)
            units = like.new_zeros(len(each), rows * columns)
            units[each, second[where]] = 1
            units[each, first[where]] = -1
            pulled = jacobian.T(units.reshape(-1, rows, columns))
            for block, terms in zip(jacobian.blocks, term_slices(jacobian.blocks).values(), strict=True):
                variances[terms, where] = tap_forms(pulled[:, jacobian.slices[block.name]], block.kernel).T
            stage.update(where.stop)
    return variances


def _neighbours(shape: tuple[int, int], device: torch.device) -> tuple[Tensor, Tensor]:
    """Return the two pixels of every difference of `image_differences`."""
    pixel = torch.arange(shape[0] * shape[1], device=device).reshape(shape)
    first = torch.cat([pixel[:-1].flatten(), pixel[:, :-1].flatten()])
    return first, torch.cat([pixel[1:].flatten(), pixel[:, 1:].flatten()])


def tap_forms(rows: Tensor, kernel: int) -> Tensor:
    """Return ``Σ_filters fᵀ M_d f`` of every row, (n, filters · taps) → (n, distances), float64."""
    filters = rows.double().reshape(len(rows), -1, kernel**2)
    second_moments = filters.mT @ filters  # (n, taps, taps)
    return torch.einsum("npq,dpq->nd", second_moments, tap_pairs(kernel).pairs.to(second_moments))


def image_differences(image: Tensor) -> Tensor:
    """Take row differences, then column differences, (rows, columns) → (differences,)."""
    return torch.cat([image.diff(dim=-2).flatten(-2), image.diff(dim=-1).flatten(-2)], dim=-1)


def term_slices(blocks: Sequence[WeightBlock]) -> dict[str, slice]:
    """Return where the terms of every block are."""
    slices, start = {}, 0
    for block in blocks:
        stop = start + len(tap_pairs(block.kernel).distances)
        slices[block.name] = slice(start, stop)
        start = stop
    return slices


def count_terms(blocks: Sequence[WeightBlock]) -> int:
    """Count the matrices of `FeatureStatistics`."""
    return max(terms.stop for terms in term_slices(blocks).values())


def feature_statistics(jacobian: Jacobian, *, progress: Progress | None = None) -> FeatureStatistics:
    """Stream the columns of J, block by block, into their products."""
    pixels = jacobian.image.numel()
    grams = jacobian.image.new_zeros(count_terms(jacobian.blocks), pixels, pixels)
    add_statistics(grams, block_columns(jacobian, progress), jacobian.blocks)
    return FeatureStatistics(mirror_(grams), term_slices(jacobian.blocks))


def row_statistics(columns: Callable[[slice], Tensor], jacobian: Jacobian) -> Tensor:
    """Return ``R_b C_d R_bᵀ`` of all blocks and distances, (terms, n, n), for a few rows R, as ``Qᵀ B J``.

    In float64: these are projections of strong signals, next to a noise of 1.

    Args:
        columns: returns some columns of R, (n, P).
    """
    blocks = jacobian.blocks
    like = columns(slice(0, 1)).double()
    grams = like.new_zeros(count_terms(blocks), len(like), len(like))
    parts = ((block, columns(jacobian.slices[block.name]).double()) for block in blocks)
    add_statistics(grams, parts, blocks)
    return mirror_(grams)


def add_statistics(
    grams: Tensor, columns: Iterable[tuple[WeightBlock, Tensor]], blocks: Sequence[WeightBlock]
) -> None:
    """Add the products of every block's columns, (n, weights), to lower triangles, (terms, n, n)."""
    terms = term_slices(blocks)
    for block, part in columns:
        _add_block(grams[terms[block.name]], part, block.kernel)


def _add_block(grams: Tensor, columns: Tensor, kernel: int) -> None:
    """Add to the lower triangles of G of one block: (distances, n, n) and (n, filters · taps)."""
    taps = tap_pairs(kernel)
    by_tap = columns.reshape(-1, kernel**2).T  # (taps, n · filters)
    product = torch.empty_like(grams[0])
    for vector, coefficients in zip(taps.vectors.to(columns), taps.coefficients.T, strict=True):
        add_lower_gram(product.zero_(), (vector @ by_tap).reshape(len(columns), -1))
        for gram, coefficient in zip(grams, coefficients.tolist(), strict=True):
            if abs(coefficient) > 1e-9:
                gram.add_(product, alpha=coefficient)
