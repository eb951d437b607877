"""From a fitted network to a posterior: linearise, fit hyperparameters by evidence, condition on the data."""

import time
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from ct_dip import memory
from ct_dip.arrays import Floats
from ct_dip.data.prediction import SinogramPredictive
from ct_dip.data.scan import Scan
from ct_dip.devices import free_memory
from ct_dip.dip.ensemble import DipFit
from ct_dip.dip.unet import UNet
from ct_dip.errors import InputError
from ct_dip.evidence.fit import EvidenceFit
from ct_dip.operators import ray_transform
from ct_dip.operators.linear_map import LinearMap
from ct_dip.posterior.choose_prior import block_prior
from ct_dip.posterior.config import InferenceConfig
from ct_dip.posterior.deviations import WidenedDeviations
from ct_dip.posterior.infer import infer_compressed, infer_exact, infer_iterative
from ct_dip.posterior.inferred import Inferred
from ct_dip.posterior.own_objects import OwnComplement, OwnPrior, with_own_objects
from ct_dip.posterior.posterior import Posterior
from ct_dip.posterior.problem import Problem, linear_problem
from ct_dip.posterior.regimes import RegimePlan, default_compression, plan_regime
from ct_dip.progress import Progress
from ct_dip.progress_bars import default_progress
from ct_dip.tangent.footprint import footprint
from ct_dip.tangent.linearise import linearise

_WEAK = 0.3  # strength of TV below which x* is as good an image as f(w̃); seen on characters


def fit_posterior(
    fit: DipFit,
    scan: Scan,
    config: InferenceConfig | None = None,
    *,
    prior: OwnPrior | None = None,
    complement: OwnComplement | None = None,
    image: Floats | None = None,
    widening: float = 1.0,
    transform: LinearMap | None = None,
    progress: Progress | None = None,
    memory_budget: int | str | None = None,
    plan: RegimePlan | None = None,
    budget_minutes: float | None = None,
    run_folder: str | Path | None = None,
    seed: int = 0,
    device: torch.device | str = "cpu",
) -> Posterior:
    """Compute the posterior of the network linearised at its fit, with hyperparameters by evidence.

    Args:
        fit: what `ct_dip.fit_dip` returned for the scan.
        config: prior, objective, complement, regime, …
        prior: of the user's own in place of the configuration's: a `WeightPrior`, or what makes one of the
            `Jacobian`; see `ct_dip.posterior.own_objects`.
        complement: in the same way a `Complement`, or what makes one of the `Jacobian` and the whitened ray
            transform.
        image: to show in place of one that the model gives, 1/mm; the error bars are around it.
        widening: factor on the posterior's covariance; see `ct_dip.evaluation.widening`.
        transform: the scan's ray transform on the device, if it is at hand.
        plan: of the inference, where the caller made one already; else it is made within ``memory_budget``.
        budget_minutes: after which no more samples are drawn; a compression grows for half of it at most.
            What was reached is in the certificate. Exact inference is not cut short, and says so.
        run_folder: where stages are kept: in the exact regime the same fit with another objective finds its
            features there, and with another temper or number of samples its hyperparameters, too.
        seed: of the further starts of the evidence's search, and of every probe and sample.
        device: where inference runs; the search for hyperparameters, which are few, stays on the CPU.

    Raises:
        InputError: before any work, if the regime cannot do what the configuration asks for, or the fit is
            that of another scan.
        MemoryBudgetError: before any work, if it would not fit.
    """
    fit.check_scan(scan)
    config = with_own_objects(config or InferenceConfig(), prior, complement)
    if config.image == "tv" and image is None:
        raise InputError("inference.image 'tv' needs that image; give it as image, or use method 'lin-dip'")
    progress = progress or default_progress()
    validate_time_budget(budget_minutes)
    if plan is None:
        budget = memory.memory_budget(memory_budget)
        needs = footprint(fit.template, scan.geometry.domain_shape)
        plan = plan_regime(needs, scan, config, budget, free_memory(torch.device(device)))
        memory.require(
            max(plan.bytes.values()),
            budget,
            what=f"{plan.regime} inference",
            advice="use a smaller image or fewer views",
        )
    allowed = config.compression
    if allowed == "auto":
        allowed = default_compression(config, scan.sinogram.size, fit.image.size)
    choices = {"regime": plan.regime, "compression": allowed, "image": shown_image(config, fit.strength)}
    config = config.model_copy(update=choices)
    if budget_minutes is not None and plan.regime == "exact":
        progress.note(
            f"the time budget of {budget_minutes:g} minutes (--budget-minutes) has no effect on exact "
            "inference; use regime 'compressed' if that takes too long"
        )
    deadline = None if budget_minutes is None else time.monotonic() + 60 * budget_minutes
    if transform is None:
        transform = ray_transform(scan.geometry, device=device)
    with progress.stage("linearisation"):
        network, network_input = fit.network(), fit.network_input
        # Signals are a million times the noise: in float32 residuals of solves may end at a hundredth. The
        # fast products of a U-Net alone keep their slopes at kinks when they change to float64.
        if plan.regime != "exact" and type(network) is not UNet:
            network, network_input = network.double(), network_input.double()
        jacobian = linearise(network.to(device), network_input.to(device))
        if plan.regime == "iterative":
            jacobian = jacobian.in_float64()
    folder = None if run_folder is None or prior is not None else Path(run_folder)
    problem = linear_problem(fit, scan, jacobian, config, transform, seed, prior=prior, complement=complement)
    common: dict[str, Any] = {"seed": seed, "folder": folder, "progress": progress}
    if plan.regime == "exact":
        inferred = infer_exact(problem, **common)
    elif plan.regime == "compressed":
        inferred = infer_compressed(
            problem,
            max_rank=plan.max_rank,
            features_on_host=plan.features_on_host,
            deadline=deadline,
            **common,
        )
    else:
        inferred = infer_iterative(problem, deadline=deadline, **common)
    return _posterior(problem, scan, config, inferred, image, widening)


