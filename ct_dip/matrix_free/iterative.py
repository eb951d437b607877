"""The iterative regime: ``K = B (J Σ Jᵀ + D) Bᵀ + s² I`` by its products alone, and conjugate gradients."""

from collections.abc import Callable

from torch import Tensor

from ct_dip.matrix_free.conditional import Conditional
from ct_dip.matrix_free.problem import Problem
from ct_dip.priors.covariance import WeightCovariance
from ct_dip.solvers.conjugate_gradients import conjugate_gradients
from ct_dip.solvers.nystrom import Nystrom, nystrom
from ct_dip.solvers.products import Operator


def signal(
    problem: Problem, covariance: WeightCovariance, pixel_variance: Tensor | None, columns: Tensor
) -> Tensor:
    """``B (J Σ Jᵀ + D) Bᵀ v``, (measurements, n) → the same: one pass of Jᵀ and one of J for every column."""
    back = problem.whitened.T(columns.T.contiguous())
    images = problem.jacobian(covariance(problem.jacobian.T(back)))
    if pixel_variance is not None:
        images = images + pixel_variance.to(back).reshape(problem.jacobian.range_shape) * back
    return problem.whitened(images).T


class Iterative(Conditional):
    """The posterior with every solve iterated to a stated accuracy.

    Args:
        preconditioner: about ``K⁻¹`` up to a factor.
        tolerance: true relative residual of every column of a solve.
        report: of the steps of a solve; see `conjugate_gradients`.

    Attributes:
        worst_residual: the largest true relative residual so far.
        unconverged: how many columns missed the tolerance; they are used as they are, and told.
        products: with K, of one column each.
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
        self.worst_residual, self.unconverged, self.products = 0.0, 0, 0

    def operator(self, columns: Tensor) -> Tensor:
        """``K v``, (measurements, n) → the same."""
        return signal(self.problem, self.covariance, self.pixel_variance, columns) + self.noise * columns

    def with_pixel_variance(self, extra: Tensor) -> "Iterative":
        """See `Conditional.with_pixel_variance`."""
        return Iterative(
            self.problem,
            self.covariance,
            extra if self.pixel_variance is None else self.pixel_variance + extra,
            self.noise,
            preconditioner=self.preconditioner,
            tolerance=self.tolerance,
            max_iterations=self.max_iterations,
            report=self.report,
        )

    def measure(self, weights: Tensor) -> Tensor:
        """``B J w``."""
        return self.problem.measure(weights)

    def solve(self, columns: Tensor, start: Tensor | None = None) -> Tensor:
        """``K⁻¹ r``, (measurements, n) → the same."""
        solution = conjugate_gradients(
            self.operator,
            columns,
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

    def update(self, columns: Tensor) -> tuple[Tensor, Tensor | None]:
        """See `Conditional.update`."""
        return self.explain(self.solve(columns))

    def explain(self, solved: Tensor) -> tuple[Tensor, Tensor | None]:
        """``Σ Jᵀ Bᵀ α`` and ``D Bᵀ α`` for ``α = K⁻¹ r``."""
        back = self.problem.whitened.T(solved.T.contiguous())
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
    """Of K with its present hyperparameters, from ``rank`` products."""
    like = problem.jacobian.weights
    return nystrom(
        lambda v: signal(problem, covariance, pixel_variance, v),
        problem.measurements,
        min(rank, problem.measurements),
        noise=noise,
        seed=seed,
        dtype=like.dtype,
        device=like.device,
    )
