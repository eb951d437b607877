"""SWAG: a Gaussian of the weights that a network passes when it keeps on learning."""

from functools import partial
from typing import cast

from pydantic import Field

from ct_dip.config import Section
from ct_dip.data.prediction import Prediction
from ct_dip.data.scan import Scan
from ct_dip.dip.swag import SwagEnsemble, SwagFit
from ct_dip.errors import InputError
from ct_dip.method import Job, Method
from ct_dip.methods.dip import DipRun, FittedNetwork, fit_members, plan_fit, predict_from
from ct_dip.run_plan import Plan

SAMPLES = "samples of weights"  # name of the stage


class SwagConfig(Section):
    """Weights that are ``collected`` after the fit, one of every so many steps, with the last differences.

    These steps see a share ``batch`` of the views, at ``rate`` times the fit's peak rate.
    """

    collected: int = Field(default=50, ge=2)
    """Weights that are collected after the fit."""
    every: int = Field(default=10, ge=1)
    """Steps between two of them."""
    batch: float = Field(default=0.25, gt=0, le=1)
    """Share of the views that a step sees."""
    rate: float = Field(default=0.3, gt=0, allow_inf_nan=False)
    """Learning rate relative to the fit's peak rate."""
    differences: int = Field(default=20, ge=2)
    """Differences from the mean that the low-rank part of the covariance is made from, the last ones."""
    samples: int = Field(default=100, ge=2)
    """Samples that are stored in the result."""


class SwagRun(DipRun):
    """Settings of method ``swag``."""

    swag: SwagConfig = SwagConfig()


class Swag(FittedNetwork, Method[SwagRun]):
    """``x = f(w)`` with ``w ~ N(w̄, ½ diag(s²) + ½ DᵀD/(K − 1))``, moments of the weights along a fit."""

    name = "swag"
    title = "a deep image prior with averaged weights"
    summary = "A network that keeps learning after its fit: the images of the weights that it passes through."
    reference = "Maddox et al. 2019, A simple baseline for Bayesian uncertainty in deep learning"
    gives = ("image", "error bars", "samples")
    config = SwagRun

    def plan(self, scan: Scan, config: SwagRun, start: Plan) -> Plan:
        """Add the fit with the steps after it, and a pass for every sample."""
        settings = config.swag
        if config.dip.data_term != "gaussian":
            raise InputError(
                f"dip.data_term {config.dip.data_term!r} is not offered with method swag, whose steps see a "
                "part of the views; use gaussian"
            )
        steps, copies = settings.collected * settings.every, 2 * settings.differences + 4
        plan = plan_fit(scan, config, start, more_steps=steps, copies=copies)
        return plan.with_stage(SAMPLES, passes=settings.samples)

    def run(self, job: Job[SwagRun]) -> Prediction:
        """Fit the network, go on, and sample its weights."""
        path = job.config.swag.model_dump(exclude={"samples"})
        transform = job.transform()
        (fit,), diagnostics = fit_members(job, transform, kind=partial(SwagEnsemble, **path))
        with job.progress.stage(SAMPLES):
            images = cast(SwagFit, fit).draw(job.config.swag.samples, job.config.seed)
        return predict_from(images, job, transform, fit, diagnostics)
