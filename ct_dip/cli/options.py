"""Options that several verbs share, and how their text is read."""

import math
import re
from pathlib import Path
from typing import Annotated

import typer

from ct_dip.errors import InputError

Verbose = Annotated[
    bool, typer.Option("--verbose", "-v", help="Print more messages, and the traceback of an error.")
]


def _complete_method(incomplete: str) -> list[str]:
    """Complete the name of a method in the shell."""
    from ct_dip.methods import method_names

    return [name for name in method_names() if name.startswith(incomplete)]


Method = Annotated[
    str | None,
    typer.Option(
        help="Reconstruction method; ct-dip methods lists them. Default: lin-dip, which has error bars.",
        autocompletion=_complete_method,
    ),
]
Seed = Annotated[int, typer.Option(help="Seed of the random numbers.", min=0)]
OptionalSeed = Annotated[int | None, typer.Option(help="Seed of the random numbers. Default: 0.", min=0)]
Preset = Annotated[
    str | None,
    typer.Option(
        help="How much work to do: fast, balanced (the default) or thorough; or auto: fast for more than 64 "
        "pixels a side, else balanced."
    ),
]
ConfigFile = Annotated[Path | None, typer.Option(help="Read settings from this YAML file.")]
MethodsConfig = Annotated[Path | None, typer.Option(help="Read settings of the methods from this YAML file.")]
Settings = Annotated[
    list[str] | None,
    typer.Option("--set", help="Change one setting, for example tv.strength=0.5; repeat for more."),
]
Device = Annotated[
    str | None, typer.Option(help="Compute on this device: auto, cpu, cuda, or any device name of torch.")
]
Threads = Annotated[
    int | None,
    typer.Option(
        help="Use this many CPU threads. Default: 1 below 128 × 128 pixels, else all. Use 1 when several "
        "jobs share the cores.",
        min=1,
    ),
]


Budget = Annotated[
    str | None,
    typer.Option(
        "--budget-memory",
        help="Use at most this much memory per run, for example 4G. Default: half of what is free.",
    ),
]


def check_result_name(path: Path, what: str) -> None:
    """Refuse a file name without the ending .h5, so that no other file is overwritten by a slip."""
    if path.suffix not in (".h5", ".hdf5"):
        raise InputError(f"--out {path}: {what} is an HDF5 file; give it the ending .h5")


def parse_angle(text: str, name: str) -> float:
    """Convert ``180``, ``180deg`` or ``3.1416rad`` to radians; a number without a unit is in degrees.

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
    if math.isclose(abs(angle), 2 * math.pi, rel_tol=1e-4):  # 6.2832rad
        return math.copysign(2 * math.pi, angle)
    if abs(angle) > 2 * math.pi:
        raise InputError(f"{name} {text!r} is more than a turn; write at most 360 (degrees) or 6.2832rad")
    return angle
