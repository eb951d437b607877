"""Pages of the site that are made from the code, so that they cannot differ from it. No MkDocs needed."""

import inspect
from typing import Any

import typer
from repository_pages import INCLUDED, ROOT, included_page, included_pictures, notebook_pages
from settings_page import configuration_page, plain

import ct_dip
from ct_dip.data.column_legend import ENDINGS, FIGURES
from ct_dip.data.legend import MEANINGS
from ct_dip.method import Method
from ct_dip.methods import find_method, method_names

# Sections of the page of public names; a name that is in none of them comes last.
_API = {
    "Scans and geometry": (
        *("Scan", "read_scan", "write_scan", "import_scan", "simulate", "NoiseLevel"),
        *("WhiteNoise", "PhotonNoise"),
        *("Volume", "ParallelBeam", "FanBeam", "scanner", "view_angles", "ray_transform"),
    ),
    "Reconstruction": (
        *("reconstruct", "plan", "Prediction", "read_result", "write_result", "query", "export", "report"),
        *("figures", "fbp", "fit_dip", "fit_many", "DipFit", "fit_posterior", "Posterior"),
    ),
    "Comparison": (*("score", "Scores", "psnr", "compare", "compare_results", "select", "MethodTable"),),
    "Settings and extensions": ("load_config", "RunConfig", "DipConfig", "InferenceConfig", "Method"),
}


def all_pages() -> dict[str, str | bytes]:
    """Every generated page and picture by its name."""
    pages: dict[str, str | bytes] = {
        "reference/api.md": api_page(),
        "reference/configuration.md": configuration_page(),
        "reference/commands.md": commands_page(),
        "reference/methods.md": methods_page(),
        "reference/diagnostics.md": diagnostics_page(),
        "reference/scores.md": scores_page(),
    }
    for file, page in INCLUDED.items():
        pages |= included_pictures(file) | {page: included_page(file)}
    for notebook in sorted((ROOT / "notebooks").glob("*.ipynb")):
        pages |= notebook_pages(notebook)
    return pages


def api_page() -> str:
    """Public names, for mkdocstrings to describe."""
    names = [name for name in ct_dip.__all__ if not name.startswith("__")]
    groups = {title: [name for name in members if name in names] for title, members in _API.items()}
    grouped = {name for members in groups.values() for name in members}
    groups["More"] = [name for name in names if name not in grouped]
    lines = [
        "# Python",
        "Everything here is imported as `import ct_dip` and used as `ct_dip.NAME`. Lengths are millimetres, "
        "angles radians, attenuation 1/mm; images are `(rows, columns)` with the first row on top, sinograms "
        "`(views, detectors)`. See [Vocabulary](../vocabulary.md).",
    ]
    for title, members in groups.items():
        if members:
            lines += [f"## {title}", *(_entry(name) for name in members)]
    return "\n\n".join(lines) + "\n"


def _entry(name: str) -> str:
    """What mkdocstrings is told of a public name; one that is defined under another has its heading."""
    home = _home(name)
    same = home.rpartition(".")[2] == name
    return f"::: {home}" if same else f"::: {home}\n    options:\n      heading: {name}"


def _home(name: str) -> str:
    """Where a public name is defined."""
    thing = getattr(ct_dip, name)
    if inspect.ismodule(thing):
        return str(thing.__name__)
    module = getattr(thing, "__module__", "")
    return f"{module}.{thing.__qualname__}" if module.startswith("ct_dip") else f"ct_dip.{name}"


def diagnostics_page() -> str:
    """Every number that methods report about themselves."""
    lines = [
        "# Diagnostics",
        "`result.diagnostics` in Python, `ct-dip info RESULT --json` in the shell. Hyperparameters of "
        "`lin-dip` are under `hyperparameters`; those of single blocks of the network end in the block's "
        "name, as `log_variance.down0`: `in`, then `down0` and on to coarser scales, `up0` and on back, "
        "`skip0` and on, `out`.",
        "| name | meaning |\n| --- | --- |\n"
        + "\n".join(f"| `{name}` | {text} |" for name, text in MEANINGS.items()),
    ]
    return "\n\n".join(lines) + "\n"


