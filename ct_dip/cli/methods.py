"""``ct-dip methods``: list the reconstruction methods."""

from typing import Annotated, Any

import typer

from ct_dip.cli.console import message, print_json, print_table
from ct_dip.cli.options import Verbose
from ct_dip.errors import CtDipError


def methods(
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the methods with their settings as JSON.")
    ] = False,
    verbose: Verbose = False,
) -> None:
    """List the reconstruction methods: what each one does, what it returns, and the paper it comes from."""
    from ct_dip.methods import find_method, method_names

    known: dict[str, Any] = {}
    for name in method_names():
        try:
            known[name] = find_method(name)
        except CtDipError as error:  # of another package: the others still work
            message(f"warning: {error}")
    if as_json:
        print_json({name: facts(method) for name, method in known.items()})
    else:
        print_table(f"{len(known)} methods", {name: summary(method) for name, method in known.items()})


def facts(method: Any) -> dict[str, Any]:
    """Collect everything that a method states about itself."""
    sections = method.config.sections()
    return {
        "summary": method.summary,
        "gives": list(method.gives),
        "reference": method.reference,
        "accepts": method.accepts,
        "settings": {name: section().model_dump(mode="json") for name, section in sections.items()},
    }


def summary(method: Any) -> str:
    """Describe a method in a few lines."""
    lines = [
        method.summary,
        f"Gives {', '.join(method.gives)}. Settings: {', '.join(method.config.sections())}.",
    ]
    return "\n".join([*lines, *([method.reference] if method.reference else [])])
