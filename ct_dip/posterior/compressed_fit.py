"""Fit hyperparameters in the compressed regime: compress, fit, and check that the compression holds."""

import dataclasses
import math
from pathlib import Path
from typing import NamedTuple

from scipy.optimize import minimize_scalar
from torch import Tensor

from ct_dip.checkpoint import stage_object
from ct_dip.errors import CtDipError
from ct_dip.evidence.fit import EvidenceFit, fit_evidence
from ct_dip.evidence.model import COMPLEMENT_REACH, EvidenceModel
from ct_dip.posterior.compressed import (
    Compressed,
    basis_factor,
    feature_signals,
    projected_evidence,
)
from ct_dip.posterior.compression import Compression, empty_compression, extend, from_state, to_state
from ct_dip.posterior.compression_check import CORRECTION_PASSES, truncation_correction
from ct_dip.posterior.measurement_noise import MeasurementNoise
from ct_dip.posterior.problem import Problem, problem_digest
from ct_dip.progress import Progress
from ct_dip.tangent.statistics import streamed_difference_variances

COMPRESSION = "compression-{number}.npz"  # of the first basis, and of every time that it grew
_LOOSE = 20.0  # tolerance of the first basis, whose hyperparameters are only where the search begins
_FIRST_RANK = 256  # of it at most: the prior that the fitted weights suggest may be far too wide
_ROUNDS = 6  # of extending the basis and fitting again
_CORRECTION_STEP = 0.25  # of a log-parameter: where signals outside move it further, first order says nothing
_CORRECTION_SEED = 10**4  # of the weights that see what is outside: not those of the check
_RATIO_TOLERANCE = 0.1  # of log κ − log s², which the data hardly see
_RATIO_EVALUATIONS = 15


class Kept(NamedTuple):
    """What a fit leaves to one with a larger basis; see `CompressedFit`."""

    noise: MeasurementNoise
    lower: Tensor
    ratio: float


class CompressedFit(NamedTuple):
    """Fitted hyperparameters, and everything that was computed to find them.

    Args:
        lower: see `basis_factor`, and for ``signals`` `feature_signals`.
        ratio: ``κ/s²``, the complement's variance in units of the fitted noise.
        rounds: how often the basis had to be extended for the hyperparameters that were found.
        passes: products with J and Jᵀ, beside those of the compression.
        change: how far what the basis leaves out moves the hyperparameters, where that is estimated.
    """

    evidence: EvidenceFit
    model: EvidenceModel
    compression: Compression
    noise: MeasurementNoise
    lower: Tensor
    signals: Tensor
    ratio: float
    rounds: int
    passes: int = 0
    change: list[float] | None = None

    def kept(self) -> Kept:
        """Return what later fits need, without the matrices of the search."""
        return Kept(self.noise, self.lower, self.ratio)

    def posterior(self, problem: Problem) -> Compressed:
        """Make the posterior at the fitted hyperparameters."""
        prior, _, log_noise = self.model.split(self.evidence.theta)
        noise = math.exp(float(log_noise))
        return Compressed(
            problem,
            self.compression,
            self.noise,
            self.lower,
            problem.prior.covariance(prior),
            None if self.noise.variance is None else noise * self.noise.variance,
            noise,
            self.model.matrices.lower(self.model.coefficients(self.evidence.theta)).to(self.lower),
        )


def fit_compressed(
    problem: Problem,
    *,
    tolerance: float,
    max_rank: int,
    features_on_host: bool = False,
    starts: int = 3,
    seed: int = 0,
    deadline: float | None = None,
    folder: Path | None = None,
    progress: Progress | None = None,
) -> CompressedFit:
    """Fit the hyperparameters, with a basis that holds at the optimum.

    Args:
        tolerance: trace of the signal that may stay outside of the basis, in units of the noise's trace in
            the sinograms that an image can have.
        deadline: of ``time.monotonic``, after which the basis grows no more.
        folder: where compressions, which take most of the time, are kept.
    """
    progress = progress or Progress()
    variances = None
    if problem.config.hyperprior == "tv-predcp":
        variances = streamed_difference_variances(problem.jacobian, progress)
    allowed, passes = tolerance * problem.dimensions, 0

    def grow(
        before: Compression, theta: Tensor, noise: float, number: int, max_rank: int = max_rank
    ) -> Compression:
        digest = f"columns {problem_digest(problem)} {allowed} {max_rank} {seed} {deadline is None}"
        return stage_object(
            folder,
            COMPRESSION.format(number=number),
            f"{digest} {number} {before.rank} {theta.tolist()} {noise}",
            compute=lambda: extend(
                problem,
                problem.prior.covariance(theta),
                before,
                trace=allowed * noise,
                max_rank=max_rank,
                seed=seed + number,
                deadline=deadline,
                progress=progress,
            ),
            to_state=lambda grown: to_state(grown, before),
            from_state=lambda state: from_state(state, before),
        )

    first = min(max_rank, _FIRST_RANK)
    start = empty_compression(problem, features_on_host=features_on_host)
    compression = grow(start, problem.prior.start, _LOOSE, 0, first)

    def fit(
        compression: Compression, leading_signals: Tensor | None, before: Kept | None, number: int
    ) -> CompressedFit:
        nonlocal passes
        with progress.stage("prior covariances"):
            signals = feature_signals(problem, compression, leading_signals)
        del leading_signals
        uncorrected = _fit(problem, compression, signals, variances, starts, seed, number, before, progress)
        if len(signals) > 1 or problem.config.objective == "fit":  # of which less is known
            return uncorrected
        passes += CORRECTION_PASSES
        return _with_correction(problem, uncorrected, seed + number, progress)

    latest = fit(compression, None, None, 0)
    for number in range(1, _ROUNDS + 1):
        prior, _, noise = latest.model.split(latest.evidence.theta)
        # Probes look whether the basis still holds; the last time nothing else is done.
        limit = max_rank if number < _ROUNDS else latest.compression.rank
        compression = grow(latest.compression, prior, math.exp(float(noise)), number, limit)
        if compression.rank == latest.compression.rank:
            break
        before, leading_signals = latest.kept(), [latest.signals]
        del latest  # with the matrices of its search
        latest = fit(compression, leading_signals.pop(), before, number)
    return latest._replace(compression=compression, passes=passes)


