"""Settings of Bayesian inference with the linearised network."""

from typing import Annotated, Literal, Self

from pydantic import Field, PositiveFloat, model_validator

from ct_dip.config import Section
from ct_dip.errors import InputError


class InferenceConfig(Section):
    """Bayesian inference with the linearised network; see `ct_dip.posterior.fit.fit_posterior`."""

    prior: Literal["block", "isotropic", "g"] = "block"
    """Prior of the weights: a variance and a tap length for every block of convolutions (``block``), one
    variance for all (``isotropic``), or one variance with weights scaled by their effect on the sinogram
    (``g``)."""
    prior_mean: Literal["tangent", "zero"] = "tangent"
    """Mean of the image before the data: ``f(w̃) − J w̃`` of the tangent model, or zero."""
    objective: Literal["auto", "scale", "optimum", "fit"] = "auto"
    """How the prior's variances are found. ``scale``: block variances from the fitted weights, one common
    scale by evidence; ``optimum``: all of them by evidence at the tangent model's optimum; ``fit``: by
    evidence at the fitted weights; ``auto``: ``scale``, or ``optimum`` with TV-PredCP, which is about tap
    lengths that ``scale`` does not fit."""
    hyperprior: Literal["auto", "weak", "none", "tv-predcp"] = "auto"
    """Prior of the hyperparameters: log-normal around the fitted weights (``weak``), flat (``none``), or
    TV-PredCP; ``auto`` is ``weak`` where several variances are fitted, ``none`` elsewhere."""
    predcp_strength: Literal["fit", "paper"] | PositiveFloat = "fit"
    """λ of TV-PredCP, per unit of total variation of the network's image: that of the network's fit, that of
    the paper, or a number."""
    complement: Literal["slope", "white", "floor", "none"] = "slope"
    """Variance of what the network cannot show: at edges and in plateaus (``slope``), the same everywhere and
    found by evidence (``white``), the published constant (``floor``), or none."""
    tv: Literal["none", "majorant"] = "none"
    """Whether the posterior knows of the total variation that the network's fit minimised: as a Gaussian
    that touches it at the fitted image (``majorant``), or not (``none``). With it the posterior mean x* is
    about as good an image as f(w̃), and held-out views widen the error bars by more."""
    noise: Literal["learned", "fixed"] = "learned"
    """Whether the size of the noise is found by evidence or taken as stated."""
    temper: float = Field(default=1.0, gt=0, le=1)
    """Factor on the weights' prior variance in the error bars, not in the image. About 0.2 is calibrated for
    handwritten characters and overconfident for gray objects; see experiments/README.md."""
    regime: Literal["auto", "exact", "compressed", "iterative"] = "auto"
    """How the posterior is computed: with all matrices (``exact``), with a few directions of the sinogram
    (``compressed``), with products alone (``iterative``); ``auto`` chooses by size and memory."""
    compression: Literal["auto"] | Annotated[float, Field(gt=0, lt=1)] = "auto"
    """Trace of the signal that a compression may leave out, as a fraction of the trace of the noise; ``auto``
    goes by size."""
    deviations: Literal["auto", "closed", "samples"] = "auto"
    """How the compressed regime finds standard deviations: in closed form, at one pass of the network for
    every pixel, or from samples; ``auto`` is ``closed`` up to 2,048 pixels."""
    tolerance: float = Field(default=1e-3, gt=0, lt=1)
    """True relative residual of the iterative regime's solves."""
    probes: int = Field(default=10, ge=2)
    """Random vectors behind the gradients and log-determinants of the iterative regime."""
    preconditioner_rank: int = Field(default=200, ge=1)
    """Rank of the iterative regime's Nyström preconditioner."""
    starts: int = Field(default=3, ge=1)
    """Starting points of the search for hyperparameters."""
    integrate: Literal["none", "laplace"] = "none"
    """Whether hyperparameters are integrated over by Laplace's approximation rather than fixed at their
    optimum."""
    image: Literal["auto", "mean", "linear", "dip", "tv"] = "auto"
    """Image to show: f(w̃) (``dip``), x* (``linear``), the mean of the two, or total variation; ``auto`` is
    the mean where TV is weak and f(w̃) elsewhere, or, if views are held out, total variation where that
    predicts them better or where the network stays far above its misfit."""
    calibrate: Literal["views", "none"] = "views"
    """``views`` widens the error bars until they explain views that a first fit did not see, or narrows them
    where these views say that they are too wide."""
    pixels: Literal["student", "gaussian"] = "student"
    """Distribution of a single pixel around its value: Student's with three degrees of freedom knows more
    pixels well and misses some by more than a Gaussian. Samples, patches and means over regions are
    Gaussian."""
    samples: int = Field(default=100, ge=0)
    """Posterior samples that are stored in the result."""
    patch: int = Field(default=0, ge=0, le=10)
    """Width of the patches whose covariances are stored in the result, in pixels; 0 for none."""
    relevance: bool = True
    """Whether pixels get an extra variance where the sinogram contradicts the model."""

    @model_validator(mode="after")
    def _check_hyperprior(self) -> Self:
        blocks = self.prior == "block" and self.objective != "scale"
        if self.hyperprior == "tv-predcp" and not blocks:
            raise ValueError(
                "hyperprior 'tv-predcp' is about tap lengths: it needs prior 'block' and objective 'optimum' "
                f"or 'fit', not {self.prior!r} and {self.objective!r}"
            )
        if self.hyperprior == "tv-predcp" and self.integrate == "laplace":
            raise ValueError("integrate 'laplace' is not offered with hyperprior 'tv-predcp'")
        fits_many = (blocks and self.objective != "auto") or self.complement == "white"
        if self.hyperprior == "weak" and not fits_many:
            raise ValueError(
                "hyperprior 'weak' has no effect unless prior is 'block' and objective 'optimum' or 'fit', "
                "or complement is 'white'"
            )
        if self.tv == "majorant" and self.hyperprior == "tv-predcp":
            raise ValueError(
                "hyperprior 'tv-predcp' stands for the total variation that tv 'majorant' puts into the "
                "posterior itself; choose one of them"
            )
        if self.tv == "majorant" and (self.objective == "fit" or self.integrate == "laplace"):
            raise ValueError("tv 'majorant' is not offered with objective 'fit' or integrate 'laplace'")
        if self.predcp_strength != "fit" and self.hyperprior != "tv-predcp":
            raise ValueError("predcp_strength has no effect without hyperprior 'tv-predcp'")
        return self

    def checked_regime(self) -> "InferenceConfig":
        """Return itself, if its regime can do what it asks for.

        Raises:
            InputError: otherwise.
        """
        if self.regime != "exact" and self.integrate == "laplace":
            raise InputError("inference.integrate 'laplace' needs inference.regime 'exact'")
        if self.regime == "iterative" and (self.objective == "fit" or self.hyperprior == "tv-predcp"):
            raise InputError(
                "inference.regime 'iterative' is not offered with objective 'fit' or hyperprior 'tv-predcp'; "
                "use regime 'compressed'"
            )
        return self

    def resolved(self) -> "InferenceConfig":
        """Make every open choice but the regime, which depends on the problem."""
        objective, hyperprior = self.objective, self.hyperprior
        if objective == "auto":
            objective = "optimum" if hyperprior == "tv-predcp" else "scale"
        if hyperprior == "auto":
            blocks = self.prior == "block" and objective != "scale"
            hyperprior = "weak" if blocks or self.complement == "white" else "none"
        return self.model_copy(update={"objective": objective, "hyperprior": hyperprior})
