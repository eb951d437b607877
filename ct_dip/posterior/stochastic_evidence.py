"""The evidence and its gradient by random probes, where even a compression is too large.

With ``K = Σ_t c_t Y_t``, α = K⁻¹ r and probes z of random signs,
``∂(rᵀK⁻¹r)/∂c_t = −αᵀ Y_t α`` and ``∂log|K|/∂c_t = E zᵀ K⁻¹ Y_t z``: every term of every block from the same
solves, since ``vᵀ Y_{b,d} z`` is a sum over taps of ``Jᵀ Bᵀ v`` and ``Jᵀ Bᵀ z``. log|K| itself is found by
stochastic Lanczos quadrature. The probes are drawn once, so that the search sees a fixed function.
"""

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from ct_dip.evidence.conditional import ConditionalEvidence
from ct_dip.evidence.fit import EvidenceFit
from ct_dip.evidence.marginal import CovarianceSum
from ct_dip.posterior.iterative import Iterative, nystrom_preconditioner
from ct_dip.posterior.problem import Problem
from ct_dip.priors.weights import BlockPrior
from ct_dip.progress import Progress
from ct_dip.solvers.lanczos import Estimate, log_det
from ct_dip.tangent.statistics import term_slices
from ct_dip.tangent.taps import tap_pairs

_STEPS = 80
_REACH = 0.5  # of a step, in log-parameters
_ENOUGH = 0.1  # standard errors of the gradient at which the search ends; it has converged at 1
RENEWAL = 15  # steps after which the preconditioner is made again
_LANCZOS_STEPS = 25


class Gradient(NamedTuple):
    """The gradient of the evidence in θ, with the standard error that the probes leave."""

    value: Tensor
    standard_error: Tensor


@dataclass(frozen=True, kw_only=True, eq=False)
class StochasticFit:
    """The end of the search, and how well it is known."""

    evidence: EvidenceFit
    log_det_error: float  # standard error of the evidence
    gradient: Gradient
    products: int  # with K
    worst_residual: float
    unconverged: int


