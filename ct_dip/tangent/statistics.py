"""Exact feature statistics: the constant matrices of which every prior covariance is a weighted sum.

For a block b whose filters have tap covariance ``σ² exp(−‖p − q‖/ℓ)`` the image's prior covariance is
``J_b Σ_b J_bᵀ = σ² Σ_d exp(−d/ℓ) G_{b,d}``, with ``G_{b,d} = Σ_filters Σ_{‖p−q‖=d} j_p j_qᵀ``. The G are
computed once; from then on no hyperparameter needs the network.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ct_dip.dip.unet import WeightBlock
from ct_dip.progress import Progress
from ct_dip.tangent.grams import add_lower_gram, block_columns, mirror_
from ct_dip.tangent.jacobian import Jacobian
from ct_dip.tangent.taps import tap_pairs


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


def count_terms(blocks: Sequence[WeightBlock]) -> int:
    """Matrices of `FeatureStatistics`."""
    return sum(len(tap_pairs(block.kernel).distances) for block in blocks)


def feature_statistics(jacobian: Jacobian, *, progress: Progress | None = None) -> FeatureStatistics:
    """Stream the columns of J, block by block, into their products."""
    pixels = jacobian.image.numel()
    grams = jacobian.image.new_zeros(count_terms(jacobian.blocks), pixels, pixels)
    terms: dict[str, slice] = {}
    start = 0
    for block, columns in block_columns(jacobian, progress):
        stop = start + len(tap_pairs(block.kernel).distances)
        terms[block.name] = slice(start, stop)
        _add_block(grams[start:stop], columns, block.kernel)
        start = stop
    return FeatureStatistics(blocks=tuple(jacobian.blocks), terms=terms, grams=mirror_(grams))


def _add_block(grams: Tensor, columns: Tensor, kernel: int) -> None:
    """Lower triangles of G of one block: (distances, pixels, pixels) and (pixels, filters · taps)."""
    taps = tap_pairs(kernel)
    by_tap = columns.reshape(-1, kernel**2).T  # (taps, pixels · filters)
    product = torch.empty_like(grams[0])
    for vector, coefficients in zip(taps.vectors.to(columns), taps.coefficients.T, strict=True):
        add_lower_gram(product.zero_(), (vector @ by_tap).reshape(len(columns), -1))
        for gram, coefficient in zip(grams, coefficients.tolist(), strict=True):
            if abs(coefficient) > 1e-9:
                gram.add_(product, alpha=coefficient)