def validate_time_budget(minutes: float | None) -> None:
    """Raise an `InputError` for a time budget that is not a positive number of minutes."""
    if minutes is not None and not minutes > 0:
        raise InputError(
            f"a time budget of {minutes:g} minutes must be positive; give for example 10, or leave it out "
            "for no limit"
        )


def shown_image(config: InferenceConfig, strength: float) -> Literal["mean", "linear", "dip", "tv"]:
    """Choose the image that is shown.

    The tangent model knows nothing of the fit's TV. Where TV is weak the mean of f(w̃) and x* is the better
    image; where it is strong, x* is noisier than f(w̃) by decibels.

    Args:
        strength: of the fit's TV, relative to the noise.
    """
    if config.image != "auto":
        return config.image
    return "mean" if strength < _WEAK else "dip"


def _posterior(
    problem: Problem,
    scan: Scan,
    config: InferenceConfig,
    inferred: Inferred,
    image: Floats | None,
    widening: float,
) -> Posterior:
    """Convert what was inferred to 1/mm, and choose the image that is shown."""
    fit = problem.fit
    linear = fit.scale * inferred.mean.cpu().numpy().reshape(fit.image.shape)
    images = {"dip": fit.image, "linear": linear, "mean": (fit.image + linear) / 2}
    mean = images[config.image] if image is None else image
    deviations, signal = inferred.deviations, inferred.sinogram_variance
    if widening != 1:
        deviations, signal = WidenedDeviations(deviations, widening), widening * signal
    stated = np.sqrt(scan.variance_or_estimate()[0])
    typical = float(np.sqrt(np.mean(stated**2)))
    return Posterior(
        problem=problem,
        mean=np.asarray(mean, dtype=np.float64),
        dip=np.asarray(fit.image, dtype=np.float64),
        linear=linear,
        scale=fit.scale,
        deviations=deviations,
        sinogram=_check_sinogram(problem, scan, mean, stated, signal, inferred.noise),
        evidence=inferred.evidence,
        hyperparameters=_hyperparameters(inferred.evidence, problem) | inferred.extra,
        noise_std=inferred.noise**0.5 * typical,
        stated_noise_std=typical,
        effective_dimension=inferred.effective_dimension,
        freed_pixels=inferred.freed_pixels,
        jitter=inferred.jitter,
        regime=config.regime,
        shown=config.image if image is None else "tv",
        certificate=inferred.certificate,
    )


def _check_sinogram(
    problem: Problem, scan: Scan, image: Floats, stated: Floats, signal: Tensor, noise: float
) -> SinogramPredictive:
    """Compute the posterior predictive of the sinogram.

    Args:
        stated: noise that the scan states, standard deviation of every measurement, beside what all of them
            share.
        signal: variance of the line integrals under the posterior, (measurements,), in units of it squared.
        noise: variance of the fitted noise in the same units.
    """
    whitened = problem.whitened
    on_device = torch.as_tensor(image).double().to(signal.device)
    projected = whitened.transform(on_device).cpu().numpy()
    variance = (signal + noise * whitened.noise_variance).cpu().numpy().reshape(projected.shape)
    left = torch.as_tensor((scan.sinogram - projected) / stated).flatten()
    return SinogramPredictive(
        mean=projected,
        std=stated * np.sqrt(variance),
        standardised=whitened.whiten(left).numpy().reshape(projected.shape) / noise**0.5,
        measured=scan.sinogram,
    )


def _hyperparameters(evidence: EvidenceFit, problem: Problem) -> dict[str, float]:
    """Return the hyperparameters by name; for ``scale`` also the block parameters that it scaled."""
    values = dict(zip(evidence.names, evidence.theta.tolist(), strict=True))
    if problem.config.objective == "scale" and "log_scale" in values:
        prior = block_prior(problem.jacobian)
        for name, value in zip(prior.names, prior.start.tolist(), strict=True):
            values[name] = value + (values["log_scale"] if name.startswith("log_variance") else 0.0)
    return values
