"""Gibbs sampling of a Markov random field together with its precision d and that of the noise, l.

    u | w, l  by `ct_dip.image_space.markov_field`,   w the weights of the differences
    d | u     Gamma(α + shape, β + energy(u)),        where p(u | d) ∝ d^shape exp(−d energy(u))
    l | u     Gamma(α + measurements/2, β + ‖B u − r‖²/2)

with the vague hyperprior Gamma(α = 1, β = 10⁻⁴) of both (Bardsley 2012; CUQIpy has the same). In units of the
noise (`ct_dip.image_space.problem`) l is about 1 and d between 10⁻³ and 1.
"""

from collections.abc import Callable
from typing import NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor

from ct_dip.arrays import Floats
from ct_dip.image_space.markov_field import MarkovField
from ct_dip.image_space.problem import PixelProblem
from ct_dip.operators.differences import FiniteDifferences

_ALPHA, _BETA = 1.0, 1e-4
_SMALLEST = 1e-3  # difference, in units of the noise, below which weights grow no more


class Prior(Protocol):
    """``p(u | d) ∝ d^shape exp(−d energy(u))``, a mixture of Gaussians with weights w."""

    @property
    def shape(self) -> float:
        """Power of d."""

    def energy(self, field: Tensor) -> float:
        """Return the energy of differences ``D u``, (2, rows, columns)."""

    def weights(self, field: Tensor, precision: float, rng: np.random.Generator) -> Tensor:
        """Return the weights of the next Gaussian, (2, rows, columns)."""

    def difference(self, precision: float) -> float:
        """Return how far neighbouring pixels differ that the data do not know, in units of the noise."""


class GaussianField:
    """``p(u | d) ∝ d^{(n−1)/2} exp(−d ‖D u‖²/2)`` of n pixels: w = d."""

    def __init__(self, pixels: int) -> None:
        self.shape = (pixels - 1) / 2  # a constant image has no energy

    def energy(self, field: Tensor) -> float:
        """Return ``‖D u‖²/2``."""
        return float(field.square().sum(dtype=torch.float64)) / 2

    def weights(self, field: Tensor, precision: float, rng: np.random.Generator) -> Tensor:
        """Return d for every difference."""
        return torch.full_like(field, precision)

    def difference(self, precision: float) -> float:
        """Return ``d^−½``."""
        return precision**-0.5


class LaplaceField:
    """``p(u | d) ∝ d^{n−1} exp(−d ‖D u‖₁)`` of n pixels.

    Args:
        exact: ``w ~ InverseGauss(d/|D u|, d²)``, the conditional of the scale mixture that a Laplace
            distribution is (Park and Casella 2008); otherwise ``w = d/√((D u)² + ε²)``, which replaces the
            prior by a Gaussian around the last sample (UGLA, Uribe et al. 2022). That is not a Gibbs step:
            a difference that the data do not know has a quarter of the variance, 1/2d² instead of 2/d².
    """

    def __init__(self, pixels: int, *, exact: bool = False) -> None:
        self.shape, self.exact = float(pixels - 1), exact

    def energy(self, field: Tensor) -> float:
        """Return ``‖D u‖₁``."""
        return float(field.abs().sum(dtype=torch.float64))

    def weights(self, field: Tensor, precision: float, rng: np.random.Generator) -> Tensor:
        """Draw those of the scale mixture, or return those of UGLA."""
        size = torch.hypot(field, torch.full_like(field, _SMALLEST))
        if not self.exact:
            return precision / size
        drawn = rng.wald(precision / size.double().cpu().numpy(), precision**2)
        return torch.as_tensor(np.minimum(drawn, precision / _SMALLEST)).to(field)

    def difference(self, precision: float) -> float:
        """Return ``1/d``."""
        return 1 / precision


class GibbsChain(NamedTuple):
    """What `gibbs` drew."""

    draws: Tensor  # (1, kept, rows, columns), units of the noise
    precision: Floats  # d of every kept draw
    noise: Floats  # l of every kept draw


def gibbs(
    problem: PixelProblem,
    prior: Prior,
    *,
    draws: int,
    burn_in: int,
    fit_noise: bool = True,
    seed: int = 0,
    report: Callable[[int, float, float], None] | None = None,
) -> GibbsChain:
    """Run one chain.

    Args:
        draws: that are kept, after ``burn_in`` others.
        fit_noise: otherwise l = 1, the stated noise.
        report: called after every draw with (draw, d, l).
    """
    rng, differences = np.random.default_rng(seed), FiniteDifferences(problem.shape)
    precision, noise = 1.0, 1.0
    u = MarkovField(problem, torch.ones(2, *problem.shape).to(problem.data)).mean()
    kept = u.new_empty(1, draws, *problem.shape)
    precisions, noises = np.empty(draws), np.empty(draws)
    for step in range(burn_in + draws):
        field = differences(u.reshape(problem.shape))
        precision = rng.gamma(_ALPHA + prior.shape) / (_BETA + prior.energy(field))
        if fit_noise:
            misfit = problem.whitened.project(u[None])[0] - problem.data
            energy = float(misfit.square().sum(dtype=torch.float64)) / 2
            noise = rng.gamma(_ALPHA + len(misfit) / 2) / (_BETA + energy)
        weights = prior.weights(field, precision, rng)
        u = MarkovField(problem, weights, noise).sample(1, rng, start=u)[0]
        if step >= burn_in:
            kept[0, step - burn_in] = u.reshape(problem.shape)
            precisions[step - burn_in], noises[step - burn_in] = precision, noise
        if report is not None:
            report(step + 1, precision, noise)
    return GibbsChain(kept, precisions, noises)
