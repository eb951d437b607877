"""What MkDocs calls while it builds the site: pages made from the code, and equations as MathML."""

import html
import re
import sys
from pathlib import Path
from typing import Any

from latex2mathml.converter import convert
from mkdocs.structure.files import File, Files

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1])]

import generate  # noqa: E402  beside this file
from repository_pages import site_links  # noqa: E402

_EQUATION = re.compile(r'<(span|div) class="arithmatex">\\[(\[](.*?)\\[)\]]</\1>', re.DOTALL)


def on_files(files: Files, config: Any, **_: Any) -> Files:
    """Add the pages that are made from the code, the notebooks and the files of the repository."""
    for name, content in generate.all_pages().items():
        if (written := files.get_file_from_path(name)) is not None:  # for readers of the repository
            files.remove(written)
        files.append(File.generated(config, name, content=content))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Turn links to files of the repository to the pages that they are here."""
    uri = page.file.src_uri
    return markdown if page.file.generated_by else site_links(markdown, f"docs/{uri}", uri)


def on_page_content(content: str, **_: Any) -> str:
    """Turn LaTeX into MathML, which browsers show without a script."""
    return _EQUATION.sub(_mathml, content)


def _mathml(match: re.Match[str]) -> str:
    tag, latex = match[1], html.unescape(match[2]).strip()
    display = "block" if tag == "div" else "inline"
    return f'<{tag} class="arithmatex">{convert(latex, display=display)}</{tag}>'
