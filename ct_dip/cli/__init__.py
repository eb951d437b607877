"""The command line ``ct-dip``: a thin skin over the package, one verb per file."""

import sys
from typing import Annotated

import typer

from ct_dip import __version__
from ct_dip.cli.console import console, message, set_up_logging
from ct_dip.cli.demo import demo
from ct_dip.cli.info import info
from ct_dip.cli.reconstruct import reconstruct
from ct_dip.cli.simulate import simulate
from ct_dip.errors import CtDipError

app = typer.Typer(
    name="ct-dip",
    help="Computed tomography with honest error bars.",
    add_completion=False,
    no_args_is_help=True,
)


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


for _verb in (simulate, info, reconstruct, demo):
    app.command()(_verb)


def main(arguments: list[str] | None = None) -> int:
    """Run a verb; 0 done, 1 failed, 2 bad input, 130 interrupted. Errors are one line."""
    arguments = sys.argv[1:] if arguments is None else arguments
    verbose = "--verbose" in arguments or "-v" in arguments
    set_up_logging(verbose)
    try:
        return int(app(args=arguments, prog_name="ct-dip", standalone_mode=False) or 0)
    except CtDipError as error:
        if verbose:
            console.print_exception()
        _fail(str(error))
        return error.exit_code
    except typer.TyperException as error:
        verb = next((word for word in arguments if not word.startswith("-")), "")
        _fail(f"{error.format_message()} See ct-dip {verb} --help.".replace("  ", " "))
        return error.exit_code
    except KeyboardInterrupt:
        message("ct-dip: interrupted")
        return 130
    except MemoryError as error:
        _fail(f"out of memory ({error}); use a smaller problem, or backend astra")
        return 1


def _fail(text: str) -> None:
    message("ct-dip: " + " ".join(text.split()))


def console_script() -> None:
    """Entry point of ``ct-dip``."""
    sys.exit(main())
