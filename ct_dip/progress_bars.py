"""Progress that a user sees: bars in a terminal, one line in a notebook, nothing where nobody looks."""

import contextlib
import sys
import time
from collections.abc import Iterator
from html import escape
from typing import TYPE_CHECKING, Any

from ct_dip.progress import Progress, Stage, format_duration

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress as Bars

_REDRAW_SECONDS = 0.2  # between two changes of a notebook's line


def default_progress() -> Progress:
    """Choose by where the output goes: a notebook, a terminal, or elsewhere, as a file or a pipe."""
    if in_notebook():
        return NotebookProgress()
    if sys.stderr is not None and sys.stderr.isatty():
        return BarProgress()
    return Progress()


def in_notebook() -> bool:
    """Return whether a Jupyter kernel runs this code."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return type(shell).__name__ == "ZMQInteractiveShell"


def spell(figures: dict[str, float], between: str = "  ") -> str:
    """Write what a stage found so far, as ``loss 0.125``, or ``65 per hour`` of ``per_hour``."""
    return between.join(
        f"{value:.4g} {name.replace('_', ' ')}" if name.startswith("per_") else f"{name} {value:.4g}"
        for name, value in figures.items()
    )


class _BarStage(Stage):
    def __init__(self, bars: "Bars", task: Any) -> None:
        self.bars, self.task = bars, task

    def update(self, done: int, **figures: float) -> None:
        self.bars.update(self.task, completed=done, found=spell(figures))


class BarProgress(Progress):
    """A bar per stage, on standard error."""

    def __init__(self, console: "Console | None" = None) -> None:
        from rich.console import Console

        super().__init__()
        self.console = console or Console(stderr=True, highlight=False)

    @contextlib.contextmanager
    def _show(self, name: str, total: int | None) -> Iterator[Stage]:
        from rich import progress as rich

        columns = [rich.SpinnerColumn(), rich.TextColumn("{task.description}")]
        if total is not None:
            columns += [rich.BarColumn(bar_width=24), rich.MofNCompleteColumn(), rich.TimeRemainingColumn()]
        columns += [rich.TimeElapsedColumn(), rich.TextColumn("{task.fields[found]}")]
        with rich.Progress(*columns, console=self.console) as bars:
            task = bars.add_task(name, total=total, found="")
            yield _BarStage(bars, task)
            # A stage that converged early is whole, not abandoned.
            whole = bars.tasks[task].completed or 1
            bars.update(task, total=whole, completed=whole)

    def note(self, message: str) -> None:
        """Print a line on standard error."""
        self.console.print(f"note: {message}", markup=False, soft_wrap=True)


class _Line(Stage):
    """The stage that runs, with its bar, behind those that are done."""

    def __init__(self, progress: "NotebookProgress", name: str, total: int | None) -> None:
        self.progress, self.name, self.total, self.drawn = progress, name, total, 0.0

    def update(self, done: int, **figures: float) -> None:
        if time.monotonic() - self.drawn < _REDRAW_SECONDS:
            return
        self.drawn = time.monotonic()
        bar = "" if self.total is None else f'<progress max="{self.total}" value="{done}"></progress>'
        self.progress.display(f"{escape(self.name)} {bar} {escape(spell(figures))}")


class NotebookProgress(Progress):
    """One line of HTML that changes in place; in the end it says how long each stage took."""

    def __init__(self) -> None:
        super().__init__()
        self.handle: Any = None
        self.notes: list[str] = []

    @contextlib.contextmanager
    def stage(self, name: str, total: int | None = None) -> Iterator[Stage]:
        """Enter a stage of ``total`` steps, if that is known."""
        with super().stage(name, total) as stage:
            yield stage
        self.display()

    @contextlib.contextmanager
    def _show(self, name: str, total: int | None) -> Iterator[Stage]:
        stage = _Line(self, name, total)
        stage.update(0)
        yield stage

    def display(self, running: str = "") -> None:
        """Replace the line."""
        from IPython.display import HTML, display

        done = [f"{escape(name)} {format_duration(seconds)}" for name, seconds in self.seconds.items()]
        lines = [" · ".join([*done, *([running] if running else [])])]
        lines += [f"note: {escape(note)}" for note in self.notes]
        html = HTML("<br>".join(f"<small>{line}</small>" for line in lines))
        if self.handle is None:
            self.handle = display(html, display_id=True)
        else:
            self.handle.update(html)

    def note(self, message: str) -> None:
        """Show a line below."""
        self.notes.append(message)
        self.display()
