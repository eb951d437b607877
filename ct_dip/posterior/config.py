"""Settings of Bayesian inference with the linearised network."""

from typing import Annotated, Literal, Self

from pydantic import Field, PositiveFloat, model_validator

from ct_dip.config import Section
from ct_dip.errors import InputError


class InferenceConfig(Section):
    """Bayesian inference with the linearised network; see `ct_dip.posterior.fit.fit_posterior`.

    ``objective``: ``scale`` takes the block variances from the fitted weights and one common scale by
    evidence; ``optimum`` fits all of them by evidence at the tangent model's optimum; ``fit`` by evidence
    at the fitted weights; ``auto`` is ``scale``, or ``optimum`` with TV-PredCP, which is about tap lengths
    that ``scale`` does not fit.
    """

    prior: Literal["block", "isotropic", "g"] = "block"
    prior_mean: Literal["tangent", "zero"] = "tangent"
    objective: Literal["auto", "scale", "optimum", "fit"] = "auto"
    # weak: log-normal around the fitted weights; auto: that where several variances are to be fitted
    hyperprior: Literal["auto", "weak", "none", "tv-predcp"] = "auto"
    predcp_strength: Literal["fit", "paper"] | PositiveFloat = "fit"
    complement: Literal["slope", "white", "floor", "none"] = "slope"
    noise: Literal["learned", "fixed"] = "learned"
    # Factor on the weights' prior variance in the error bars, not in the image. Around 0.2 is calibrated for
    # KMNIST, and overconfident for gray objects; see experiments/README.md.
    temper: float = Field(default=1.0, gt=0, le=1)
    # exact: all matrices; compressed: few directions of the sinogram; iterative: products; auto: by size
    regime: Literal["auto", "exact", "compressed", "iterative"] = "auto"
    # Trace of the signal that a compression may leave out, in units of the noise's; auto: by size
    compression: Literal["auto"] | Annotated[float, Field(gt=0, lt=1)] = "auto"
    # closed: exact deviations in the compressed regime, a pass of the network for every pixel; auto: by size
    deviations: Literal["auto", "closed", "samples"] = "auto"
    tolerance: float = Field(
        default=1e-3, gt=0, lt=1
    )  # true relative residual of the iterative regime's solves
    probes: int = Field(default=10, ge=2)  # of the iterative regime's gradients and log-determinants
    preconditioner_rank: int = Field(default=200, ge=1)  # of the iterative regime
    starts: int = Field(default=3, ge=1)  # of the search for hyperparameters
    integrate: Literal["none", "laplace"] = "none"  # over hyperparameters
    # Shown: f(w̃), x*, the mean of the two, or total variation; auto: the mean where TV is weak, else f(w̃);
    # or total variation where that predicts views better that were held out
    image: Literal["auto", "mean", "linear", "dip", "tv"] = "auto"
    # views: error bars are widened until they explain views that a first fit did not see
    calibrate: Literal["views", "none"] = "views"
    # Distribution of a single pixel with its deviation: Student's has more pixels that are known well, and
    # more that are far off. Samples, patches and means over regions are Gaussian.
    pixels: Literal["student", "gaussian"] = "student"
    samples: int = Field(default=100, ge=0)  # posterior samples that go into the result
    patch: int = Field(default=0, ge=0, le=10)  # width of patch covariances that do; 0 for none
    relevance: bool = True  # free pixels where the sinogram contradicts the model

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
