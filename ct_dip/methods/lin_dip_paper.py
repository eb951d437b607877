"""The linearised deep image prior as it was published."""

from typing import Any, Literal

from pydantic import Field, PositiveFloat, model_validator

from ct_dip.methods.lin_dip import LinDip
from ct_dip.methods.lin_dip.config import LinDipRun
from ct_dip.posterior.config import InferenceConfig


class PublishedInference(InferenceConfig):
    """Block prior, TV-PredCP, evidence at the tangent model's optimum, the published floor; f(w̃) is shown."""

    objective: Literal["auto", "scale", "optimum", "fit"] = "optimum"
    hyperprior: Literal["auto", "weak", "none", "tv-predcp"] = "tv-predcp"
    predcp_strength: Literal["fit", "paper"] | PositiveFloat = "paper"
    complement: Literal["slope", "white", "floor", "none"] = "floor"
    image: Literal["auto", "mean", "linear", "dip", "tv"] = "dip"
    calibrate: Literal["views", "none"] = "none"
    pixels: Literal["student", "gaussian"] = "gaussian"
    relevance: bool = False
    starts: int = Field(default=1, ge=1)

    @model_validator(mode="before")
    @classmethod
    def _forget_predcp(cls, values: Any) -> Any:
        """Drop the published strength of TV-PredCP where another hyperprior is asked for."""
        if isinstance(values, dict) and values.get("hyperprior", "tv-predcp") != "tv-predcp":
            return {"predcp_strength": "fit"} | values
        return values


class LinDipPaperRun(LinDipRun):
    """Settings of method ``lin-dip-paper``."""

    inference: PublishedInference = PublishedInference()


class LinDipPaper(LinDip):
    """``N(f(w̃), K − K Aᵀ (A K Aᵀ + σ² I)⁻¹ A K + floor)`` with ``K = J Σ(σ, ℓ) Jᵀ``; the fit is ours."""

    name = "lin-dip-paper"
    title = "the published deep image prior with error bars"
    summary = "The linearised deep image prior with the settings of its paper, for comparison with lin-dip."
    reference = (
        "Antorán et al. 2023, Uncertainty estimation for computed tomography with a linearised DIP; evidence "
        "as Antorán et al. 2022, Adapting the linearised Laplace model evidence for modern deep learning"
    )
    config = LinDipPaperRun
