"""The command line ``ct-dip``: one verb per file, each a thin layer over a function of the package."""

import signal
import sys
from typing import Annotated

import typer

from ct_dip import __version__
from ct_dip.cli.compare import compare
from ct_dip.cli.console import console, message, set_up_logging
from ct_dip.cli.demo import demo
from ct_dip.cli.evaluate import evaluate
from ct_dip.cli.export import export
from ct_dip.cli.import_ import import_
from ct_dip.cli.info import info
from ct_dip.cli.methods import methods
from ct_dip.cli.plan import plan
from ct_dip.cli.query import query
from ct_dip.cli.reconstruct import reconstruct
from ct_dip.cli.report import report
from ct_dip.cli.select import select
from ct_dip.cli.simulate import simulate
from ct_dip.errors import CtDipError
from ct_dip.memory import keep_freed

app = typer.Typer(name="ct-dip", help="Reconstruct computed-tomography scans from few and noisy views.")


def _version(wanted: bool) -> None:
    if wanted:
        print(__version__)
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


_FUNCTIONS = (
    simulate,
    import_,
    info,
    methods,
    plan,
    reconstruct,
    compare,
    evaluate,
    select,
    report,
    query,
    export,
    demo,
)
VERBS = {verb.__name__.rstrip("_"): verb for verb in _FUNCTIONS}  # "import" is Python's own word
for _name, _verb in VERBS.items():
    app.command(_name)(_verb)


def main(arguments: list[str] | None = None) -> int:
    """Run a verb; return 0 (done), 1 (failed), 2 (bad input) or 130 (interrupted). Errors are one line."""
    arguments = sys.argv[1:] if arguments is None else arguments
    verbose = "--verbose" in arguments or "-v" in arguments
    set_up_logging(verbose)
    try:
        # typer turns an interrupt into a return value of 130.
        code = int(app(args=arguments or ["--help"], prog_name="ct-dip", standalone_mode=False) or 0)
    except CtDipError as error:
        if verbose:
            console.print_exception()
        _fail(str(error))
        return error.exit_code
    except typer.TyperException as error:
        verb = arguments[0] if arguments[0] in VERBS else ""
        _fail(f"{error.format_message().rstrip('. ')}; see ct-dip {verb} --help")
        return error.exit_code
    except Exception as error:  # a bug, a full pipe, no memory: still one line
        if verbose:
            console.print_exception()
        _fail(f"{type(error).__name__}: {error}; run again with --verbose to see where")
        return 1
    if code == 130:
        message("ct-dip: interrupted; run the same command to start again")
    return code


def _fail(text: str) -> None:
    message("ct-dip: " + " ".join(text.split()))


def console_script() -> None:
    """Run ``ct-dip``. Being terminated is like an interrupt: files are left whole or absent."""
    # Raising SIGINT would do nothing in a job in the background of a script, whose shell has it ignored.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    keep_freed()
    sys.exit(main())
