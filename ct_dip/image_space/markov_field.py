"""The Gaussian posterior of a Markov random field, by products alone: its mean, and exact samples.

With weights w of the differences between neighbouring pixels and a noise precision l,

    p(u | r) = N(l P⁻¹ Bᵀ r, P⁻¹),      P = l BᵀB + Dᵀ diag(w) D

A sample is the solution of a perturbed problem (randomise-then-optimise, Bardsley et al. 2014; perturbation
optimisation, Orieux et al. 2012): ``P u = l Bᵀr + √l Bᵀε₁ + Dᵀ √w ε₂`` has that mean, and the covariance
``P⁻¹ (l BᵀB + DᵀwD) P⁻¹ = P⁻¹``.
"""

import numpy as np
import torch
from torch import Tensor

from ct_dip.image_space.problem import PixelProblem
from ct_dip.operators.differences import FiniteDifferences
from ct_dip.solvers.conjugate_gradients import Solution, conjugate_gradients

_MAX_ITERATIONS = 2000


class MarkovField:
    """The Gaussian ``N(l P⁻¹ Bᵀ r, P⁻¹)``.

    Args:
        weights: w, (2, rows, columns).
        noise: l, the precision of the noise relative to the stated one.
        tolerance: relative residual of the solves.
    """

    def __init__(
        self, problem: PixelProblem, weights: Tensor, noise: float = 1.0, *, tolerance: float = 1e-4
    ) -> None:
        self.problem, self.weights, self.noise, self.tolerance = problem, weights, noise, tolerance
        self.differences = FiniteDifferences(problem.shape)
        # About the diagonal of P: the columns of B have norm 1 on average.
        self._diagonal = (noise + _neighbour_sums(weights)).flatten()

    def precision(self, u: Tensor) -> Tensor:
        """Return ``P u`` of flat images, (n, pixels) → (n, pixels)."""
        whitened = self.problem.whitened
        data = whitened.back_project(whitened.project(u))
        return self.noise * data + self.roughness(u)

    def roughness(self, u: Tensor) -> Tensor:
        """Return ``Dᵀ diag(w) D u`` of flat images, (n, pixels) → (n, pixels)."""
        field = self.differences(u.reshape(-1, *self.problem.shape))
        return self.differences.T(self.weights * field).flatten(1)

    def mean(self, start: Tensor | None = None) -> Tensor:
        """Return the posterior mean, (pixels,)."""
        right = self.noise * self.problem.whitened.back_project(self.problem.data[None])
        return self.solve(right, None if start is None else start[None]).x[0]

    def perturbations(self, count: int, rng: np.random.Generator) -> Tensor:
        """Draw ``√l Bᵀε₁ + Dᵀ √w ε₂ ~ N(0, P)``, (count, pixels)."""
        whitened, like = self.problem.whitened, self.problem.data
        noise = standard_normal((count, *whitened.range_shape), rng, like)
        field = standard_normal((count, *self.differences.range_shape), rng, like)
        return self.noise**0.5 * whitened.back_project(noise) + self.differences.T(
            self.weights.sqrt() * field
        ).flatten(1)

    def sample(self, count: int, rng: np.random.Generator, start: Tensor | None = None) -> Tensor:
        """Draw images from the posterior, (count, pixels).

        Args:
            start: where the solves start, (pixels,).
        """
        right = self.noise * self.problem.whitened.back_project(self.problem.data[None])
        right = right + self.perturbations(count, rng)
        return self.solve(right, None if start is None else start.expand(count, -1).contiguous()).x

    def solve(self, right: Tensor, start: Tensor | None = None) -> Solution:
        """Solve ``P u = right`` for every row, (n, pixels)."""
        return conjugate_gradients(
            self.precision,
            right,
            preconditioner=lambda v: v / self._diagonal,
            x0=start,
            tolerance=self.tolerance,
            max_iterations=_MAX_ITERATIONS,
        )


def standard_normal(shape: tuple[int, ...], rng: np.random.Generator, like: Tensor) -> Tensor:
    """Draw independent normal numbers, of the type and on the device of a tensor."""
    return torch.as_tensor(rng.standard_normal(shape, dtype=np.float32)).to(like)


def _neighbour_sums(weights: Tensor) -> Tensor:
    """Return the diagonal of ``Dᵀ diag(w) D``, (rows, columns)."""
    down, right = weights[0, :-1], weights[1, :, :-1]
    total = torch.zeros_like(weights[0])
    total[:-1] += down
    total[1:] += down
    total[:, :-1] += right
    total[:, 1:] += right
    return total
