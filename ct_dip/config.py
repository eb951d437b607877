"""The configuration of a run: one pydantic model, YAML in, ``section.key=value`` on top.

Unknown keys are errors, with the nearest known one as a suggestion.
"""

import difflib
import inspect
from collections.abc import Iterable, Sequence
from pathlib import Path
from types import UnionType
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    ClassVar,
    Literal,
    Self,
    TypeVar,
    Union,
    get_args,
    get_origin,
)

from pydantic import BaseModel, ConfigDict, Field, PositiveInt, ValidationError

from ct_dip.errors import InputError
from ct_dip.plain_yaml import read_yaml
from ct_dip.text import shortened

_Model = TypeVar("_Model", bound=BaseModel)
Preset = Literal["fast", "balanced", "thorough"]
_LARGE = 64  # pixels; ``auto`` is fast for images with longer sides


# Of total variation: a pure number relative to the noise, or chosen by `ct_dip.classical.tv_strength`.
Strength = Annotated[float, Field(gt=0, allow_inf_nan=False)] | Literal["auto"]


_LIMITS = {"gt": ">", "ge": "≥", "lt": "<", "le": "≤"}


def _spell(annotation: Any) -> str:
    """Write a type as people would: ``'auto' | int``."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Literal:
        return " | ".join(map(repr, arguments))
    if origin is Annotated:
        return _spell(arguments[0])
    if origin in (Union, UnionType):
        return " | ".join(map(_spell, arguments))
    return getattr(annotation, "__name__", str(annotation)) if origin is None else str(annotation)


class Section(BaseModel):
    """Settings that belong together, checked when they are made and never changed."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    @classmethod
    def __pydantic_init_subclass__(cls, **_: Any) -> None:
        """List every setting in the docstring, so that ``help`` explains it."""
        lines = [inspect.cleandoc(cls.__dict__.get("__doc__") or ""), "", "Settings:"]
        for name, field in cls.model_fields.items():
            limits = [
                f" {sign} {getattr(m, key)}"
                for m in field.metadata
                for key, sign in _LIMITS.items()
                if hasattr(m, key)
            ]
            value = field.get_default()
            default = f"default {f'{type(value).__name__}()' if isinstance(value, Section) else repr(value)}"
            if field.is_required():
                default = "required"
            kind = f"{_spell(field.annotation)}{' and'.join(limits)}, {default}"
            lines.append(f"    {name} ({kind})" + (f": {field.description}" if field.description else ""))
        cls.__doc__ = "\n".join(lines).strip()


class RunConfig(Section):
    """Settings that every run has. A method adds its sections in a subclass."""

    # Values by section that a preset has for what was not given.
    presets: ClassVar[dict[Preset, dict[str, dict[str, Any]]]] = {}

    method: str
    """Name of the method, as ``ct-dip methods`` lists it."""
    preset: Literal["auto", "fast", "balanced", "thorough"] = "balanced"
    """How much work the run is worth; ``balanced`` is every section's own defaults, ``auto`` is ``fast`` for
    images with a side of more than 64 pixels and ``balanced`` for others."""
    backend: Literal["auto", "sparse", "astra", "odl", "tomosipo"] = "auto"
    """How line integrals are computed: by a stored matrix (``sparse``), by ASTRA, ODL or tomosipo; ``auto``
    is ``sparse`` where the matrix fits the memory budget, ``astra`` elsewhere."""
    kernel: Literal["auto", "line", "linear", "strip"] = "auto"
    """How a ray weighs the pixels that it meets; ``auto`` is ``linear`` for a parallel beam, ``line`` for a
    fan."""
    device: str = "auto"
    """Device of torch: ``auto`` (CUDA where there is one), ``cpu``, ``cuda`` or another name that torch
    knows."""
    seed: int = Field(default=0, ge=0)
    """Seed of every random choice; the same seed repeats a run on the CPU bit for bit."""
    threads: Literal["auto"] | PositiveInt = "auto"
    """Threads of torch; their number changes the last bits of a result. ``auto`` is one for images below 128
    × 128 pixels, all of them for larger ones."""
    check: Literal["auto", "views", "none"] = "auto"
    """``views`` reconstructs again without a fifth of the views and scores how well these are predicted;
    ``auto`` does so where nothing else shows whether the error bars hold."""

    if TYPE_CHECKING:  # which sections there are is known when the method is

        def __getattr__(self, name: str) -> Any: ...

    @classmethod
    def sections(cls) -> dict[str, type[Section]]:
        """The method's sections by name."""
        types = {name: field.annotation for name, field in cls.model_fields.items()}
        return {n: t for n, t in types.items() if isinstance(t, type) and issubclass(t, Section)}

    def with_preset(self, shape: tuple[int, int]) -> Self:
        """Return the settings with the preset's values filled in, for images of a shape."""
        name = self.preset
        if name == "auto":
            name = "fast" if max(shape) > _LARGE else "balanced"
        update: dict[str, Any] = {"preset": name}
        for section, values in self.presets.get(name, {}).items():
            current: Section = getattr(self, section)
            missing = {key: value for key, value in values.items() if key not in current.model_fields_set}
            update[section] = current.model_copy(update=missing)
        return self.model_copy(update=update)

    def resolved(self, shape: tuple[int, int]) -> Self:
        """Return the settings with every choice resolved that needs no data; they give the same result."""
        return self.with_preset(shape)


