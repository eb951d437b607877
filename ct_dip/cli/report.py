"""``ct-dip report``: write one HTML page of a result, or of an evaluation on a dataset."""

from pathlib import Path
from typing import Annotated

import typer

from ct_dip.cli.console import print_line
from ct_dip.cli.options import Verbose
from ct_dip.errors import InputError


def report(
    result: Annotated[
        Path, typer.Argument(help="Result file, or the folder of ct-dip evaluate, finished or not.")
    ],
    out: Annotated[
        Path | None,
        typer.Option(help="Page to write (.html). The page of an evaluation goes into its folder."),
    ] = None,
    verbose: Verbose = False,
) -> None:
    """Write a page that explains a result: what it shows, how sure we are, and whether to believe it."""
    from ct_dip.data.result_file import read_result
    from ct_dip.pages.report import report as run

    if out is None and not result.is_dir():
        read_result(result)  # what is wrong with it matters more than the name that is missing
        raise InputError("the page needs a name; give --out, for example --out report.html")
    page = run(result, out)
    size = page.stat().st_size / 2**20
    print_line(f"{page}: open it in a browser; one file of {size:.1f} MiB that needs no network")
