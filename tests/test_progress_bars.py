"""Progress in a terminal, in a notebook, and where nobody looks."""

import io
import re
import sys
from types import SimpleNamespace

import pytest
from rich.console import Console

from ct_dip import progress_bars
from ct_dip.progress import Progress
from ct_dip.progress_bars import BarProgress, NotebookProgress, default_progress


class ZMQInteractiveShell:
    """Named like the shell of a Jupyter kernel."""


@pytest.mark.parametrize(
    ("terminal", "shell", "kind"),
    [(False, None, Progress), (True, None, BarProgress), (True, ZMQInteractiveShell(), NotebookProgress)],
)
def test_the_default_follows_the_output(monkeypatch, terminal, shell, kind):
    monkeypatch.setattr(sys, "stderr", SimpleNamespace(isatty=lambda: terminal))
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: shell))
    assert type(default_progress()) is kind


def test_a_terminal_shows_every_stage_and_note():
    screen = io.StringIO()
    progress = BarProgress(Console(file=screen, force_terminal=True, width=120))
    with progress.stage("fit", 200) as stage:
        stage.update(30, loss=0.125)
    progress.note("[bold] is text")
    shown = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", screen.getvalue())
    assert "fit" in shown
    assert "30/30" in shown  # a stage that ends early is whole
    assert "loss 0.125" in shown
    assert "note: [bold] is text" in shown
    assert list(progress.seconds) == ["fit"]


def test_a_notebook_has_one_line_that_changes(monkeypatch):
    shown = []
    handle = SimpleNamespace(update=lambda html: shown.append(html.data))

    def display(html, display_id):
        shown.append(html.data)
        return handle

    monkeypatch.setattr("IPython.display.display", display)
    monkeypatch.setattr(progress_bars, "_REDRAW_SECONDS", 0.0)
    progress = NotebookProgress()
    with progress.stage("fit <1>", 200) as stage:
        stage.update(30, loss=0.125)
    progress.note("done & dusted")
    first, second, last, note = shown
    assert '<progress max="200" value="0">' in first
    assert '<progress max="200" value="30"></progress> loss 0.125' in second
    assert re.search(r"fit &lt;1&gt; (under 1|\d+) ms", last)
    assert "progress max" not in last
    assert "note: done &amp; dusted" in note
