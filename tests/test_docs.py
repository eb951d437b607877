"""The site's pages fit each other and the code; MkDocs is not needed here. `test_site.py` builds the site."""

import ast
import inspect
import re
import subprocess
import sys
import textwrap
import tomllib
from pathlib import Path

import pytest
import yaml

import ct_dip
from ct_dip.methods import find_method, method_names

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
sys.path.insert(0, str(DOCS))
import generate
import repository_pages
import settings_page

GENERATED = generate.all_pages()
WRITTEN = {path.relative_to(DOCS).as_posix(): path.read_text(encoding="utf-8") for path in DOCS.rglob("*.md")}
STATIC = {name: repository_pages.site_links(text, f"docs/{name}", name) for name, text in WRITTEN.items()}
PAGES = STATIC | {name: page for name, page in GENERATED.items() if name.endswith(".md")}
BLOCK = re.compile(
    r"^(?P<marker><!-- runs -->\n)?(?P<indent> *)```python(?: title=\"(?P<title>[^\"]+)\")?\n"
    r"(?P<code>.*?)^(?P=indent)```$",
    re.DOTALL | re.MULTILINE,
)


def blocks(page):
    for match in BLOCK.finditer(STATIC[page]):
        yield match["marker"] or "", match["title"], textwrap.dedent(match["code"])


def nav_pages(part):
    if isinstance(part, str):
        return [part]
    return [page for each in (part.values() if isinstance(part, dict) else part) for page in nav_pages(each)]


def test_the_navigation_has_every_page_once():
    nav = yaml.safe_load((ROOT / "mkdocs.yml").read_text())["nav"]
    assert sorted(nav_pages(nav)) == sorted(PAGES)


def slug(heading):
    """The anchor of a heading, as Python-Markdown makes it."""
    text = re.sub(r"[^\w\s-]", "", heading.encode("ascii", "ignore").decode()).strip().lower()
    return re.sub(r"[-\s]+", "-", text)


@pytest.mark.parametrize("page", sorted(PAGES))
def test_links_lead_somewhere(page):
    text = re.sub(r"```.*?```", "", PAGES[page], flags=re.DOTALL)
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        found = (Path("/") / Path(page).parent / path).resolve().as_posix()[1:] if path else page
        assert found in PAGES or found in GENERATED or (DOCS / found).is_file(), f"{page}: {target}"
        if anchor and found in PAGES:
            anchors = {slug(heading) for heading in re.findall(r"^#+ (.*)$", PAGES[found], re.MULTILINE)}
            assert anchor in anchors, f"{page}: {target} is none of {sorted(anchors)}"


REPOSITORY = [*(f"docs/{name}" for name in WRITTEN), "README.md", *repository_pages.INCLUDED]


@pytest.mark.parametrize("file", REPOSITORY)
def test_links_lead_to_files_of_the_repository(file):
    """For those who read it without the site."""
    text = re.sub(r"```.*?```", "", (ROOT / file).read_text(encoding="utf-8"), flags=re.DOTALL)
    for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)\s]*)?\)", text):
        if not re.match(r"[a-z]+:", target):
            assert (ROOT / file).parent.joinpath(target).exists(), target


WITH_CODE = [page for page in sorted(STATIC) if page.startswith(("start/", "howto/", "reference/"))]


@pytest.mark.parametrize("page", WITH_CODE)
def test_code_is_python(page):
    for _, _, code in blocks(page):
        ast.parse(code)


@pytest.mark.parametrize("page", [page for page in WITH_CODE if "<!-- runs -->" in STATIC[page]])
def test_code_that_is_marked_runs(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    marked, names = [code for marker, _, code in blocks(page) if marker], {}
    assert len(marked) == STATIC[page].count("<!-- runs -->")
    for code in marked:
        exec(compile(code, page, "exec"), names)


def test_the_tutorial_of_a_method_works(tmp_path):
    """Its files, with the metadata that pip would leave of its ``pyproject.toml`` in site-packages."""
    page = "howto/add-a-method.md"
    for _, title, code in blocks(page):
        (tmp_path / title).write_text(code)
    (toml,) = re.findall(r"```toml[^\n]*\n(.*?)```", STATIC[page], re.DOTALL)
    (tmp_path / "pyproject.toml").write_text(toml)
    backend = tomllib.loads(toml).get("build-system", {}).get("build-backend", "setuptools.build_meta")
    build = f"import {backend} as backend; backend.prepare_metadata_for_build_wheel('.')"
    run = subprocess.run([sys.executable, "-c", build], cwd=tmp_path, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    code = f"import sys; sys.path[:0] = [{str(tmp_path)!r}, {str(ROOT)!r}]; exec(open('use.py').read())"
    run = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    psnr, coverage = (float(word) for word in run.stdout.split())
    assert psnr > 20
    assert coverage > 0.8


def test_every_public_name_is_described():
    page = GENERATED["reference/api.md"]
    for name in ct_dip.__all__:
        if not name.startswith("__"):
            assert re.search(rf"^(::: ct_dip\.([\w.]+\.)?| +heading: ){name}$", page, re.MULTILINE), name
            assert inspect.getdoc(getattr(ct_dip, name)), name


def test_every_setting_is_described():
    for name in method_names():
        config = find_method(name).config
        for model in (config, *config.sections().values()):
            for field in model.model_fields:
                if field not in config.sections():
                    assert settings_page.description(model, field), f"{model.__name__}.{field}"
    page = GENERATED["reference/configuration.md"]
    assert "| `strength` | `auto` | number above 0" in page
    assert "`lin-dip-paper` begins with other values: `objective=optimum`" in page


def test_every_verb_and_method_has_a_section():
    from ct_dip.cli import VERBS

    for verb in VERBS:
        assert f"\n## ct-dip {verb}\n" in GENERATED["reference/commands.md"]
    for name in method_names():
        assert f"\n## {name}\n" in GENERATED["reference/methods.md"]
        assert re.search(rf"`{name}`|`laplace-…`", STATIC["papers/index.md"]), name


def test_pictures_are_small():
    for path in (DOCS / "pictures").glob("*.png"):
        assert path.stat().st_size < 150_000, path.name
