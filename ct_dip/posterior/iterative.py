"""The iterative regime: ``K = B (J Σ Jᵀ + D) Bᵀ + s² I`` by its products alone, and conjugate gradients."""

from collections.abc import Callable

from torch import Tensor

from ct_dip.operators.basic_maps import Identity
from ct_dip.posterior.conditional import WeightConditional
from ct_dip.posterior.problem import Problem
from ct_dip.priors.covariance import WeightCovariance
from ct_dip.solvers.conjugate_gradients import conjugate_gradients
from ct_dip.solvers.nystrom import Nystrom, nystrom
from ct_dip.solvers.products import Operator


class Iterative(WeightConditional):
    """The posterior with every solve iterated to a stated accuracy.

    Args:
        preconditioner: about ``K⁻¹`` up to a factor.
        tolerance: true relative residual of every solve.
        report: of the steps of a solve; see `conjugate_gradients`.

    Attributes:
        worst_residual: the largest true relative residual so far.
        unconverged: how many solves missed the tolerance; they are used as they are, and told.
        operator: K.
        products: with it.
    """

    def __init__(
        self,
        problem: Problem,
        covariance: WeightCovariance,
        pixel_variance: Tensor | None,
        noise: float,
        *,
        preconditioner: Operator | None = None,
        tolerance: float = 1e-3,
        max_iterations: int = 200,
        report: Callable[[int, float], None] | None = None,
    ) -> None:
        super().__init__(problem, covariance, pixel_variance, noise)
        self.preconditioner, self.tolerance, self.max_iterations = preconditioner, tolerance, max_iterations
        self.report = report
        self.operator = problem.signal(covariance, pixel_variance) + noise * Identity(problem.measurements)
        self.worst_residual, self.unconverged, self.products = 0.0, 0, 0

    def with_pixel_variance(self, extra: Tensor) -> "Iterative":
        """Add independent variances of some pixels, (pixels,)."""
        return Iterative(
            self.problem,
            self.covariance,
            self._added(extra),
            self.noise,
            preconditioner=self.preconditioner,
            tolerance=self.tolerance,
            max_iterations=self.max_iterations,
            report=self.report,
        )

    def measure(self, weights: Tensor) -> Tensor:
        """Compute ``B J w``."""
        return self.problem.design(weights)

    def solve(self, residuals: Tensor, start: Tensor | None = None) -> Tensor:
        """Compute ``K⁻¹ r``, (n, measurements) → the same."""
        solution = conjugate_gradients(
            self.operator,
            residuals,
            preconditioner=self.preconditioner,
            x0=start,
            tolerance=self.tolerance,
            max_iterations=self.max_iterations,
            report=self.report,
        )
        self.worst_residual = max(self.worst_residual, float(solution.residuals.max()))
        self.unconverged += int((~solution.converged).sum())
        self.products += solution.products
        return solution.x

    def update(self, residuals: Tensor) -> tuple[Tensor, Tensor | None]:
        """Solve, then return ``Δw`` and ``Δu``; see `WeightConditional.update`."""
        return self.explain(self.solve(residuals))

    def explain(self, solved: Tensor) -> tuple[Tensor, Tensor | None]:
        """Compute ``Σ Jᵀ Bᵀ α`` and ``D Bᵀ α`` for ``α = K⁻¹ r``."""
        back = self.problem.whitened.T(solved)
        weights = self.covariance(self.problem.jacobian.T(back))
        if self.pixel_variance is None:
            return weights, None
        return weights, self.pixel_variance.to(back) * back.flatten(1)


def nystrom_preconditioner(
    problem: Problem,
    covariance: WeightCovariance,
    pixel_variance: Tensor | None,
    noise: float,
    rank: int,
    seed: int = 0,
) -> Nystrom:
    """Make a preconditioner of K at its present hyperparameters from ``rank`` products."""
    like = problem.jacobian.weights
    return nystrom(
        problem.signal(covariance, pixel_variance),
        problem.measurements,
        min(rank, problem.measurements),
        noise=noise,
        seed=seed,
        dtype=like.dtype,
        device=like.device,
    )
