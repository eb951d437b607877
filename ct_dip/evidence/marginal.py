"""``log p(y)`` of a Gaussian model whose covariance is a weighted sum of constant matrices.

``K = Σ_t c_t Y_t``, ``log p(r) = −½ rᵀK⁻¹r − ½ log|K| − ½ n log 2π``. A value and its gradient in c cost one
Cholesky factor and two passes over the matrices, and no network pass:
``∂(rᵀK⁻¹r)/∂c_t = −αᵀY_tα`` with ``α = K⁻¹r``, and ``∂log|K|/∂c_t = tr(K⁻¹Y_t)``.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ct_dip.errors import CtDipError

_TILE = 64  # rows of a triangle that are kept together, and with them a little of what is above it
_JITTERS = (0.0, 1e-10, 1e-8, 1e-6)  # relative to the mean of the diagonal


class Factor(NamedTuple):
    """A Cholesky factor, and what had to be added to the diagonal for it to exist."""

    lower: Tensor
    jitter: float


def factorise(matrix: Tensor) -> Factor:
    """Factorise a lower triangle by Cholesky in float64; add and report a jitter only where it fails.

    Raises:
        CtDipError: the matrix is not positive definite even with a jitter of a millionth of its diagonal.
    """
    size = float(matrix.diagonal().mean())
    for relative in _JITTERS:
        jitter = relative * size
        shifted = matrix if not jitter else matrix + jitter * torch.eye(len(matrix)).to(matrix)
        lower, failed = torch.linalg.cholesky_ex(shifted)
        if not failed and bool(torch.isfinite(lower).all()):
            return Factor(lower, jitter)
    raise CtDipError(
        f"a covariance of {len(matrix)} measurements is not positive definite, not even with a jitter of "
        f"{_JITTERS[-1]:g} of its diagonal; the noise is too small for float64, or a value is not finite"
    )


def solve_factored(lower: Tensor, vectors: Tensor) -> Tensor:
    """Compute ``(L Lᵀ)⁻¹ b`` of some vectors, (n, n) and (k, n) → (k, n).

    `torch.cholesky_solve` would copy L at every call, and takes two to four times as long.
    """
    return torch.linalg.solve_triangular(lower, whiten(lower, vectors), upper=False, left=False)


def whiten(lower: Tensor, vectors: Tensor) -> Tensor:
    """Compute ``L⁻¹ b`` of some vectors, (n, n) and (k, n) → (k, n)."""
    return torch.linalg.solve_triangular(lower.mT, vectors, upper=True, left=False)


def packed_bytes(size: int, terms: int) -> int:
    """Estimate the memory of a `CovarianceSum`, with the full matrices of an evaluation."""
    return 8 * ((terms + 2) * sum(tile.stop for tile in _tiles(size)) * _TILE + 6 * size**2)


def _tiles(size: int) -> list[slice]:
    """Return the rows that are kept together, up to their diagonal."""
    return [slice(first, min(first + _TILE, size)) for first in range(0, size, _TILE)]


class CovarianceSum:
    """Constant symmetric matrices ``Y_t``, kept as lower triangles in float64: half of the memory traffic.

    A triangle is kept in tiles of some rows, ``Y[rows, : end of rows]``, one after another.

    Args:
        size: n.
        matrices: (n, n) each, taken one by one.
        terms: how many there are.
        device: where they are, and the residuals; coefficients, and what is made of them, may be elsewhere.
    """

    def __init__(
        self, size: int, matrices: Iterable[Tensor], terms: int, device: torch.device | None = None
    ) -> None:
        self.size, self._rows = size, _tiles(size)
        length = sum((tile.stop - tile.start) * tile.stop for tile in self._rows)
        self.packed = torch.empty(terms, length, dtype=torch.float64, device=device)
        for row, matrix in zip(self.packed, matrices, strict=True):
            for rows, tile in self._unpacked(row):
                tile.copy_(matrix[rows, : rows.stop])
        self.jitter = 0.0  # the largest that was needed so far

    def _unpacked(self, packed: Tensor) -> Iterator[tuple[slice, Tensor]]:
        """Yield every tile of a packed matrix as in the full one: its rows, and a view (rows, columns)."""
        first = 0
        for rows in self._rows:
            count = (rows.stop - rows.start) * rows.stop
            yield rows, packed[first : first + count].view(-1, rows.stop)
            first += count

    def total(self, coefficients: Tensor) -> Tensor:
        """Compute ``Σ_t c_t Y_t``, (n, n), both triangles."""
        full = self.lower(coefficients).tril_()
        return full + full.tril(-1).T

    def lower(self, coefficients: Tensor) -> Tensor:
        """Compute only the lower triangle, which is all that a Cholesky factorisation reads."""
        full = self.packed.new_zeros(self.size, self.size)
        for rows, tile in self._unpacked(coefficients.detach().to(self.packed) @ self.packed):
            full[rows, : rows.stop] = tile
        return full

    def inner(self, *tiles: Callable[[slice], Tensor]) -> Tensor:
        """Compute ``tr(X Y_t)`` for symmetric matrices X, (terms, count), in one pass over all Y.

        Args:
            tiles: of every X, ``X[rows, : end of rows]`` for the rows that are asked for.
        """
        traces = self.packed.new_zeros(len(self.packed), len(tiles))
        first = 0
        for rows in self._rows:
            own = self.packed[:, first : first + (rows.stop - rows.start) * rows.stop]
            first += own.shape[1]
            for column, tile_of in zip(traces.T, tiles, strict=True):
                tile = tile_of(rows).clone()
                tile[:, : rows.start] *= 2  # which stands for what is on the other side of the diagonal
                column += own @ tile.flatten()
        return traces

    def terms(self, coefficients: Tensor, residual: Tensor) -> tuple[Tensor, Tensor]:
        """Compute ``(rᵀK⁻¹r, log|K|)``, differentiable in the coefficients."""
        quadratic, logdet = _Terms.apply(coefficients, residual, self)  # type: ignore[no-untyped-call]
        return quadratic, logdet


class _Terms(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, coefficients: Tensor, residual: Tensor, matrices: CovarianceSum
    ) -> tuple[Tensor, Tensor]:
        lower, jitter = factorise(matrices.lower(coefficients))
        matrices.jitter = max(matrices.jitter, jitter)
        alpha = solve_factored(lower, residual[None])[0]
        logdet = 2 * lower.diagonal().log().sum()
        inverse = torch.cholesky_inverse(lower)
        del lower
        slopes = matrices.inner(
            lambda rows: torch.outer(alpha[rows], alpha[: rows.stop]),
            lambda rows: inverse[rows, : rows.stop],
        )
        ctx.save_for_backward(slopes.to(coefficients))
        return (residual @ alpha).to(coefficients), logdet.to(coefficients)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        by_quadratic, by_logdet = ctx.saved_tensors[0].unbind(dim=1)
        return gradients[1] * by_logdet - gradients[0] * by_quadratic, None, None
