"""The linearised deep image prior: an image with error bars."""

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import torch

from ct_dip.arrays import Floats
from ct_dip.classical.fbp import fbp
from ct_dip.config import Preset
from ct_dip.data.prediction import Patch, Prediction
from ct_dip.data.scan import Scan
from ct_dip.devices import free_memory, pick_device
from ct_dip.errors import InputError, MissingPartError
from ct_dip.evidence.fit import EvidenceFit
from ct_dip.method import Job, Method
from ct_dip.methods.dip import (
    STAGE,
    Dip,
    DipRun,
    fit_network,
    fit_seconds,
    plan_fit,
    template,
    trial_ensemble,
    used_settings,
)
from ct_dip.operators import ray_transform
from ct_dip.operators.linear_map import LinearMap
from ct_dip.operators.ray import RayTransform
from ct_dip.plan import Plan, time_of
from ct_dip.posterior.config import InferenceConfig
from ct_dip.posterior.fit import fit_posterior
from ct_dip.posterior.own_objects import with_own_objects
from ct_dip.posterior.posterior import Posterior
from ct_dip.posterior.regimes import plan_regime
from ct_dip.priors.complement import Complement
from ct_dip.priors.weights import WeightPrior
from ct_dip.progress import Progress
from ct_dip.tangent.footprint import footprint
from ct_dip.tangent.jacobian import Jacobian
from ct_dip.tangent.linearise import linearise
from ct_dip.tangent.taps import tap_pairs

_REGIMES = {
    "exact": "matrices of pixels² and measurements²",
    "compressed": "the directions of the sinogram that the network explains",
    "iterative": "products with the network alone",
}
_EVALUATIONS = {"scale": 15, "optimum": 80, "fit": 80}  # of the evidence per start, as seen
_NOISE_STEPS = 30  # of conjugate gradients with the noise of a compression's rest, as seen


class LinDipRun(DipRun):
    """Settings of method ``lin-dip``."""

    # On KMNIST images 50 to 57, with the error bars of then, ``fast`` lost 0.05 nats per pixel and 0.3 dB.
    presets: ClassVar[dict[Preset, dict[str, dict[str, Any]]]] = {
        "fast": DipRun.presets["fast"] | {"inference": {"starts": 1}},
        "thorough": DipRun.presets["thorough"] | {"inference": {"starts": 5, "samples": 400}},
    }

    inference: InferenceConfig = InferenceConfig()

    def resolved(self, shape: tuple[int, int]) -> Self:
        """The same with every choice made but those of the inference's plan."""
        run = super().resolved(shape)
        return run.model_copy(update={"inference": run.inference.resolved()})


@dataclass(frozen=True, kw_only=True, eq=False)
class LinDipPrediction(Prediction):
    """A prediction that can be asked anything, as long as it is in memory: its file holds a plain one."""

    posterior: Posterior

    @property
    def tangent(self) -> Jacobian:
        """J, the network's Jacobian at its fit."""
        return self.posterior.problem.jacobian

    @property
    def network(self) -> torch.nn.Module:
        """The fitted network."""
        return self.posterior.problem.fit.network()

    @property
    def prior(self) -> WeightPrior:
        """The prior of the weights; ``prior.covariance(theta)`` is its Σ."""
        return self.posterior.problem.prior

    @property
    def evidence(self) -> EvidenceFit:
        """The fit of the hyperparameters, ``evidence.theta``."""
        return self.posterior.evidence

    def sample(self, count: int, seed: int = 0) -> Floats:
        """Images that are as likely as the true one, (count, rows, columns), drawn afresh."""
        return self.posterior.sample(count, seed)

    def covariances(self, width: int) -> list[Patch]:
        """Covariances of the patches of ``width`` pixels that tile the image."""
        widest = self.posterior.widest_patch
        if widest is not None and width > widest:
            raise MissingPartError(
                f"covariances of {self.posterior.regime} inference are reliable for patches of {widest}² "
                f"pixels or fewer, not {width}²"
            )
        return self.posterior.covariance(width)


