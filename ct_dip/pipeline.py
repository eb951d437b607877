"""The stages of a reconstruction, in order: the one place that knows them all."""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ct_dip import memory
from ct_dip.arrays import Floats
from ct_dip.classical.cgls import cgls
from ct_dip.classical.fbp import fbp
from ct_dip.classical.tv import tv
from ct_dip.config import METHODS, RunConfig
from ct_dip.data.comparison import Comparison, comparison_of_scan
from ct_dip.data.plausibility import implausible
from ct_dip.data.result import Result
from ct_dip.data.scan import Scan
from ct_dip.devices import pick_device, pick_threads, use_threads
from ct_dip.dip.budget import budget_warning
from ct_dip.dip.ensemble import DipFit
from ct_dip.dip.fit import Resume, fit_dip
from ct_dip.errors import InputError
from ct_dip.make_result import Outcome, make_result, posterior_outcome
from ct_dip.operators import ray_transform
from ct_dip.operators.linear_map import LinearMap
from ct_dip.operators.ray import RayTransform
from ct_dip.plan import Plan, plan_run
from ct_dip.posterior.fit import fit_posterior, validate_time_budget
from ct_dip.progress import Progress


@dataclass(frozen=True, kw_only=True)
class _Job:
    """What every method is given."""

    scan: Scan
    sinogram: Tensor  # on the device
    config: RunConfig
    progress: Progress
    budget: int  # bytes
    plan: Plan
    budget_minutes: float | None = None
    run_folder: Path | None = None
    resume: Resume = "exact"
    known: Comparison | None = None  # what the image is compared with when it is finished
    fit: DipFit | None = None  # a network that was fitted before

    def transform(self) -> RayTransform:
        """The scan's ray transform."""
        with self.progress.stage("ray transform"):
            return ray_transform(
                self.scan.geometry,
                self.config.backend,
                kernel=self.config.kernel,
                memory_budget=self.budget,
                device=self.sinogram.device,
            )

    def variance(self) -> tuple[Tensor, dict[str, Any]]:
        """Variance of the measurements, and how it was found."""
        variance, stated = self.scan.variance_or_estimate()
        if stated:
            return torch.as_tensor(variance), {"noise_estimated": False}
        std = math.sqrt(variance.flat[0])
        self.progress.note(f"the scan states no noise; estimated a standard deviation of {std:.3g}")
        return torch.as_tensor(variance), {"noise_estimated": True, "noise_std": std}


def reconstruct(
    scan: Scan,
    config: RunConfig | None = None,
    *,
    progress: Progress | None = None,
    memory_budget: int | str | None = None,
    budget_minutes: float | None = None,
    run_folder: str | Path | None = None,
    resume: Resume = "exact",
    reference: Floats | None = None,
    reference_std: float | None = None,
    fit: DipFit | None = None,
) -> Result:
    """Reconstruct a scan with the method that the configuration names.

    The ground truth of a simulated scan, or a reference, is used for the metrics of the finished image only.

    Args:
        config: what to compute; see `ct_dip.config.load_config`.
        progress: told about every stage.
        memory_budget: bytes or text such as ``"4G"``; see `ct_dip.memory.memory_budget`.
        budget_minutes: for compressed or iterative inference, after the network's fit; see
            `ct_dip.fit_posterior`.
        run_folder: where a long method keeps its checkpoints, and goes on from them.
        resume: see `ct_dip.fit_dip`.
        reference: image to compare with, of a scan without a ground truth, in 1/mm, (rows, columns).
        reference_std: noise of the reference's pixels, 1/mm; see `ct_dip.data.comparison`.
        fit: of the network to this scan, if it is at hand, for methods ``dip`` and ``lin-dip``.
    """
    config = (config or RunConfig()).with_preset(scan.geometry.domain_shape)
    progress = progress or Progress()
    budget = memory.memory_budget(memory_budget)
    known = comparison_of_scan(scan, reference, reference_std)
    validate_time_budget(budget_minutes)
    if budget_minutes is not None and config.method != "lin-dip":
        raise InputError(
            f"a time budget (--budget-minutes) has no effect with method {config.method!r}; drop it, or use "
            "lin-dip"
        )
    if fit is not None:
        _check_fit(fit, scan, config)
    plan = plan_run(scan, config, budget=budget)
    plan.require()
    warnings = implausible(scan)
    for warning in warnings:
        progress.note(warning)
    job = _Job(
        scan=scan,
        sinogram=torch.as_tensor(np.array(scan.sinogram), device=pick_device(config.device)),
        config=config,
        progress=progress,
        budget=budget,
        run_folder=None if run_folder is None else Path(run_folder),
        known=known,
        fit=fit,
        budget_minutes=budget_minutes,
        resume=resume,
        plan=plan,
    )
    methods = {"fbp": _fbp, "cgls": _cgls, "tv": _tv, "dip": _dip, "lin-dip": _lin_dip}
    with use_threads(pick_threads(config.threads, scan.geometry.domain_shape)):
        with memory.PeakMemory() as peak:
            outcome = methods[config.method](job)
        outcome.metrics["device"] = str(job.sinogram.device)
        outcome.metrics["peak_memory_mb"] = peak.bytes / 2**20
        if warnings:
            outcome.metrics["warnings"] = warnings
        return make_result(outcome, scan, config, known, progress, own_network=fit is None)