def scores_page() -> str:
    """Every column of the tables that compare and evaluate write."""
    lines = [
        "# Scores",
        "Columns of `comparison.csv` (`ct-dip compare`, `select`) and of `scores.csv` (`ct-dip evaluate`); "
        "`comparison_columns.csv` and `scores_columns.csv` beside them explain each column by itself. In "
        "Python, `result.scores.row()` and `result.heldout.row()` give the figures by these names. A cell is "
        "empty where a method has no such figure. N stands for a number.",
        "| column | meaning |\n| --- | --- |\n"
        + "\n".join(f"| `{name}` | {_sentence(text)} |" for name, text in FIGURES.items()),
        "## Endings",
        "An ending says which pixels, or which means over pixels, a figure describes: `coverage_95_near`, "
        "`rms_z_blocks_8`.",
        "| ending | meaning |\n| --- | --- |\n"
        + "\n".join(f"| {f'`{e}`' if e else 'none'} | {_sentence(text)} |" for e, text in ENDINGS.items()),
    ]
    return "\n\n".join(lines) + "\n"


def commands_page() -> str:
    """Every verb of ``ct-dip`` with its arguments and options."""
    from ct_dip.cli import app

    group: Any = typer.main.get_command(app)
    lines = [
        "# Commands",
        "What a command found or wrote goes to standard output, as text or, with `--json`, as one JSON "
        "object; progress, warnings and errors go to standard error. Exit codes: 0 done, 1 failed, 2 bad "
        "input, 130 interrupted.",
        "| command | what it does |\n| --- | --- |\n"
        + "\n".join(
            f"| [`ct-dip {n}`](#ct-dip-{n}) | {_sentence(c.help)} |" for n, c in group.commands.items()
        ),
    ]
    for name, command in group.commands.items():
        lines += [f"## ct-dip {name}", _sentence(command.help), *_parameters(name, command)]
    return "\n\n".join(lines) + "\n"


def _parameters(name: str, command: Any) -> list[str]:
    arguments = [p for p in command.params if p.param_type_name == "argument"]
    options = [p for p in command.params if p.param_type_name == "option" and p.name != "help"]
    usage = " ".join(
        [f"ct-dip {name}", *((p.metavar or p.name or "").upper() for p in arguments), "[OPTIONS]"]
    )
    lines = [f"```text\n{usage}\n```"]
    if arguments:
        rows = [f"| `{(p.metavar or p.name).upper()}` | {_sentence(p.help)} |" for p in arguments]
        lines.append("\n".join(["| argument | meaning |", "| --- | --- |", *rows]))
    rows = []
    for option in options:
        spelling = " ".join(f"`{each}`" for each in (*option.opts, *option.secondary_opts))
        rows.append(f"| {spelling} | {_option_default(option)} | {_sentence(option.help)} |")
    lines.append("\n".join(["| option | default | meaning |", "| --- | --- | --- |", *rows]))
    return lines


def _option_default(option: Any) -> str:
    if option.required:
        return "must be given"
    value = option.default
    if value is None or value is False or "UNSET" in repr(value).upper() or value == ():
        return ""
    return f"`{plain(value)}`"


def _sentence(text: str | None) -> str:
    return " ".join((text or "").split()).replace("|", "∣").replace("``", "`")


def methods_page() -> str:
    """Every method with its equation, what it gives, and its paper."""
    lines = [
        "# Methods",
        "Every method takes a scan and gives a [`Prediction`](api.md); `ct-dip reconstruct SCAN --method "
        "NAME --out RESULT` runs it. Which one to take is on [Choose a method](../which-method.md), full "
        "citations are on [Papers](../papers/index.md), settings on [Configuration](configuration.md).",
    ]
    for name in method_names():
        method: Method[Any] = find_method(name)
        sections = [f"[`{section}`](configuration.md#{section})" for section in method.config.sections()]
        lines += [
            f"## {name}",
            f"{method.summary} Gives: {', '.join(method.gives)}.",
            _cleaned(inspect.getdoc(type(method)) or ""),
            f"From: {method.reference}. Settings: {', '.join(sections) or 'none'}.",
        ]
        if method.accepts:
            objects = [f"`{key}`: {what}" for key, what in method.accepts.items()]
            lines.append("In Python it accepts objects of your own: " + "; ".join(objects) + ".")
    return "\n\n".join(lines) + "\n"


def _cleaned(docstring: str) -> str:
    """A docstring as Markdown."""
    return docstring.replace("``", "`")
