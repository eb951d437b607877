"""Total variation."""

from typing import Any

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from ct_dip.classical.tv import TvResult, tv
from ct_dip.classical.tv_strength import choose_tv_strength, folds_to_predict
from ct_dip.config import RunConfig, Section, Strength
from ct_dip.data.prediction import Prediction
from ct_dip.data.scan import Scan
from ct_dip.method import Job, Method
from ct_dip.operators.ray import RayTransform
from ct_dip.run_plan import Plan, time_of

CHOICE, _SOLUTION = "strength of total variation", "total variation"  # names of stages
_TOLERANCE = 1e-3
# For plans: 140 to 520 iterations were seen to that tolerance, and 630 to 1,420 of all strengths together
# in a choice.
_ENOUGH, _ENOUGH_TO_CHOOSE = 600, 1500


class TvConfig(Section):
    """Total variation; ``strength`` is relative to the noise, a pure number, or chosen from the data."""

    strength: Strength = "auto"
    """Weight of total variation relative to the noise, a pure number; ``auto`` chooses it by cross-validation
    over views."""
    isotropic: bool = True
    """Whether total variation is that of gradients' lengths, with no preferred direction, or of their
    components."""
    tolerance: float = Field(default=_TOLERANCE, gt=0, allow_inf_nan=False)
    """Relative duality gap at which the iteration ends."""
    max_iterations: int = Field(default=5000, ge=1)
    """Largest number of iterations."""


class TvRun(RunConfig):
    """Settings of method ``tv``."""

    tv: TvConfig = TvConfig()


class Tv(Method[TvRun]):
    """``min_x ½ ‖(A x − y)/σ‖² + λ TV(x)`` over images that are nowhere negative."""

    name = "tv"
    title = "total variation"
    summary = "Total variation: the image with the least edge content that explains the data."
    reference = "Rudin, Osher and Fatemi, 1992; solved as Chambolle and Pock, 2011"
    config = TvRun

    def plan(self, scan: Scan, config: TvRun, start: Plan) -> Plan:
        """Add the stages of `solve_tv`."""
        return plan_tv(config.tv, start)

    def seconds(self, scan: Scan, config: TvRun, plan: Plan, transform: RayTransform) -> dict[str, float]:
        """Time projections and back-projections."""
        return tv_seconds(config.tv, transform)

    def run(self, job: Job[TvRun]) -> Prediction:
        """Iterate until the duality gap is small."""
        transform = job.transform()
        variance, diagnostics = job.variance()
        solution, strength = solve_tv(job, transform, variance)
        diagnostics |= solution.diagnostics
        return Prediction(
            mean=solution.image.cpu().numpy(),
            diagnostics=diagnostics,
            traces={"duality_gap": np.array(solution.gaps)},
            settings={"tv": {"strength": strength}},
        )


def plan_tv(settings: TvConfig, start: Plan) -> Plan:
    """Add the choice of the strength, if there is one, and the iteration."""
    chooses = settings.strength == "auto"
    return (start.with_stage(CHOICE) if chooses else start).with_stage(_SOLUTION)


def tv_seconds(settings: TvConfig, transform: RayTransform) -> dict[str, float]:
    """Return the seconds of the stages of `plan_tv`, as few scans exceed them."""
    iterations = (
        min(settings.max_iterations, _ENOUGH) if settings.tolerance >= _TOLERANCE else settings.max_iterations
    )
    return {CHOICE: choice_seconds(transform), _SOLUTION: iterations * _pair(transform, 1)}


def choice_seconds(transform: RayTransform) -> float:
    """Return the seconds of the choice of the strength, as few scans exceed them."""
    return _ENOUGH_TO_CHOOSE * _pair(transform, folds_to_predict(transform.geometry))


def _pair(transform: RayTransform, count: int) -> float:
    """Time a projection and a back-projection of some images."""
    images = torch.zeros(count, *transform.domain_shape)
    return time_of(lambda: transform.T(transform(images)))


def solve_tv(job: Job[Any], transform: RayTransform, variance: Tensor) -> tuple[TvResult, float]:
    """Return the image of section ``tv``, and the strength that was given or chosen from the data."""
    settings: TvConfig = job.config.tv
    strength = settings.strength
    if strength == "auto":
        with job.progress.stage(CHOICE):
            strength = choose_tv_strength(
                transform,
                job.sinogram,
                variance,
                job.scan.geometry,
                isotropic=settings.isotropic,
                seed=job.config.seed,
            ).recommended
    with job.progress.stage(_SOLUTION, settings.max_iterations) as stage:
        solution = tv(
            transform,
            job.sinogram,
            variance=variance,
            strength=strength,
            isotropic=settings.isotropic,
            tolerance=settings.tolerance,
            max_iterations=settings.max_iterations,
            seed=job.config.seed,
            report=lambda step, objective, gap: stage.update(step, objective=objective, gap=gap),
        )
    return solution, strength
