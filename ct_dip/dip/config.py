"""Settings of the deep image prior."""

from typing import Literal

from pydantic import Field

from ct_dip.config import Section, Strength


class DipConfig(Section):
    """Deep image prior. What is not given follows from the preset, and the preset from the image size."""

    preset: Literal["auto", "small", "medium", "large"] = "auto"
    # of every scale, finest first
    channels: tuple[int, ...] | None = Field(default=None, min_length=1)
    skip_channels: tuple[int, ...] | None = None  # of every scale but the coarsest, finest first
    norm_groups: int | None = Field(default=None, ge=0)
    output: Literal["sigmoid", "identity", "softplus"] | None = None
    upsampling: Literal["bilinear", "nearest"] = "bilinear"
    input: Literal["tv", "fbp", "noise"] = "tv"
    jitter: float = Field(default=0.0, ge=0, allow_inf_nan=False)  # of the input, at every step
    data_term: Literal["gaussian", "poisson"] = "gaussian"
    ramp: float | None = Field(
        default=None, ge=0, le=1
    )  # share of ramp-filtered residuals before the cool-down
    # Of TV, relative to the noise: λ in units of the rms column norm of A/σ; a pure number.
    strength: Strength | None = None
    learning_rate: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    stopping: Literal["auto", "discrepancy", "variance", "budget"] = "auto"
    # Misfit that begins the cool-down; a larger one where total variation of the same strength leaves more
    discrepancy: float = Field(default=1.0, gt=0, allow_inf_nan=False)
    warmup_steps: int = Field(default=50, ge=1)
    cooldown_steps: int = Field(default=400, ge=1)
    max_steps: int | None = Field(default=None, ge=1)


class ResolvedDipConfig(DipConfig):
    """Deep image prior with every open choice made; see `ct_dip.dip.presets.resolve`."""

    preset: Literal["small", "medium", "large"]
    channels: tuple[int, ...]
    skip_channels: tuple[int, ...]
    norm_groups: int
    output: Literal["sigmoid", "identity", "softplus"]
    ramp: float
    strength: Strength
    learning_rate: float
    max_steps: int
