"""SK-ROCK: Langevin sampling with an explicit stabilised Runge-Kutta-Chebyshev method.

Pereyra, Vargas Mieles and Zygalakis, "Accelerating proximal Markov chain Monte Carlo by using an explicit
stabilised method", SIAM J. Imaging Sci. 13 (2020), after Abdulle, Almuslimani and Vilmart (2018). One step of
s gradients of the potential U follows ``du = −∇U dt + √2 dW`` for a time that grows as s²:

    k₀ = u,  k₁ = u − μ₁ δ ∇U(u + ν₁ q) + κ₁ q,      q ~ N(0, 2 δ I)
    k_j = −μ_j δ ∇U(k_{j−1}) + ν_j k_{j−1} + (1 − ν_j) k_{j−2},      u_next = k_s

It is not corrected by acceptance. On a Gaussian of precision λ the variance that it samples is `variance`.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from torch import Tensor

from ct_dip.arrays import Floats
from ct_dip.image_space.markov_field import standard_normal

_DAMPING = 0.05  # η of the paper
_SHARE = 0.8  # of the largest stable step


@dataclass(frozen=True)
class SkRock:
    """The method of s stages for a potential whose gradient has a Lipschitz constant.

    Args:
        lipschitz: of ∇U.
        stages: s, at least 2.
    """

    lipschitz: float
    stages: int = 15

    @property
    def step(self) -> float:
        """δ: the time that one step goes on."""
        longest = (self.stages - 0.5) ** 2 * (2 - 4 / 3 * _DAMPING) - 1.5
        return _SHARE * longest / self.lipschitz

    def __call__(self, u: Tensor, gradient: Callable[[Tensor], Tensor], rng: np.random.Generator) -> Tensor:
        """Return the chains one step later, (..., rows, columns); they do not know of each other."""
        s, step = self.stages, self.step
        w0, w1 = self._omegas
        noise = math.sqrt(2 * step) * standard_normal(tuple(u.shape), rng, u)
        before, now = u, u - w1 / w0 * step * gradient(u + s * w1 / 2 * noise) + s * w1 / w0 * noise
        for stage in range(2, s + 1):
            ratio = _chebyshev(stage - 1, w0) / _chebyshev(stage, w0)
            nu = 2 * w0 * ratio
            before, now = now, -2 * w1 * ratio * step * gradient(now) + nu * now + (1 - nu) * before
        return now

    def variance(self, precision: Floats) -> Floats:
        """Return the variance of the chain on a Gaussian, per precision λ; 1/λ without discretisation.

        A step is ``u → a u + b q`` with ``a = T_s(ω₀ − ω₁δλ)/T_s(ω₀)`` and
        ``b = U_{s−1}(ω₀ − ω₁δλ)/U_{s−1}(ω₀) · (1 − ω₁δλ/2)``, so the variance is ``2 δ b²/(1 − a²)``.
        """
        w0, w1 = self._omegas
        at = w0 - w1 * self.step * np.asarray(precision, dtype=np.float64)
        a = _chebyshev_values(self.stages, at)[0] / _chebyshev(self.stages, w0)
        b = _chebyshev_values(self.stages, at)[1] / _chebyshev_values(self.stages, np.array(w0))[1]
        b = b * (1 - w1 * self.step * precision / 2)
        return np.asarray(2 * self.step * b**2 / (1 - a**2))

    @property
    def _omegas(self) -> tuple[float, float]:
        s = self.stages
        w0 = 1 + _DAMPING / s**2
        angle = math.acosh(w0)
        derivative = s * math.sinh(s * angle) / math.sqrt(w0**2 - 1)
        return w0, _chebyshev(s, w0) / derivative


def _chebyshev(order: int, at: float) -> float:
    """Return ``T_n(x)`` for x ≥ 1."""
    return math.cosh(order * math.acosh(at))


def _chebyshev_values(order: int, at: Floats) -> tuple[Floats, Floats]:
    """Return ``T_n`` and ``U_{n−1}`` by their recurrences."""
    first = (np.ones_like(at), at)
    second = (np.zeros_like(at), np.ones_like(at))  # U_{−1}, U_0
    for _ in range(order - 1):
        first = (first[1], 2 * at * first[1] - first[0])
        second = (second[1], 2 * at * second[1] - second[0])
    return first[1], second[1]
