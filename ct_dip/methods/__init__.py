"""The methods: one file each, found by its name, and those that other packages add."""

import difflib
import functools
import importlib
import inspect
import pkgutil
from collections.abc import Sequence
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

from ct_dip.config import RunConfig, Section, read_settings, validate
from ct_dip.errors import CtDipError, InputError
from ct_dip.method import Method
from ct_dip.text import shortened

GROUP = "ct_dip.methods"  # of entry points
DEFAULT = "lin-dip"  # it has error bars


def method_names() -> list[str]:
    """Return the names of all methods that are installed, in alphabetical order."""
    return sorted({*_own(), *(point.name for point in entry_points(group=GROUP))})


def find_method(name: str) -> Method[Any]:
    """Return the method of a name.

    Raises:
        InputError: there is none, or its package cannot be loaded.
    """
    if name in _own():
        module = importlib.import_module(f"{__name__}.{_own()[name]}")
        classes = [each for _, each in inspect.getmembers(module, inspect.isclass)]
        return next(c for c in classes if c.__module__ == module.__name__ and issubclass(c, Method))()
    points = entry_points(group=GROUP, name=name)
    if not points:
        near = difflib.get_close_matches(name, method_names(), n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"choose one of {', '.join(method_names())}"
        raise InputError(f"method {shortened(repr(name))} is not known; {hint}")
    point = next(iter(points))
    try:
        method = point.load()()
    except Exception as error:  # of somebody else's code
        raise CtDipError(f"method {name!r} ({point.value}) cannot be loaded: {error}") from error
    if not isinstance(method, Method) or method.name != name:
        raise CtDipError(f"method {name!r}: {point.value} is not a ct_dip.method.Method of that name")
    return method


def title_of(name: str) -> str:
    """Return what a page calls a method; its name if it is not installed here."""
    return str(find_method(name).title) if name in method_names() else name


def summary_of(name: str) -> str:
    """Return what a method does, for readers who do not know it; nothing if it is not installed here."""
    return str(find_method(name).summary) if name in method_names() else ""


@functools.cache
def _own() -> dict[str, str]:
    """Return the names of the methods of this package, with their files."""
    return {module.name.replace("_", "-"): module.name for module in pkgutil.iter_modules(__path__)}


def _sections() -> dict[str, type[Section]]:
    """Return the sections of the methods that can be loaded, by name."""
    sections: dict[str, type[Section]] = {}
    for name in method_names():
        try:
            sections |= find_method(name).config.sections()
        except CtDipError:
            continue
    return sections


def load_config(path: str | Path | None = None, *, settings: Sequence[str] = (), **options: Any) -> RunConfig:
    """Read a configuration from a YAML file, ``section.key=value`` settings, and options, in that order.

    A file may have sections of several methods; those of others than the chosen one are checked and left.

    Args:
        settings: as ``["tv.strength=0.5"]``; values are read as YAML.
        options: keys of the top level, or of a section of the method: ``strength=0.5`` is that of ``tv``;
            ``None`` means not given.
    """
    given = {name: value for name, value in options.items() if value is not None}
    values = read_settings(path, settings)
    name = given.get("method", values.get("method", DEFAULT))
    if not isinstance(name, str):
        raise InputError(f"configuration method: {shortened(repr(name))} is not the name of a method")
    model = find_method(name).config
    for key, value in given.items():
        holders = [s for s, fields in model.sections().items() if key in fields.model_fields]
        if key in model.model_fields or len(holders) != 1:
            values[key] = value
        else:
            values[holders[0]] = dict(values.get(holders[0], {})) | {key: value}
    others = {k: values[k] for k in values if k not in model.model_fields}
    if others:
        sections = _sections()
        told = {setting.partition("=")[0].partition(".")[0].strip() for setting in settings} | set(given)
        for key in others.keys() & sections.keys():
            if key in told:
                raise InputError(
                    f"settings of {key!r} have no effect with method {name!r}; drop them or change it"
                )
            validate(sections[key], values.pop(key))
    config = validate(model, values | {"method": name}, known=_sections() if others else ())
    if not find_method(name).projects and (config.backend != "auto" or config.kernel != "auto"):
        raise InputError(
            f"backend and kernel have no effect with method {name!r}, which projects nothing; drop them"
        )
    return config
