"""``ct-dip report``: write one HTML page of a result."""

from pathlib import Path
from typing import Annotated

import typer

from ct_dip.cli.console import message
from ct_dip.cli.options import Verbose


def report(
    result: Annotated[Path, typer.Argument(help="Result file.")],
    out: Annotated[Path, typer.Option(help="Page to write (.html).")],
    verbose: Verbose = False,
) -> None:
    """Write a page that explains a result: what it shows, how sure we are, and whether to believe it."""
    from ct_dip.pages.report import report as run

    size = run(result, out).stat().st_size / 2**20
    message(f"{out}: open it in a browser; one file of {size:.1f} MiB that needs no network")
