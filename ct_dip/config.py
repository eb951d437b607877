"""The configuration of a run: one pydantic model, YAML in, ``section.key=value`` on top.

Unknown keys are errors, with the nearest known one as a suggestion.
"""

import difflib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, PositiveFloat, ValidationError, model_validator

from ct_dip.errors import InputError
from ct_dip.plain_yaml import read_yaml
from ct_dip.text import shortened

Method = Literal["fbp", "cgls", "tv", "dip", "lin-dip"]
# The sections of the configuration that each method reads.
METHODS: dict[Method, tuple[str, ...]] = {
    "fbp": ("fbp",),
    "cgls": ("cgls",),
    "tv": ("tv",),
    "dip": ("dip",),
    "lin-dip": ("dip", "inference"),
}
SECTIONS = tuple(dict.fromkeys(section for sections in METHODS.values() for section in sections))


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class FbpConfig(_Section):
    """Filtered back-projection."""

    filter: Literal["ram-lak", "shepp-logan", "cosine", "hamming", "hann"] = "hann"
    cutoff: float = Field(default=1.0, gt=0, le=1)


class CglsConfig(_Section):
    """Conjugate gradients for least squares; stops at the noise level, stated or estimated."""

    max_iterations: int = Field(default=50, ge=1)
    tolerance: float = Field(default=1e-4, gt=0, allow_inf_nan=False)


class TvConfig(_Section):
    """Total variation; ``strength`` is relative to the noise, a pure number."""

    strength: float = Field(default=0.8, gt=0, allow_inf_nan=False)
    isotropic: bool = True
    tolerance: float = Field(default=1e-3, gt=0, allow_inf_nan=False)
    max_iterations: int = Field(default=5000, ge=1)


class DipConfig(_Section):
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
    strength: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    learning_rate: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    stopping: Literal["auto", "discrepancy", "variance", "budget"] = "auto"
    discrepancy: float = Field(default=1.0, gt=0, allow_inf_nan=False)  # misfit that begins the cool-down
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
    strength: float
    learning_rate: float
    max_steps: int


