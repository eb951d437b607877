"""Files and notebooks of the repository that are pages of the site, too."""

import base64
import json
import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]

# Files of the repository that are pages of the site, too.
INCLUDED = {
    "benchmarks/README.md": "benchmarks/index.md",
    "experiments/README.md": "benchmarks/studies.md",
    "experiments/kmnist/README.md": "papers/kmnist.md",
    **{
        f"experiments/{name}/README.md": f"benchmarks/{name}.md"
        for name in ("walnut", "htc2022", "tooth", "head")
    },
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
}


def included_page(file: str) -> str:
    """A file of the repository as a page."""
    return site_links((ROOT / file).read_text(encoding="utf-8"), file, INCLUDED[file])


def site_links(text: str, file: str, page: str) -> str:
    """Text of a file of the repository, with links turned to pages of the site or to plain names of files.

    Args:
        file: the text's file in the repository.
        page: its page of the site.
    """

    def link(match: re.Match[str]) -> str:
        label, target, anchor = match[1], match[2], match[3] or ""
        if not target or ":" in target:
            return match[0]
        found = (ROOT / file).parent.joinpath(target).resolve()
        inside = found.relative_to(ROOT).as_posix() if found.is_relative_to(ROOT) else target
        to = INCLUDED.get(inside)
        if inside.startswith("docs/"):
            to = inside.removeprefix("docs/")
        elif inside.endswith(".ipynb"):
            to = f"gallery/{found.stem}.md"
        if to is None:
            return f"{label} (`{inside}`)" if label.strip("`") != inside else f"`{inside}`"
        return f"[{label}]({'../' * page.count('/')}{to}{anchor})"

    return re.sub(r"(?<!!)\[([^\]]+)\]\(([^)#\s]*)(#[^)\s]*)?\)", link, text)


def included_pictures(file: str) -> dict[str, str | bytes]:
    """Pictures that a file of the repository shows, beside its page."""
    path, folder = ROOT / file, Path(INCLUDED[file]).parent
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
