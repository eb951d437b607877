"""Randomised Nyström preconditioner for ``K = S + μ I`` with S psd and quickly decaying.

Frangella, Tropp and Udell, "Randomized Nyström preconditioning", SIAM J. Matrix Anal. Appl. 44 (2023):
from r products with S, ``S ≈ U diag(λ) Uᵀ``, and

``P⁻¹ v = (λ_r + μ) U (Λ + μ)⁻¹ Uᵀ v + (v − U Uᵀ v)``.

Where λ_r is down to μ, the condition number of ``P^−½ K P^−½`` is a small constant.
"""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from ct_dip.errors import CtDipError, InputError
from ct_dip.solvers.products import Operator, product

_SHIFTS = (1.0, 1e2, 1e4, 1e6)  # times the rounding of a product


@dataclass(frozen=True, kw_only=True)
class Nystrom:
    """``S ≈ U diag(λ) Uᵀ`` and the preconditioner of ``S + μ I`` that it gives; call it for ``P⁻¹ v``."""

    # float64 whatever the operator is: in float32, U Uᵀ v leaves 1e-7 of v behind, and a P⁻¹ whose
    # eigenvalues reach below that would not be positive definite.
    basis: Tensor  # Uᵀ, (r, n), orthonormal rows
    eigenvalues: Tensor  # (r,) λ of S, largest first, not negative
    noise: float  # μ

    def __post_init__(self) -> None:
        if not (self.noise >= 0 and float(self.damped[-1]) > 0):
            raise InputError(
                "a Nyström preconditioner of S + mu I needs mu >= 0, and mu > 0 where S has not the full "
                f"rank {len(self.eigenvalues)}; got mu = {self.noise:g}"
            )

    @property
    def damped(self) -> Tensor:
        """``λ + μ``, (r,): the eigenvalues of K in the basis."""
        return self.eigenvalues + self.noise

    def with_noise(self, noise: float) -> "Nystrom":
        """The same for another μ; no products."""
        return replace(self, noise=noise)

    def __call__(self, v: Tensor) -> Tensor:
        """``P⁻¹ v``, (vectors, n) → the same."""
        return self._power(v, -1.0)

    def inverse_root(self, v: Tensor) -> Tensor:
        """``P^−½ v``, the symmetric one, (vectors, n) → the same."""
        return self._power(v, -0.5)

    def log_det(self) -> float:
        """``log|P| = Σ_i log (λ_i + μ) − r log (λ_r + μ)``."""
        return float((self.damped / self.damped[-1]).log().sum())

    def _power(self, v: Tensor, exponent: float) -> Tensor:
        wide = v.double()
        change = (self.damped / self.damped[-1]) ** exponent - 1
        return (wide + (wide @ self.basis.T * change) @ self.basis).to(v.dtype)


@torch.no_grad()
def nystrom(
    operator: Operator,
    size: int,
    rank: int,
    *,
    noise: float,
    seed: int = 0,
    dtype: torch.dtype = torch.float64,
    device: torch.device | None = None,
) -> Nystrom:
    """The Nyström approximation of S by its products with r random orthonormal vectors (algorithm 2.1).

    ``S ≈ Y (Ωᵀ Y)⁻¹ Yᵀ`` with ``Y = S Ω``, computed for ``S + ν I`` with a ν of the size of rounding, so that
    the Cholesky factor exists, and ν taken off again. Everything but the products is in float64.

    Args:
        operator: S without the noise, symmetric psd.
        size: n.
        rank: r, the number of products.
        noise: μ of ``K = S + μ I``.
        dtype: of the products.
        device: of the products.

    Raises:
        CtDipError: S is clearly not psd, or returned NaN or infinity.
    """
    if not 1 <= rank <= size:
        raise InputError(f"the rank of a Nyström approximation must be in 1..{size}, got {rank}")
    generator = torch.Generator().manual_seed(seed)
    probes = torch.randn(size, rank, generator=generator, dtype=torch.float64).to(device)
    # The products are of exactly these vectors, so round them before anything is computed with them.
    probes = torch.linalg.qr(probes).Q.T.to(dtype)  # Ωᵀ, (r, n)
    images = product(operator, probes).double()
    probes = probes.double()
    rounding = torch.finfo(dtype).eps * float(torch.linalg.matrix_norm(images))
    if rounding == 0:  # S = 0
        basis = torch.linalg.qr(probes.T).Q.T
        return Nystrom(basis=basis, eigenvalues=probes.new_zeros(rank), noise=noise)
    for factor in _SHIFTS:
        shift = factor * rounding
        shifted = images + shift * probes
        core = shifted @ probes.T
        lower, failed = torch.linalg.cholesky_ex((core + core.T) / 2)
        if not failed:
            break
    else:
        raise CtDipError(
            f"a Nyström approximation needs a positive semidefinite operator; on {rank} random vectors this "
            f"one has an eigenvalue below {-shift:.2g}, {_SHIFTS[-1]:g} times the rounding of its products"
        )
    root = torch.linalg.solve_triangular(lower, shifted, upper=False)  # (r, n); S ≈ rootᵀ root
    _, singular, basis = torch.linalg.svd(root, full_matrices=False)
    return Nystrom(basis=basis, eigenvalues=(singular**2 - shift).clamp(min=0), noise=noise)
