"""Options that several verbs share, and how their text is read."""

import math
import re
from pathlib import Path
from typing import Annotated

import typer

from ct_dip.data.mask_file import read_mask as load_mask
from ct_dip.errors import InputError

__all__ = ["load_mask"]

Verbose = Annotated[
    bool, typer.Option("--verbose", "-v", help="Say more, and show where an error came from.")
]
Seed = Annotated[int, typer.Option(help="Of every random choice.", min=0)]
Preset = Annotated[
    str | None, typer.Option(help="fast, balanced (the default), thorough, or auto: by the image's size.")
]
Device = Annotated[str | None, typer.Option(help="auto, cpu, cuda, or another name that torch knows.")]
Threads = Annotated[
    int | None,
    typer.Option(
        help="Threads of torch. Default: 1 below 128 × 128 pixels, all from there on; use 1 when jobs share "
        "cores.",
        min=1,
    ),
]


def check_result_name(path: Path, what: str) -> None:
    """Our files end in .h5, so that nothing else is overwritten by a slip."""
    if path.suffix not in (".h5", ".hdf5"):
        raise InputError(f"--out {path}: {what} is an HDF5 file; give it the ending .h5")


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
        raise InputError(f"{name} {text!r} is not an angle; write for example 180 (degrees) or 3.1416rad")
    unit = match[2]
    if unit is None and 0 < abs(value) <= 6.3:
        raise InputError(
            f"{name} {text!r} is in degrees and looks like radians; write {value:g}rad or {value:g}deg"
        )
    angle = value if unit == "rad" else math.radians(value)
    if abs(angle) > 2 * math.pi * (1 + 1e-6):
        raise InputError(f"{name} {text!r} is more than a turn; write at most 360")
    return angle
