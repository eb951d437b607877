"""A Gaussian Markov random field."""

import dataclasses
from typing import Any, Literal

import torch
from pydantic import Field

from ct_dip.config import RunConfig, Section
from ct_dip.data.prediction import Prediction
from ct_dip.data.scan import Scan
from ct_dip.image_space.chain_prediction import chain_prediction
from ct_dip.image_space.gibbs import GaussianField, Prior, gibbs
from ct_dip.image_space.problem import pixel_problem
from ct_dip.method import Job, Method
from ct_dip.operators.ray import RayTransform
from ct_dip.run_plan import Plan, time_of

STAGE = "Gibbs samples"
_TRIED = 10  # draws, to time them
# Difference of neighbours, in units of the noise, below which a prior has flattened the image: 1 to 8 on
# scans of `benchmarks/object_list.py` to choose on, and 0.002 on ellipses of 40² with 5 views (UGLA).
_FLAT = 0.2


class GibbsConfig(Section):
    """One Gibbs chain, with the size of the noise sampled or as stated."""

    draws: int = Field(default=500, ge=2)
    """States of the chain that are kept."""
    burn_in: int = Field(default=100, ge=0)
    """States that are dropped before."""
    noise: Literal["sampled", "stated"] = "sampled"
    """Whether the size of the noise is sampled with the image or taken as stated."""
    samples: int = Field(default=200, ge=2)
    """Draws that are stored in the result, evenly spaced."""


class GmrfRun(RunConfig):
    """Settings of method ``gmrf``."""

    gmrf: GibbsConfig = GibbsConfig()


class Gmrf(Method[GmrfRun]):
    """``p(x | d) ∝ d^{(n−1)/2} exp(−d ‖D x‖²/2)``; d, the noise and x by Gibbs sampling."""

    name = "gmrf"
    title = "a Gaussian Markov random field"
    summary = "Smoothness between neighbouring pixels; how smooth, and how noisy, is sampled with the image."
    reference = "Bardsley 2012, MCMC-based image reconstruction with uncertainty quantification"
    gives = ("image", "error bars", "samples")
    config = GmrfRun

    def plan(self, scan: Scan, config: GmrfRun, start: Plan) -> Plan:
        """Keep all draws in memory."""
        return plan_gibbs(config.gmrf, start)

    def seconds(self, scan: Scan, config: GmrfRun, plan: Plan, transform: RayTransform) -> dict[str, float]:
        """Time the first draws."""
        return gibbs_seconds(scan, transform, config.gmrf, GaussianField(plan.pixels))

    def run(self, job: Job[GmrfRun]) -> Prediction:
        """Sample the field, its precision and the noise in turns."""
        return run_gibbs(job, job.config.gmrf, GaussianField(job.plan.pixels))


def plan_gibbs(settings: GibbsConfig, start: Plan) -> Plan:
    """Add the stage of a chain whose draws are kept, with copies for their statistics."""
    return start.with_stage(STAGE, 4 * 4 * settings.draws * start.pixels)


def gibbs_seconds(
    scan: Scan, transform: RayTransform, settings: GibbsConfig, prior: Prior
) -> dict[str, float]:
    """Time the first draws of a chain, and count those of a run."""
    sinogram, variance = torch.as_tensor(scan.sinogram.copy()), scan.variance_or_estimate()[0]
    problem = pixel_problem(transform, sinogram, torch.as_tensor(variance))
    each = time_of(lambda: gibbs(problem, prior, draws=_TRIED, burn_in=0)) / _TRIED
    return {STAGE: (settings.burn_in + settings.draws) * each}


def run_gibbs(job: Job[Any], settings: GibbsConfig, prior: Prior) -> Prediction:
    """Sample a Markov random field with its hyperparameters."""
    transform = job.transform()
    variance, diagnostics = job.variance()
    problem = pixel_problem(transform, job.sinogram, variance, seed=job.config.seed)
    with job.progress.stage(STAGE, settings.burn_in + settings.draws) as stage:
        chain = gibbs(
            problem,
            prior,
            draws=settings.draws,
            burn_in=settings.burn_in,
            fit_noise=settings.noise == "sampled",
            seed=job.config.seed,
            report=lambda step, prior, noise: stage.update(step, prior=prior, noise=noise),
        )
    quantities = {"prior_precision": chain.precision[None]}
    if settings.noise == "sampled":
        quantities["noise_precision"] = chain.noise[None]
    found = chain_prediction(chain.draws, problem.unit, samples=settings.samples, quantities=quantities)
    typical = float(variance.mean().sqrt())
    fitted = {"sigma_y": typical * float((chain.noise**-0.5).mean()), "sigma_y_stated": typical}
    warnings, least = found.warnings, prior.difference(float(chain.precision.max()))
    if least < _FLAT:
        relative = fitted["sigma_y"] / typical
        warnings += (
            f"the prior precision ran away: neighbouring pixels differ by {least:.2g} of a pixel's noise, "
            f"and the noise was fitted {relative:.1f} times as large as stated. Do not believe the image or "
            f"its error bars; set {job.config.method}.noise=stated, or use tv-gauss",
        )
    return dataclasses.replace(
        found,
        warnings=warnings,
        diagnostics=diagnostics | found.diagnostics | fitted,
        traces={"prior_precision": chain.precision, "noise_precision": chain.noise},
    )
