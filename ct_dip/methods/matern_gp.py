"""A Gaussian process with a Matérn covariance."""

import dataclasses
from typing import Literal

import numpy as np
import torch
from pydantic import Field

from ct_dip.config import RunConfig, Section
from ct_dip.data.prediction import Prediction
from ct_dip.data.scan import Scan
from ct_dip.image_space.gaussian_process import GaussianProcess, needed_bytes
from ct_dip.image_space.problem import pixel_problem
from ct_dip.method import Job, Method
from ct_dip.operators.ray import RayTransform
from ct_dip.run_plan import Plan, time_of

_SMOOTHNESS = {"1/2": 0.5, "3/2": 1.5, "5/2": 2.5}
_EVALUATIONS = 20  # of the evidence, at most; 11 on the scan of docs/which-method.md


class MaternGpConfig(Section):
    """Gaussian process; ``smoothness`` is ν of the Matérn covariance: images have edges, so it is small."""

    smoothness: Literal["1/2", "3/2", "5/2"] = "1/2"
    """ν of the Matérn covariance; images have edges, so it is small."""
    samples: int = Field(default=200, ge=2)
    """Samples that are stored in the result."""


class MaternGpRun(RunConfig):
    """Settings of method ``matern-gp``."""

    matern_gp: MaternGpConfig = MaternGpConfig()


class MaternGp(Method[MaternGpRun]):
    """``N(K Aᵀ C⁻¹ y, K − K Aᵀ C⁻¹ A K)``, ``C = A K Aᵀ + s² Σ``, K Matérn; ℓ, a and s by evidence."""

    name = "matern-gp"
    title = "a Gaussian process"
    summary = "A smooth random image, without a network: its length scale and size are fitted to the scan."
    reference = "Rasmussen and Williams 2006; in tomography Purisha et al. 2019"
    gives = ("image", "error bars", "samples")
    config = MaternGpRun

    def plan(self, scan: Scan, config: MaternGpRun, start: Plan) -> Plan:
        """Refuse where matrices of measurements² do not fit."""
        samples = 8 * 4 * config.matern_gp.samples * (start.pixels + start.measurements)
        plan = start.with_stage("hyperparameters", needed_bytes(start.pixels, start.measurements))
        plan = plan.with_stage("posterior", needed_bytes(start.pixels, start.measurements) + samples)
        return dataclasses.replace(
            plan, advice="use fewer views, or method gmrf, which needs no matrix of measurements²"
        )

    def seconds(
        self, scan: Scan, config: MaternGpRun, plan: Plan, transform: RayTransform
    ) -> dict[str, float]:
        """Time one evaluation of the evidence; the posterior takes about two."""
        sinogram, variance = torch.as_tensor(scan.sinogram.copy()), scan.variance_or_estimate()[0]
        problem = pixel_problem(transform, sinogram, torch.as_tensor(variance))
        process = GaussianProcess(problem, _SMOOTHNESS[config.matern_gp.smoothness])
        once = time_of(lambda: process.profile(3.0, 1e-2))
        return {"hyperparameters": _EVALUATIONS * once, "posterior": 2 * once}

    def run(self, job: Job[MaternGpRun]) -> Prediction:
        """Fit the hyperparameters, and condition on the data."""
        settings, transform = job.config.matern_gp, job.transform()
        variance, diagnostics = job.variance()
        problem = pixel_problem(transform, job.sinogram, variance, seed=job.config.seed)
        process = GaussianProcess(problem, _SMOOTHNESS[settings.smoothness])
        with job.progress.stage("hyperparameters"):
            chosen = process.fit()
        if chosen.at_bound:
            job.progress.note("the length or the noise of the Gaussian process is at the end of its range")
        with job.progress.stage("posterior"):
            images = process.posterior(chosen, settings.samples, np.random.default_rng(job.config.seed))
            mean, std, samples = ((problem.unit * each).float().cpu().numpy() for each in images)
        typical = float(variance.mean().sqrt())
        diagnostics |= {
            "length_mm": chosen.length * job.scan.geometry.volume.pixel_size,
            "amplitude": chosen.amplitude * problem.unit,
            "evidence": chosen.evidence - 0.5 * float(variance.double().log().sum()),  # of y, not of y/σ
            "evidence_evaluations": chosen.evaluations,
            "sigma_y": typical * chosen.noise,
            "sigma_y_stated": typical,
        }
        return Prediction(mean=mean, std=std, samples=samples, diagnostics=diagnostics)
