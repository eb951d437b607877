"""The deep image prior: a network fitted to one sinogram."""

import dataclasses
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ClassVar, Self, cast

import numpy as np
import torch

from ct_dip.arrays import Floats
from ct_dip.classical.fbp import fbp
from ct_dip.classical.tv import DEFAULT_STRENGTH
from ct_dip.config import Preset, RunConfig
from ct_dip.data.prediction import Prediction
from ct_dip.data.scan import Scan
from ct_dip.dip.config import DipConfig
from ct_dip.dip.ensemble import DipFit, Ensemble
from ct_dip.dip.fit import fit_bytes, fit_many
from ct_dip.dip.own_network import UNET_SETTINGS, network_name, refuse_unet_settings
from ct_dip.dip.presets import resolve, unet_shape
from ct_dip.dip.start import Start
from ct_dip.dip.unet import UNet
from ct_dip.errors import InputError
from ct_dip.method import Job, Method
from ct_dip.operators.ray import RayTransform
from ct_dip.operators.whitened import Whitened
from ct_dip.run_plan import Plan, time_of
from ct_dip.weight_posterior.drawn import drawn_prediction

STAGE = "deep image prior"
_BATCH_PIXELS = 16 * 28**2  # of networks that are fitted together; twice as many gain little


class DipRun(RunConfig):
    """Settings of method ``dip``."""

    presets: ClassVar[dict[Preset, dict[str, dict[str, Any]]]] = {
        "fast": {"dip": {"max_steps": 500, "cooldown_steps": 300}},
        "thorough": {"dip": {"max_steps": 4000}},
    }

    dip: DipConfig = DipConfig()

    def resolved(self, shape: tuple[int, int]) -> Self:
        """Return the same with every choice made."""
        run = self.with_preset(shape)
        return run.model_copy(update={"dip": resolve(run.dip, shape)})


class FittedNetwork:
    """What methods have in common that begin with the fit of a network, or of several as one batch."""

    keeps_stages: ClassVar[bool] = True

    def members(self, config: Any) -> int:
        """Return how many networks are fitted."""
        return 1

    def seconds(self, scan: Scan, config: Any, plan: Plan, transform: RayTransform) -> dict[str, float]:
        """Time a few steps of the fit, which are three passes each, and count the passes of the plan."""
        members = self.members(config)
        each = time_of(trial_ensemble(scan, config, plan, transform, members).step) / (3 * members)
        return {stage.name: stage.passes * each for stage in plan.stages if stage.passes}


class Dip(FittedNetwork, Method[DipRun]):
    """``min_w mean((A f(w) − y)²/σ²) + γ TV(f(w))``, stopped where the residual is that of the noise."""

    name = "dip"
    title = "a deep image prior"
    summary = "A network fitted to this scan alone, stopped at the noise level."
    reference = "Ulyanov et al. 2018; with TV for tomography as Baguer et al. 2020"
    config = DipRun
    varies_in_batch = ("dip.strength",)
    accepts: ClassVar[dict[str, str]] = {
        "fit": "what ct_dip.fit_dip returned for the scan",
        "network": "a torch.nn.Module in place of the U-Net; keeps the shape (1, 1, rows, columns)",
    }

    def plan(self, scan: Scan, config: DipRun, start: Plan) -> Plan:
        """Add the fit of the network."""
        return plan_fit(scan, config, start)

    def run(self, job: Job[DipRun]) -> Prediction:
        """Fit the network."""
        return _prediction(job, *fit_network(job, job.transform()))

    def batch_size(self, scan: Scan, config: DipRun, plan: Plan) -> int:
        """Return how many networks are fitted together: small ones, which leave a core idle alone."""
        return fits_together(scan, config, plan)

    def run_many(self, jobs: Sequence[Job[DipRun]]) -> Iterable[Prediction]:
        """Fit the networks as one batch."""
        fits = fit_batch(jobs, jobs[0].transform())
        return [_prediction(job, *found) for job, found in zip(jobs, fits, strict=True)]


def _prediction(job: Job[DipRun], fit: DipFit, diagnostics: dict[str, Any]) -> Prediction:
    return Prediction(
        mean=fit.image,
        diagnostics=diagnostics,
        traces=fit.traces,
        settings=used_settings(job.given, fit),
    )


