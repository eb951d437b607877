"""``log p(y)`` of a Gaussian model whose covariance is a weighted sum of constant matrices.

``K = Σ_t c_t Y_t``, ``log p(r) = −½ rᵀK⁻¹r − ½ log|K| − ½ n log 2π``. A value and its gradient in c cost one
Cholesky factor and two passes over the matrices, and no network pass:
``∂(rᵀK⁻¹r)/∂c_t = −αᵀY_tα`` with ``α = K⁻¹r``, and ``∂log|K|/∂c_t = tr(K⁻¹Y_t)``.
"""

from collections.abc import Iterable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ct_dip.errors import CtDipError

_JITTERS = (0.0, 1e-10, 1e-8, 1e-6)  # relative to the mean of the diagonal


class Factor(NamedTuple):
    """A Cholesky factor, and what had to be added to the diagonal for it to exist."""

    lower: Tensor
    jitter: float


def factorise(matrix: Tensor) -> Factor:
    """Cholesky in float64, of a lower triangle; a jitter only where it fails without, and it is told.

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


def packed_bytes(size: int, terms: int) -> int:
    """Memory of a `CovarianceSum`, with the indices and the full matrices of an evaluation."""
    return 8 * ((terms + 5) * size * (size + 1) // 2 + 6 * size**2)


class CovarianceSum:
    """Constant symmetric matrices ``Y_t``, kept as lower triangles in float64: half of the memory traffic.

    Args:
        size: n.
        matrices: (n, n) each, taken one by one.
        terms: how many there are.
    """

    def __init__(self, size: int, matrices: Iterable[Tensor], terms: int) -> None:
        self.size = size
        self.rows, self.columns = torch.tril_indices(size, size)
        self.packed = torch.empty(terms, len(self.rows), dtype=torch.float64)
        for row, matrix in zip(self.packed, matrices, strict=True):
            row.copy_(self._pack(matrix))
        self.multiplicity = torch.where(self.rows == self.columns, 1.0, 2.0).double()
        self.jitter = 0.0  # the largest that was needed so far

    def _pack(self, matrix: Tensor) -> Tensor:
        return matrix[self.rows, self.columns]

    def total(self, coefficients: Tensor) -> Tensor:
        """``Σ_t c_t Y_t``, (n, n), both triangles."""
        full = self.lower(coefficients)
        return full + full.tril(-1).T

    def lower(self, coefficients: Tensor) -> Tensor:
        """The same without what is above the diagonal: all that a Cholesky factorisation reads."""
        full = self.packed.new_zeros(self.size, self.size)
        full[self.rows, self.columns] = coefficients.detach() @ self.packed
        return full

    def terms(self, coefficients: Tensor, residual: Tensor) -> tuple[Tensor, Tensor]:
        """``(rᵀK⁻¹r, log|K|)``, differentiable in the coefficients."""
        quadratic, logdet = _Terms.apply(coefficients, residual, self)  # type: ignore[no-untyped-call]
        return quadratic, logdet


class _Terms(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, coefficients: Tensor, residual: Tensor, matrices: CovarianceSum
    ) -> tuple[Tensor, Tensor]:
        lower, jitter = factorise(matrices.lower(coefficients))
        matrices.jitter = max(matrices.jitter, jitter)
        alpha = torch.cholesky_solve(residual[:, None], lower)[:, 0]
        pairs = matrices.packed.new_empty(2, len(matrices.rows))
        pairs[0] = matrices._pack(torch.cholesky_inverse(lower))
        torch.mul(alpha[matrices.rows], alpha[matrices.columns], out=pairs[1])
        by_logdet, by_quadratic = (pairs.mul_(matrices.multiplicity) @ matrices.packed.T).unbind()
        ctx.save_for_backward(by_quadratic, by_logdet)
        return residual @ alpha, 2 * lower.diagonal().log().sum()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        by_quadratic, by_logdet = ctx.saved_tensors
        return gradients[1] * by_logdet - gradients[0] * by_quadratic, None, None
