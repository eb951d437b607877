"""``ct-dip report``: one HTML page of a result."""

from pathlib import Path
from typing import Annotated

import typer

from ct_dip.cli.console import message
from ct_dip.cli.options import Verbose
from ct_dip.errors import InputError


def report(
    result: Annotated[Path, typer.Argument(help="Result file.")],
    out: Annotated[Path, typer.Option(help="Page to write (.html).")],
    verbose: Verbose = False,
) -> None:
    """Write one page that shows a result: what is it, how sure are we, should I believe it?"""
    if out.suffix not in (".html", ".htm"):
        raise InputError(f"--out {out}: a report is a web page; give it the ending .html")
    from ct_dip.data.result_file import read_result
    from ct_dip.files import check_writable
    from ct_dip.report.report_page import write_report

    loaded = read_result(result)
    check_writable(out)
    if out.exists() and out.samefile(result):
        raise InputError(f"--out {out} is the result itself; choose another name")
    write_report(out, loaded, source=result.name)
    size = out.stat().st_size / 2**20
    message(f"{out}: open it in a browser; one file of {size:.1f} MiB that needs no network")
