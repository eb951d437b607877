"""Measure what a compression leaves out, against the full model.

The quadratic form, the mean and samples are solved for with the products of K itself, with the compressed
inverse as preconditioner: that takes a few steps if the compression is good. The log-determinant is estimated
with weights from the compressed posterior, see `log_det_beyond`. So the evidence of the whole model is known,
mostly to within the error of that estimate. To first order the same is known before anything is solved for,
and part of the search for hyperparameters: `truncation_correction`.
"""

import math
from typing import NamedTuple

import torch

from ct_dip.evidence.model import TruncationCorrection
from ct_dip.posterior.compressed import Compressed
from ct_dip.posterior.iterative import Iterative
from ct_dip.posterior.problem import Problem
from ct_dip.progress import Stage

# Of a mean that is off by a quarter of a deviation, 95 % intervals cover 94.3 %; those of deviations that are
# off by a tenth, 92 to 97 %.
MEAN_LIMIT, SAMPLE_LIMIT = 0.25, 0.1
_SAMPLES = 4
_TOLERANCE = 1e-5  # relative to residuals that are mostly signal, a thousand times the noise
_MAX_ITERATIONS = 50
_PROBES, _TOGETHER = 32, 8  # of the log-determinant, and those that are made together
CORRECTION_PASSES = _PROBES + 1  # of `truncation_correction`
_OWN_SEED = 1000  # of them: those of the probes that the basis was grown by are the next few after the seed


class CompressionCheck(NamedTuple):
    """How far the compressed posterior is from that of the whole model.

    Args:
        evidence_change: what the evidence of the whole model has beyond that of the compressed one, in nats.
        evidence_error: how far that may be off: a standard error, what bounds the higher orders, and the
            residual of the solve.
        mean_error: rms change of the posterior mean, in posterior standard deviations.
        sample_error: rms change of samples made from the same random numbers, relative to their own size.
        residual: worst true relative residual of the solves behind these numbers.
        converged: whether those solves converged.
        passes: products with J and Jᵀ.
    """

    evidence_change: float
    evidence_error: float
    mean_error: float
    sample_error: float
    residual: float
    converged: bool
    passes: int

    @property
    def accurate(self) -> bool:
        """Whether intervals cover what they would without the compression, nearly."""
        return self.mean_error <= MEAN_LIMIT and self.sample_error <= SAMPLE_LIMIT


def check_compression(
    posterior: Compressed,
    tempered: Compressed,
    seed: int = 0,
    stage: Stage | None = None,
    of_evidence: Compressed | None = None,
    given: Compressed | None = None,
) -> CompressionCheck:
    """Compare a compressed posterior with that of the whole model.

    Args:
        posterior: that of the image.
        tempered: that of the error bars, whose prior may be tempered; the same one if it is not.
        stage: told how far the solves are.
        of_evidence: that of the search, if the image's has free pixels besides.
        given: that of pseudo-measurements alone, if the evidence is one of the sinogram given these.
    """
    problem = posterior.problem.in_float64()
    residual = problem.residual[None]
    whole = _whole(posterior, problem, stage)
    compressed = posterior.solve(residual)
    exact = whole.solve(residual, compressed)
    change = problem.prior_mean + whole.image(*whole.explain(exact))[0].double() - posterior.mean()

    samples = _whole(tempered, problem, stage)
    solvers, evidence_change, evidence_error = [whole, samples], 0.0, 0.0
    for sign, searched in ((1, of_evidence or posterior), (-1, given)):
        if searched is None:
            continue
        log_det, error = log_det_beyond(searched, seed)
        quadratic = 0.0
        if problem.config.objective != "fit":  # in which the quadratic form is that of the fitted weights
            fitted = whole
            if searched is not posterior:
                fitted = _whole(searched, searched.problem.in_float64(), stage)
                solvers.append(fitted)
                residual = fitted.problem.residual[None]
                compressed = searched.solve(residual)
                exact = fitted.solve(residual, compressed)
            # 2 rᵀx − xᵀKx is too small by ρᵀK⁻¹ρ for a residual ρ = r − Kx, where rᵀx would be off by xᵀρ.
            left = residual - fitted.operator(exact)
            quadratic = float((residual * (exact - compressed) + exact * left).sum())
            error += float(left.square().sum()) / searched.noise
        evidence_change -= sign * (quadratic + log_det) / 2
        evidence_error += error / 2

    own = tempered.deviations(_SAMPLES, torch.Generator().manual_seed(seed)).double()
    better = samples.deviations(_SAMPLES, torch.Generator().manual_seed(seed)).double()
    typical_deviation = better.square().mean().sqrt()
    return CompressionCheck(
        evidence_change=evidence_change,
        evidence_error=evidence_error,
        mean_error=float(change.square().mean().sqrt() / typical_deviation),
        sample_error=float((own - better).square().mean().sqrt() / typical_deviation),
        residual=max(solver.worst_residual for solver in solvers),
        converged=sum(solver.unconverged for solver in solvers) == 0,
        passes=2 * sum(solver.products for solver in solvers)
        + 6 * _SAMPLES
        + (_PROBES if given is None else 2 * _PROBES),
    )