def plan_fit(
    scan: Scan, config: DipRun, start: Plan, *, members: int = 1, more_steps: int = 0, copies: int = 0
) -> Plan:
    """Add the fit of the network to a plan.

    Args:
        members: networks that are fitted as one batch.
        more_steps: that a fit takes beyond its budget.
        copies: of the weights that it keeps besides.

    Raises:
        InputError: the network is one of the user's own that cannot be fitted.
    """
    dip, own = resolve(config.dip, scan.geometry.domain_shape), start.given.get("network")
    if own is not None:
        if "fit" in start.given:
            raise InputError("network has no effect together with a fit, which has its own; drop one of them")
        refuse_unet_settings(dip, scan.geometry.domain_shape)
    needed = fit_bytes(dip, scan.geometry.domain_shape, members, network=own)
    network = template(scan, config, start.given)
    weights = sum(p.numel() for p in network.parameters())
    name = f"{network_name(network)} (own)"
    if isinstance(network, UNet):
        norm = f"{network.shape.norm_groups} norm groups" if network.shape.norm_groups else "no norm"
        name = f"U-Net, channels {'-'.join(str(c) for c in network.shape.channels)}, {norm}"
    plan = start.with_facts(network=f"{name}, {weights} weights", weights=weights)
    return plan.with_stage(
        STAGE, needed + 4 * copies * weights, passes=3 * members * (dip.max_steps + more_steps)
    )


def plan_draws(
    scan: Scan, config: DipRun, start: Plan, stage: str, *, draws: int, passes: int, copies: int = 1
) -> Plan:
    """Add the fit of the network, and a stage that goes on with its weights and draws images.

    Args:
        copies: of what a fit holds that the stage takes.
    """
    held = fit_bytes(config.dip, scan.geometry.domain_shape, network=start.given.get("network"))
    needed = copies * held + 3 * 8 * draws * start.pixels
    return plan_fit(scan, config, start).with_stage(stage, needed, passes=passes)


def template(scan: Scan, config: DipRun, given: Mapping[str, Any]) -> torch.nn.Module:
    """Return the network that a run fits, or that the fit that it was given has."""
    if "fit" in given:
        return cast(DipFit, given["fit"]).template
    own: torch.nn.Module | None = given.get("network")
    return UNet(unet_shape(resolve(config.dip, scan.geometry.domain_shape))) if own is None else own


def used_settings(given: Mapping[str, Any], fit: DipFit) -> dict[str, Any]:
    """Return what a result says of section ``dip``: nothing of a given fit, or of a U-Net not used."""
    if given.keys() & {"fit", "posterior"}:
        return {"dip": None}
    replaced = dict.fromkeys(UNET_SETTINGS) if "network" in given else {}
    return {"dip": {"strength": fit.strength, **replaced}}


def trial_ensemble(
    scan: Scan, config: DipRun, plan: Plan, transform: RayTransform, members: int = 1
) -> Ensemble:
    """Return a fit that never ends, to measure the time of its steps.

    It starts from FBP: total variation, and the choice of its strength, would take longer than any trial.
    """
    dip = resolve(config.dip, scan.geometry.domain_shape)
    endless = dip.model_copy(update={"stopping": "budget", "max_steps": 10**9})
    sinogram = torch.as_tensor(scan.sinogram.copy())
    image = fbp(sinogram, scan.geometry, filter="hann").clamp(min=0)
    variance, known = scan.variance_or_estimate()
    start = Start(
        sinogram=sinogram,
        variance=variance,
        noise_known=known,
        image=image,
        scale=max(float(image.max()), 1e-9),
        strength=DEFAULT_STRENGTH,
        tv_misfit=1.0,
    )
    return Ensemble(
        [scan] * members,
        endless,
        list(range(members)),
        transform,
        torch.device("cpu"),
        plan.given.get("network"),
        starts=[start] * members,
    )


def fit_seconds(trial: Ensemble, config: DipRun) -> float:
    """Return what the fit lasts if it uses its whole budget of steps."""
    steps = resolve(config.dip, trial.scans[0].geometry.domain_shape).max_steps
    return steps * time_of(trial.step)


