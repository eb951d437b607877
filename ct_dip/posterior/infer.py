"""From a problem to its posterior, in three regimes: hyperparameters by evidence, then conditioning."""

import dataclasses
import math
import time
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ct_dip.evidence.conditional import ConditionalEvidence
from ct_dip.evidence.fit import fit_evidence
from ct_dip.evidence.laplace import hyperparameter_points
from ct_dip.evidence.stage import evidence_stage
from ct_dip.posterior.certificate import CompressionCertificate, IterativeCertificate
from ct_dip.posterior.compressed_fit import fit_compressed
from ct_dip.posterior.compressed_tv import fit_compressed_given_tv
from ct_dip.posterior.compression_check import check_compression
from ct_dip.posterior.conditional import Conditional, WeightConditional
from ct_dip.posterior.config import InferenceConfig
from ct_dip.posterior.deviations import DenseDeviations
from ct_dip.posterior.digests import evidence_digest, samples_digest
from ct_dip.posterior.exact import Exact, condition_over
from ct_dip.posterior.exact_model import linear_model, model_of_grams
from ct_dip.posterior.given_tv import given_tv
from ct_dip.posterior.inferred import Inferred
from ct_dip.posterior.iterative import Iterative
from ct_dip.posterior.problem import Problem
from ct_dip.posterior.relevance import freed_pixel_variance
from ct_dip.posterior.sampling import LEAST, SampledDeviations, draw_samples
from ct_dip.posterior.stochastic_evidence import (
    ConditionalStochasticEvidence,
    StochasticEvidence,
    fit_stochastic,
)
from ct_dip.progress import Progress

_TOGETHER = 16  # samples that are projected together
_CLOSED_PIXELS = 2048  # up to which a pass for every pixel is worth exact deviations


def has_closed_deviations(config: InferenceConfig, pixels: int) -> bool:
    """Whether a compression's deviations are those of the closed form, rather than of samples."""
    return config.deviations == "closed" or (config.deviations == "auto" and pixels <= _CLOSED_PIXELS)


def infer_exact(
    problem: Problem, *, seed: int = 0, folder: Path | None = None, progress: Progress | None = None
) -> Inferred:
    """Compute the posterior in closed form; see `ct_dip.posterior.exact`.

    Args:
        folder: where features and hyperparameters are kept.
    """
    progress, config = progress or Progress(), problem.config
    model = linear_model(problem, progress, folder)
    evidence = evidence_stage(
        model.evidence,
        folder,
        evidence_digest(problem, seed),
        starts=config.starts,
        seed=seed,
        progress=progress,
    )
    with progress.stage("posterior"):
        noise = math.exp(float(model.evidence.split(evidence.theta)[2]))
        design = problem.whitened.unwhiten(model.design.T).T
        effective_dimension = model.evidence.effective_dimension(evidence.theta)
        freed = _freed(Exact(problem, model, evidence.theta), seed) if config.relevance else None
    if config.tv == "majorant":
        same_prior = dataclasses.replace(problem, prior=model.evidence.prior)
        model, alone = (model_of_grams(part, model.grams) for part in given_tv(same_prior, noise, freed))
        conditional = ConditionalEvidence(joint=model.evidence, alone=alone.evidence, start=evidence.theta)
        evidence = fit_evidence(conditional, starts=1, progress=progress)
        del alone, conditional
    with progress.stage("posterior"):
        if freed is not None:
            model = model._replace(relevance=freed)
        points = evidence.theta[None]
        if config.integrate == "laplace":
            points = hyperparameter_points(model.evidence, evidence)
        moments = condition_over(model, points)
        if config.temper != 1:
            moments = moments._replace(covariance=condition_over(model, points, config.temper).covariance)
        return Inferred(
            evidence=evidence,
            noise=noise,
            mean=moments.mean,
            deviations=DenseDeviations(moments.covariance),
            sinogram_variance=(design @ moments.covariance * design).sum(dim=1),
            effective_dimension=effective_dimension,
            freed_pixels=_count(freed),
            jitter=max(evidence.jitter, moments.jitter),
            certificate=None,
            extra={},
        )


def _half_way(deadline: float | None) -> float | None:
    """Return the time between now and a deadline."""
    return None if deadline is None else (time.monotonic() + deadline) / 2


