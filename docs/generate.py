"""Pages of the site that are made from the code, so that they cannot differ from it. No MkDocs needed."""

import base64
import inspect
import json
import re
import types
import typing
from pathlib import Path
from typing import Any, Literal

import annotated_types
import typer
from pydantic.fields import FieldInfo

import ct_dip
from ct_dip.config import RunConfig, Section
from ct_dip.method import Method
from ct_dip.methods import find_method, method_names

ROOT = Path(__file__).parents[1]

# Files of the repository that are pages of the site, too.
INCLUDED = {
    "benchmarks/README.md": "benchmarks/index.md",
    "experiments/README.md": "benchmarks/studies.md",
    "experiments/kmnist/README.md": "papers/kmnist.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
}

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


def configuration_page() -> str:
    """Every setting with its default, what it may be, and what it means."""
    lines = [
        "# Configuration",
        "A run is configured by a YAML file (`--config run.yaml`), by single settings (`--set "
        'tv.strength=0.5`) and in Python by keywords (`ct_dip.reconstruct(scan, method="tv", '
        "strength=0.5)`). All three end up in one checked configuration; an unknown key is an error that "
        "names the nearest known one. Every result stores the configuration that made it, with all choices "
        "made.",
        "```yaml\nmethod: lin-dip\npreset: fast\nseed: 1\ndip:\n  max_steps: 1000\ninference:\n"
        "  samples: 200\n```",
        "Lengths are millimetres, attenuation 1/mm; a setting without a unit is a pure number or a count.",
        "## Every run",
        _fields_table(RunConfig),
    ]
    for name, (model, methods, changes) in _sections().items():
        lines += [f"## `{name}`", _first_sentence(model), f"Used by {_listed(methods)}."]
        lines.append(_fields_table(model))
        for method, fields in changes.items():
            lines.append(f"`{method}` begins with other values: {fields}.")
        if name == "dip":
            lines += ["What the preset decides where it is not given:", _presets_table()]
    return "\n\n".join(lines) + "\n"


def _sections() -> dict[str, tuple[type[Section], list[str], dict[str, str]]]:
    """Sections by name: their model, the methods that have them, and other defaults that some begin with."""
    found: dict[str, tuple[type[Section], list[str], dict[str, str]]] = {}
    order = sorted(method_names(), key=lambda name: (name not in ("lin-dip", "dip", "tv", "fbp"), name))
    for name in order:
        for section, model in find_method(name).config.sections().items():
            first, methods, changes = found.setdefault(section, (model, [], {}))
            methods.append(name)
            if model is not first:
                other = {
                    key: field.default
                    for key, field in model.model_fields.items()
                    if key in first.model_fields and field.default != first.model_fields[key].default
                }
                changes[name] = ", ".join(f"`{key}={_plain(value)}`" for key, value in other.items())
    return found


def description(model: type[Section], name: str) -> str | None:
    """What a setting means: said where it is defined, or in the class that it is inherited from."""
    for each in model.__mro__:
        fields = getattr(each, "model_fields", {})
        if name in fields and fields[name].description:
            return str(fields[name].description)
    return None


def _fields_table(model: type[Section]) -> str:
    rows = ["| setting | default | may be | meaning |", "| --- | --- | --- | --- |"]
    for name, field in model.model_fields.items():
        meaning = " ".join((description(model, name) or "").split()).replace("|", "∣").replace("``", "`")
        rows.append(
            f"| `{name}` | {_default(field)} | {_allowed(field.annotation, field.metadata)} | {meaning} |"
        )
    return "\n".join(rows)


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "must be given"
    value = field.get_default(call_default_factory=True)
    return "by the preset" if value is None else f"`{_plain(value)}`"