def read_settings(path: str | Path | None, settings: Sequence[str] = ()) -> dict[str, Any]:
    """Read values from a YAML file, and put ``section.key=value`` settings, also YAML, on top."""
    values = _read_file(Path(path)) if path is not None else {}
    for setting in settings:
        _apply(values, setting)
    return values


def validate(model: type[_Model], values: dict[str, Any], known: Iterable[str] = ()) -> _Model:
    """Make a model of plain values.

    Args:
        known: further names that a mistyped key may mean.

    Raises:
        InputError: that names the key, the value and the fix.
    """
    try:
        return model.model_validate(values)
    except ValidationError as error:
        raise InputError(_explain(error, model, known)) from error


def _read_file(path: Path) -> dict[str, Any]:
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
        raise InputError(f"setting {setting!r}: write it as section.key=value, for example tv.strength=0.5")
    *sections, key = name.strip().split(".")
    for section in sections:
        values = values.setdefault(section, {})
        if not isinstance(values, dict):
            raise InputError(f"setting {setting!r}: {section!r} is not a section")
    try:
        values[key] = read_yaml(text)
    except InputError as error:
        raise InputError(f"setting {setting!r}: {shortened(text)!r} is not a value, as {error}") from error


def _explain_value(error: ValidationError, sections: dict[str, type[Section]]) -> str:
    """Say what a value must be; of a union all that it may be."""
    first, name = error.errors()[0], _setting(error.errors()[0]["loc"])
    if first["type"] == "value_error":  # a rule of ours, which says it all
        return f"{name}: {first['msg'].removeprefix('Value error, ')}"
    if first["type"] == "model_type" and name in sections:
        key, field = next(iter(sections[name].model_fields.items()))
        return f"{name} is a section; set one of its keys, for example {name}.{key}={field.get_default()}"
    given, alternatives = first["input"], [e for e in error.errors() if _setting(e["loc"]) == name]
    if all(each["type"] == "literal_error" for each in alternatives):
        return f"{name} {shortened(repr(given))} is not known; choose {first['ctx']['expected']}"
    words = [str(each["msg"]).partition(",")[0] for each in alternatives]
    if not all(text.startswith("Input should ") for text in words):
        return f"{name}: {first['msg']}, got {shortened(repr(given))}"
    wanted = [text.removeprefix("Input should ").replace(" a valid integer", " an integer") for text in words]
    wanted = [text.replace(" a valid ", " a ").removeprefix("be ") for text in wanted]
    wanted = ["a list, as in [16, 32]" if text == "a tuple" else text for text in wanted]
    shown = given if isinstance(given, str) else repr(given)
    return f"{name}={shortened(shown)} must be {' or '.join(wanted)}".replace("must be have", "must have")


def _setting(location: tuple[int | str, ...]) -> str:
    """Name a setting without what pydantic calls a member of a union, as ``literal['auto']``."""
    parts = (str(part) for part in location)
    return shortened(".".join(part for part in parts if part.isidentifier() or part.isdigit()))


def _explain(error: ValidationError, model: type[BaseModel], known: Iterable[str]) -> str:
    first = error.errors()[0]
    sections = model.sections() if issubclass(model, RunConfig) else {}
    if first["type"] != "extra_forbidden":
        return _explain_value(error, sections)
    location = [str(part) for part in first["loc"]]
    name = shortened(".".join(location))
    within = sections[location[0]] if len(location) > 1 else model
    names = {key: key for key in within.model_fields}
    if len(location) == 1:
        inner = {
            key: f"{section}.{key}" for section, fields in sections.items() for key in fields.model_fields
        }
        names = inner | {key: key for key in known} | names
    near = difflib.get_close_matches(location[-1], names, n=1)
    hint = f"did you mean {names[near[0]]!r}?" if near else f"known keys: {', '.join(within.model_fields)}"
    return f"configuration {name} is not a known key; {hint}"