def _with_correction(problem: Problem, fit: CompressedFit, seed: int, progress: Progress) -> CompressedFit:
    """Correct the hyperparameters for what signals outside the basis do to the evidence.

    The evidence itself stays that of the compressed model, at these hyperparameters.
    """
    prior, _, _ = fit.model.split(fit.evidence.theta)
    scale = float(fit.model.prior.coefficients(prior)[0])
    with progress.stage("truncation correction"):
        correction = truncation_correction(fit.posterior(problem), scale, seed + _CORRECTION_SEED)
    if correction is None:
        return fit
    model = dataclasses.replace(fit.model, noise_only=fit.model.noise_only._replace(correction=correction))
    try:
        evidence = fit_evidence(model, starts=1, first=fit.evidence.theta, seed=seed, progress=progress)
    except CtDipError:  # somewhere on its way; the search without has an end
        return fit
    change = evidence.theta - fit.evidence.theta
    if float(change.abs().max()) > _CORRECTION_STEP:
        return fit
    moved = dataclasses.replace(
        fit.evidence,
        theta=evidence.theta,
        objective=float(fit.model.objective(evidence.theta)),
        evidence=float(fit.model.log_evidence(evidence.theta)),
        converged=fit.evidence.converged and evidence.converged,
        at_bound=evidence.at_bound,
        jitter=max(fit.evidence.jitter, evidence.jitter),
    )
    return fit._replace(evidence=moved, change=change.tolist())


def _fit(
    problem: Problem,
    compression: Compression,
    signals: Tensor,
    variances: Tensor | None,
    starts: int,
    seed: int,
    rounds: int,
    before: Kept | None,
    progress: Progress,
) -> CompressedFit:
    """Fit at a given basis; search over the ratio of complement and noise where it is free.

    Args:
        signals: see `feature_signals`.
        before: of the fit with a part of the basis, whose solves need not be made again at the same ratio.
    """
    complement = problem.complement

    def at(ratio: float, starts: int) -> CompressedFit:
        in_model = complement is not None and complement.in_model
        pixels = ratio * complement.variance if complement is not None and in_model else None
        reusable = before if before is not None and before.ratio == ratio else None
        noise = MeasurementNoise(problem.whitened, pixels) if reusable is None else reusable.noise
        with progress.stage("measurement noise", compression.rank) as stage:
            lower = basis_factor(
                compression.basis, noise, None if reusable is None else reusable.lower, stage
            )
            model = projected_evidence(problem, compression, noise, lower, signals, variances)
        evidence = fit_evidence(model, starts=starts, seed=seed, progress=progress)
        return CompressedFit(evidence, model, compression, noise, lower, signals, ratio, rounds)

    if complement is None or not complement.in_model or complement.deviation is None:
        return at(1.0, starts)

    deviation = complement.deviation

    def loss(log_ratio: float) -> float:
        fit = at(math.exp(log_ratio), 1)
        _, _, noise = fit.model.split(fit.evidence.theta)
        penalty = 0.0
        if problem.config.hyperprior != "none":
            factor = log_ratio if complement.in_units_of_noise else log_ratio + float(noise)
            penalty = 0.5 * (factor / deviation) ** 2
        return penalty - fit.evidence.objective

    best = minimize_scalar(
        loss,
        bounds=(-COMPLEMENT_REACH, COMPLEMENT_REACH),
        method="bounded",
        options={"xatol": _RATIO_TOLERANCE, "maxiter": _RATIO_EVALUATIONS},
    )
    return at(math.exp(float(best.x)), starts)