def truncation_correction(compressed: Compressed, scale: float, seed: int = 0) -> TruncationCorrection | None:
    """Estimate what signals outside Q do to the evidence, to first order; for a prior with one term.

    ``rᵀ K_c⁻¹ r − rᵀ K⁻¹ r ≈ αᵀ (S − S_c) α`` with ``α = K_c⁻¹ r``; the rest as in `log_det_beyond`.

    Args:
        scale: c of that term.

    Returns:
        ``None`` if nothing is outside that could be told from rounding.
    """
    trace, squares, error = _moments_beyond(compressed, seed)
    if trace <= error or squares <= 0:
        return None
    problem, covariance = compressed.problem.in_float64(), compressed.covariance
    solved = compressed.solve(problem.residual[None])
    seen = compressed.compression.features.combine(compressed.compression.basis.inner(solved))
    whole = covariance.root_adjoint(problem.design.T(solved)).square().sum()
    typical = squares / trace
    # It may be negative: S − S_c has what is between Q and the rest besides.
    quadratic = float(whole - covariance.root_adjoint(seen).square().sum()) / (1 + typical)
    return TruncationCorrection(trace, typical, quadratic, scale, compressed.noise)


def log_det_beyond(compressed: Compressed, seed: int = 0) -> tuple[float, float]:
    """Compute ``log|K| − log|K_c|``, by what is outside of Q to second order, and how far it may be off.

    With ``Φ = B J Σ^½`` and ``H = Φᵀ N⁻¹ Φ/s²``, and ``H_c`` the same of ``Q Qᵀ Φ``, it is ``log|I + X|`` for
    ``X = (I + H_c)⁻¹ (H − H_c)``. Weights w from the compressed posterior have the covariance
    ``Σ^½ (I + H_c)⁻¹ Σ^½``; so for independent ones, with ``⟨a, b⟩ = aᵀ N⁻¹ b``,

        d_ij = (⟨B J w_i, B J w_j⟩ − ⟨Q F w_i, Q F w_j⟩)/s²,    E d_ii = tr X = t,    E d_ij² = tr X² = q.

    ``(t²/q) log(1 + q/t)`` is t − q/2 up to higher powers. Where X has no negative eigenvalues it is too
    small if anything, by Jensen's inequality, and t too large: a basis that was cut short gives nothing
    absurd.
    """
    trace, squares, error = _moments_beyond(compressed, seed)
    difference = trace - squares / 2
    if trace > 0 and squares > 0:
        difference = trace**2 / squares * math.log1p(squares / trace)
    return difference, error + abs(trace - difference)


def _moments_beyond(compressed: Compressed, seed: int) -> tuple[float, float, float]:
    """Compute ``tr X`` and ``tr X²`` of `log_det_beyond`, and the standard error of the former."""
    generator = torch.Generator().manual_seed(seed + _OWN_SEED)
    wholes, insides = [], []
    for _ in range(_PROBES // _TOGETHER):
        weights = compressed.weight_deviations(_TOGETHER, generator)
        wholes.append(compressed.problem.design(weights))
        insides.append(compressed.measure(weights))
    whole, inside = torch.cat(wholes), torch.cat(insides)
    solved = compressed.measurement_noise.solve(whole + inside)
    products = (whole - inside).double() @ solved.double().T / compressed.noise
    products = 0.5 * (products + products.T)  # without a difference of large numbers
    own = products.diagonal()
    squares = float(products.square().sum() - own.square().sum()) / (_PROBES * (_PROBES - 1))
    return float(own.mean()), squares, float(own.std()) / _PROBES**0.5


def _whole(compressed: Compressed, problem: Problem, stage: Stage | None) -> Iterative:
    stage = stage or Stage()
    return Iterative(
        problem,
        compressed.covariance,
        compressed.pixel_variance,
        compressed.noise,
        preconditioner=compressed.solve,
        tolerance=_TOLERANCE,
        max_iterations=_MAX_ITERATIONS,
        report=lambda step, residual: stage.update(step, residual=residual),
    )
