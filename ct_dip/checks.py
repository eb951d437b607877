"""Values that geometries and public functions accept; what is refused is named, with its unit."""

import math
from typing import Any

import numpy as np

from ct_dip.arrays import Floats
from ct_dip.errors import GeometryError, InputError
from ct_dip.text import shortened

_MOST = 1_000_000  # rows, columns, views or bins: more is a slip of the pen
_SHORTEST, _LONGEST = 1e-6, 1e9  # mm


def check_angles(values: object) -> Floats:
    """A list of view angles, read-only; degrees are recognised by their size."""
    try:
        angles = np.array(values)
        if angles.dtype.kind not in "fiu":
            raise TypeError
        angles = angles.astype(np.float64)
    except (TypeError, ValueError) as error:
        raise GeometryError("angles must be a list of numbers, in radians") from error
    if angles.ndim != 1 or angles.size == 0:
        raise GeometryError(f"angles have shape {angles.shape}; expected a list of one or more views")
    if not np.all(np.isfinite(angles)):
        bad = int(np.flatnonzero(~np.isfinite(angles))[0])
        raise GeometryError(f"angles[{bad}] is {angles[bad]}; every angle must be finite")
    span = float(np.ptp(angles))
    if span > 2 * math.pi * (1 + 1e-6) or float(np.abs(angles).max()) > 4 * math.pi:
        raise GeometryError(
            f"angles reach from {angles.min():g} to {angles.max():g}, more than a turn in radians; convert "
            "degrees (np.deg2rad(angles)), or take several turns modulo 2π"
        )
    angles.flags.writeable = False
    return angles


def check_count(value: object, name: str, error: type[InputError] = GeometryError) -> int:
    """A whole number of things."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or not 1 <= value <= _MOST:
        raise error(f"{name}: {value!r} must be a whole number of at least 1 and at most {_MOST:,}")
    return int(value)


def check_finite(value: object, name: str, unit: str) -> float:
    """A number, in a unit."""
    try:
        number = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError) as error:
        raise GeometryError(f"{name}: {value!r} must be a number, in {unit}") from error
    if not math.isfinite(number):
        raise GeometryError(f"{name}: {value!r} must be finite, in {unit}")
    return number


def check_positive(value: object, name: str, unit: str) -> float:
    """A length or another positive number, in a unit."""
    number = check_finite(value, name, unit)
    if not _SHORTEST <= number <= _LONGEST:
        raise GeometryError(f"{name}: {value!r} must be positive, from {_SHORTEST:g} to {_LONGEST:g} {unit}")
    return number


def check_type(value: object, kinds: Any, name: str, wanted: str) -> None:
    """Refuse an argument of another type, before it fails somewhere else.

    Args:
        kinds: what ``isinstance`` takes; ``wanted`` says it in words, with an example.

    Raises:
        InputError: it is none of them.
    """
    if not isinstance(value, kinds):
        plain = value is None or isinstance(value, bool | int | float | complex | str | tuple)
        shown = shortened(repr(value)) if plain else f"a {type(value).__name__}"
        raise InputError(f"{name} must be {wanted}, not {shown}")


def check_level(value: object, name: str = "level") -> None:
    """Refuse what cannot be the probability of an interval, such as 95 for 0.95.

    Raises:
        InputError: it is not between 0 and 1.
    """
    if not isinstance(value, int | float | np.number) or not 0 < value < 1:
        shown = f"{value:g}" if isinstance(value, int | float) else repr(value)
        raise InputError(f"{name} {shown} must be between 0 and 1, for example 0.95")
