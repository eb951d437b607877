"""How strong a Markov random field is, and how large the noise, by evidence.

For the prior ``p(u | s) ∝ s^{(n−1)/2} exp(−s uᵀQu/2)``, ``Q = Dᵀ diag(w) D``, which leaves the mean of the n
pixels free, and m measurements with noise precision l, ``P = l BᵀB + s Q`` and the mean ``u = l P⁻¹Bᵀr``:

    2 log p(r | s, l) = m log l + (n−1) log s − log|P| − l ‖B u − r‖² − s uᵀQu + constant

Its derivatives by log s and log l vanish where (MacKay 1992)

    s = (n − 1 − s tr P⁻¹Q) / uᵀQu,      l = (m − l tr P⁻¹BᵀB) / ‖B u − r‖²

`DenseField` has the traces exactly, `fit_by_samples` estimates them from samples of N(0, P⁻¹).
"""

import math
from dataclasses import dataclass

import numpy as np
import torch
from scipy.optimize import minimize
from torch import Tensor

from ct_dip.arrays import Floats
from ct_dip.image_space.markov_field import MarkovField, standard_normal
from ct_dip.image_space.problem import PixelProblem, unit_vectors

_CHUNK = 256  # columns of BᵀB that are made together
_LARGEST = 8.0  # size of log s and log l
UPDATES = 30  # of MacKay's, at most
_SETTLED = 0.02  # relative change of s and l that ends them


@dataclass(frozen=True)
class Scales:
    """s, l and, where it is known, the evidence in nats up to a constant of the weights."""

    prior: float
    noise: float
    evidence: float | None = None


class DenseField:
    """The Gaussian posterior as matrices of pixels², float64.

    Args:
        weights: w, (2, rows, columns).
    """

    def __init__(self, problem: PixelProblem, weights: Tensor) -> None:
        self.problem = problem
        field = MarkovField(problem, weights)
        whitened = problem.whitened
        # In float64 from the start: rounding of float32 would make BᵀB indefinite.
        rows = [
            (whitened.back_project(whitened.project(part)), field.roughness(part))
            for part in unit_vectors(problem.pixels, _CHUNK, problem.data.device)
        ]
        self.gram, self.rough = (torch.cat(parts) for parts in zip(*rows, strict=True))
        self.right = whitened.back_project(problem.data[None].double())[0]
        self.energy = float(problem.data.double().square().sum())

    def posterior(self, scales: Scales) -> tuple[Tensor, Tensor]:
        """Return the mean, (pixels,), and the Cholesky factor of the precision, (pixels, pixels)."""
        factor = torch.linalg.cholesky(scales.noise * self.gram + scales.prior * self.rough)
        return scales.noise * torch.cholesky_solve(self.right[:, None], factor)[:, 0], factor

    def evidence(self, scales: Scales) -> tuple[float, tuple[float, float]]:
        """Return ``log p(r | s, l)`` up to a constant, and its derivatives by log s and log l."""
        mean, factor = self.posterior(scales)
        covariance = torch.cholesky_inverse(factor)
        pixels, measurements = len(mean), len(self.problem.data)
        roughness = float(mean @ self.rough @ mean)
        misfit = self.energy - 2 * float(self.right @ mean) + float(mean @ self.gram @ mean)
        value = measurements * math.log(scales.noise) + (pixels - 1) * math.log(scales.prior)
        value -= 2 * float(factor.diagonal().log().sum()) + scales.noise * misfit + scales.prior * roughness
        by_prior = pixels - 1 - scales.prior * (float((covariance * self.rough).sum()) + roughness)
        by_noise = measurements - scales.noise * (float((covariance * self.gram).sum()) + misfit)
        return value / 2, (by_prior / 2, by_noise / 2)

    def fit(self, *, fit_noise: bool = True) -> Scales:
        """Maximise the evidence; with l = 1 if the noise is as stated."""

        def negative(logs: Floats) -> tuple[float, Floats]:
            value, slopes = self.evidence(_scales(logs))
            return -value, -np.array(slopes[: len(logs)])

        start = np.zeros(2 if fit_noise else 1)
        bounds = [(-_LARGEST, _LARGEST)] * len(start)
        found = minimize(negative, start, jac=True, method="L-BFGS-B", bounds=bounds)
        best = _scales(found.x)
        return Scales(best.prior, best.noise, -float(found.fun))

    def std_and_errors(self, scales: Scales, count: int, rng: np.random.Generator) -> tuple[Tensor, Tensor]:
        """Return deviations of the pixels, (pixels,), and samples of N(0, P⁻¹), (count, pixels)."""
        factor = self.posterior(scales)[1]
        variance = torch.cholesky_inverse(factor).diagonal()
        normal = standard_normal((len(variance), count), rng, variance)
        return variance.sqrt(), torch.linalg.solve_triangular(factor.T, normal, upper=True).T


def fit_by_samples(
    problem: PixelProblem,
    weights: Tensor,
    *,
    fit_noise: bool = True,
    probes: int = 16,
    seed: int = 0,
) -> Scales:
    """Iterate MacKay's equations with traces from samples: ``tr P⁻¹Q = E δᵀQδ`` of ``δ ~ N(0, P⁻¹)``.

    The same random numbers serve every update, so that it settles.
    """
    prior, noise, u, deltas = 1.0, 1.0, None, None
    for _ in range(UPDATES):
        field = MarkovField(problem, prior * weights, noise)
        u = field.mean(start=u)
        right = field.perturbations(probes, np.random.default_rng(seed))
        deltas = field.solve(right, deltas).x
        both = torch.cat([u[None], deltas])
        rough = (both * field.roughness(both)).double().sum(dim=1) / prior
        projected = problem.whitened.project(both).double()
        misfit = float((projected[0] - problem.data).square().sum())
        free = problem.pixels - 1 - prior * float(rough[1:].mean())
        left = len(problem.data) - noise * float(projected[1:].square().sum(dim=1).mean())
        before = (prior, noise)
        prior = _bounded(free, float(rough[0]))
        noise = _bounded(left, misfit) if fit_noise else 1.0
        if all(abs(new / old - 1) < _SETTLED for new, old in zip((prior, noise), before, strict=True)):
            break
    return Scales(prior, noise)


def _scales(logs: Floats) -> Scales:
    return Scales(math.exp(logs[0]), math.exp(logs[1]) if len(logs) > 1 else 1.0)


def _bounded(numerator: float, denominator: float) -> float:
    """Return a ratio inside of the range of s and l."""
    return min(max(numerator, math.exp(-_LARGEST) * denominator) / denominator, math.exp(_LARGEST))
