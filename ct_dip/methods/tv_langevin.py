"""Samples of the posterior of total variation."""

import dataclasses

import numpy as np
import torch
from pydantic import Field

from ct_dip.config import RunConfig, Section
from ct_dip.data.prediction import Prediction
from ct_dip.data.scan import Scan
from ct_dip.image_space.chain_prediction import chain_prediction
from ct_dip.image_space.problem import pixel_problem
from ct_dip.image_space.skrock import SkRock
from ct_dip.image_space.smoothed_tv import SmoothedTv
from ct_dip.method import Job, Method
from ct_dip.methods.tv import TvConfig, plan_tv, solve_tv, tv_seconds
from ct_dip.operators.ray import RayTransform
from ct_dip.run_plan import Plan, time_of

STAGE = "Langevin samples"
_ARRAYS = 10  # images and sinograms of every chain that a gradient holds


class TvLangevinConfig(Section):
    """Chains that run side by side from the TV image; ``draws`` of each are kept, after ``burn_in`` others.

    ``steps``: between two draws; ``stages``: gradients per step. More stages go further with as many
    gradients, and discretise more coarsely: deviations are 3 % too small with 5 stages, 13 % with 15
    (ellipses of 40² pixels, 20 views, 5 % noise; against 3 stages).
    """

    chains: int = Field(default=4, ge=1)
    """Chains that run side by side."""
    draws: int = Field(default=400, ge=2)
    """States of each chain that are kept."""
    burn_in: int = Field(default=100, ge=0)
    """States of each chain that are dropped before."""
    steps: int = Field(default=4, ge=1)
    """Steps between two states."""
    stages: int = Field(default=5, ge=2)
    """Gradients per step; more go further at the same cost and discretise more coarsely."""
    samples: int = Field(default=200, ge=2)
    """Draws that are stored in the result, evenly spaced."""


class TvLangevinRun(RunConfig):
    """Settings of method ``tv-langevin``."""

    tv: TvConfig = TvConfig()
    tv_langevin: TvLangevinConfig = TvLangevinConfig()


class TvLangevin(Method[TvLangevinRun]):
    """``p(x | y) ∝ exp(−½ ‖(A x − y)/σ‖² − λ TV_δ(x) − min(x, 0)²/2ρ)``, sampled by SK-ROCK."""

    name = "tv-langevin"
    title = "total variation, sampled"
    summary = "Samples from the posterior under a total-variation prior, by Langevin MCMC."
    reference = "Pereyra, Vargas Mieles and Zygalakis 2020 (SK-ROCK)"
    gives = ("image", "error bars", "samples")
    config = TvLangevinRun

    def plan(self, scan: Scan, config: TvLangevinRun, start: Plan) -> Plan:
        """Keep all draws in memory, with a copy for their statistics."""
        settings = config.tv_langevin
        work = 4 * _ARRAYS * settings.chains * (start.pixels + start.measurements)
        return plan_tv(config.tv, start).with_stage(
            STAGE, work + 4 * 4 * settings.chains * settings.draws * start.pixels
        )

    def seconds(
        self, scan: Scan, config: TvLangevinRun, plan: Plan, transform: RayTransform
    ) -> dict[str, float]:
        """Time total variation, and one projection and back-projection of all chains."""
        settings = config.tv_langevin
        images = torch.zeros(settings.chains, *scan.geometry.domain_shape)
        gradients = (settings.burn_in + settings.draws) * settings.steps * settings.stages
        # The differences take half as long as the projections.
        seconds = gradients * 1.5 * time_of(lambda: transform.T(transform(images)))
        return tv_seconds(config.tv, transform) | {STAGE: seconds}

    def run(self, job: Job[TvLangevinRun]) -> Prediction:
        """Start at the TV image, and follow the stabilised Langevin equation."""
        settings, transform = job.config.tv_langevin, job.transform()
        variance, diagnostics = job.variance()
        solution, strength = solve_tv(job, transform, variance)
        problem = pixel_problem(transform, job.sinogram, variance, seed=job.config.seed)
        density = SmoothedTv(problem, strength, isotropic=job.config.tv.isotropic, seed=job.config.seed)
        step = SkRock(density.lipschitz, settings.stages)
        rng, count = np.random.default_rng(job.config.seed), settings.draws
        chains = (solution.image / problem.unit).repeat(settings.chains, 1, 1)
        draws = chains.new_empty(settings.chains, count, *problem.shape)
        potentials = np.empty((settings.chains, count))
        with job.progress.stage(STAGE, settings.burn_in + count) as stage:
            for number in range(settings.burn_in + count):
                for _ in range(settings.steps):
                    chains = step(chains, density.gradient, rng)
                if (kept := number - settings.burn_in) >= 0:
                    draws[:, kept], potentials[:, kept] = chains, density.potential(chains).cpu()
                stage.update(number + 1)
        found = chain_prediction(
            draws, problem.unit, samples=settings.samples, quantities={"potential": potentials}
        )
        facts = {
            "step": step.step,
            "burn_in": settings.burn_in,
            "smoothing": density.smoothing,
            "lipschitz": density.lipschitz,
        }
        return dataclasses.replace(
            found,
            diagnostics=diagnostics | solution.diagnostics | found.diagnostics | facts,
            images={"tv": solution.image.cpu().numpy()},
            settings={"tv": {"strength": strength}},
        )
