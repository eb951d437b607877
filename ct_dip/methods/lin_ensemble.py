"""A mixture of linearised deep image priors that differ in where they began."""

import dataclasses
import math
from typing import Any, Literal

import numpy as np
from pydantic import Field

from ct_dip.config import Section
from ct_dip.data.prediction import Prediction
from ct_dip.data.scan import Scan
from ct_dip.dip.ensemble import DipFit
from ct_dip.method import Job, Method
from ct_dip.methods.dip import STAGE, fit_members, plan_fit, used_settings
from ct_dip.methods.lin_dip import LinDip
from ct_dip.methods.lin_dip.config import LinDipRun
from ct_dip.methods.lin_dip.trial import holds_out
from ct_dip.operators.ray import RayTransform
from ct_dip.posterior.config import InferenceConfig
from ct_dip.run_plan import Plan


class MixtureInference(InferenceConfig):
    """Bayesian inference of every member, without held-out views: the spread of the members is there instead.

    With ``calibrate`` ``views`` every member is a whole lin-dip, fitted twice.
    """

    calibrate: Literal["views", "none"] = "none"


class LinEnsembleConfig(Section):
    """How many networks; their seeds begin with that of the run."""

    members: int = Field(default=3, ge=1)
    """Networks that are fitted and linearised."""


class LinEnsembleRun(LinDipRun):
    """Settings of method ``lin-ensemble``."""

    inference: MixtureInference = MixtureInference()
    lin_ensemble: LinEnsembleConfig = LinEnsembleConfig()


class LinEnsemble(Method[LinEnsembleRun]):
    """``1/M Σ_m N(μ_m, C_m)``: mean ``μ = 1/M Σ μ_m``, covariance ``1/M Σ C_m + (μ_m − μ)(μ_m − μ)ᵀ``."""

    name = "lin-ensemble"
    title = "an ensemble of deep image priors with error bars"
    summary = "Several networks fitted to this scan, each with error bars, which are wider where they differ."
    reference = "Eschenhagen et al. 2021, Mixtures of Laplace approximations; members as lin-dip"
    gives = ("image", "error bars", "samples")
    config = LinEnsembleRun
    keeps_stages = True
    uses_offset_error = True

    def plan(self, scan: Scan, config: LinEnsembleRun, start: Plan) -> Plan:
        """Add the fit of all networks as one batch, and the stages of their inference, one by one."""
        members, one = config.lin_ensemble.members, LinDip().plan(scan, config, start)
        batch = plan_fit(scan, config, start, members=members).stages[-1]
        stages = [
            batch if stage.name == STAGE else dataclasses.replace(stage, passes=members * stage.passes)
            for stage in one.stages
        ]
        return dataclasses.replace(one, stages=tuple(stages))

    def seconds(
        self, scan: Scan, config: LinEnsembleRun, plan: Plan, transform: RayTransform
    ) -> dict[str, float]:
        """Multiply those of lin-dip by the number of members."""
        members = config.lin_ensemble.members
        stages = tuple(dataclasses.replace(s, passes=s.passes // members) for s in plan.stages)
        one = LinDip().seconds(scan, config, dataclasses.replace(plan, stages=stages), transform)
        return {name: members * seconds for name, seconds in one.items()}

    def run(self, job: Job[LinEnsembleRun]) -> Prediction:
        """Fit the networks together, and infer what each of them says."""
        config, transform = job.config, job.transform()
        members, samples = config.lin_ensemble.members, config.inference.samples
        seeds = list(range(config.seed, config.seed + members))
        fits: list[DipFit | None] = [None] * members
        diagnostics: dict[str, Any] = {}
        if not holds_out(job.scan, config, {}):
            found, diagnostics = fit_members(job, transform, seeds)
            fits = [*found]
        update = {"samples": math.ceil(samples / members)}
        inference, parts = config.inference.model_copy(update=update), []
        for seed, fit in zip(seeds, fits, strict=True):
            member: Job[Any] = dataclasses.replace(
                job,
                config=config.model_copy(update={"seed": seed, "inference": inference}),
                given={} if fit is None else {"fit": fit},
                run_folder=None if job.run_folder is None else job.run_folder / f"seed {seed}",
            )
            prediction = LinDip().run(member)
            settings = used_settings({}, prediction.posterior.problem.fit)
            parts.append(dataclasses.replace(prediction, settings=settings).plain())
        return _mixture(parts, samples, diagnostics)


def _mixture(parts: list[Prediction], samples: int, diagnostics: dict[str, Any]) -> Prediction:
    """Return the mixture of equally likely predictions; samples are taken from one after the other."""
    first = parts[0]
    variances = [np.square(part.std) for part in parts if part.std is not None]
    drawn = [part.samples for part in parts if part.samples is not None]
    noise = {
        name: math.sqrt(np.mean([part.diagnostics[name] ** 2 for part in parts]))
        for name in ("sigma_y", "sigma_y_stated")
    }
    evidences = [part.diagnostics["evidence"] for part in parts]
    return Prediction(
        mean=np.mean([part.mean for part in parts], axis=0),
        std=np.sqrt(np.mean(variances, axis=0) + np.var([part.mean for part in parts], axis=0)),
        degrees=first.degrees,
        samples=np.stack(drawn, axis=1).reshape(-1, *first.mean.shape)[:samples] if drawn else None,
        images={name: np.mean([part.images[name] for part in parts], axis=0) for name in first.images},
        diagnostics=first.diagnostics
        | diagnostics
        | noise
        | {
            "evidence": float(np.logaddexp.reduce(evidences)) - math.log(len(parts)),  # log of the mean
            "member_evidences": evidences,
        },
        traces=first.traces,
        settings=first.settings,
    )
