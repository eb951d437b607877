"""Settings of the deep image prior."""

from typing import Literal

from pydantic import Field

from ct_dip.config import Section, Strength


class DipConfig(Section):
    """Deep image prior. What is not given follows from the preset, and the preset from the image size."""

    preset: Literal["auto", "small", "medium", "large"] = "auto"
    """Size of the network and length of its fit; ``auto`` goes by the shorter side of the image: ``small``
    below 64 pixels, ``large`` from 400."""
    channels: tuple[int, ...] | None = Field(default=None, min_length=1)
    """Channels of every scale of the U-Net, finest first; their number is the number of scales."""
    skip_channels: tuple[int, ...] | None = None
    """Channels of the skip connection of every scale but the coarsest, finest first; 0 for none."""
    norm_groups: int | None = Field(default=None, ge=0)
    """Groups of the group normalisation; 0 for no normalisation."""
    output: Literal["sigmoid", "identity", "softplus"] | None = None
    """Activation of the last layer."""
    upsampling: Literal["bilinear", "nearest"] = "bilinear"
    """Interpolation from a coarse to a finer scale."""
    input: Literal["tv", "fbp", "noise"] = "tv"
    """What the network is fed: the total-variation image, the filtered back-projection, or noise."""
    jitter: float = Field(default=0.0, ge=0, allow_inf_nan=False)
    """Standard deviation of the noise that is added to the input at every step, in units of the network's
    image."""
    data_term: Literal["gaussian", "poisson"] = "gaussian"
    """Likelihood of the measurements: ``poisson`` needs a scan that states its photons."""
    ramp: float | None = Field(default=None, ge=0, le=1)
    """Share of ramp-filtered residuals in the data term before the cool-down, 0 to 1."""
    strength: Strength | None = None
    """Weight of total variation relative to the noise, a pure number: λ in units of the rms column norm of
    A/σ. ``auto`` chooses it by cross-validation over views."""
    learning_rate: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    """Peak learning rate of Adam."""
    stopping: Literal["auto", "discrepancy", "variance", "budget"] = "auto"
    """What begins the cool-down: the misfit reaches its target (``discrepancy``), the iterates stop settling
    (``variance``), or the steps run out (``budget``); ``auto`` is ``discrepancy`` where the scan states its
    noise, ``variance`` elsewhere."""
    discrepancy: float = Field(default=1.0, gt=0, allow_inf_nan=False)
    """Misfit that begins the cool-down, 1 being the noise; a larger one is used where total variation of the
    same strength leaves more."""
    warmup_steps: int = Field(default=50, ge=1)
    """Steps over which the learning rate rises to its peak."""
    cooldown_steps: int = Field(default=400, ge=1)
    """Steps over which the learning rate falls to zero at the end."""
    max_steps: int | None = Field(default=None, ge=1)
    """Largest number of steps, the cool-down included."""


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