class StochasticEvidence:
    """Value and gradient at any θ.

    Args:
        probes: how many.
        tolerance: of every solve.
        rank: of the preconditioner.
    """

    def __init__(self, problem: Problem, *, probes: int, tolerance: float, rank: int, seed: int = 0) -> None:
        self.problem, self.tolerance, self.rank, self.seed = problem, tolerance, rank, seed
        like = problem.jacobian.weights
        generator = torch.Generator().manual_seed(seed)
        signs = torch.randint(0, 2, (problem.measurements, probes), generator=generator)
        self.probes = (2 * signs.T - 1).to(like)  # (probes, measurements)
        self.pulled = problem.design.T(self.probes)
        self.back = problem.back_project(self.probes)
        empty = CovarianceSum(0, (), 0)  # what an evaluation by probes has in place of matrices
        self.model = problem.evidence_model(empty, problem.residual, complement=problem.complement)
        self._start: Tensor | None = None
        self._solver: Iterative | None = None
        self._age = 0
        self.products, self.worst_residual, self.unconverged = 0, 0.0, 0

    def solver(self, theta: Tensor, renew: bool = False) -> Iterative:
        """Return a solver of K(θ), with a preconditioner of this θ or of one not long ago."""
        prior, _, log_noise = self.model.split(theta)
        covariance, pixels = self.problem.prior.covariance(prior), self.pixel_variance(theta)
        noise = float(log_noise.exp())
        old = self._solver
        if old is None or renew or self._age >= RENEWAL:
            preconditioner = nystrom_preconditioner(
                self.problem, covariance, pixels, noise, self.rank, self.seed
            )
            self.products += self.rank
            self._age = 0
        else:
            preconditioner = old.preconditioner.with_noise(noise)  # type: ignore[union-attr]
            self._age += 1
        self._solver = Iterative(
            self.problem,
            covariance,
            pixels,
            noise,
            preconditioner=preconditioner,
            tolerance=self.tolerance,
        )
        return self._solver

    def pixel_variance(self, theta: Tensor) -> Tensor | None:
        """Return D of the complement."""
        complement = self.problem.complement
        if complement is None or not complement.in_model:
            return None
        return float(self.model.complement_factor(theta)) * complement.variance

    def gradient(self, theta: Tensor) -> Gradient:
        """Estimate the gradient of ``log p(y | θ) + log p(θ)``."""
        solver = self.solver(theta)
        residuals = torch.cat([self.problem.residual[None].to(self.probes), self.probes])
        solved = solver.solve(residuals, self._start)
        self._start = solved
        self.products += solver.products
        self.worst_residual = max(self.worst_residual, solver.worst_residual)
        self.unconverged += solver.unconverged
        pulled, back = self.problem.design.T(solved), self.problem.back_project(solved)
        by_residual = self._forms(pulled[:1], pulled[:1], back[:1], back[:1], solved[:1], solved[:1])
        by_probe = self._forms(pulled[1:], self.pulled, back[1:], self.back, solved[1:], self.probes)
        leaf = theta.detach().requires_grad_()
        coefficients = self.model.coefficients(leaf)
        (slopes,) = torch.autograd.grad(  # (terms, parameters)
            coefficients, leaf, torch.eye(len(coefficients)).double(), is_grads_batched=True
        )
        each = 0.5 * (by_residual - by_probe) @ slopes  # (probes, parameters)
        (by_hyperprior,) = torch.autograd.grad(
            self.model.log_hyperprior(leaf) + 0 * leaf.sum(), leaf, allow_unused=True
        )
        return Gradient(each.mean(dim=0) + by_hyperprior, each.std(dim=0) / len(each) ** 0.5)

    def effective_dimension(self, theta: Tensor) -> float:
        """Compute ``tr(K⁻¹ B JΣJᵀ Bᵀ)``, by the probes."""
        solver = self.solver(theta)
        solved = solver.solve(self.probes, None if self._start is None else self._start[1:])
        pulled = solver.covariance(self.problem.design.T(solved))
        return float((pulled * self.pulled).double().sum() / len(self.probes))

    def log_evidence(self, theta: Tensor) -> Estimate:
        """Compute ``log p(y | θ)``."""
        solver = self.solver(theta, renew=True)
        residual = self.problem.residual
        quadratic = float(residual @ solver.solve(residual[None].to(self.probes))[0].double())
        log_determinant = log_det(
            solver.operator,
            self.problem.measurements,
            preconditioner=solver.preconditioner,  # type: ignore[arg-type]
            steps=_LANCZOS_STEPS,
            probes=len(self.probes),
            seed=self.seed,
            dtype=self.probes.dtype,
            device=self.probes.device,
        )
        self.products += solver.products + _LANCZOS_STEPS * len(self.probes)
        constant = self.problem.measurements * math.log(2 * math.pi)
        value = -0.5 * (quadratic + log_determinant.value + constant) - self.problem.log_noise
        return Estimate(value, 0.5 * log_determinant.standard_error)

    def _forms(self, f: Tensor, g: Tensor, x: Tensor, y: Tensor, u: Tensor, v: Tensor) -> Tensor:
        """``uᵀ Y_t v`` of every term, (n, terms), of u, v pulled to weights as f, g and to pixels as x, y."""
        problem = self.problem
        parts = []
        if isinstance(problem.prior, BlockPrior):
            for block in term_slices(problem.jacobian.blocks):
                kernel = next(b.kernel for b in problem.jacobian.blocks if b.name == block)
                where = problem.jacobian.slices[block]
                left, right = (w[:, where].double().reshape(len(w), -1, kernel**2) for w in (f, g))
                pairs = tap_pairs(kernel).pairs.to(left)
                parts.append(torch.einsum("npq,dpq->nd", left.mT @ right, pairs))
        else:
            for term in problem.prior.terms():
                parts.append((f * term(g)).double().sum(dim=1, keepdim=True))
        complement = problem.complement
        if complement is not None and complement.in_model:
            parts.append((x.double() * complement.variance * y.double()).sum(dim=1, keepdim=True))
        parts.append((u.double() * v.double()).sum(dim=1, keepdim=True))
        return torch.cat(parts, dim=1).cpu()  # where θ is


