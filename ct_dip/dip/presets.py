"""Networks for small, medium and large images."""

from dataclasses import dataclass

from ct_dip.config import Strength
from ct_dip.dip.config import DipConfig, ResolvedDipConfig
from ct_dip.dip.unet import Output, UNetShape


@dataclass(frozen=True, kw_only=True)
class Preset:
    """A network and its settings for images of one size."""

    channels: tuple[int, ...]
    skip_channels: tuple[int, ...]
    norm_groups: int
    output: Output
    ramp: float
    strength: Strength
    learning_rate: float
    max_steps: int


MEDIUM, LARGE = 64, 400  # pixels of the shorter side from which on a network of that size is taken

# The sizes of the papers: KMNIST (28²), images of 128² to 256², the walnut (501²).
PRESETS = {
    "small": Preset(
        channels=(32,) * 3,
        skip_channels=(4,) * 2,
        norm_groups=0,
        output="sigmoid",
        ramp=0.5,
        strength="auto",
        learning_rate=3e-3,
        max_steps=2000,
    ),
    "medium": Preset(
        channels=(32,) * 4,
        skip_channels=(4,) * 3,
        norm_groups=4,
        output="sigmoid",
        ramp=1.0,
        strength="auto",
        learning_rate=3e-3,
        max_steps=1500,
    ),
    "large": Preset(
        channels=(128,) * 6,
        skip_channels=(4,) * 5,
        norm_groups=32,
        output="sigmoid",
        ramp=1.0,
        strength="auto",
        learning_rate=3e-3,
        max_steps=3000,
    ),
}


def resolve(config: DipConfig, shape: tuple[int, int]) -> ResolvedDipConfig:
    """Make every open choice of a configuration, for images of a shape.

    ``auto`` is small below `MEDIUM` pixels, large from `LARGE` on, by the shorter side.

    Raises:
        InputError: the network does not fit the image, or its parts do not fit each other.
    """
    name = config.preset
    if name == "auto":
        name = "small" if min(shape) < MEDIUM else "medium" if min(shape) < LARGE else "large"
    preset = PRESETS[name]
    channels = preset.channels if config.channels is None else config.channels
    skips = config.skip_channels
    if skips is None:
        skips = (preset.skip_channels[0],) * (len(channels) - 1)
    choices = {
        "preset": name,
        "channels": channels,
        "skip_channels": skips,
        "norm_groups": preset.norm_groups if config.norm_groups is None else config.norm_groups,
        "output": config.output or preset.output,
        "ramp": preset.ramp if config.ramp is None else config.ramp,
        "strength": config.strength or preset.strength,
        "learning_rate": config.learning_rate or preset.learning_rate,
        "max_steps": config.max_steps or preset.max_steps,
    }
    resolved = ResolvedDipConfig(**(config.model_dump() | choices))
    unet_shape(resolved).check_image(shape)
    return resolved


def unet_shape(config: ResolvedDipConfig) -> UNetShape:
    """Return the shape of the network of a resolved configuration."""
    return UNetShape(
        channels=config.channels,
        skip_channels=config.skip_channels,
        norm_groups=config.norm_groups,
        output=config.output,
        upsampling=config.upsampling,
    )