class LinDip(Method[LinDipRun]):
    """``N(x*, K − K Aᵀ (A K Aᵀ + σ² I)⁻¹ A K)`` with ``K = J Λ⁻¹ Jᵀ``, J of a fitted network."""

    name = "lin-dip"
    title = "a deep image prior with error bars"
    summary = "A network fitted to this scan alone, made Bayesian: every pixel has an error bar."
    reference = "Antorán et al. 2023, Uncertainty estimation for computed tomography with a linearised DIP"
    gives = ("image", "error bars", "samples")
    config = LinDipRun
    accepts: ClassVar[dict[str, str]] = Dip.accepts | {
        "posterior": "what ct_dip.fit_posterior returned for the scan",
        "prior": "a WeightPrior of the network's weights, or a function that makes one of its Jacobian",
        "complement": "a Complement, or a function that makes one of the Jacobian and the whitened transform",
    }
    keeps_stages = True
    limits_time = True

    def plan(self, scan: Scan, config: LinDipRun, start: Plan) -> Plan:
        """Add the fit of the network, and the stages of the regime that fits the budget."""
        plan = plan_fit(scan, config, start)
        fit_fits = plan.bytes <= plan.budget
        _check_given(start.given)
        network = footprint(template(scan, config, start.given), scan.geometry.domain_shape)
        memory = free_memory(pick_device(config.device))
        settings = with_own_objects(config.inference, start.given.get("prior"), start.given.get("complement"))
        inference = plan_regime(network, scan, settings, plan.budget - plan.held, memory)
        for name, size in inference.bytes.items():
            plan = plan.with_stage(name, size, passes=inference.passes.get(name, 0))
        if inference.regime == "exact":
            side = int(math.isqrt(plan.pixels) * (plan.budget / plan.bytes) ** 0.25)
            advice = f"exact inference fits images of about {side}² pixels; use inference.regime=compressed"
        else:
            advice = plan.advice + (", or method dip" if fit_fits else "")
        plan = plan.with_facts(regime=inference.regime, inference=_REGIMES[inference.regime])
        if inference.features_on_host:
            plan = plan.with_facts(features="kept in the host's memory: the device has too little")
        return dataclasses.replace(plan, advice=advice, details=inference)

    def seconds(self, scan: Scan, config: LinDipRun, plan: Plan, transform: RayTransform) -> dict[str, float]:
        """From steps of the fit, one chunk of passes, one symmetric product and one factorisation."""
        trial = trial_ensemble(scan, config, plan, transform)
        steps = fit_seconds(trial, config)
        jacobian = linearise(trial.template, trial.inputs[:1, None])
        return _inference_seconds(plan, config, jacobian, transform) | {STAGE: steps}

    def run(self, job: Job[LinDipRun]) -> LinDipPrediction:
        """Fit the network, linearise it, fit hyperparameters by evidence, condition on the data."""
        posterior: Posterior | None = job.given.get("posterior")
        if posterior is not None:
            return _prediction(posterior, job, {})
        transform = job.transform()
        fit, diagnostics = fit_network(job, transform)
        posterior = fit_posterior(
            fit,
            job.scan,
            job.config.inference,
            prior=job.given.get("prior"),
            complement=job.given.get("complement"),
            transform=_inference_transform(job, transform),
            progress=job.progress,
            plan=job.plan.details,
            budget_minutes=job.budget_minutes,
            run_folder=job.run_folder,
            seed=job.config.seed,
            device=job.sinogram.device,
        )
        return _prediction(posterior, job, diagnostics)


def _check_given(given: Mapping[str, Any]) -> None:
    """Refuse objects that are not what they must be, or that others leave no part in it."""
    replaced = sorted(given.keys() - {"posterior"})
    if "posterior" in given and replaced:
        raise InputError(f"{', '.join(replaced)} has no effect beside a posterior; drop one of them")
    for name, kind in {"prior": WeightPrior, "complement": Complement}.items():
        value = given.get(name)
        if value is not None and not isinstance(value, kind) and not callable(value):
            raise InputError(
                f"{name} must be a {kind.__name__} or a function that makes one, not {type(value).__name__}"
            )


def _inference_transform(job: Job[LinDipRun], transform: RayTransform) -> RayTransform:
    """The ray transform itself, unless it is tomosipo's, which has neither float64 nor an exact adjoint."""
    if job.config.backend != "tomosipo":
        return transform
    replacement = ray_transform(
        job.scan.geometry,
        kernel=job.config.kernel,
        memory_budget=job.budget,
        device=job.sinogram.device,
    )
    job.progress.note(
        f"inference uses the ray transform's kernel {replacement.kernel!r}; the network was fitted with "
        f"{transform.kernel!r}"
    )
    return replacement


