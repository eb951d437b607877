"""From a problem to its posterior, in three regimes: hyperparameters by evidence, then conditioning."""

import dataclasses
import hashlib
import math
import time
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ct_dip.evidence.laplace import hyperparameter_points
from ct_dip.evidence.stage import evidence_stage
from ct_dip.posterior.certificate import CompressionCertificate, IterativeCertificate
from ct_dip.posterior.compressed import Compressed
from ct_dip.posterior.compressed_fit import fit_compressed
from ct_dip.posterior.compression_check import check_compression
from ct_dip.posterior.conditional import Conditional, WeightConditional
from ct_dip.posterior.config import InferenceConfig
from ct_dip.posterior.deviations import DenseDeviations
from ct_dip.posterior.exact import Exact, condition_over
from ct_dip.posterior.exact_model import features_digest, linear_model
from ct_dip.posterior.inferred import Inferred
from ct_dip.posterior.iterative import Iterative
from ct_dip.posterior.problem import Problem, problem_digest
from ct_dip.posterior.relevance import freed_pixel_variance
from ct_dip.posterior.sampling import LEAST, SampledDeviations, draw_samples
from ct_dip.posterior.stochastic_evidence import StochasticEvidence, fit_stochastic
from ct_dip.progress import Progress

_TOGETHER = 16  # samples that are projected together
# What the search for hyperparameters reads of the configuration; the rest comes after it.
_SEARCHED = {
    *("prior", "prior_mean", "objective", "hyperprior", "predcp_strength", "complement", "noise", "starts")
}
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
        _evidence_digest(problem, seed),
        starts=config.starts,
        seed=seed,
        progress=progress,
    )
    with progress.stage("posterior"):
        freed = _freed(Exact(problem, model, evidence.theta), seed) if config.relevance else None
        if freed is not None:
            model = model._replace(relevance=freed)
        points = evidence.theta[None]
        if config.integrate == "laplace":
            points = hyperparameter_points(model.evidence, evidence)
        moments = condition_over(model, points)
        if config.temper != 1:
            moments = moments._replace(covariance=condition_over(model, points, config.temper).covariance)
        _, _, noise = model.evidence.split(evidence.theta)
        design = problem.whitened.unwhiten(model.design.T).T
        return Inferred(
            evidence=evidence,
            noise=math.exp(float(noise)),
            mean=moments.mean,
            deviations=DenseDeviations(moments.covariance),
            sinogram_variance=(design @ moments.covariance * design).sum(dim=1),
            effective_dimension=model.evidence.effective_dimension(evidence.theta),
            freed_pixels=_count(freed),
            jitter=max(evidence.jitter, moments.jitter),
            certificate=None,
            extra={},
        )


def _freed(posterior: Conditional, seed: int) -> Tensor | None:
    """Return own variances of pixels that contradict the model, if there are any."""
    variance = freed_pixel_variance(posterior, seed)
    return variance if bool(variance.any()) else None


def _count(freed: Tensor | None) -> int:
    return 0 if freed is None else int((freed > 0).sum())


def _evidence_digest(problem: Problem, seed: int) -> str:
    """Identify everything that the hyperparameters depend on."""
    settings = problem.config.model_dump_json(include=_SEARCHED)
    identity = f"{features_digest(problem)} {problem.fit.tv_weight!r} {settings} {seed}"
    return identity + _complement_digest(problem)


def _complement_digest(problem: Problem) -> str:
    if problem.complement is None:
        return ""
    variance = problem.complement.variance.cpu().numpy().tobytes()
    return f" {problem.complement[1:]} {hashlib.sha256(variance).hexdigest()}"


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
    fit = fit_compressed(
        problem,
        tolerance=config.compression,
        max_rank=max_rank,
        features_on_host=features_on_host,
        starts=config.starts,
        seed=seed,
        deadline=None if deadline is None else (time.monotonic() + deadline) / 2,
        folder=folder,
        progress=progress,
    )
    evidence, rounds, ratio = fit.evidence, fit.rounds, fit.ratio
    passes, change = fit.passes, fit.change
    effective_dimension = fit.model.effective_dimension(evidence.theta)
    posterior = of_evidence = fit.posterior(problem)
    del fit  # with the matrices of the search
    compression, base, noise = posterior.compression, posterior.measurement_noise, posterior.noise
    with progress.stage("posterior"):
        freed = _freed(posterior, seed) if config.relevance else None
        if freed is not None:
            posterior = posterior.with_pixel_variance(freed)
        tempered = posterior if config.temper == 1 else posterior.tempered(config.temper)
        mean = posterior.mean()
    with progress.stage("accuracy check") as stage:
        check = check_compression(posterior, tempered, seed, stage, of_evidence)
    del of_evidence
    evidence = dataclasses.replace(evidence, evidence=evidence.evidence + check.evidence_change)
    closed = has_closed_deviations(config, problem.pixels)
    deviations, variance = _deviations(problem, tempered, seed, closed, deadline, folder, progress)
    solves = posterior.measurement_noise
    certificate = CompressionCertificate(
        rank=compression.rank,
        discarded_trace=compression.discarded / noise / problem.dimensions,
        discarded_trace_error=compression.discarded_error / noise / problem.dimensions,
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
        passes=check.passes + compression.passes + passes,
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
    evidence = StochasticEvidence(
        problem,
        probes=config.probes,
        tolerance=config.tolerance,
        rank=config.preconditioner_rank,
        seed=seed,
    )
    fit = fit_stochastic(evidence, progress=progress)
    with progress.stage("posterior"):
        posterior = evidence.solver(fit.evidence.theta, renew=True)
        freed = _freed(posterior, seed) if config.relevance else None
        if freed is not None:
            posterior = posterior.with_pixel_variance(freed)
        mean = posterior.mean()
        tempered = Iterative(
            problem,
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
        passes=2 * (evidence.products + sum(s.products for s in solvers)),
        converged=fit.unconverged + sum(s.unconverged for s in solvers) == 0,
        **_sampling(problem, deviations),
    )
    values = dict(zip(fit.model.names, fit.evidence.theta.tolist(), strict=True))
    return Inferred(
        evidence=fit.evidence,
        noise=posterior.noise,
        mean=mean,
        deviations=deviations,
        sinogram_variance=variance,
        effective_dimension=evidence.effective_dimension(fit.evidence.theta),
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
        digest="" if folder is None else _digest(problem, tempered),
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


def _digest(problem: Problem, tempered: WeightConditional) -> str:
    """Identify everything that samples depend on but their seed."""
    identity = f"{problem_digest(problem)} {problem.config} {tempered.noise} {type(tempered).__name__}"
    digest = hashlib.sha256((identity + _complement_digest(problem)).encode())
    for _, tensor in tempered.covariance.factors:
        digest.update(tensor.detach().cpu().numpy().tobytes())
    if isinstance(tempered, Compressed):
        digest.update(tempered.factor.cpu().numpy().tobytes())
    return digest.hexdigest()
