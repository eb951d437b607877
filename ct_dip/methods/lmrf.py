"""A Laplace Markov random field."""

from typing import Literal

from ct_dip.config import RunConfig
from ct_dip.data.prediction import Prediction
from ct_dip.data.scan import Scan
from ct_dip.image_space.gibbs import LaplaceField
from ct_dip.method import Job, Method
from ct_dip.methods.gmrf import GibbsConfig, plan_gibbs, run_gibbs
from ct_dip.run_plan import Plan


class LmrfConfig(GibbsConfig):
    """One chain; ``weights``: of the Gaussian that every draw is from, see `LaplaceField`.

    ``ugla`` is faster and has the better images; ``exact`` samples the Laplace field itself.
    """

    weights: Literal["ugla", "exact"] = "ugla"


class LmrfRun(RunConfig):
    """Settings of method ``lmrf``."""

    lmrf: LmrfConfig = LmrfConfig()


class Lmrf(Method[LmrfRun]):
    """``p(x | d) ∝ d^{n−1} exp(−d ‖D x‖₁)``; d, the noise and x by Gibbs sampling."""

    name = "lmrf"
    title = "a Laplace Markov random field"
    summary = "Few and sharp edges between neighbouring pixels; how many, and how noisy, is sampled."
    reference = "Uribe et al. 2022 (UGLA), as in CUQIpy; exact: Park and Casella 2008"
    gives = ("image", "error bars", "samples")
    config = LmrfRun

    def plan(self, scan: Scan, config: LmrfRun, start: Plan) -> Plan:
        """Keep all draws in memory."""
        return plan_gibbs(config.lmrf, start)

    def run(self, job: Job[LmrfRun]) -> Prediction:
        """Sample."""
        settings, transform = job.config.lmrf, job.transform()
        prior = LaplaceField(job.plan.pixels, exact=settings.weights == "exact")
        return run_gibbs(job, transform, settings, prior)