def _prediction(posterior: Posterior, job: Job[LinDipRun], diagnostics: dict[str, Any]) -> LinDipPrediction:
    """A posterior with its samples and patches, and what inference says of itself."""
    settings, fit, scan = job.config.inference, posterior.evidence, job.scan
    if posterior.mean.shape != scan.geometry.domain_shape:
        raise InputError(
            f"the posterior has shape {posterior.mean.shape}, the scan's image "
            f"{scan.geometry.domain_shape}; give the scan that it was made from"
        )
    _tell_doubts(posterior, job.progress)
    diagnostics |= {
        "regime": posterior.regime,
        "certificate": {} if posterior.certificate is None else posterior.certificate.to_dict(),
        "evidence": fit.evidence,
        "evidence_objective": fit.objective,
        "evidence_evaluations": fit.evaluations,
        "evidence_converged": fit.converged,
        "evidence_starts": [value if math.isfinite(value) else None for value in fit.found],
        "at_bound": list(fit.at_bound),
        "freed_pixels": posterior.freed_pixels,
        "jitter": posterior.jitter,
        "sigma_y": posterior.noise_std,
        "sigma_y_stated": posterior.stated_noise_std,
        "effective_dimension": posterior.effective_dimension,
        "sinogram_chi2": float((posterior.sinogram.standardised**2).mean()),
        "hyperparameters": posterior.hyperparameters,
    }
    count = settings.samples
    if posterior.certificate is not None:
        count = min(count, posterior.certificate.samples)
    samples = None
    if count:
        with job.progress.stage("samples"):
            samples = posterior.sample(count, seed=job.config.seed)
            diagnostics["sampling_jitter"] = posterior.sampling_jitter
    chosen = {"regime": posterior.regime, "samples": count, "image": posterior.shown}
    own = dict.fromkeys(job.given.keys() & {"prior", "complement"})
    if own:
        chosen |= own | posterior.problem.config.model_dump(include={"objective", "hyperprior"})
    return LinDipPrediction(
        mean=posterior.mean,
        std=posterior.std,
        std_error=posterior.std_error,
        samples=samples,
        images=_images(posterior, job),
        sinogram=posterior.sinogram,
        patches=tuple(posterior.covariance(settings.patch)) if settings.patch else (),
        diagnostics=diagnostics,
        traces=posterior.problem.fit.traces | {"evidence": fit.trace},
        settings=used_settings(job.given, posterior.problem.fit) | {"inference": chosen},
        posterior=posterior,
    )


def _images(posterior: Posterior, job: Job[LinDipRun]) -> dict[str, Floats]:
    """Images that are shown beside the mean; total variation where the network was given it as its input."""
    images = {
        "fbp": fbp(job.sinogram, job.scan.geometry, filter="hann").cpu().numpy(),
        "dip": posterior.dip,
        "linear": posterior.linear,
    }
    if job.config.dip.input == "tv" and not job.given.keys() & {"fit", "posterior"}:
        images["tv"] = posterior.scale * posterior.problem.fit.network_input[0, 0].numpy()
    return images


def _tell_doubts(posterior: Posterior, progress: Progress) -> None:
    """What inference did not reach."""
    fit, certificate = posterior.evidence, posterior.certificate
    if not fit.converged:
        progress.note("the search for hyperparameters did not converge; its best values are used")
    if fit.at_bound:
        progress.note(f"hyperparameters at the end of their range: {', '.join(fit.at_bound)}")
    for warning in [] if certificate is None else certificate.warnings():
        progress.note(warning)
    if posterior.jitter:
        progress.note(f"a covariance needed a jitter of {posterior.jitter:.2g} to be factorised")


def _inference_seconds(
    plan: Plan, config: LinDipRun, jacobian: Jacobian, transform: LinearMap
) -> dict[str, float]:
    """From one chunk of passes, one symmetric product and one factorisation, scaled by their operations."""
    inference, weights = config.inference.resolved(), plan.facts["weights"]
    count = jacobian.chunk
    images = torch.randn(count, *jacobian.range_shape)
    per_pixel = time_of(lambda: jacobian.T(images)) / count
    if plan.details.regime != "exact":
        seconds = {stage.name: stage.passes * per_pixel for stage in plan.stages if stage.passes}
        rank = next((s.passes // 2 for s in plan.stages if s.name == "compression"), 0)
        if rank:
            columns = torch.randn(16, *transform.domain_shape)
            per_column = time_of(lambda: transform.T(transform(columns))) / len(columns)
            tall = torch.randn(256, 8192, dtype=torch.float64)
            per_product = time_of(lambda: tall @ tall.T) / (256**2 * 8192)
            seconds["compression"] += rank * _NOISE_STEPS * per_column
            seconds["compression"] += rank**2 * weights * per_product
        return seconds
    side = min(plan.pixels, 512)
    features = torch.randn(side, 1024)
    per_flop = time_of(lambda: features @ features.T) / (side**2 * 1024)
    filters = weights / 9
    grams = len(tap_pairs(3).vectors) * 0.6 * plan.pixels**2 * filters * per_flop
    size = min(plan.measurements, 600)
    matrix = torch.eye(size, dtype=torch.float64) * 2
    factor = time_of(lambda: torch.cholesky_inverse(torch.linalg.cholesky(matrix)))
    evidence = next(stage.bytes for stage in plan.stages if stage.name == "evidence")
    evaluation = factor * (plan.measurements / size) ** 3 + evidence / 10e9  # 10 GB/s through memory
    evaluations = inference.starts * _EVALUATIONS[inference.objective]
    return {
        "feature statistics": 2 * plan.pixels * per_pixel + grams,
        "evidence": evaluations * evaluation,
        "posterior": 4 * factor * (max(plan.measurements, plan.pixels) / size) ** 3,
    }
