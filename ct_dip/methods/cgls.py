"""Least squares by conjugate gradients."""

import math

import numpy as np
import torch
from pydantic import Field

from ct_dip.classical.cgls import cgls
from ct_dip.config import RunConfig, Section
from ct_dip.data.prediction import Prediction
from ct_dip.data.scan import Scan
from ct_dip.method import Job, Method
from ct_dip.operators.ray import RayTransform
from ct_dip.run_plan import Plan, time_of


class CglsConfig(Section):
    """Conjugate gradients for least squares; stops at the noise level, stated or estimated."""

    max_iterations: int = Field(default=50, ge=1)
    """Largest number of iterations."""
    tolerance: float = Field(default=1e-4, gt=0, allow_inf_nan=False)
    """Relative size of the gradient at which the iteration ends even above the noise level."""


class CglsRun(RunConfig):
    """Settings of method ``cgls``."""

    cgls: CglsConfig = CglsConfig()


class Cgls(Method[CglsRun]):
    """``min_x ‖(A x − y)/σ‖²``, stopped when the residual is as large as the noise."""

    name = "cgls"
    title = "least squares"
    summary = "Least squares by conjugate gradients, stopped before it fits the noise."
    reference = "Björck, Numerical Methods for Least Squares Problems, 1996, section 7.4"
    config = CglsRun

    def seconds(self, scan: Scan, config: CglsRun, plan: Plan, transform: RayTransform) -> dict[str, float]:
        """Time one projection and back-projection."""
        image = torch.zeros(scan.geometry.domain_shape)
        return {self.name: config.cgls.max_iterations * time_of(lambda: transform.T(transform(image)))}

    def run(self, job: Job[CglsRun]) -> Prediction:
        """Iterate until the discrepancy is that of the noise."""
        settings, sinogram = job.config.cgls, job.sinogram
        transform = job.transform()
        variance, diagnostics = job.variance()
        with job.progress.stage("CGLS", settings.max_iterations) as stage:
            solution = cgls(
                transform,
                sinogram,
                weights=(1 / variance).to(sinogram),
                discrepancy=math.sqrt(sinogram.numel()),
                tolerance=settings.tolerance,
                max_iterations=settings.max_iterations,
                report=lambda step, residual: stage.update(step, residual=residual),
            )
        diagnostics |= {"iterations": len(solution.residuals) - 1, "stopped_by": solution.reason}
        return Prediction(
            mean=solution.image.cpu().numpy(),
            diagnostics=diagnostics,
            traces={"residual": np.array(solution.residuals)},
        )
