"""A deep image prior with independent Gaussians over its convolution weights."""

from collections.abc import Callable
from typing import Any, ClassVar, Literal

from pydantic import Field
from torch import Tensor

from ct_dip.config import Section
from ct_dip.data.prediction import Prediction
from ct_dip.data.scan import Scan
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
from ct_dip.weight_posterior.mean_field import (
    MeanField,
    draw_images,
    empirical_bayes,
    fit_mean_field,
)
from ct_dip.weight_posterior.potential import Potential

VARIATIONAL = "variational inference"  # name of the stage
_LAST = 100  # steps that the bound is averaged over
_PASSES = 6  # of a step with local noise, which takes as long as two of a fit, about


class VariationalConfig(Section):
    """Variational inference; for ``noise`` see `ct_dip.weight_posterior.mean_field`."""

    steps: int = Field(default=2000, ge=1)
    """Steps of Adam on the variational bound."""
    rate: float = Field(default=1e-3, gt=0, allow_inf_nan=False)
    """Learning rate of Adam."""
    noise: Literal["local", "weights"] = "local"
    """Where randomness enters: at the outputs of the convolutions (``local`` reparameterisation) or at their
    weights."""
    samples: int = Field(default=200, ge=2)
    """Samples that are stored in the result."""


class VariationalRun(DipRun):
    """Settings of the methods ``mfvi`` and ``sparse-vd``."""

    variational: VariationalConfig = VariationalConfig()


class Mfvi(FittedNetwork, Method[VariationalRun]):
    """``min E_q[½ ‖(A f(w) − y)/σ_y‖² + λ TV(f(w))] + KL(q‖p)``, ``q = Π N(μ_j, σ_j²)``, ``p = N(0, s²)``.

    It starts at the fitted network. The prior variance s² of every convolution is ``mean_j(μ_j² + σ_j²)``, at
    which the bound is largest (empirical Bayes). Images are those of weights drawn from q.
    """

    name = "mfvi"
    title = "a deep image prior with independent uncertain weights"
    summary = "A network fitted to this scan alone, in which every weight learns its own error bar."
    reference = "Blundell et al. 2015; local reparameterisation as Kingma et al. 2015; Tölle et al. 2021"
    gives = ("image", "error bars", "samples")
    config = VariationalRun
    accepts: ClassVar[dict[str, str]] = Dip.accepts

    warm_up: ClassVar[float] = 0.0  # part of the steps in which the divergence's weight grows

    def divergence(self, mean: Tensor, log_std: Tensor) -> Tensor:
        """Return KL(q‖p) of one convolution."""
        return empirical_bayes(mean, log_std)

    def finish(self, potential: Potential, q: MeanField) -> tuple[MeanField, dict[str, Any]]:
        """Return what images are drawn from, and what is said of it."""
        priors = {}
        for name, where in potential.slices.items():
            variance = (q.mean[where].square() + (2 * q.log_std[where]).exp()).mean()
            priors[name] = float(variance.sqrt())
        return q, {"prior_std": priors}

    def plan(self, scan: Scan, config: VariationalRun, start: Plan) -> Plan:
        """Add the fit of the network, and that of means and variances."""
        settings = config.variational
        passes = _PASSES * settings.steps + settings.samples
        return plan_draws(scan, config, start, VARIATIONAL, draws=settings.samples, passes=passes, copies=2)

    def run(self, job: Job[VariationalRun]) -> Prediction:
        """Fit the network, then means and variances of its weights."""
        transform, settings, seed = job.transform(), job.config.variational, job.config.seed
        fit, diagnostics = fit_network(job, transform)
        variance, _ = job.variance()
        potential = Potential(fit, job.sinogram, variance, transform)
        with job.progress.stage(VARIATIONAL, settings.steps) as stage:
            report: Callable[..., None] = stage.update
            q, trace = fit_mean_field(
                potential,
                self.divergence,
                steps=settings.steps,
                rate=settings.rate,
                noise=settings.noise,
                warm_up=self.warm_up,
                seed=seed,
                report=report,
            )
            q, more = self.finish(potential, q)
            draws = draw_images(potential, q, settings.samples, seed)
            prediction = drawn_prediction(draws, potential.whitened, fit.scale, seed=seed)
        diagnostics |= more | {"negative_bound": float(trace[-_LAST:].mean())}
        return with_fit(prediction, job, fit, diagnostics, negative_bound=trace.numpy())