def _freed(posterior: Conditional, seed: int) -> Tensor | None:
    """Return own variances of pixels that contradict the model, if there are any."""
    variance = freed_pixel_variance(posterior, seed)
    return variance if bool(variance.any()) else None


def _count(freed: Tensor | None) -> int:
    return 0 if freed is None else int((freed > 0).sum())


def infer_compressed(
    problem: Problem,
    *,
    max_rank: int,
    features_on_host: bool = False,
    seed: int = 0,
    deadline: float | None = None,
    folder: Path | None = None,
    progress: Progress | None = None,
) -> Inferred:
    """Compute the posterior by a compression of the sinogram; see `ct_dip.posterior.compressed`.

    Args:
        max_rank: of the basis, that memory allows.
        features_on_host: whether the features stay in the host's memory.
        deadline: of ``time.monotonic``; samples end there, and the compression at half of the time.
        folder: where features and samples are kept while they are made.
    """
    progress, config = progress or Progress(), problem.config
    assert config.compression != "auto"
    limits: dict[str, Any] = {
        "tolerance": config.compression,
        "max_rank": max_rank,
        "features_on_host": features_on_host,
        "seed": seed,
        "progress": progress,
    }
    fit = fit_compressed(problem, starts=config.starts, deadline=_half_way(deadline), folder=folder, **limits)
    evidence, rounds, ratio = fit.evidence, fit.rounds, fit.ratio
    passes, change = fit.passes + fit.compression.passes, fit.change
    effective_dimension = fit.model.effective_dimension(evidence.theta)
    posterior = of_evidence = fit.posterior(problem)
    del fit  # with the matrices of the search
    with progress.stage("posterior"):
        freed = _freed(posterior, seed) if config.relevance else None
    alone = None
    if config.tv == "majorant":
        given = given_tv(problem, posterior.noise, freed)
        found = fit_compressed_given_tv(
            posterior, evidence.theta, given, deadline=_half_way(deadline), **limits
        )
        posterior = of_evidence = found.joint
        alone, evidence, rounds = found.alone, found.evidence, rounds + found.rounds
        passes += posterior.compression.passes
    compression, base, noise = posterior.compression, posterior.measurement_noise, posterior.noise
    noise_trace = noise * posterior.problem.dimensions
    with progress.stage("posterior"):
        if freed is not None:
            posterior = posterior.with_pixel_variance(freed)
        tempered = posterior if config.temper == 1 else posterior.tempered(config.temper)
        mean = posterior.mean()
    with progress.stage("accuracy check") as stage:
        check = check_compression(posterior, tempered, seed, stage, of_evidence, alone)
    del of_evidence
    evidence = dataclasses.replace(evidence, evidence=evidence.evidence + check.evidence_change)
    closed = has_closed_deviations(config, problem.pixels)
    deviations, variance = _deviations(problem, tempered, seed, closed, deadline, folder, progress)
    solves = posterior.measurement_noise
    certificate = CompressionCertificate(
        rank=compression.rank,
        discarded_trace=compression.discarded / noise_trace,
        discarded_trace_error=compression.discarded_error / noise_trace,
        discarded_trace_allowed=config.compression,
        extensions=rounds,
        hyperparameters_change=change,
        evidence_change=check.evidence_change,
        evidence_error=check.evidence_error,
        mean_error=check.mean_error,
        sample_error=check.sample_error,
        accurate=check.accurate,
        residual=check.residual,
        noise_log_det_error=float(base.log_det.standard_error),
        noise_solve_residual=solves.worst_residual,
        noise_solve_converged=solves.converged,
        passes=check.passes + passes,
        converged=check.converged and check.accurate and compression.complete and solves.converged,
        **_sampling(problem, deviations),
    )
    extra = {}
    if problem.complement is not None and problem.complement.deviation is not None:
        extra["log_complement"] = math.log(ratio * (1 if problem.complement.in_units_of_noise else noise))
    return Inferred(
        evidence=evidence,
        noise=noise,
        mean=mean,
        deviations=deviations,
        sinogram_variance=variance,
        effective_dimension=effective_dimension,
        freed_pixels=_count(freed),
        jitter=max(evidence.jitter, posterior.jitter, tempered.jitter),
        certificate=certificate,
        extra=extra,
    )


