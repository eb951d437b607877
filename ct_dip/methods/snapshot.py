"""A snapshot ensemble: one network, kept again and again on a cyclic schedule."""

from functools import partial

import numpy as np
from pydantic import Field

from ct_dip.config import Section
from ct_dip.data.prediction import Prediction
from ct_dip.data.scan import Scan
from ct_dip.dip.snapshots import SnapshotEnsemble
from ct_dip.method import Job, Method
from ct_dip.methods.dip import DipRun, FittedNetwork, fit_members, plan_fit, predict_from
from ct_dip.run_plan import Plan


class SnapshotConfig(Section):
    """How many cycles; the first is a whole fit, the others are as long as its cool-down."""

    cycles: int = Field(default=8, ge=1)
    """Cycles of the learning rate; each ends with a snapshot."""


class SnapshotRun(DipRun):
    """Settings of method ``snapshot``."""

    snapshot: SnapshotConfig = SnapshotConfig()


class Snapshot(FittedNetwork, Method[SnapshotRun]):
    """Mean and deviations of ``f(w_m)``, w_m at the end of cycle m of rates ``½ peak (1 + cos πt)``."""

    name = "snapshot"
    title = "snapshots of a deep image prior"
    summary = "One network that is fitted, shaken and fitted again: the mean of its images, and their spread."
    reference = "Huang et al. 2017, Snapshot ensembles: train 1, get M for free"
    gives = ("image", "error bars", "samples")
    config = SnapshotRun

    def plan(self, scan: Scan, config: SnapshotRun, start: Plan) -> Plan:
        """Add the fit with all its cycles."""
        more = (config.snapshot.cycles - 1) * config.dip.cooldown_steps
        return plan_fit(scan, config, start, more_steps=more, copies=2 * config.snapshot.cycles)

    def run(self, job: Job[SnapshotRun]) -> Prediction:
        """Fit the network in cycles."""
        kind = partial(SnapshotEnsemble, cycles=job.config.snapshot.cycles)
        transform = job.transform()
        fits, diagnostics = fit_members(job, transform, kind=kind)
        return predict_from(np.stack([fit.image for fit in fits]), job, transform, fits[0], diagnostics)
