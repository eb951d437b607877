"""Log-determinants by stochastic Lanczos quadrature (Ubaru, Chen and Saad, 2017).

A random z with ``E z zᵀ = I`` gives ``tr f(C) = E zᵀ f(C) z``, and m steps of Lanczos from z give nodes θ and
weights w, those of a Gauss rule, with ``zᵀ f(C) z ≈ ‖z‖² Σ_k w_k f(θ_k)``. The nodes do not depend on f: once
known, ``log|s² I + τ² C| ≈ n Σ_k w_k log(s² + τ² θ_k)`` for all s² and τ², without another product.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from ct_dip.errors import CtDipError, InputError
from ct_dip.solvers.nystrom import Nystrom
from ct_dip.solvers.products import Operator, product

Probes = Literal["rademacher", "gaussian"]
KRYLOV_BYTES = 64 * 2**20  # of the vectors that Lanczos keeps, unless a single probe has more


class Estimate(NamedTuple):
    """A mean over probes and its standard error.

    The standard error does not see the error of the quadrature, which makes a log-determinant too large for
    every probe and falls geometrically with the steps; a preconditioner makes it fall faster.
    """

    value: Tensor  # scalar, float64
    standard_error: Tensor  # scalar, float64


@dataclass(frozen=True, kw_only=True)
class SpectralDensity:
    """Where the eigenvalues of C are, as seen by each probe; float64."""

    size: int  # n
    nodes: Tensor  # (probes, steps), not negative
    weights: Tensor  # (probes, steps), each row sums to 1

    def trace(self, function: Callable[[Tensor], Tensor]) -> Estimate:
        """``tr f(C)``; f is elementwise, and need only be finite on the nodes."""
        each = self.size * torch.sum(self.weights * function(self.nodes), dim=1)
        return Estimate(each.mean(), each.detach().std() / len(each) ** 0.5)

    def log_det(self, shift: Tensor | float, scale: Tensor | float = 1.0) -> Estimate:
        """``log|shift I + scale C|``; the value is differentiable in both.

        Raises:
            CtDipError: the matrix is singular to working precision.
        """
        at = [float(v.detach() if isinstance(v, Tensor) else v) for v in (shift, scale)]
        if not min(at) >= 0:
            raise InputError(f"log|s I + t C| needs s and t not negative, got {at[0]:g} and {at[1]:g}")
        estimate = self.trace(lambda nodes: torch.log(shift + scale * nodes))
        if not torch.isfinite(estimate.value):
            raise CtDipError(
                f"the log-determinant of {at[0]:g} I + {at[1]:g} C is not finite: an eigenvalue is zero "
                "up to rounding; use a shift, a preconditioner or float64"
            )
        return estimate


@torch.no_grad()
def spectral_density(
    operator: Operator,
    size: int,
    *,
    steps: int = 30,
    probes: int = 16,
    kind: Probes = "rademacher",
    seed: int = 0,
    dtype: torch.dtype = torch.float64,
    device: torch.device | None = None,
) -> SpectralDensity:
    """Nodes and weights of a symmetric psd C, by ``steps · probes`` products.

    Args:
        operator: C.
        size: n.
        steps: m of Lanczos, at most n.
        probes: random vectors, at least 2.
        kind: of the probes. Gaussian ones count with ``‖z‖² = n`` too: only their direction is random.
        dtype: of the products.
        device: of the products.

    Raises:
        CtDipError: C has an eigenvalue that is negative beyond rounding, or returned NaN or infinity.
    """
    if probes < 2 or steps < 1:
        raise InputError(f"an error over probes needs at least 2, and 1 step; got {probes} and {steps}")
    start = _probes(size, probes, kind, seed).to(device=device, dtype=dtype)
    steps = min(steps, size)
    together = max(1, KRYLOV_BYTES // (steps * size * start.element_size()))
    tridiagonals = [lanczos(operator, part, steps) for part in torch.split(start, together)]
    diagonal, beside = (torch.cat(parts) for parts in zip(*tridiagonals, strict=True))
    nodes, weights = _rule(diagonal, beside)
    # Extreme eigenvalues are found up to the rounding of a product, relative to the largest.
    rounding = 10 * torch.finfo(dtype).eps * float(nodes.abs().max())
    if nodes.min() < -rounding * size**0.5:
        raise CtDipError(
            f"the operator has an eigenvalue of {float(nodes.min()):.3g} or less (largest "
            f"{float(nodes.max()):.3g}): it is not positive semidefinite, so it has no log-determinant"
        )
    # What is below rounding is noise, whose logarithm would pass for a value.
    return SpectralDensity(size=size, nodes=torch.where(nodes > rounding, nodes, 0), weights=weights)


def spectral_measure(operator: Operator, start: Tensor, steps: int) -> tuple[Tensor, Tensor]:
    """Nodes θ and weights w, (vectors, steps), of ``vᵀ f(C) v ≈ ‖v‖² Σ_k w_k f(θ_k)`` for rows v of start."""
    nodes, weights = _rule(*lanczos(operator, start, steps))
    return nodes.clamp_min(0), weights


def log_det(
    operator: Operator,
    size: int,
    *,
    preconditioner: Nystrom | None = None,
    steps: int = 30,
    probes: int = 16,
    kind: Probes = "rademacher",
    seed: int = 0,
    dtype: torch.dtype = torch.float64,
    device: torch.device | None = None,
) -> Estimate:
    """``log|K| = log|P| + log|P^−½ K P^−½|``, the first exact and the second by quadrature.

    A good preconditioner leaves little to estimate: both the standard error and the error of the quadrature
    fall with ``‖log(P^−½ K P^−½)‖``. For the other arguments see `spectral_density`.
    """

    def between(v: Tensor) -> Tensor:
        if preconditioner is None:
            return operator(v)
        # Checked here, so that what is said names K and not the product of three.
        return preconditioner.inverse_root(product(operator, preconditioner.inverse_root(v)))

    density = spectral_density(
        between, size, steps=steps, probes=probes, kind=kind, seed=seed, dtype=dtype, device=device
    )
    value, standard_error = density.log_det(0.0)
    return Estimate(value + (preconditioner.log_det() if preconditioner else 0.0), standard_error)


@torch.no_grad()
def lanczos(operator: Operator, start: Tensor, steps: int) -> tuple[Tensor, Tensor]:
    """``Qᵀ C Q = T``, tridiagonal, for every row of start.

    Every new vector is made orthogonal to all before it, twice: without that, eigenvalues that converged come
    back as ghosts. Where the Krylov space is exhausted, T goes on with zeros beside its diagonal, and so with
    nodes of no weight.

    Returns:
        The diagonal, (vectors, steps), and what is beside it, (vectors, steps − 1); float64.
    """
    vectors, size = start.shape
    basis = start.new_zeros(vectors, steps, size)
    diagonal = torch.zeros(vectors, steps, dtype=torch.float64, device=start.device)
    beside = torch.zeros(vectors, max(steps - 1, 0), dtype=torch.float64, device=start.device)
    q = start / torch.linalg.vector_norm(start, dim=1, keepdim=True)
    largest = start.new_zeros(vectors)  # a lower bound of ‖C‖
    for step in range(steps):
        basis[:, step] = q
        image = product(operator, q)
        along = torch.sum(q * image, dim=1)
        largest = torch.maximum(largest, torch.linalg.vector_norm(image, dim=1))
        # After an end q is 0; any value inside the spectrum does for a node without weight.
        ended = torch.linalg.vector_norm(q, dim=1) == 0
        diagonal[:, step] = torch.where(ended, diagonal[:, 0], along.double())
        if step == steps - 1:
            break
        for _ in range(2):
            previous = basis[:, : step + 1]
            image = image - (previous.mT @ (previous @ image[:, :, None]))[:, :, 0]
        norm = torch.linalg.vector_norm(image, dim=1)
        ends = norm <= size**0.5 * torch.finfo(start.dtype).eps * largest
        beside[:, step] = torch.where(ends, 0, norm.double())
        q = torch.where(ends[:, None], 0, image / norm[:, None])
    return diagonal, beside


def _tridiagonal(diagonal: Tensor, beside: Tensor) -> Tensor:
    return torch.diag_embed(diagonal) + torch.diag_embed(beside, 1) + torch.diag_embed(beside, -1)


def _rule(diagonal: Tensor, beside: Tensor) -> tuple[Tensor, Tensor]:
    """Golub and Welsch: nodes are the eigenvalues of T, weights the squared first entries of its vectors."""
    nodes, vectors = torch.linalg.eigh(_tridiagonal(diagonal, beside))
    return nodes, vectors[:, 0, :] ** 2


def _probes(size: int, count: int, kind: Probes, seed: int) -> Tensor:
    """(count, n), float64."""
    generator = torch.Generator().manual_seed(seed)
    if kind == "rademacher":
        return 2.0 * torch.randint(0, 2, (size, count), generator=generator).double().T - 1
    if kind == "gaussian":
        return torch.randn(size, count, generator=generator, dtype=torch.float64).T
    raise InputError(f"probes are 'rademacher' or 'gaussian', got {kind!r}")
