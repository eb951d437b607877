"""A Gaussian process over pixels, conditioned on the data, with hyperparameters by evidence.

    u ~ N(0, a² K_ℓ),   r = B u + s ε,   C = B K_ℓ Bᵀ + ρ I,   ρ = s²/a²

Everything is in measurement space, where matrices have measurements² entries, float64. For given ℓ and ρ the
evidence is largest at ``a² = rᵀC⁻¹r/m``, and there, up to a constant,

    log p(r | ℓ, ρ) = −½ (m log rᵀC⁻¹r + log|C|)
"""

import math
from dataclasses import dataclass

import numpy as np
import torch
from scipy.optimize import minimize
from torch import Tensor

from ct_dip.arrays import Floats
from ct_dip.image_space.markov_field import standard_normal
from ct_dip.image_space.matern import Matern
from ct_dip.image_space.problem import PixelProblem, unit_vectors

_CHUNK = 128  # images that are transformed together
_MATRICES = 5  # of measurements² that are held at once
_SHORTEST = 0.3  # length, in pixels; the longest is the image's side
_NOISE = (1e-8, 1e4)  # range of ρ: signals of a deviation between 0.01 and 10⁴ in units of the noise
_START = 3.0  # length, in pixels


def needed_bytes(pixels: int, measurements: int) -> int:
    """Return the bytes of the matrices, and of the images that are transformed together."""
    return 8 * _MATRICES * measurements**2 + 16 * 4 * 4 * _CHUNK * pixels


@dataclass(frozen=True, kw_only=True)
class GpHyperparameters:
    """What the evidence chose.

    Args:
        length: ℓ, pixels.
        amplitude: a, units of the noise.
        noise: s, relative to the stated noise.
        evidence: log p(r), nats, of the whitened sinogram.
        at_bound: whether ℓ or ρ ended at the end of its range.
    """

    length: float
    amplitude: float
    noise: float
    evidence: float
    evaluations: int
    at_bound: bool


class GaussianProcess:
    """The model of a problem; `fit` chooses ℓ, a and s, and `posterior` conditions on the data.

    Args:
        smoothness: ν of the Matérn covariance.
    """

    def __init__(self, problem: PixelProblem, smoothness: float) -> None:
        self.problem, self.smoothness = problem, smoothness
        self.data = problem.data.double()

    def covariance(self, length: float) -> Matern:
        """Return ``K_ℓ``."""
        return Matern(self.problem.shape, length, self.smoothness, self.data.device)

    def profile(self, length: float, ratio: float) -> tuple[float, tuple[float, float], float]:
        """Return ``log p(r | ℓ, ρ)`` at the best a, its derivatives by log ℓ and log ρ, and a²."""
        gram, slope = self._grams(self.covariance(length))
        gram.diagonal().add_(ratio)
        factor = torch.linalg.cholesky(gram)
        solved = torch.cholesky_solve(self.data[:, None], factor)[:, 0]
        m, power = len(self.data), float(self.data @ solved)
        value = -0.5 * m * (math.log(2 * math.pi * power / m) + 1) - float(factor.diagonal().log().sum())
        inverse = torch.cholesky_inverse(factor)
        by_length = m / power * float(solved @ slope @ solved) - float((inverse * slope).sum())
        by_ratio = ratio * (m / power * float(solved @ solved) - float(inverse.diagonal().sum()))
        return value, (by_length / 2, by_ratio / 2), power / m

    def fit(self) -> GpHyperparameters:
        """Maximise the evidence by L-BFGS over log ℓ and log ρ."""
        signal = float(self.data.square().mean()) - 1
        gram = self._grams(self.covariance(_START))[0]
        start = max(1.0, signal) / float(gram.diagonal().mean())  # a² that explains what is not noise
        limits = [(_SHORTEST, float(max(self.problem.shape))), _NOISE]
        bounds = [(math.log(low), math.log(high)) for low, high in limits]

        def negative(logs: Floats) -> tuple[float, Floats]:
            value, slopes, _ = self.profile(*np.exp(logs).tolist())
            return -value, -np.array(slopes)

        first = [math.log(_START), min(max(-math.log(start), bounds[1][0]), bounds[1][1])]
        options = {"ftol": 1e-9, "gtol": 1e-2}  # a hundredth of a nat per e-fold
        found = minimize(negative, first, jac=True, method="L-BFGS-B", bounds=bounds, options=options)
        length, ratio = np.exp(found.x).tolist()
        amplitude = math.sqrt(self.profile(length, ratio)[2])
        return GpHyperparameters(
            length=length,
            amplitude=amplitude,
            noise=amplitude * math.sqrt(ratio),
            evidence=-float(found.fun),
            evaluations=int(found.nfev),
            at_bound=any(value in bound for value, bound in zip(found.x.tolist(), bounds, strict=True)),
        )

    def posterior(
        self, chosen: GpHyperparameters, count: int, rng: np.random.Generator
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return mean and deviations, (rows, columns), and ``count`` samples, (count, rows, columns).

        ``K Bᵀ C⁻¹ r``, ``a² (1 − diag K Bᵀ C⁻¹ B K)``, and ``v + K Bᵀ C⁻¹ (r − B v − s ε)`` with v of the
        prior (Matheron's rule).
        """
        covariance, whitened = self.covariance(chosen.length), self.problem.whitened
        gram = self._grams(covariance)[0]
        gram.diagonal().add_((chosen.noise / chosen.amplitude) ** 2)
        factor = torch.linalg.cholesky(gram)
        prior = chosen.amplitude * covariance.sample(count, rng)
        noise = chosen.noise * standard_normal((count, len(self.data)), rng, self.data)
        right = torch.cat([self.data[None], self.data - whitened(prior) - noise])
        update = covariance(whitened.T(torch.cholesky_solve(right.T, factor).T))
        explained = []  # 1 minus the relative variance of pixels
        for part in unit_vectors(self.problem.pixels, _CHUNK, self.data.device):
            projected = whitened(covariance(part.reshape(-1, *self.problem.shape)))
            solved = torch.linalg.solve_triangular(factor, projected.T, upper=False)
            explained.append(solved.square().sum(dim=0))
        variance = (1 - torch.cat(explained)).clamp(min=0).reshape(self.problem.shape)
        return update[0], chosen.amplitude * variance.sqrt(), prior + update[1:]

    def _grams(self, covariance: Matern) -> tuple[Tensor, Tensor]:
        """Return ``B K Bᵀ`` and its derivative by log ℓ, (measurements, measurements) each."""
        whitened = self.problem.whitened
        parts: list[tuple[Tensor, Tensor]] = []
        for rows in unit_vectors(len(self.data), _CHUNK, self.data.device):
            k, slope = covariance.products(whitened.T(rows))
            parts.append((whitened(k), whitened(slope)))
        gram, slope = (torch.cat(each) for each in zip(*parts, strict=True))
        return gram, slope
