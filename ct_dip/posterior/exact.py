"""The posterior ``N(x*, K_xx|y)`` of the linear model in closed form.

``x* = m₀ + K_xy K_yy⁻¹ r``, ``K_xx|y = K_xx − K_xy K_yy⁻¹ K_yx``,
with ``K_xx = J Σ Jᵀ + κ U`` and ``K_xy = K_xx Bᵀ``.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from ct_dip.evidence.marginal import factorise, solve_factored, whiten
from ct_dip.evidence.model import EvidenceModel
from ct_dip.posterior.conditional import Conditional
from ct_dip.posterior.problem import Problem


class LinearModel(NamedTuple):
    """Everything of the model that is constant in the hyperparameters, in the network's O(1) units."""

    grams: Tensor  # (terms, pixels, pixels): G_t
    whitened: Tensor  # (measurements, pixels): B = A/σ; or R of B = Q R where there are many measurements
    prior_mean: Tensor  # (pixels,): m₀
    evidence: EvidenceModel
    relevance: Tensor | float = 0.0  # (pixels,): variance of freed pixels
    rotation: Tensor | None = None  # Q, (measurements, pixels), if there is one

    @property
    def design(self) -> Tensor:
        """B itself, (measurements, pixels)."""
        return self.whitened if self.rotation is None else self.rotation @ self.whitened


class Moments(NamedTuple):
    """The two moments of the posterior of the O(1) image."""

    mean: Tensor  # (pixels,)
    covariance: Tensor  # (pixels, pixels)
    jitter: float


def prior_covariance(model: LinearModel, theta: Tensor, temper: float = 1.0) -> Tensor:
    """Compute ``K_xx``, (pixels, pixels); a temper below 1 shrinks the part of the weights."""
    prior, _, _ = model.evidence.split(theta)
    total = torch.zeros_like(model.grams[0], dtype=torch.float64)
    for coefficient, gram in zip(model.evidence.prior.coefficients(prior), model.grams, strict=True):
        total.add_(gram, alpha=temper * float(coefficient))
    extra = model.evidence.complement
    if extra is not None and extra.in_model:
        total.diagonal().add_(float(model.evidence.complement_factor(theta)) * extra.variance)
    total.diagonal().add_(model.relevance)
    return total


def condition(model: LinearModel, theta: Tensor, temper: float = 1.0) -> Moments:
    """Compute the posterior at given hyperparameters."""
    _, _, noise = model.evidence.split(theta)
    prior = prior_covariance(model, theta, temper)
    cross = model.whitened @ prior  # K_yx
    measured = cross @ model.whitened.T
    measured.diagonal().add_(float(noise.exp()))
    lower, jitter = factorise(measured)
    half = torch.linalg.solve_triangular(lower, cross, upper=False)
    residual = torch.linalg.solve_triangular(lower, model.evidence.residual[:, None], upper=False)
    covariance = prior - half.T @ half
    covariance.diagonal().clamp_(min=0.0)  # a difference of equals may be a rounding error below it
    extra = model.evidence.complement
    if extra is not None and not extra.in_model:
        covariance.diagonal().add_(float(model.evidence.complement_factor(theta)) * extra.variance)
    return Moments(model.prior_mean + (half.T @ residual)[:, 0], covariance, jitter)


def condition_over(model: LinearModel, thetas: Tensor, temper: float = 1.0) -> Moments:
    """Mix the posteriors at several hyperparameters into a Gaussian of the same two moments."""
    means, jitters = [], []
    covariance = torch.zeros_like(model.grams[0], dtype=torch.float64)
    for theta in thetas:
        part = condition(model, theta, temper)
        means.append(part.mean)
        jitters.append(part.jitter)
        covariance.add_(part.covariance, alpha=1 / len(thetas))
    mean = torch.stack(means).mean(dim=0)
    apart = torch.stack(means) - mean
    return Moments(mean, covariance + apart.T @ apart / len(thetas), max(jitters))


class Exact(Conditional):
    """The posterior from dense matrices.

    Args:
        model: of the problem, and θ its hyperparameters.
    """

    def __init__(self, problem: Problem, model: LinearModel, theta: Tensor) -> None:
        noise = float(model.evidence.split(theta)[2].exp())
        super().__init__(problem, None, noise)
        self.model, self.theta = model, theta
        measured = model.whitened @ prior_covariance(model, theta) @ model.whitened.T
        measured.diagonal().add_(noise)
        self.lower, self.jitter = factorise(measured)

    @property
    def residual(self) -> Tensor:
        """Return r in float64, (1, measurements)."""
        return self.problem.residual[None]

    def solve(self, residuals: Tensor) -> Tensor:
        """Solve as `Conditional.solve`; outside B's range there is nothing but noise."""
        r = residuals.double()
        rotation = self.model.rotation
        if rotation is None:
            return solve_factored(self.lower, r).to(residuals)
        inside = r @ rotation
        changed = solve_factored(self.lower, inside) - inside / self.noise
        return (r / self.noise + changed @ rotation.T).to(residuals)

    def mean(self) -> Tensor:
        """Return x*, (pixels,)."""
        return condition(self.model, self.theta).mean

    def with_pixel_variance(self, extra: Tensor) -> "Exact":
        """Add independent variances of some pixels, (pixels,)."""
        more = self.model._replace(relevance=self.model.relevance + extra)
        return Exact(self.problem, more, self.theta)

    def pixel_information(self, seed: int = 0) -> Tensor:
        """Return ``(Bᵀ K⁻¹ B)_jj`` of every pixel, exactly."""
        return whiten(self.lower, self.model.whitened.T).square().sum(dim=1)
