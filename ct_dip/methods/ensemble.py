"""A deep ensemble: networks that differ in where they began."""

import numpy as np
from pydantic import Field

from ct_dip.config import Section
from ct_dip.data.prediction import Prediction
from ct_dip.data.scan import Scan
from ct_dip.method import Job, Method
from ct_dip.methods.dip import DipRun, FittedNetwork, fit_members, plan_fit, predict_from
from ct_dip.run_plan import Plan


class EnsembleConfig(Section):
    """How many networks; their seeds begin with that of the run."""

    members: int = Field(default=5, ge=2)
    """Networks that are fitted."""


class EnsembleRun(DipRun):
    """Settings of method ``ensemble``."""

    ensemble: EnsembleConfig = EnsembleConfig()


class DeepEnsemble(FittedNetwork, Method[EnsembleRun]):
    """``mean = 1/M Σ f(w̃_m)`` and ``std² = 1/(M − 1) Σ (f(w̃_m) − mean)²`` over seeds m = 1 … M."""

    name = "ensemble"
    title = "an ensemble of deep image priors"
    summary = "Several networks fitted to this scan from different starts: their mean, and where they differ."
    reference = (
        "Lakshminarayanan et al. 2017, Simple and scalable predictive uncertainty estimation using deep "
        "ensembles"
    )
    gives = ("image", "error bars", "samples")
    config = EnsembleRun

    def plan(self, scan: Scan, config: EnsembleRun, start: Plan) -> Plan:
        """Add the fit of all networks as one batch."""
        return plan_fit(scan, config, start, members=config.ensemble.members)

    def members(self, config: EnsembleRun) -> int:
        """Return how many networks are fitted as one batch."""
        return config.ensemble.members

    def run(self, job: Job[EnsembleRun]) -> Prediction:
        """Fit the networks together."""
        seeds = range(job.config.seed, job.config.seed + job.config.ensemble.members)
        transform = job.transform()
        fits, diagnostics = fit_members(job, transform, list(seeds))
        return predict_from(np.stack([fit.image for fit in fits]), job, transform, fits[0], diagnostics)