class InferenceConfig(_Section):
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
    # Trace of the signal that a compression may leave out, in units of the noise's; by size if not given
    compression: float | None = Field(default=None, gt=0, lt=1)
    # closed: exact deviations in the compressed regime, a pass of the network for every pixel; auto: by size
    deviations: Literal["auto", "closed", "samples"] = "auto"
    tolerance: float = Field(
        default=1e-3, gt=0, lt=1
    )  # true relative residual of the iterative regime's solves
    probes: int = Field(default=10, ge=2)  # of the iterative regime's gradients and log-determinants
    preconditioner_rank: int = Field(default=200, ge=1)  # of the iterative regime
    starts: int = Field(default=3, ge=1)  # of the search for hyperparameters
    integrate: Literal["none", "laplace"] = "none"  # over hyperparameters
    # Shown: f(w̃), x*, or the mean of the two; auto: the mean below 64 pixels, f(w̃) from there on
    image: Literal["auto", "mean", "linear", "dip"] = "auto"
    samples: int = Field(default=100, ge=0)  # posterior samples that go into the result
    patch: int | None = Field(default=None, ge=1, le=10)  # width of patch covariances that do

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
        """Itself, if its regime can do what it asks for.

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
        """With every open choice made but the regime, which depends on the problem."""
        objective, hyperprior = self.objective, self.hyperprior
        if objective == "auto":
            objective = "optimum" if hyperprior == "tv-predcp" else "scale"
        if hyperprior == "auto":
            blocks = self.prior == "block" and objective != "scale"
            hyperprior = "weak" if blocks or self.complement == "white" else "none"
        return self.model_copy(update={"objective": objective, "hyperprior": hyperprior})


Preset = Literal["fast", "balanced", "thorough"]

# How much work a run is worth. ``balanced`` is what every section says by itself; on KMNIST images 50 to 57,
# with the error bars of then, ``fast`` lost 0.05 nats per pixel and 0.3 dB.
PRESETS: dict[Preset, dict[str, dict[str, Any]]] = {
    "fast": {"dip": {"max_steps": 500, "cooldown_steps": 300}, "inference": {"starts": 1}},
    "balanced": {},
    "thorough": {
        "dip": {"max_steps": 4000},
        "inference": {"starts": 5, "samples": 400},
    },
}
_LARGE = 64  # pixels; ``auto`` is fast for images with longer sides


class RunConfig(_Section):
    """Everything that decides what a run computes."""

    method: Method = "tv"
    preset: Literal["auto", "fast", "balanced", "thorough"] = "balanced"
    backend: Literal["auto", "sparse", "astra", "odl", "tomosipo"] = "auto"
    kernel: Literal["auto", "line", "linear", "strip"] = "auto"
    device: str = "auto"
    seed: int = Field(default=0, ge=0)
    threads: int | None = Field(default=None, ge=1)  # of torch; changes the last bits of a result
    fbp: FbpConfig = FbpConfig()
    cgls: CglsConfig = CglsConfig()
    tv: TvConfig = TvConfig()
    dip: DipConfig = DipConfig()
    inference: InferenceConfig = InferenceConfig()

    def with_preset(self, shape: tuple[int, int]) -> "RunConfig":
        """What was not given, as the preset has it for images of a shape."""
        name = self.preset
        if name == "auto":
            name = "fast" if max(shape) > _LARGE else "balanced"
        update: dict[str, Any] = {"preset": name}
        for section, values in PRESETS[name].items():
            current: BaseModel = getattr(self, section)
            missing = {key: value for key, value in values.items() if key not in current.model_fields_set}
            update[section] = current.model_copy(update=missing)
        return self.model_copy(update=update)

    def resolved(self) -> dict[str, Any]:
        """Plain values, without the sections of the methods that are not used."""
        return self.model_dump(mode="json", exclude=set(SECTIONS) - set(METHODS[self.method]))


def load_config(path: str | Path | None = None, *, settings: Sequence[str] = (), **options: Any) -> RunConfig:
    """A configuration from a YAML file, ``section.key=value`` settings, and options, in that order.

    Args:
        settings: as ``["tv.strength=0.5"]``; values are read as YAML.
        options: top-level keys; ``None`` means not given.
    """
    values = _read_yaml(Path(path)) if path is not None else {}
    for setting in settings:
        _apply(values, setting)
    values |= {name: value for name, value in options.items() if value is not None}
    try:
        config = RunConfig.model_validate(values)
    except ValidationError as error:
        raise InputError(_explain(error)) from error
    if config.method == "fbp" and (config.backend != "auto" or config.kernel != "auto"):
        raise InputError(
            "backend and kernel have no effect with method 'fbp', which projects nothing; drop them"
        )
    for setting in settings:
        section = setting.partition("=")[0].partition(".")[0].strip()
        if section in SECTIONS and section not in METHODS[config.method]:
            raise InputError(f"{setting!r} has no effect with method {config.method!r}; drop one of them")
    return config


def _read_yaml(path: Path) -> dict[str, Any]:
    if path.exists() and not path.is_file():  # a pipe would be waited for
        raise InputError(f"configuration {path} cannot be read: it is not a regular file")
    try:
        values = read_yaml(path.read_text())
    except OSError as error:
        raise InputError(f"configuration {path} cannot be read: {error.strerror}") from error
    except (InputError, UnicodeDecodeError) as error:
        raise InputError(f"configuration {path}: {error}") from error
    if values is None:
        return {}
    if not isinstance(values, dict):
        raise InputError(f"configuration {path} must be a mapping of keys to values")
    return values


def _apply(values: dict[str, Any], setting: str) -> None:
    name, equals, text = setting.partition("=")
    setting = shortened(setting)
    if not equals or not name.strip():
        raise InputError(f"--set {setting!r}: write it as section.key=value, for example tv.strength=0.5")
    *sections, key = name.strip().split(".")
    for section in sections:
        values = values.setdefault(section, {})
        if not isinstance(values, dict):
            raise InputError(f"--set {setting!r}: {section!r} is not a section")
    try:
        values[key] = read_yaml(text)
    except InputError as error:
        raise InputError(f"--set {setting!r}: {shortened(text)!r} is not a value, as {error}") from error


def _explain(error: ValidationError) -> str:
    first = error.errors()[0]
    location = [str(part) for part in first["loc"]]
    name = shortened(".".join(location))
    if first["type"] == "value_error":  # a rule of ours, which says it all
        return f"configuration {name}: {first['msg'].removeprefix('Value error, ')}"
    if first["type"] != "extra_forbidden":
        return f"configuration {name}: {first['msg']}, got {shortened(repr(first['input']))}"
    model: type[BaseModel] = RunConfig
    for part in location[:-1]:
        model = type(getattr(RunConfig(), part))
    inner = [
        f"{s}.{location[-1]}" for s in SECTIONS if location[-1] in type(getattr(RunConfig(), s)).model_fields
    ]
    if len(location) == 1 and inner:
        return f"configuration {name} is not a known key; did you mean {inner[0]!r}?"
    near = difflib.get_close_matches(location[-1], model.model_fields, n=1)
    hint = f"did you mean {near[0]!r}?" if near else f"known keys: {', '.join(model.model_fields)}"
    return f"configuration {name} is not a known key; {hint}"
