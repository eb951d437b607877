"""``ct-dip query``: ask how sure the posterior is about a region."""

import math
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ct_dip.cli.console import message, print_json, print_table
from ct_dip.cli.options import Verbose
from ct_dip.errors import InputError

if TYPE_CHECKING:
    from ct_dip.evaluation.region import Roi


def query(
    result: Annotated[Path, typer.Argument(help="Result file with posterior samples.")],
    roi: Annotated[
        str | None,
        typer.Option(
            help="Rectangle with corners x0,y0,x1,y1 in mm; x points right and y up from the rotation axis."
        ),
    ] = None,
    mask: Annotated[
        Path | None,
        typer.Option(help="Picture or NPY file of the image's shape; the region is where it is not zero."),
    ] = None,
    above: Annotated[
        float | None, typer.Option(help="Also report the area above this attenuation, in 1/mm.")
    ] = None,
    level: Annotated[float, typer.Option(help="Probability of the credible intervals.")] = 0.95,
    as_json: Annotated[bool, typer.Option("--json", help="Print every number as JSON.")] = False,
    verbose: Verbose = False,
) -> None:
    """Report the posterior of a region: its mean attenuation, and its area above a threshold."""
    from ct_dip.checks import check_level
    from ct_dip.evaluation.region import query as run

    if (roi is None) == (mask is None):
        given = "neither --roi nor --mask is" if roi is None else "both --roi and --mask are"
        raise InputError(
            f"{given} given; choose the region by --roi (x0,y0,x1,y1 in mm) or by --mask (a picture)"
        )
    check_level(level, "--level")
    if above is not None and not math.isfinite(above):
        raise InputError(f"--above {above:g} must be a finite attenuation, in 1/mm")
    corners = None if roi is None else parse_roi(roi)
    report = run(result, corners, mask=mask, above=above, level=level)
    for note in report.notes:
        message(f"note: {note}")
    if as_json:
        where = {"mask": str(mask)} if corners is None else {"roi": corners}
        print_json({"result": str(result), **where, **asdict(report)})
    else:
        print_table(f"{result}, {f'roi {roi}' if mask is None else mask}", report.summary())


def parse_roi(text: str) -> "Roi":
    """Read four numbers from ``x0,y0,x1,y1``."""
    try:
        x0, y0, x1, y1 = (float(word) for word in text.split(","))
    except ValueError as error:
        raise InputError(
            f"--roi {text!r} must be four numbers x0,y0,x1,y1 in mm without spaces, for example -5,-5,5,5"
        ) from error
    return x0, y0, x1, y1