def infer_iterative(
    problem: Problem,
    *,
    seed: int = 0,
    deadline: float | None = None,
    folder: Path | None = None,
    progress: Progress | None = None,
) -> Inferred:
    """Compute the posterior by conjugate gradients and random probes; see `ct_dip.posterior.iterative`."""
    progress, config = progress or Progress(), problem.config

    def estimate(part: Problem) -> StochasticEvidence:
        rank = config.preconditioner_rank
        return StochasticEvidence(
            part, probes=config.probes, tolerance=config.tolerance, rank=rank, seed=seed
        )

    evidence = estimate(problem)
    fit = fit_stochastic(evidence, progress=progress)
    with progress.stage("posterior"):
        posterior = evidence.solver(fit.evidence.theta, renew=True)
        freed = _freed(posterior, seed) if config.relevance else None
    effective_dimension = evidence.effective_dimension(fit.evidence.theta)
    products = evidence.products
    if config.tv == "majorant":
        joint, alone = (estimate(part) for part in given_tv(problem, posterior.noise, freed))
        conditional = ConditionalStochasticEvidence(joint, alone, fit.evidence.theta)
        fit = fit_stochastic(conditional, progress=progress)
        posterior = joint.solver(fit.evidence.theta, renew=True)
        products += conditional.products
    with progress.stage("posterior"):
        if freed is not None:
            posterior = posterior.with_pixel_variance(freed)
        mean = posterior.mean()
        tempered = Iterative(
            posterior.problem,
            posterior.covariance.scaled(config.temper),
            posterior.pixel_variance,
            posterior.noise,
            preconditioner=posterior.preconditioner,
            tolerance=config.tolerance,
        )
    deviations, variance = _deviations(problem, tempered, seed, False, deadline, folder, progress)
    solvers = (posterior, tempered)
    certificate = IterativeCertificate(
        evidence_error=fit.log_det_error,
        gradient=fit.gradient.value.tolist(),
        gradient_error=fit.gradient.standard_error.tolist(),
        residual=max(fit.worst_residual, *(s.worst_residual for s in solvers)),
        tolerance=config.tolerance,
        passes=2 * (products + sum(s.products for s in solvers)),
        converged=fit.unconverged + sum(s.unconverged for s in solvers) == 0,
        **_sampling(problem, deviations),
    )
    values = dict(zip(fit.evidence.names, fit.evidence.theta.tolist(), strict=True))
    return Inferred(
        evidence=fit.evidence,
        noise=posterior.noise,
        mean=mean,
        deviations=deviations,
        sinogram_variance=variance,
        effective_dimension=effective_dimension,
        freed_pixels=_count(freed),
        jitter=0.0,
        certificate=certificate,
        extra={"log_complement": values["log_complement"]} if "log_complement" in values else {},
    )


def _deviations(
    problem: Problem,
    tempered: WeightConditional,
    seed: int,
    closed: bool,
    deadline: float | None,
    folder: Path | None,
    progress: Progress,
) -> tuple[SampledDeviations, Tensor]:
    """Make the deviations from the mean, and the variance that they give to the sinogram."""
    drawn = draw_samples(
        tempered,
        _samples_asked(problem),
        seed,
        deadline=deadline,
        folder=folder,
        digest="" if folder is None else samples_digest(problem, tempered),
        progress=progress,
    )
    complement = problem.complement
    floor = 0.0
    if complement is not None and not complement.in_model:
        floor = tempered.noise * float(complement.variance[0])
    deviations = SampledDeviations(tempered, drawn, seed, floor, closed, progress)
    variance = torch.zeros(problem.measurements, dtype=torch.float64, device=drawn.device)
    for part in torch.split(deviations.drawn, _TOGETHER):
        variance += problem.whitened.unwhiten(problem.project(part)).double().square().sum(dim=0) / len(drawn)
    return deviations, variance


def _samples_asked(problem: Problem) -> int:
    return max(problem.config.samples, LEAST)


def _sampling(problem: Problem, deviations: SampledDeviations) -> dict[str, Any]:
    """Return what a certificate states about samples."""
    return {
        "samples": len(deviations.drawn),
        "samples_asked": _samples_asked(problem),
        "closed_form": deviations.closed is not None,
    }
