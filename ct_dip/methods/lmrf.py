"""A Laplace Markov random field."""

from typing import Literal

from ct_dip.config import RunConfig
from ct_dip.data.prediction import Prediction
from ct_dip.data.scan import Scan
from ct_dip.image_space.gibbs import LaplaceField
from ct_dip.method import Job, Method
from ct_dip.methods.gmrf import GibbsConfig, gibbs_seconds, plan_gibbs, run_gibbs
from ct_dip.operators.ray import RayTransform
from ct_dip.run_plan import Plan


class LmrfConfig(GibbsConfig):
    """One Gibbs chain; for ``weights`` see `LaplaceField`.

    ``ugla`` is faster and has the better images, but with few views it may flatten them, which is warned of;
    ``exact`` samples the Laplace field itself.
    """

    weights: Literal["ugla", "exact"] = "ugla"
    """How weights of differences are updated: ``ugla`` approximates them, is faster and has the better
    images; ``exact`` samples the Laplace field itself."""


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

    def seconds(self, scan: Scan, config: LmrfRun, plan: Plan, transform: RayTransform) -> dict[str, float]:
        """Time the first draws."""
        return gibbs_seconds(scan, transform, config.lmrf, _prior(config.lmrf, plan))

    def run(self, job: Job[LmrfRun]) -> Prediction:
        """Sample the field, its precision and the noise in turns."""
        return run_gibbs(job, job.config.lmrf, _prior(job.config.lmrf, job.plan))


def _prior(settings: LmrfConfig, plan: Plan) -> LaplaceField:
    return LaplaceField(plan.pixels, exact=settings.weights == "exact")