def _check_fit(fit: DipFit, scan: Scan, config: RunConfig) -> None:
    if "dip" not in METHODS[config.method]:
        raise InputError(
            f"a fit of the network has no effect with method {config.method!r}; use dip or lin-dip"
        )
    if fit.image.shape != scan.geometry.domain_shape:
        raise InputError(
            f"the fit has shape {fit.image.shape}, the scan's image {scan.geometry.domain_shape}; "
            "give the scan that it was fitted to"
        )


def _fbp(job: _Job) -> Outcome:
    settings = job.config.fbp
    with job.progress.stage("filtered back-projection"):
        image = fbp(job.sinogram, job.scan.geometry, filter=settings.filter, cutoff=settings.cutoff)
    return Outcome(image, {}, {})


def _cgls(job: _Job) -> Outcome:
    settings, sinogram = job.config.cgls, job.sinogram
    transform = job.transform()
    variance, metrics = job.variance()
    with job.progress.stage("CGLS", settings.max_iterations) as stage:
        solution = cgls(
            transform,
            sinogram,
            weights=(1 / variance).to(sinogram),
            discrepancy=float(np.sqrt(sinogram.numel())),
            tolerance=settings.tolerance,
            max_iterations=settings.max_iterations,
            report=lambda step, residual: stage.update(step, residual=residual),
        )
    metrics |= {"iterations": len(solution.residuals) - 1, "stopped_by": solution.reason}
    return Outcome(solution.image, metrics, {"residual": solution.residuals})


def _tv(job: _Job) -> Outcome:
    settings = job.config.tv
    transform = job.transform()
    variance, metrics = job.variance()
    with job.progress.stage("total variation", settings.max_iterations) as stage:
        solution = tv(
            transform,
            job.sinogram,
            variance=variance,
            strength=settings.strength,
            isotropic=settings.isotropic,
            tolerance=settings.tolerance,
            max_iterations=settings.max_iterations,
            seed=job.config.seed,
            report=lambda step, objective, gap: stage.update(step, objective=objective, gap=gap),
        )
    if not solution.converged:
        job.progress.note(
            f"total variation stopped after {solution.iterations} iterations at a relative duality gap of "
            f"{solution.gap:.2g}, above tv.tolerance {settings.tolerance:g}; raise tv.max_iterations"
        )
    metrics |= {
        "iterations": solution.iterations,
        "duality_gap": solution.gap,
        "converged": solution.converged,
    }
    return Outcome(solution.image, metrics, {"duality_gap": solution.gaps})


def _dip(job: _Job) -> Outcome:
    fit, metrics = _fit_network(job, job.transform())
    return Outcome(torch.as_tensor(fit.image), metrics, fit.traces)


def _fit_network(job: _Job, transform: LinearMap) -> tuple[DipFit, dict[str, Any]]:
    _, metrics = job.variance()
    fit = job.fit or fit_dip(
        job.scan,
        job.config.dip,
        seed=job.config.seed,
        transform=transform,
        progress=job.progress,
        run_folder=job.run_folder,
        resume=job.resume,
        device=job.sinogram.device,
    )
    metrics |= {"steps": fit.steps, "misfit": fit.misfit, "loss": fit.loss, "stopped_by": fit.stopped_by}
    if warning := budget_warning(metrics):
        job.progress.note(warning)
    return fit, metrics


def _inference_transform(job: _Job, transform: RayTransform) -> RayTransform:
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


def _lin_dip(job: _Job) -> Outcome:
    transform = job.transform()
    fit, metrics = _fit_network(job, transform)
    posterior = fit_posterior(
        fit,
        job.scan,
        job.config.inference,
        transform=_inference_transform(job, transform),
        progress=job.progress,
        plan=job.plan.inference,
        budget_minutes=job.budget_minutes,
        run_folder=job.run_folder,
        seed=job.config.seed,
        device=job.sinogram.device,
    )
    outcome = posterior_outcome(posterior, job.scan, job.config, job.known, job.progress)
    return outcome._replace(metrics=metrics | outcome.metrics, traces=fit.traces | outcome.traces)