def _plain(value: Any) -> str:
    """A value as YAML has it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _allowed(annotation: Any, metadata: typing.Iterable[Any] = ()) -> str:
    """Values of a type, in words."""
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is Literal:
        return ", ".join(f"`{_plain(value)}`" for value in arguments)
    if origin is typing.Annotated:
        return _allowed(arguments[0], arguments[1:])
    if origin in (typing.Union, types.UnionType):
        return ", or ".join(_allowed(each, metadata) for each in arguments if each is not type(None))
    words = {int: "whole number", float: "number", bool: "`true`, `false`", str: "text", dict: "mapping"}
    word = words.get(annotation, "list of whole numbers" if origin is tuple else words.get(origin, "value"))
    return " ".join([word, *_limits(metadata)]) if annotation in (int, float) else word


def _limits(metadata: typing.Iterable[Any]) -> list[str]:
    signs = {"gt": "above {}", "ge": "from {}", "lt": "below {}", "le": "up to {}"}
    parts = []
    for each in metadata:
        inner = each.metadata if isinstance(each, FieldInfo) else [each]
        for limit in inner:
            for sign, words in signs.items():
                if isinstance(limit, annotated_types.BaseMetadata) and hasattr(limit, sign):
                    value = getattr(limit, sign)
                    if value is not None:
                        parts.append(words.format(value))
    return parts


def _presets_table() -> str:
    from ct_dip.dip.presets import PRESETS

    names = list(vars(next(iter(PRESETS.values()))))
    rows = ["| | " + " | ".join(f"`{name}`" for name in PRESETS) + " |", "| --- |" + " --- |" * len(PRESETS)]
    for key in names:
        rows.append(f"| `{key}` | " + " | ".join(str(getattr(p, key)) for p in PRESETS.values()) + " |")
    return "\n".join(rows)


def commands_page() -> str:
    """Every verb of ``ct-dip`` with its arguments and options."""
    from ct_dip.cli import app

    group: Any = typer.main.get_command(app)
    lines = [
        "# Commands",
        "Exit codes: 0 done, 1 failed, 2 bad input, 130 interrupted. Data goes to standard output only where "
        "`--json` asks for it; progress and messages go to standard error.",
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
    return f"`{_plain(value)}`"


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


def _first_sentence(model: type[Section]) -> str:
    text = " ".join((inspect.getdoc(model) or "").split("\n\n")[0].split()).replace("``", "`")
    return text if text.endswith(".") else text + "."


def _listed(names: list[str]) -> str:
    return ", ".join(f"[`{name}`](methods.md#{name})" for name in names)


def included_page(file: str) -> str:
    """A file of the repository, with its links turned to pages of the site or to plain names of files."""
    path = ROOT / file
    if not path.exists():
        return f"# Not there yet\n\nThis page is `{file}`, which this version does not have.\n"
    page = INCLUDED[file]

    def link(match: re.Match[str]) -> str:
        text, target, anchor = match[1], match[2], match[3] or ""
        if not target or ":" in target:
            return match[0]
        found = (path.parent / target).resolve()
        inside = found.relative_to(ROOT).as_posix() if found.is_relative_to(ROOT) else target
        to = INCLUDED.get(inside) or (inside.removeprefix("docs/") if inside.startswith("docs/") else None)
        if to is None or not to.endswith(".md"):
            return f"{text} (`{inside}`)" if text.strip("`") != inside else f"`{inside}`"
        up = "../" * page.count("/")
        return f"[{text}]({up}{to}{anchor})"

    return re.sub(r"(?<!!)\[([^\]]+)\]\(([^)#\s]*)(#[^)\s]*)?\)", link, path.read_text(encoding="utf-8"))


def included_pictures(file: str) -> dict[str, str | bytes]:
    """Pictures that a file of the repository shows, beside its page."""
    path, folder = ROOT / file, Path(INCLUDED[file]).parent
    if not path.exists():
        return {}
    shown = re.findall(r"!\[[^\]]*\]\(([^)\s:]+)\)", path.read_text(encoding="utf-8"))
    return {(folder / name).as_posix(): (path.parent / name).read_bytes() for name in shown}


def notebook_pages(path: Path) -> dict[str, str | bytes]:
    """A notebook as a page: its text, its code, and the outputs that are stored with it."""
    page = f"gallery/{path.stem}.md"
    parts: list[str] = [
        f"*This page is the notebook `notebooks/{path.name}`; open it with JupyterLab (`pip install "
        "'.[notebooks]'`) to change things.*"
    ]
    pictures: dict[str, str | bytes] = {}
    for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            if not any(part.startswith("# ") for part in parts):
                heading, _, rest = source.partition("\n")
                parts[:0], source = [heading], rest
            parts.append(re.sub(r"\]\((\w+)\.ipynb\)", r"](\1.md)", source))
        elif cell["cell_type"] == "code" and source.strip():
            parts.append(f"```python\n{source}\n```")
            for output in cell.get("outputs", ()):
                parts += _shown(output, f"gallery/{path.stem}", pictures)
    return pictures | {page: "\n\n".join(parts) + "\n"}


def _shown(output: dict[str, Any], stem: str, pictures: dict[str, str | bytes]) -> list[str]:
    """An output of a cell: a picture, HTML, or text."""
    data = output.get("data", {})
    if "image/png" in data:
        name = f"{stem}_{len(pictures) + 1}.png"
        pictures[name] = base64.b64decode("".join(data["image/png"]))
        return [f"![Output of the cell above]({Path(name).name})"]
    if "text/html" in data:
        return [f"<div markdown='0'>{''.join(data['text/html'])}</div>"]
    text = "".join(output.get("text", data.get("text/plain", "")))
    return [f"```text\n{text.rstrip()}\n```"] if text.strip() else []
