"""The linearised deep image prior: an image with error bars."""

import dataclasses
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

from ct_dip.data.prediction import Prediction
from ct_dip.data.scan import Scan
from ct_dip.devices import free_memory, pick_device
from ct_dip.errors import InputError
from ct_dip.method import Job, Method
from ct_dip.methods.dip import (
    STAGE,
    Dip,
    fit_batch,
    fit_seconds,
    fits_together,
    plan_fit,
    template,
    trial_ensemble,
)
from ct_dip.methods.lin_dip.config import LinDipRun
from ct_dip.methods.lin_dip.inference import choose_strength, infer, total_variation
from ct_dip.methods.lin_dip.prediction import LinDipPrediction, make_prediction
from ct_dip.methods.lin_dip.seconds import inference_seconds
from ct_dip.methods.lin_dip.trial import TRIAL, hold_out, holds_out
from ct_dip.methods.tv import CHOICE, choice_seconds
from ct_dip.operators.ray import RayTransform
from ct_dip.posterior.own_objects import with_own_objects
from ct_dip.posterior.posterior import Posterior
from ct_dip.posterior.regimes import plan_regime
from ct_dip.priors.complement import Complement
from ct_dip.priors.weights import WeightPrior
from ct_dip.run_plan import Plan
from ct_dip.tangent.footprint import footprint
from ct_dip.tangent.linearise import linearise

_REGIMES = {
    "exact": "matrices of pixels² and measurements²",
    "compressed": "the directions of the sinogram that the network explains",
    "iterative": "products with the network alone",
}


class LinDip(Method[LinDipRun]):
    """``N(x*, K − K Aᵀ (A K Aᵀ + σ² I)⁻¹ A K)`` with ``K = J Λ⁻¹ Jᵀ + D``, J of a fitted network."""

    name = "lin-dip"
    title = "a deep image prior with error bars"
    summary = "A network fitted to this scan alone, made Bayesian: every pixel has an error bar."
    reference = "Antorán et al. 2023, Uncertainty estimation for computed tomography with a linearised DIP"
    gives = ("image", "error bars", "samples")
    config = LinDipRun
    varies_in_batch = ("dip.strength",)
    accepts: ClassVar[dict[str, str]] = Dip.accepts | {
        "posterior": "what ct_dip.fit_posterior returned for the scan",
        "prior": "a WeightPrior on the network's weights, or a function that makes one from its Jacobian",
        "complement": "a Complement, or a function that makes one from Jacobian and whitened transform",
    }
    keeps_stages = True
    uses_offset_error = True
    limits_time = True

    def plan(self, scan: Scan, config: LinDipRun, start: Plan) -> Plan:
        """Add the choice of TV's strength, the fit, and the stages of the regime that fits the budget."""
        chooses = config.dip.strength == "auto" and "fit" not in start.given
        plan = plan_fit(scan, config, start.with_stage(CHOICE) if chooses else start)
        fit_fits = plan.bytes <= plan.budget
        _check_given(start.given)
        network = footprint(template(scan, config, start.given), scan.geometry.domain_shape)
        memory = free_memory(pick_device(config.device))
        settings = with_own_objects(config.inference, start.given.get("prior"), start.given.get("complement"))
        trial = holds_out(scan, config, start.given)
        own = plan.held if trial else 0  # of the other views' ray transform, while that of all views waits
        inference = plan_regime(network, scan, settings, plan.budget - plan.held - own, memory)
        if trial:
            largest = own + max(plan.bytes - plan.held, *inference.bytes.values())
            passes = sum(stage.passes for stage in plan.stages) + sum(inference.passes.values())
            plan = plan.with_stage(TRIAL, largest, passes=passes)
        for name, size in inference.bytes.items():
            plan = plan.with_stage(name, size, passes=inference.passes.get(name, 0))
        if inference.regime == "exact":
            side = int(math.isqrt(plan.pixels) * (plan.budget / plan.bytes) ** 0.25)
            advice = f"exact inference fits images of about {side}² pixels; use inference.regime=compressed"
        else:
            advice = plan.advice + (", or method dip" if fit_fits else "")
        plan = plan.with_facts(regime=inference.regime, inference=_REGIMES[inference.regime])
        if inference.features_on_host:
            plan = plan.with_facts(features="kept in the host's memory: the device has too little")
        return dataclasses.replace(plan, advice=advice, details=inference)

    def seconds(self, scan: Scan, config: LinDipRun, plan: Plan, transform: RayTransform) -> dict[str, float]:
        """Time steps of the fit, a chunk of passes, one symmetric product and one factorisation."""
        trial = trial_ensemble(scan, config, plan, transform)
        steps = fit_seconds(trial, config)
        jacobian = linearise(trial.template, trial.inputs[:1, None])
        seconds = inference_seconds(plan, config.inference, jacobian, transform) | {STAGE: steps}
        seconds.pop(TRIAL, None)
        return seconds | {TRIAL: sum(seconds.values()), CHOICE: choice_seconds(transform)}

    def run(self, job: Job[LinDipRun]) -> LinDipPrediction:
        """Fit the network, linearise it, fit hyperparameters by evidence, condition on the data.

        The same without a fifth of the views says which image predicts these best, and how much wider the
        error bars must be to explain them.
        """
        posterior: Posterior | None = job.given.get("posterior")
        if posterior is not None:
            return make_prediction(posterior, job, {}, None, None)
        return next(_predict([job]))

    def batch_size(self, scan: Scan, config: LinDipRun, plan: Plan) -> int:
        """Return how many networks are fitted together; inference goes from one to the next."""
        return fits_together(scan, config, plan)

    def run_many(self, jobs: Sequence[Job[LinDipRun]]) -> Iterator[Prediction]:
        """Fit the networks as one batch, with all views and without some; infer one by one."""
        return _predict(jobs)


def _predict(jobs: Sequence[Job[LinDipRun]]) -> Iterator[LinDipPrediction]:
    transform = jobs[0].transform()
    jobs = [choose_strength(job, transform) for job in jobs]
    fits = fit_batch(jobs, transform)
    trials = hold_out(jobs, [fit for fit, _ in fits])
    for job, trial, (fit, diagnostics) in zip(jobs, trials, fits, strict=True):
        classical = total_variation(job, transform, fit)
        shown = job.config.inference.image if trial is None else trial.image
        image, widening = classical if shown == "tv" else None, 1.0 if trial is None else trial.widening
        # Without a name for the posterior, one at a time is in memory.
        yield make_prediction(
            infer(job, fit, transform, image=image, widening=widening), job, diagnostics, classical, trial
        )


def _check_given(given: Mapping[str, Any]) -> None:
    """Refuse objects that are not what they must be, or that others leave no part in it."""
    replaced = sorted(given.keys() - {"posterior"})
    if "posterior" in given and replaced:
        raise InputError(f"{', '.join(replaced)} has no effect together with a posterior; drop one of them")
    for name, kind in {"prior": WeightPrior, "complement": Complement}.items():
        value = given.get(name)
        if value is not None and not isinstance(value, kind) and not callable(value):
            raise InputError(
                f"{name} must be a {kind.__name__} or a function that makes one, not {type(value).__name__}"
            )
