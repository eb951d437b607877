"""The deep image prior: a network fitted to one sinogram."""

from typing import Any, ClassVar, Self

import torch

from ct_dip.config import Preset, RunConfig
from ct_dip.data.prediction import Prediction
from ct_dip.data.scan import Scan
from ct_dip.dip.budget import budget_warning
from ct_dip.dip.config import DipConfig
from ct_dip.dip.ensemble import DipFit, Ensemble
from ct_dip.dip.fit import fit_bytes, fit_dip
from ct_dip.dip.presets import resolve, unet_shape
from ct_dip.dip.unet import UNet
from ct_dip.errors import InputError
from ct_dip.method import Job, Method
from ct_dip.operators.ray import RayTransform
from ct_dip.plan import Plan, time_of

STAGE = "deep image prior"


class DipRun(RunConfig):
    """Settings of method ``dip``."""

    presets: ClassVar[dict[Preset, dict[str, dict[str, Any]]]] = {
        "fast": {"dip": {"max_steps": 500, "cooldown_steps": 300}},
        "thorough": {"dip": {"max_steps": 4000}},
    }

    dip: DipConfig = DipConfig()

    def resolved(self, shape: tuple[int, int]) -> Self:
        """The same with every choice made."""
        run = self.with_preset(shape)
        return run.model_copy(update={"dip": resolve(run.dip, shape)})


class Dip(Method[DipRun]):
    """``min_w mean((A f(w) − y)²/σ²) + γ TV(f(w))``, stopped where the residual is that of the noise."""

    name = "dip"
    title = "a deep image prior"
    summary = "A network fitted to this scan alone, stopped at the noise level."
    reference = "Ulyanov et al. 2018; with TV for tomography as Baguer et al. 2020"
    config = DipRun
    accepts: ClassVar[dict[str, str]] = {"fit": "what ct_dip.fit_dip returned for the scan"}
    keeps_stages = True

    def plan(self, scan: Scan, config: DipRun, start: Plan) -> Plan:
        """Add the fit of the network."""
        return plan_fit(scan, config, start)

    def seconds(self, scan: Scan, config: DipRun, plan: Plan, transform: RayTransform) -> dict[str, float]:
        """From a few steps of the fit."""
        return {STAGE: fit_seconds(trial_ensemble(scan, config, transform), config)}

    def run(self, job: Job[DipRun]) -> Prediction:
        """Fit the network."""
        fit, diagnostics = fit_network(job, job.transform())
        return Prediction(
            mean=fit.image,
            diagnostics=diagnostics,
            traces=fit.traces,
            settings={"dip": {"strength": fit.strength}},
        )


def plan_fit(scan: Scan, config: DipRun, start: Plan) -> Plan:
    """Add the fit of the network to a plan."""
    dip = resolve(config.dip, scan.geometry.domain_shape)
    shape = unet_shape(dip)
    weights = sum(p.numel() for p in UNet(shape).to("meta").parameters())
    norm = f"{shape.norm_groups} norm groups" if shape.norm_groups else "no norm"
    channels = "-".join(str(c) for c in shape.channels)
    plan = start.with_facts(network=f"U-Net, channels {channels}, {norm}, {weights} weights", weights=weights)
    return plan.with_stage(STAGE, fit_bytes(dip, scan.geometry.domain_shape), passes=3 * dip.max_steps)


def trial_ensemble(scan: Scan, config: DipRun, transform: RayTransform) -> Ensemble:
    """A fit that never ends, to measure the time of its steps."""
    dip = resolve(config.dip, scan.geometry.domain_shape)
    endless = dip.model_copy(update={"stopping": "budget", "max_steps": 10**9})
    return Ensemble([scan], endless, [0], transform, torch.device("cpu"))


def fit_seconds(trial: Ensemble, config: DipRun) -> float:
    """What the fit lasts if it uses its whole budget of steps."""
    steps = resolve(config.dip, trial.scans[0].geometry.domain_shape).max_steps
    return steps * time_of(trial.step)


def fit_network(job: Job[Any], transform: RayTransform) -> tuple[DipFit, dict[str, Any]]:
    """The network fitted to the job's scan, and its diagnostics; a fit that was given is taken as it is."""
    _, diagnostics = job.variance()
    fit: DipFit | None = job.given.get("fit")
    if fit is None:
        fit = fit_dip(
            job.scan,
            job.config.dip,
            seed=job.config.seed,
            transform=transform,
            progress=job.progress,
            run_folder=job.run_folder,
            resume=job.resume,
            device=job.sinogram.device,
        )
    elif fit.image.shape != job.scan.geometry.domain_shape:
        raise InputError(
            f"the fit has shape {fit.image.shape}, the scan's image {job.scan.geometry.domain_shape}; "
            "give the scan that it was fitted to"
        )
    diagnostics |= {"steps": fit.steps, "misfit": fit.misfit, "loss": fit.loss, "stopped_by": fit.stopped_by}
    if warning := budget_warning(diagnostics):
        job.progress.note(warning)
    return fit, diagnostics
