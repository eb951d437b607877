"""The posterior of a job's scan, and total variation: its strength, and its image to compare with."""

import dataclasses
from typing import Any

import numpy as np
import torch

from ct_dip.arrays import Floats
from ct_dip.classical.tv import tv
from ct_dip.classical.tv_strength import choose_tv_strength
from ct_dip.dip.ensemble import DipFit
from ct_dip.method import Job
from ct_dip.methods.lin_dip.config import LinDipRun
from ct_dip.methods.tv import CHOICE
from ct_dip.operators import ray_transform
from ct_dip.operators.ray import RayTransform
from ct_dip.posterior.fit import fit_posterior
from ct_dip.posterior.posterior import Posterior


def infer(job: Job[LinDipRun], fit: DipFit, transform: RayTransform, **options: Any) -> Posterior:
    """Fit the posterior of a job's scan."""
    return fit_posterior(
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
        **options,
    )


def _inference_transform(job: Job[LinDipRun], transform: RayTransform) -> RayTransform:
    """Replace tomosipo's ray transform, which has neither float64 nor an exact adjoint."""
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


def choose_strength(job: Job[LinDipRun], transform: RayTransform) -> Job[LinDipRun]:
    """Return the job with the strength of TV that all of its views choose, where none was given."""
    if job.config.dip.strength != "auto" or "fit" in job.given:
        return job
    variance = torch.as_tensor(job.scan.variance_or_estimate()[0])
    with job.progress.stage(CHOICE):
        choice = choose_tv_strength(transform, job.sinogram, variance, job.scan.geometry)
    dip = job.config.dip.model_copy(update={"strength": choice.recommended})
    return dataclasses.replace(job, config=job.config.model_copy(update={"dip": dip}))


def total_variation(job: Job[LinDipRun], transform: RayTransform, fit: DipFit) -> Floats:
    """Return the image of total variation as strong as the fit's, 1/mm."""
    with job.progress.stage("total variation"):
        variance, _ = job.scan.variance_or_estimate()
        solution = tv(transform, job.sinogram, variance=torch.as_tensor(variance), strength=fit.strength)
    return solution.image.cpu().numpy().astype(np.float64)
