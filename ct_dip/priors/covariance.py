"""``Σ`` of the flat weights as a linear map, for problems in which no matrix of it is ever built."""

from collections.abc import Callable, Iterator, Mapping, Sequence

import torch
from torch import Tensor

from ct_dip.dip.unet import WeightBlock
from ct_dip.operators.linear_map import LinearMap

_PART = 1024  # weights that are taken together


class WeightCovariance(LinearMap):
    """``Σ = L Lᵀ``, (P,) → (P,): filters are independent, those of a block share their taps' covariance.

    Args:
        factors: where every block is in the flat weights, and the Cholesky factor of its taps, (taps, taps).
        scales: a further factor of every single weight, (P,), as the g-prior has it.
    """

    def __init__(self, factors: Sequence[tuple[slice, Tensor]], scales: Tensor | None = None) -> None:
        self.factors, self.scales = tuple(factors), scales
        self.domain_shape = self.range_shape = (max(where.stop for where, _ in self.factors),)

    def root(self, x: Tensor) -> Tensor:
        """``L x``, (n, P) → (n, P): from white noise to weights as the prior has them."""
        weights = torch.empty_like(x)
        for where, factor in self.factors:
            weights[:, where] = _filters(x[:, where], factor.T)
        return weights if self.scales is None else weights.mul_(self.scales.to(x))

    def root_adjoint(self, x: Tensor) -> Tensor:
        """``Lᵀ x``, (n, P) → (n, P)."""
        product = x.clone() if self.scales is None else x * self.scales.to(x)
        for where, factor in self.factors:
            product[:, where] = _filters(product[:, where], factor)
        return product

    def root_adjoint_parts(self, columns: Callable[[slice], Tensor]) -> Iterator[Tensor]:
        """The same, (n, some weights) at a time, for an x of which one need not have two.

        Args:
            columns: some columns of x.
        """
        for where, factor in self.factors:
            step = max(1, _PART // len(factor)) * len(factor)  # whole filters
            for first in range(where.start, where.stop, step):
                part = slice(first, min(first + step, where.stop))
                x = columns(part)
                yield _filters(x if self.scales is None else x * self.scales[part].to(x), factor)

    def _forward(self, x: Tensor) -> Tensor:
        return self.root(self.root_adjoint(x))

    def _adjoint(self, y: Tensor) -> Tensor:
        return self._forward(y)

    def scaled(self, variance: float) -> "WeightCovariance":
        """``variance · Σ``, with its root."""
        return WeightCovariance([(where, variance**0.5 * f) for where, f in self.factors], self.scales)


def independent_covariance(
    blocks: Sequence[WeightBlock],
    slices: Mapping[str, slice],
    scales: Tensor | None = None,
    device: torch.device | None = None,
) -> WeightCovariance:
    """``Σ = diag(s)²``: the identity without scales."""
    factors = [
        (slices[block.name], torch.eye(block.kernel**2, dtype=torch.float64, device=device))
        for block in blocks
    ]
    return WeightCovariance(factors, scales)


def _filters(x: Tensor, factor: Tensor) -> Tensor:
    """Every filter of (n, filters · taps) times a (taps, taps) matrix from the right."""
    return (x.reshape(-1, len(factor)) @ factor.to(x)).reshape(x.shape)
