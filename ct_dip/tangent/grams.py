"""Products ``J S Jᵀ`` of all columns of J, streamed: J is never held whole."""

from collections.abc import Callable, Iterator, Sequence

import torch
from torch import Tensor

from ct_dip.dip.unet import WeightBlock
from ct_dip.operators.linear_map import LinearMap
from ct_dip.progress import Progress
from ct_dip.tangent.jacobian import Jacobian

_GROUP_BYTES = 128 * 2**20  # columns of J that are held at once, unless a single block is larger
_ROWS = 64  # of J that are made together
_TILE = 256  # rows of a symmetric product that are computed together


def block_columns(
    jacobian: Jacobian, progress: Progress | None = None
) -> Iterator[tuple[WeightBlock, Tensor]]:
    """Yield every block with its columns of J, (pixels, weights of the block).

    Neighbouring blocks share a backward pass as far as their columns fit the memory for them.
    """
    with (progress or Progress()).stage("prior covariances", len(jacobian.blocks)) as stage:
        done = 0
        for group in _groups(jacobian):
            columns = jacobian.columns(group)
            start = jacobian.slices[group[0].name].start
            for block in group:
                where = jacobian.slices[block.name]
                yield block, columns[:, where.start - start : where.stop - start]
                done += 1
                stage.update(done)


def _groups(jacobian: Jacobian) -> Iterator[list[WeightBlock]]:
    group: list[WeightBlock] = []
    size = 0
    for block in jacobian.blocks:
        where = jacobian.slices[block.name]
        cost = jacobian.image.nbytes * (where.stop - where.start)
        if group and size + cost > _GROUP_BYTES:
            yield group
            group, size = [], 0
        group.append(block)
        size += cost
    yield group


def streaming_bytes(block_weights: Sequence[int], pixels: int) -> int:
    """Predict the memory of columns in flight: a group, its pieces while it is made, and a weighted copy."""
    largest = max(4 * pixels * count for count in block_weights)
    return 3 * max(largest, min(_GROUP_BYTES, 4 * pixels * sum(block_weights)))


def prior_gram(
    jacobian: Jacobian,
    tap_covariance: Callable[[WeightBlock], Tensor],
    *,
    progress: Progress | None = None,
) -> Tensor:
    """Return ``J Σ Jᵀ``, (pixels, pixels), for independent filters with one tap covariance per block.

    Args:
        tap_covariance: of a block, (taps, taps); its Cholesky factor weights the features.
    """
    pixels = jacobian.image.numel()
    total = jacobian.image.new_zeros(pixels, pixels)
    for block, columns in block_columns(jacobian, progress):
        factor = torch.linalg.cholesky(tap_covariance(block)).to(columns)
        weighted = columns.reshape(-1, len(factor)) @ factor
        add_lower_gram(total, weighted.reshape(pixels, -1))
    return mirror_(total)


def covariance_gram(jacobian: Jacobian, covariance: LinearMap, *, progress: Progress | None = None) -> Tensor:
    """Return ``J Σ Jᵀ``, (pixels, pixels), for any Σ, (P,) → (P,): by two passes for every pixel."""
    pixels = jacobian.image.numel()
    total = jacobian.image.new_empty(pixels, pixels)
    with (progress or Progress()).stage("prior covariances", pixels) as stage:
        for first in range(0, pixels, _ROWS):
            part = total[first : first + _ROWS]
            units = torch.zeros_like(part)
            units.diagonal(first).fill_(1)
            pulled = jacobian.T(units.reshape(-1, *jacobian.range_shape))
            part.copy_(jacobian(covariance(pulled)).flatten(1))
            stage.update(first + len(part))
    return 0.5 * (total + total.T)


def scaled_gram(
    jacobian: Jacobian, transform: LinearMap, row_weights: Tensor, *, progress: Progress | None = None
) -> tuple[Tensor, Tensor]:
    """Compute the neural g-prior: ``J S² Jᵀ`` and S, with ``s_j = (mean_i (W A J)²_ij)^−½``.

    Scaling a weight by k divides its column of J by k and multiplies its s by k, so the matrix, and with it
    every prediction, does not change.

    Args:
        transform: A, on images in the network's units.
        row_weights: W, the inverse standard deviation of every measurement, shape of the range.

    Returns:
        (pixels, pixels) and (P,).
    """
    pixels = jacobian.image.numel()
    total = jacobian.image.new_zeros(pixels, pixels)
    scales = []
    for _, columns in block_columns(jacobian, progress):
        measured = transform(columns.T.reshape(-1, *jacobian.range_shape)) * row_weights.to(columns)
        scale = measured.flatten(1).square().mean(dim=1).rsqrt()
        # A weight that no ray sees says nothing: it gets no variance rather than an infinite one.
        scales.append(torch.where(torch.isfinite(scale), scale, 0.0))
        add_lower_gram(total, columns * scales[-1])
    return mirror_(total), torch.cat(scales)


def add_lower_gram(total: Tensor, x: Tensor, weight: float = 1.0) -> None:
    """Add ``weight · x xᵀ`` to the lower triangle of ``total``, (n, m) and (n, n); half of the work."""
    for first in range(0, len(x), _TILE):
        tile = slice(first, first + _TILE)
        total[first:, tile].addmm_(x[first:], x[tile].T, alpha=weight)


def mirror_(lower: Tensor) -> Tensor:
    """Make matrices (…, n, n) symmetric in place, from their lower triangles."""
    for matrix in lower.reshape(-1, *lower.shape[-2:]):
        matrix.tril_()
        matrix.add_(matrix.tril(-1).T)
    return lower
