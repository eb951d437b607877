"""Exact feature statistics: the constant matrices of which every prior covariance is a weighted sum.

For a block b whose filters have tap covariance ``σ² exp(−‖p − q‖/ℓ)`` the image's prior covariance is
``J_b Σ_b J_bᵀ = σ² Σ_d exp(−d/ℓ) G_{b,d}``, with ``G_{b,d} = Σ_filters Σ_{‖p−q‖=d} j_p j_qᵀ``. The G are
computed once; from then on no hyperparameter needs the network.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ct_dip.dip.unet import WeightBlock
from ct_dip.operators.linear_map import LinearMap
from ct_dip.progress import Progress
from ct_dip.tangent.jacobian import Jacobian
from ct_dip.tangent.taps import tap_pairs

_GROUP_BYTES = 128 * 2**20  # columns of J that are held at once
_TILE = 256  # rows of a symmetric product that are computed together


@dataclass(frozen=True, kw_only=True)
class FeatureStatistics:
    """``G_{b,d}`` of every block and tap distance.

    Args:
        blocks: of the weights.
        grams: (terms, pixels, pixels), float32; the terms of block b, by ascending distance, are
            ``terms[b]``.
    """

    blocks: tuple[WeightBlock, ...]
    terms: dict[str, slice]
    grams: Tensor

    def difference_variances(self, shape: tuple[int, int]) -> Tensor:
        """``T_{b,d} = diag(D G_{b,d} Dᵀ)`` of the row and the column differences, (terms, differences).

        The variance of ``x_i − x_j`` is ``G_ii + G_jj − 2 G_ij``; see `image_differences`.
        """
        pixel = torch.arange(shape[0] * shape[1]).reshape(shape)
        first = torch.cat([pixel[:-1].flatten(), pixel[:, :-1].flatten()])
        second = torch.cat([pixel[1:].flatten(), pixel[:, 1:].flatten()])
        diagonal = self.grams.diagonal(dim1=1, dim2=2).double()
        return diagonal[:, first] + diagonal[:, second] - 2 * self.grams[:, first, second].double()


def image_differences(image: Tensor) -> Tensor:
    """Row differences, then column differences, (rows, columns) → (differences,)."""
    return torch.cat([image.diff(dim=-2).flatten(-2), image.diff(dim=-1).flatten(-2)], dim=-1)


def term_slices(blocks: Sequence[WeightBlock]) -> dict[str, slice]:
    """Where the terms of every block are."""
    slices, start = {}, 0
    for block in blocks:
        stop = start + len(tap_pairs(block.kernel).distances)
        slices[block.name] = slice(start, stop)
        start = stop
    return slices


def statistics_bytes(blocks: Sequence[WeightBlock], pixels: int, weights: int) -> int:
    """Memory of `feature_statistics`: the matrices, and what is needed to make them."""
    terms = sum(len(tap_pairs(block.kernel).distances) for block in blocks)
    vectors = len(tap_pairs(3).vectors)
    largest = min(4 * pixels * weights, 2 * _GROUP_BYTES)
    return 4 * pixels**2 * (terms + vectors) + 3 * largest


def feature_statistics(jacobian: Jacobian, *, progress: Progress | None = None) -> FeatureStatistics:
    """Stream the columns of J, block by block, into their products."""
    blocks = tuple(jacobian.blocks)
    slices = term_slices(blocks)
    pixels = jacobian.image.numel()
    grams = jacobian.image.new_zeros(max(s.stop for s in slices.values()), pixels, pixels)
    with (progress or Progress()).stage("feature statistics", len(blocks)) as stage:
        done = 0
        for group in _groups(blocks, jacobian):
            columns = jacobian.columns(group)
            start = jacobian.slices[group[0].name].start
            for block in group:
                where = jacobian.slices[block.name]
                part = columns[:, where.start - start : where.stop - start]
                grams[slices[block.name]] = _block_grams(part, block.kernel)
                done += 1
                stage.update(done)
    return FeatureStatistics(blocks=blocks, terms=slices, grams=grams)


def _groups(blocks: Sequence[WeightBlock], jacobian: Jacobian) -> Iterator[list[WeightBlock]]:
    """Neighbouring blocks whose columns fit the memory for them; one at least."""
    group: list[WeightBlock] = []
    size = 0
    for block in blocks:
        where = jacobian.slices[block.name]
        cost = jacobian.image.nbytes * (where.stop - where.start)
        if group and size + cost > _GROUP_BYTES:
            yield group
            group, size = [], 0
        group.append(block)
        size += cost
    yield group


def _block_grams(columns: Tensor, kernel: int) -> Tensor:
    """(pixels, filters · taps) → (distances, pixels, pixels)."""
    taps = tap_pairs(kernel)
    pixels = len(columns)
    by_tap = columns.reshape(-1, kernel**2).T  # (taps, pixels · filters)
    total = columns.new_zeros(len(taps.distances), pixels, pixels)
    for vector, coefficients in zip(taps.vectors.to(columns), taps.coefficients.T, strict=True):
        product = lower_gram((vector @ by_tap).reshape(pixels, -1))
        for gram, coefficient in zip(total, coefficients.tolist(), strict=True):
            if abs(coefficient) > 1e-9:
                gram.add_(product, alpha=coefficient)
    return mirror(total)


def lower_gram(x: Tensor) -> Tensor:
    """The lower triangle of ``x xᵀ``, (n, m) → (n, n); above it there may be anything."""
    product = x.new_empty(len(x), len(x))
    for first in range(0, len(x), _TILE):
        torch.mm(x[first:], x[first : first + _TILE].T, out=product[first:, first : first + _TILE])
    return product


def mirror(lower: Tensor) -> Tensor:
    """Symmetric matrices from their lower triangles."""
    return lower.tril() + lower.tril(-1).transpose(-1, -2)


def scaled_gram(jacobian: Jacobian, transform: LinearMap, row_weights: Tensor) -> tuple[Tensor, Tensor]:
    """The neural g-prior: ``J S² Jᵀ`` and S, with ``s_j = (mean_i (W A J)²_ij)^−½``.

    Scaling a weight by k divides its column of J by k and its s by 1/k, so the matrix, and with it every
    prediction, does not change.

    Args:
        transform: A, on images in the network's units.
        row_weights: W, the inverse standard deviation of every measurement, shape of the range.

    Returns:
        (pixels, pixels) and (P,).
    """
    pixels = jacobian.image.numel()
    total = jacobian.image.new_zeros(pixels, pixels)
    scales = torch.empty_like(jacobian.weights)
    for group in _groups(jacobian.blocks, jacobian):
        columns = jacobian.columns(group)
        where = slice(jacobian.slices[group[0].name].start, jacobian.slices[group[-1].name].stop)
        measured = transform(columns.T.reshape(-1, *jacobian.range_shape)) * row_weights.to(columns)
        # A weight that no ray sees says nothing: it gets no variance rather than an infinite one.
        scale = measured.flatten(1).square().mean(dim=1).rsqrt()
        scales[where] = torch.where(torch.isfinite(scale), scale, 0.0)
        total += lower_gram(columns * scales[where])
    return mirror(total), scales
