"""A deep image prior whose weights are sampled by Langevin dynamics."""

import dataclasses
from typing import ClassVar

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from ct_dip.config import Section
from ct_dip.data.prediction import Prediction
from ct_dip.data.scan import Scan
from ct_dip.image_space.effective_size import effective_size
from ct_dip.method import Job, Method
from ct_dip.methods.dip import (
    Dip,
    DipRun,
    FittedNetwork,
    fit_network,
    plan_draws,
    with_fit,
)
from ct_dip.run_plan import Plan
from ct_dip.weight_posterior.drawn import drawn_prediction
from ct_dip.weight_posterior.langevin import preconditioned_langevin
from ct_dip.weight_posterior.potential import Potential

CHAIN = "langevin dynamics"  # name of the stage
_PROBES = 32  # of the first preconditioner
_FEW = 20  # effective samples below which a user is warned


class SgldConfig(Section):
    """Langevin dynamics; ``step`` is relative to the stiffest direction, see the module of the chain."""

    burn_in: int = Field(default=1000, ge=1)
    """Steps before the first sample."""
    steps: int = Field(default=4000, ge=1)
    """Steps after the burn-in."""
    samples: int = Field(default=200, ge=2)
    """Samples that are kept of these steps."""
    step: float = Field(default=1.0, gt=0, lt=4)
    """Step size relative to the stiffest direction, at which 4 is unstable."""


class SgldRun(DipRun):
    """Settings of method ``sgld``."""

    sgld: SgldConfig = SgldConfig()


class Sgld(FittedNetwork, Method[SgldRun]):
    """``w ← w − ½ ε G ∇U(w) + N(0, ε G)``, ``U = ½ ‖(A f(w) − y)/σ‖² + λ TV(f(w)) + ½ wᵀ Λ w``.

    The chain starts at the fitted network. Λ is the inverse variance of a U-Net's initial weights, G the
    preconditioner of RMSprop. All views are in every gradient: the noise is Langevin's alone.
    """

    name = "sgld"
    title = "a deep image prior sampled by Langevin dynamics"
    summary = "A network fitted to this scan alone, whose weights then wander among those that fit as well."
    reference = "Cheng et al. 2019; Welling and Teh 2011; preconditioned as Li et al. 2016"
    gives = ("image", "error bars", "samples")
    config = SgldRun
    accepts: ClassVar[dict[str, str]] = Dip.accepts

    def plan(self, scan: Scan, config: SgldRun, start: Plan) -> Plan:
        """Add the fit of the network, and the chain."""
        settings = config.sgld
        passes = 3 * (settings.burn_in + settings.steps)
        return plan_draws(scan, config, start, CHAIN, draws=settings.samples, passes=passes)

    def run(self, job: Job[SgldRun]) -> Prediction:
        """Fit the network, and start a chain at it."""
        transform, settings, seed = job.transform(), job.config.sgld, job.config.seed
        fit, diagnostics = fit_network(job, transform)
        variance, _ = job.variance()
        potential = Potential(fit, job.sinogram, variance, transform)
        prior = potential.prior_precision()

        def gradient(weights: Tensor) -> tuple[Tensor, Tensor]:
            flat = weights.detach().requires_grad_()
            image = potential.image(flat)
            (slope,) = torch.autograd.grad(potential.of_image(image), flat)
            return slope + prior * weights, image.detach()

        with job.progress.stage(CHAIN, settings.burn_in + settings.steps) as stage:
            chain = preconditioned_langevin(
                gradient,
                potential.start,
                potential.curvature(_PROBES, seed) + prior,
                burn_in=settings.burn_in,
                steps=settings.steps,
                samples=settings.samples,
                step=settings.step,
                seed=seed,
                report=stage.update,
            )
            prediction = drawn_prediction([chain.values], potential.whitened, fit.scale, seed=seed)
        independent = effective_size(chain.values.cpu().numpy()[None])[job.scan.evaluated]
        effective = float(np.median(independent))
        diagnostics |= {
            "effective_samples": effective,
            "effective_samples_worst": float(independent.min()),
            "langevin_step": chain.step,
        }
        warnings = []
        if effective < _FEW:
            warnings.append(
                f"The chain is worth {effective:.0f} independent samples in a typical pixel: its error bars "
                "are too narrow and depend on where it started. Raise sgld.steps."
            )
        found = with_fit(prediction, job, fit, diagnostics)
        return dataclasses.replace(found, warnings=tuple(warnings))