def fit_network(job: Job[Any], transform: RayTransform) -> tuple[DipFit, dict[str, Any]]:
    """Return the network fitted to the job's scan, or the fit that was given, and its diagnostics."""
    fit: DipFit | None = job.given.get("fit")
    if fit is None:
        (fit,), diagnostics = fit_members(job, transform)
        return fit, diagnostics
    fit.check_scan(job.scan)
    return fit, _diagnostics(job, [fit])


def fit_members(
    job: Job[Any],
    transform: RayTransform,
    seeds: Sequence[int] | None = None,
    kind: Callable[..., Ensemble] = Ensemble,
) -> tuple[list[DipFit], dict[str, Any]]:
    """Return networks fitted to the job's scan as one batch, and their diagnostics.

    Args:
        seeds: of the networks; that of the job if ``None``.
        kind: see `ct_dip.dip.fit.fit_many`.
    """
    seeds = [job.config.seed] if seeds is None else seeds
    fits = fit_many(
        [job.scan] * len(seeds),
        job.config.dip,
        network=job.given.get("network"),
        seeds=seeds,
        transform=transform,
        progress=job.progress,
        run_folder=job.run_folder,
        resume=job.resume,
        device=job.sinogram.device,
        kind=kind,
    )
    return fits, _diagnostics(job, fits)


def fits_together(scan: Scan, config: DipRun, plan: Plan) -> int:
    """Return how many networks are worth fitting as one batch, by pixels, and fit the plan's budget."""
    shape, most = scan.geometry.domain_shape, max(1, _BATCH_PIXELS // math.prod(scan.geometry.domain_shape))
    dip = resolve(config.dip, shape)
    while most > 1 and plan.held + fit_bytes(dip, shape, most) > plan.budget:
        most //= 2
    return most


def fit_batch(jobs: Sequence[Job[Any]], transform: RayTransform) -> list[tuple[DipFit, dict[str, Any]]]:
    """Return the networks of several jobs, fitted as one batch, and their diagnostics.

    One job is that of `fit_network`; more of them have neither a run folder nor objects.

    Args:
        jobs: of one geometry and one configuration up to seeds and strengths.
    """
    first = jobs[0]
    if len(jobs) == 1:
        return [fit_network(first, transform)]
    fits = fit_many(
        [job.scan for job in jobs],
        first.config.dip,
        seeds=[job.config.seed for job in jobs],
        strengths=[job.config.dip.strength for job in jobs],
        transform=transform,
        progress=first.progress,
        device=first.sinogram.device,
    )
    return [(fit, _diagnostics(job, [fit])) for job, fit in zip(jobs, fits, strict=True)]


def _diagnostics(job: Job[Any], fits: Sequence[DipFit]) -> dict[str, Any]:
    """Return what fits say of themselves: the longest one's steps, and means."""
    _, diagnostics = job.variance()
    longest = max(fits, key=lambda fit: fit.steps)
    diagnostics |= {
        "steps": longest.steps,
        "misfit": float(np.mean([fit.misfit for fit in fits])),
        "loss": float(np.mean([fit.loss for fit in fits])),
        "stopped_by": longest.stopped_by,
    }
    return diagnostics


def predict_from(
    images: Floats, job: Job[Any], transform: RayTransform, fit: DipFit, diagnostics: dict[str, Any]
) -> Prediction:
    """Return the prediction of images that are equally likely; see `ct_dip.weight_posterior.drawn`.

    Args:
        images: 1/mm, (n, rows, columns).
        fit: of the network that they are from, or of the first one.
    """
    deviation = torch.as_tensor(job.scan.variance_or_estimate()[0]).to(job.sinogram.device).sqrt()
    whitened = Whitened(transform, fit.scale / deviation)
    relative = torch.as_tensor(images) / fit.scale
    drawn = drawn_prediction([relative], whitened, fit.scale, seed=job.config.seed)
    return with_fit(drawn, job, fit, diagnostics)


def with_fit(
    prediction: Prediction, job: Job[Any], fit: DipFit, diagnostics: dict[str, Any], **traces: Floats
) -> Prediction:
    """Return a prediction with the image, traces and settings of the fit that it is from."""
    return dataclasses.replace(
        prediction,
        images={"dip": fit.image},
        diagnostics=diagnostics | prediction.diagnostics,
        traces=fit.traces | traces,
        settings=used_settings(job.given, fit),
    )
