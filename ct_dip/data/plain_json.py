"""Dataclasses of numbers as plain JSON, and back: what is read is checked against the types of the fields."""

import dataclasses
import inspect
import math
from collections.abc import Mapping
from types import UnionType
from typing import Any, Literal, get_args, get_origin, get_type_hints

from ct_dip.errors import ResultError
from ct_dip.text import shortened


def to_plain(value: Any) -> Any:
    """Return a dataclass, a named tuple or a mapping as what JSON can hold; what is ``None`` is left out."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        items = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    elif isinstance(value, tuple) and hasattr(value, "_asdict"):
        items = value._asdict()
    elif isinstance(value, Mapping):
        items = {str(key): item for key, item in value.items()}
    else:
        return value
    return {name: to_plain(item) for name, item in items.items() if item is not None}


def from_plain(kind: Any, plain: Any, where: str) -> Any:
    """Read what `to_plain` gave.

    Args:
        kind: the type: ``bool``, ``int`` (a count, so not negative), ``float`` (finite), ``str``, a
            ``Literal``, ``X | None``, ``dict[key, X]``, or a dataclass or named tuple of these.
        where: name of the value in messages.

    Raises:
        ResultError: anything else, by name.
    """
    origin = get_origin(kind)
    if origin is UnionType:
        kind = next(option for option in get_args(kind) if option is not type(None))
        return from_plain(kind, plain, where)
    if origin is dict:
        key_kind, item_kind = get_args(kind)
        return {
            from_plain(key_kind, _key(key_kind, key), f"a name in {where}"): from_plain(
                item_kind, item, f"{where}.{shortened(key, 40)}"
            )
            for key, item in _mapping(plain, where).items()
        }
    if origin is Literal:
        return plain if plain in get_args(kind) else _refuse(plain, where, f"one of {get_args(kind)}")
    if kind in (bool, str):
        return plain if isinstance(plain, kind) else _refuse(plain, where, kind.__name__)
    if kind is int:
        whole = isinstance(plain, int) and not isinstance(plain, bool) and plain >= 0
        return plain if whole else _refuse(plain, where, "a count")
    if kind is float:
        number = isinstance(plain, int | float) and not isinstance(plain, bool) and abs(plain) < math.inf
        try:
            return float(plain) if number else _refuse(plain, where, "a finite number")
        except OverflowError:  # a whole number beyond every float
            _refuse(plain, where, "a finite number")
    return _read_fields(kind, _mapping(plain, where), where)


def _read_fields(kind: Any, plain: Mapping[str, Any], where: str) -> Any:
    hints = get_type_hints(kind)
    unknown = sorted(str(name) for name in plain.keys() - hints.keys())
    if unknown:
        raise ResultError(
            f"{where} has a field {shortened(unknown[0], 40)!r} of no meaning; reconstruct again"
        )
    values = {name: None for name, hint in hints.items() if type(None) in get_args(hint)}
    values |= {name: from_plain(hints[name], item, f"{where}.{name}") for name, item in plain.items()}
    for name, parameter in inspect.signature(kind).parameters.items():
        if name not in values and parameter.default is parameter.empty:
            raise ResultError(f"{where} has no {name}; reconstruct again")
    return kind(**values)


def _key(kind: Any, key: Any) -> Any:
    """Return a key of a JSON object, which is text, as the number that it was."""
    if kind not in (int, float):
        return key
    try:
        return kind(key)
    except (TypeError, ValueError):
        return key  # which is refused


def _mapping(plain: Any, where: str) -> Mapping[str, Any]:
    if not isinstance(plain, Mapping):
        _refuse(plain, where, "a mapping")
    return plain


def _refuse(plain: Any, where: str, expected: str) -> Any:
    raise ResultError(f"{where} is {shortened(repr(plain), 60)}, expected {expected}; reconstruct again")
