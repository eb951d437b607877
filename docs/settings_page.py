"""The page of every setting, from the models of the configuration."""

import inspect
import types
import typing
from typing import Any, Literal

import annotated_types
from pydantic.fields import FieldInfo

from ct_dip.config import RunConfig, Section
from ct_dip.dip.presets import PRESETS
from ct_dip.methods import find_method, method_names


def configuration_page() -> str:
    """Every setting with its default, what it may be, and what it means."""
    lines = [
        "# Configuration",
        "A run is configured by a YAML file (`--config run.yaml`), by single settings (`--set "
        'tv.strength=0.5`) and in Python by keywords (`ct_dip.reconstruct(scan, method="tv", '
        "strength=0.5)`). All three end up in one checked configuration; an unknown key is an error that "
        "names the nearest known one. Every result stores the configuration that made it, with all choices "
        "made.",
        "```yaml\nmethod: lin-dip\npreset: fast\nseed: 1\ndip:\n  max_steps: 1000\ninference:\n"
        "  samples: 200\n```",
        "Lengths are millimetres, attenuation 1/mm; a setting without a unit is a pure number or a count.",
        "## Every run",
        _fields_table(RunConfig),
    ]
    for name, (model, methods, changes) in _sections().items():
        lines += [f"## `{name}`", _first_sentence(model), f"Used by {_listed(methods)}."]
        lines.append(_fields_table(model))
        for method, fields in changes.items():
            lines.append(f"`{method}` begins with other values: {fields}.")
        if name == "dip":
            lines += ["What the preset decides where it is not given:", _presets_table()]
    return "\n\n".join(lines) + "\n"


def _sections() -> dict[str, tuple[type[Section], list[str], dict[str, str]]]:
    """Sections by name: their model, the methods that have them, and other defaults that some begin with."""
    found: dict[str, tuple[type[Section], list[str], dict[str, str]]] = {}
    order = sorted(method_names(), key=lambda name: (name not in ("lin-dip", "dip", "tv", "fbp"), name))
    for name in order:
        for section, model in find_method(name).config.sections().items():
            first, methods, changes = found.setdefault(section, (model, [], {}))
            methods.append(name)
            if model is not first:
                other = {
                    key: field.default
                    for key, field in model.model_fields.items()
                    if key in first.model_fields and field.default != first.model_fields[key].default
                }
                changes[name] = ", ".join(f"`{key}={plain(value)}`" for key, value in other.items())
    return found


def description(model: type[Section], name: str) -> str | None:
    """What a setting means: said where it is defined, or in the class that it is inherited from."""
    for each in model.__mro__:
        fields = getattr(each, "model_fields", {})
        if name in fields and fields[name].description:
            return str(fields[name].description)
    return None


def _fields_table(model: type[Section]) -> str:
    rows = ["| setting | default | may be | meaning |", "| --- | --- | --- | --- |"]
    for name, field in model.model_fields.items():
        meaning = " ".join((description(model, name) or "").split()).replace("|", "∣").replace("``", "`")
        rows.append(
            f"| `{name}` | {_default(field)} | {_allowed(field.annotation, field.metadata)} | {meaning} |"
        )
    return "\n".join(rows)


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "must be given"
    value = field.get_default(call_default_factory=True)
    return "by the preset" if value is None else f"`{plain(value)}`"


def plain(value: Any) -> str:
    """A value as YAML has it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _allowed(annotation: Any, metadata: typing.Iterable[Any] = ()) -> str:
    """Values of a type, in words."""
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is Literal:
        return ", ".join(f"`{plain(value)}`" for value in arguments)
    if origin is typing.Annotated:
        return _allowed(arguments[0], arguments[1:])
    if origin in (typing.Union, types.UnionType):
        return ", or ".join(_allowed(each, metadata) for each in arguments if each is not type(None))
    words = {int: "whole number", float: "number", bool: "`true`, `false`", str: "text", dict: "mapping"}
    word = words.get(annotation, "list of whole numbers" if origin is tuple else words.get(origin, "value"))
    return " ".join([word, *_limits(metadata)]) if annotation in (int, float) else word


def _limits(metadata: typing.Iterable[Any]) -> list[str]:
    signs = {"gt": "above {}", "ge": "from {}", "lt": "below {}", "le": "up to {}"}
    parts = []
    for each in metadata:
        inner = each.metadata if isinstance(each, FieldInfo) else [each]
        for limit in inner:
            for sign, words in signs.items():
                if isinstance(limit, annotated_types.BaseMetadata) and hasattr(limit, sign):
                    value = getattr(limit, sign)
                    if value is not None:
                        parts.append(words.format(value))
    return parts


def _presets_table() -> str:
    names = list(vars(next(iter(PRESETS.values()))))
    rows = ["| | " + " | ".join(f"`{name}`" for name in PRESETS) + " |", "| --- |" + " --- |" * len(PRESETS)]
    for key in names:
        rows.append(f"| `{key}` | " + " | ".join(str(getattr(p, key)) for p in PRESETS.values()) + " |")
    return "\n".join(rows)


def _first_sentence(model: type[Section]) -> str:
    text = " ".join((inspect.getdoc(model) or "").split("\n\n")[0].split()).replace("``", "`")
    return text if text.endswith(".") else text + "."


def _listed(names: list[str]) -> str:
    return ", ".join(f"[`{name}`](methods.md#{name})" for name in names)
