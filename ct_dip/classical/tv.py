"""Total-variation reconstruction by the primal-dual hybrid gradient method."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ct_dip.errors import InputError
from ct_dip.operators.differences import FiniteDifferences
from ct_dip.operators.linear_map import LinearMap
from ct_dip.operators.norm import rms_column_norm

# Near the best on phantoms of 28² to 128² with 20 to 180 views and 1 to 10 % noise, and on two
# measured scans at 256².
DEFAULT_STRENGTH = 0.8

# Steps of the iteration, chosen on generated objects of 40² to 64² with 20 to 250 views, see
# benchmarks/README.md: how fast the duals of the data and of TV go against the primal, where x and q are
# O(1) and p has the size of the penalty, and how far beyond its result every step goes.
_DATA_PACE, _TV_PACE, _RELAXATION = 5.0, 10.0, 1.8


@dataclass(frozen=True, kw_only=True)
class TvResult:
    """The result of `tv`."""

    image: Tensor  # (rows, columns)
    objective: float
    gap: float  # objective minus a lower bound of the minimum, over the objective
    iterations: int
    converged: bool
    gaps: list[float]  # at every check
    box: float  # the gap is certified for solutions with no pixel above this, 1/mm

    @property
    def diagnostics(self) -> dict[str, Any]:
        """How far the iteration came, for a result."""
        return {"iterations": self.iterations, "duality_gap": self.gap, "converged": self.converged}


def tv(
    transform: LinearMap,
    sinogram: Tensor,
    *,
    variance: Tensor | float,
    strength: float = DEFAULT_STRENGTH,
    isotropic: bool = True,
    tolerance: float = 1e-3,
    max_iterations: int = 5000,
    check_every: int = 20,
    seed: int = 0,
    report: Callable[[int, float, float], None] | None = None,
) -> TvResult:
    """``min_{x ≥ 0} ½ Σᵢ (Ax − y)ᵢ²/σᵢ² + λ TV(x)`` with ``λ = strength · rms column norm of A/σ``.

    The noise in the gradient of the data term has that column norm as its deviation in a pixel, so
    ``strength`` compares TV with the noise: a pure number, whatever the units, the size and the views.
    The iteration, see `TvSolver`, stops on the relative gap to a lower bound of the minimum.

    Args:
        variance: of the measurements, one number or (views, detectors); infinite where one does not count.
        strength: weight of TV relative to the noise.
        isotropic: ``|Dx|`` per pixel as a 2-norm; otherwise the sum of absolute differences.
        tolerance: relative duality gap to stop at.
        seed: of the probes that measure the column norm.
        report: called at every check with (iteration, objective, gap).
    """
    variance = torch.as_tensor(variance, dtype=torch.float64).expand_as(sinogram)
    solver = TvSolver(transform, sinogram[None], variance[None], isotropic=isotropic, seed=seed)
    gaps: list[float] = []

    def note(iteration: int) -> None:
        gaps.append(float(solver.gap))
        if report is not None:
            report(iteration, float(solver.objective), gaps[-1])

    iterations = solver.solve(
        strength, tolerance=tolerance, max_iterations=max_iterations, check_every=check_every, report=note
    )
    return TvResult(
        image=solver.images[0],
        objective=float(solver.objective),
        gap=gaps[-1],
        iterations=iterations,
        converged=gaps[-1] <= tolerance,
        gaps=gaps,
        box=float(2 * solver.images.max()),
    )


class TvSolver:
    """N problems of total variation with one ray transform, solved together, for one strength after another.

    Chambolle & Pock (2011) with the diagonal steps of Pock & Chambolle (2011), which need only the row
    and column sums of ``K = [A/σ; D]``, over-relaxed as Condat (2013). The saddle problem is
    ``min_{x ≥ 0} max ⟨Kx, (q, p)⟩ − ½‖q‖² − ⟨q, y/σ⟩`` over q and ``|p| ≤ λ``. For such q, p and a box
    [0, B], ``−½‖q‖² − ⟨q, y/σ⟩ + B Σ min(0, Kᵀ(q, p))`` is a lower bound of the minimum over that box. B is
    twice the largest pixel so far, so the bound is one of the whole problem unless a pixel of the solution
    is more than twice as large as any found.

    Args:
        sinograms: (N, views, detectors).
        variances: (N, views, detectors); infinite where a measurement does not count.
        isotropic: as in `tv`.
        seed: of the probes that measure the column norms.

    Attributes:
        objective: of every problem, (N,), at the last check.
        gap: the largest relative duality gap of the N, at the last check.
    """

    def __init__(
        self,
        transform: LinearMap,
        sinograms: Tensor,
        variances: Tensor,
        *,
        isotropic: bool = True,
        seed: int = 0,
    ) -> None:
        rows, columns = transform.domain_shape
        self.transform, self.differences = transform, FiniteDifferences((rows, columns))
        self.isotropic = isotropic
        precision = variances.double().rsqrt().to(sinograms)  # 1/σ
        self.y = sinograms * precision
        ones = sinograms.new_ones(transform.domain_shape)
        flat = transform(ones) * precision
        # Pixels are counted in units of a few times the mean attenuation, which makes them O(1).
        mean = _totals(flat * self.y) / _totals(flat**2)
        self.unit = torch.where(mean > 0, 3 * mean, 1.0)  # (N, 1, 1)
        self.weights = self.unit * precision
        norms = [rms_column_norm(transform, weights, seed=seed) for weights in self.weights]
        self.column_norms = sinograms.new_tensor(norms)[:, None, None]
        self.row_sums, self.column_sums = flat * self.unit, self._backward(torch.ones_like(self.y))
        self.x = sinograms.new_zeros(len(sinograms), rows, columns)
        self.q = torch.zeros_like(self.y)
        self.p = sinograms.new_zeros(len(sinograms), *self.differences.range_shape)
        self.objective = self.gap = sinograms.new_full((), float("inf"))

    @property
    def images(self) -> Tensor:
        """The N solutions, (N, rows, columns), 1/mm."""
        return self.x * self.unit

    def keep(self, numbers: Sequence[int]) -> None:
        """Go on with some of the problems alone."""
        for name in ("y", "unit", "weights", "column_norms", "row_sums", "column_sums", "x", "q", "p"):
            setattr(self, name, getattr(self, name)[list(numbers)])

    def solve(
        self,
        strength: float | Tensor,
        *,
        tolerance: float = 1e-3,
        max_iterations: int = 5000,
        check_every: int = 20,
        report: Callable[[int], None] | None = None,
    ) -> int:
        """Iterate from where the last call ended until every gap is below ``tolerance``; count the steps.

        Args:
            strength: of all problems, or (N, 1, 1).
        """
        for name, value in (("strength", strength), ("tolerance", tolerance)):
            if not (value > 0 if isinstance(value, float | int) else bool((value > 0).all())):
                raise InputError(f"TV {name} {value} must be positive")
        if max_iterations < 1:
            raise InputError(f"TV max_iterations {max_iterations} must be at least 1")
        penalty = strength * self.column_norms
        sigma_q = _DATA_PACE / self.row_sums.clamp(min=float(self.row_sums.max()) * 1e-6)
        sigma_p = _TV_PACE * penalty[:, None] / 2
        tau = 1 / (_DATA_PACE * self.column_sums + _TV_PACE * penalty * 4)
        damped = 1 / (1 + sigma_q)
        pull = self._pull()
        for iteration in range(1, max_iterations + 1):
            x = (self.x - tau * pull).clamp(min=0)
            ahead = 2 * x - self.x
            q = (self.q + sigma_q * (self._forward(ahead) - self.y)) * damped
            p = self.p + sigma_p * self.differences(ahead)
            p = p / (self._magnitude(p) / penalty[:, None]).clamp(min=1)
            checked = iteration % check_every == 0 or iteration == max_iterations
            step = 1.0 if checked else _RELAXATION  # beyond p and x, which a check needs within their bounds
            self.x, self.q = torch.lerp(self.x, x, step), torch.lerp(self.q, q, step)
            self.p = torch.lerp(self.p, p, step)
            pull = self._pull()
            if checked:
                self._check(penalty, pull)
                if report is not None:
                    report(iteration)
                if self.gap <= tolerance:
                    break
        return iteration

    def _check(self, penalty: Tensor, pull: Tensor) -> None:
        variation = self._magnitude(self.differences(self.x)).sum(dim=(-3, -2, -1))
        misfit = _totals((self._forward(self.x) - self.y) ** 2)
        self.objective = (0.5 * misfit + penalty * variation[:, None, None]).flatten()
        box = 2 * self.x.amax(dim=(-2, -1), keepdim=True)
        bound = _totals(-0.5 * self.q**2 - self.q * self.y) + box * _totals(pull.clamp(max=0))
        self.gap = ((self.objective - bound.flatten()) / self.objective.clamp(min=1e-30)).max()

    def _pull(self) -> Tensor:
        """Compute ``Kᵀ (q, p)``."""
        return self._backward(self.q) + self.differences.T(self.p)

    def _forward(self, x: Tensor) -> Tensor:
        return self.transform(x) * self.weights

    def _backward(self, q: Tensor) -> Tensor:
        return self.transform.T(q * self.weights)

    def _magnitude(self, field: Tensor) -> Tensor:
        """Measure vector fields (N, 2, rows, columns) per pixel, or per component if anisotropic."""
        return torch.hypot(field[:, :1], field[:, 1:]) if self.isotropic else field.abs()


def _totals(values: Tensor) -> Tensor:
    """(N, rows, columns) → (N, 1, 1)."""
    return values.sum(dim=(-2, -1), keepdim=True)
