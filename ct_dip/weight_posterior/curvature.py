"""The generalised Gauss-Newton matrix ``H = JᵀBᵀBJ``: its diagonal, and all of it for some weights."""

import torch
from torch import Tensor

from ct_dip.weight_posterior.laplace import LaplaceBlock
from ct_dip.weight_posterior.linearised_scan import LinearisedScan


def ggn_diagonal(scan: LinearisedScan, rows: int, seed: int = 0) -> Tensor:
    """Return the diagonal of H, (P,), float64; see `LinearisedScan.measured_images` for ``rows``."""
    total = torch.zeros_like(scan.jacobian.weights, dtype=torch.float64)
    for images in scan.measured_images(rows, seed):
        total += scan.jacobian.T(images).square().sum(dim=0)
    return total


def diagonal_blocks(scan: LinearisedScan, rows: int, seed: int = 0) -> list[LaplaceBlock]:
    """Make one block for every convolution, in which H is its diagonal."""
    diagonal = ggn_diagonal(scan, rows, seed)
    return [
        LaplaceBlock(
            index=index,
            weights=scan.jacobian.weights[index],
            eigenvalues=diagonal[index],
            to_weights=lambda coordinates: coordinates,
        )
        for index in scan.convolutions().values()
    ]


def full_block(scan: LinearisedScan, index: Tensor, units: Tensor | None = None) -> LaplaceBlock:
    """Make a block of some weights, in which H is dense; all others stay at w̃.

    Args:
        index: of the weights, (k,).
        units: of every one of them, (k,): its prior is ``N(0, unit²/δ)``; 1 if ``None``.
    """
    weights = scan.jacobian.weights
    units = torch.ones(len(index), dtype=torch.float64, device=weights.device) if units is None else units
    columns = torch.empty(len(index), *scan.whitened.range_shape, dtype=torch.float64, device=weights.device)
    for first in range(0, len(index), scan.jacobian.chunk):
        part = index[first : first + scan.jacobian.chunk]
        one = weights.new_zeros(len(part), len(weights))
        one[torch.arange(len(part), device=part.device), part] = 1
        columns[first : first + len(part)] = scan.design(one)
    columns *= units[:, None]
    eigenvalues, vectors = torch.linalg.eigh(columns @ columns.T)
    return LaplaceBlock(
        index=index,
        weights=weights[index] / units,
        eigenvalues=eigenvalues.clamp_min(0),
        to_weights=lambda coordinates: coordinates @ vectors.T * units,
    )


def last_layer(scan: LinearisedScan) -> Tensor:
    """Return the index of the weights of the last convolution, (k,)."""
    return list(scan.convolutions().values())[-1]


def most_variable(blocks: list[LaplaceBlock], count: int) -> tuple[Tensor, Tensor]:
    """Pick the weights of largest marginal variance in a diagonal approximation.

    Of all choices of so many weights it is the one whose posterior is nearest to that approximation in
    Wasserstein's distance (Daxberger et al., 2021b).

    Returns:
        Their index, (k,), and the deviations ``δ^−½`` of their priors.
    """
    index = torch.cat([block.index for block in blocks])
    variances = torch.cat([block.variances() for block in blocks])
    priors = torch.cat([torch.full_like(b.eigenvalues, b.precision() ** -0.5) for b in blocks])
    picked = variances.topk(min(count, len(index))).indices
    return index[picked], priors[picked]