class ConditionalStochasticEvidence:
    """`ConditionalEvidence` by probes: the difference of two estimates, whose errors add up.

    Args:
        start: θ that the evidence of the sinogram has chosen.
    """

    def __init__(self, joint: StochasticEvidence, alone: StochasticEvidence, start: Tensor) -> None:
        self.parts = joint, alone
        self.model = ConditionalEvidence(joint=joint.model, alone=alone.model, start=start)

    def gradient(self, theta: Tensor) -> Gradient:
        """Estimate the gradient of ``log p(y | 0, θ) + log p(θ)``."""
        joint, alone = (part.gradient(theta) for part in self.parts)
        return Gradient(joint.value - alone.value, torch.hypot(joint.standard_error, alone.standard_error))

    def log_evidence(self, theta: Tensor) -> Estimate:
        """Estimate ``log p(y | 0, θ)``."""
        joint, alone = (part.log_evidence(theta) for part in self.parts)
        return Estimate(joint.value - alone.value, torch.hypot(joint.standard_error, alone.standard_error))

    @property
    def products(self) -> int:
        """Products with K so far."""
        return sum(part.products for part in self.parts)

    @property
    def worst_residual(self) -> float:
        """The largest true relative residual so far."""
        return max(part.worst_residual for part in self.parts)

    @property
    def unconverged(self) -> int:
        """How many solves missed the tolerance."""
        return sum(part.unconverged for part in self.parts)


def fit_stochastic(
    evidence: StochasticEvidence | ConditionalStochasticEvidence,
    *,
    steps: int = _STEPS,
    progress: Progress | None = None,
) -> StochasticFit:
    """Find the root of the gradient by BFGS steps of limited length, from where the fitted weights put θ.

    With its probes fixed the gradient is a smooth function, but of nothing that could be computed as well, so
    there is no line search. The search ends where the gradient is small against its standard error.
    """
    model = evidence.model
    lower, upper = model.bounds
    theta = model.start.clone()
    gradient = evidence.gradient(theta)
    inverse = torch.eye(len(theta), dtype=torch.float64) * (
        _REACH / float(gradient.value.abs().max() + 1e-12)
    )
    trace = [float(gradient.value.norm())]
    with (progress or Progress()).stage("hyperparameters", steps) as stage:
        for step in range(steps):
            size = _in_errors(gradient, theta, lower, upper)
            stage.update(step + 1, gradient=trace[-1], in_errors=size)
            if size <= _ENOUGH:
                break
            move = inverse @ gradient.value
            move = move * min(1.0, _REACH / float(move.abs().max()))
            new = (theta + move).clamp(lower, upper)
            after = evidence.gradient(new)
            inverse = _updated(inverse, new - theta, gradient.value - after.value)
            theta, gradient = new, after
            trace.append(float(gradient.value.norm()))
        at = theta
        value = evidence.log_evidence(at)
    edge = ((at <= lower + 1e-6) | (at >= upper - 1e-6)) & (lower < upper)
    converged = _in_errors(gradient, at, lower, upper) <= 1
    fit = EvidenceFit(
        theta=at,
        names=model.names,
        objective=float(value.value + model.log_hyperprior(at)),
        evidence=float(value.value),
        converged=converged and not evidence.unconverged,
        at_bound=tuple(name for name, ends in zip(model.names, edge.tolist(), strict=True) if ends),
        found=(float(value.value),),
        evaluations=len(trace),
        trace=np.array(trace),
        jitter=0.0,
    )
    return StochasticFit(
        evidence=fit,
        log_det_error=float(value.standard_error),
        gradient=gradient,
        products=evidence.products,
        worst_residual=evidence.worst_residual,
        unconverged=evidence.unconverged,
    )


def _in_errors(gradient: Gradient, theta: Tensor, lower: Tensor, upper: Tensor) -> float:
    """Return the largest component in standard errors, of parameters that may still move."""
    free = ((theta > lower) | (gradient.value > 0)) & ((theta < upper) | (gradient.value < 0))
    relative = gradient.value.abs() / gradient.standard_error.clamp_min(1e-12)
    return float(relative[free].max()) if free.any() else 0.0


def _updated(inverse: Tensor, step: Tensor, change: Tensor) -> Tensor:
    """Update the inverse Hessian by BFGS, after a step and a change of the (negative) gradient."""
    curvature = float(step @ change)
    if curvature <= 1e-12 * float(step.norm() * change.norm()):
        return inverse  # not concave here
    left = torch.eye(len(step), dtype=step.dtype) - torch.outer(step, change) / curvature
    return left @ inverse @ left.T + torch.outer(step, step) / curvature
