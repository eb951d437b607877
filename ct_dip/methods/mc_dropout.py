"""Dropout that is kept on: error bars from passes with different channels."""

from functools import partial

from pydantic import Field

from ct_dip.config import Section
from ct_dip.data.prediction import Prediction
from ct_dip.data.scan import Scan
from ct_dip.dip.dropout import DropoutEnsemble, dropout_images
from ct_dip.method import Job, Method
from ct_dip.methods.dip import DipRun, FittedNetwork, fit_members, plan_fit, predict_from
from ct_dip.run_plan import Plan

PASSES = "passes with dropout"  # name of the stage


class McDropoutConfig(Section):
    """How often channels are dropped, and how many passes make the samples."""

    rate: float = Field(default=0.05, ge=0, lt=1)
    """Probability that a channel is dropped after a 3 × 3 convolution."""
    passes: int = Field(default=100, ge=2)
    """Passes with other channels dropped; each is a sample."""


class McDropoutRun(DipRun):
    """Settings of method ``mc-dropout``."""

    mc_dropout: McDropoutConfig = McDropoutConfig()


class McDropout(FittedNetwork, Method[McDropoutRun]):
    """``x = f(w̃ ⊙ m)`` with channels that are dropped at random, ``m ~ Bernoulli(1 − p)/(1 − p)``."""

    name = "mc-dropout"
    title = "a deep image prior with dropout"
    summary = "A network fitted to this scan with parts left out at random, which gives its error bars, too."
    reference = "Gal and Ghahramani 2016, Dropout as a Bayesian approximation; for DIP Laves et al. 2020"
    gives = ("image", "error bars", "samples")
    config = McDropoutRun

    def plan(self, scan: Scan, config: McDropoutRun, start: Plan) -> Plan:
        """Add the fit of the network, and passes, which take less memory."""
        return plan_fit(scan, config, start).with_stage(PASSES, passes=config.mc_dropout.passes)

    def run(self, job: Job[McDropoutRun]) -> Prediction:
        """Fit the network with dropout, then look at it many times."""
        settings = job.config.mc_dropout
        transform = job.transform()
        (fit,), diagnostics = fit_members(job, transform, kind=partial(DropoutEnsemble, rate=settings.rate))
        with job.progress.stage(PASSES):
            images = dropout_images(fit, settings.rate, settings.passes, job.config.seed, job.sinogram.device)
        return predict_from(images, job, transform, fit, diagnostics)
