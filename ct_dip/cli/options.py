"""Options that several verbs share, and how their text is read."""

import math
import re
from typing import Annotated

import typer

from ct_dip.errors import InputError

Verbose = Annotated[
    bool, typer.Option("--verbose", "-v", help="Say more, and show where an error came from.")
]
Seed = Annotated[int, typer.Option(help="Of every random choice.", min=0)]


def parse_angle(text: str, name: str) -> float:
    """Radians of ``180``, ``180deg`` or ``3.1416rad``; degrees where nothing is said.

    A bare number that is a plausible angle in radians and a tiny one in degrees is refused rather
    than guessed.
    """
    match = re.fullmatch(r"\s*([-+0-9.eE]+)\s*(deg|°|rad)?\s*", text)
    try:
        value = float(match[1]) if match else math.nan
    except ValueError:
        value = math.nan
    if match is None or not math.isfinite(value):
        raise InputError(
            f"{name} {text!r} is not an angle; write for example 180 (degrees) or 3.1416rad"
        )
    if match[2] == "rad":
        return value
    if match[2] is None and 0 < abs(value) <= 6.3:
        raise InputError(
            f"{name} {text!r} is in degrees and looks like radians; write {value:g}rad or {value:g}deg"
        )
    return math.radians(value)
