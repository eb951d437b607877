"""Print what a command found on standard output; progress, warnings and errors on standard error."""

import contextlib
import json
import logging
import threading
import time
from collections.abc import Iterator
from typing import Any

from rich.console import Console
from rich.logging import RichHandler
from rich.table import Table
from rich.text import Text

from ct_dip.progress import Stage, format_duration
from ct_dip.progress_bars import BarProgress, spell

# Where there is no terminal: a stage that takes longer is worth a line, and another one that often.
FIRST_SECONDS, LINE_SECONDS = 2.0, 30.0

console = Console(stderr=True, highlight=False)
output = Console(highlight=False)


def message(text: str) -> None:
    """Print a line about the run on standard error, never folded."""
    console.print(text, markup=False, soft_wrap=True)


def print_line(text: str) -> None:
    """Print a line of what was found or written on standard output, never folded."""
    output.print(text, markup=False, soft_wrap=True)


def print_json(values: dict[str, Any]) -> None:
    """Print one JSON object, in the order given: stages in the order in which they ran."""
    print(json.dumps(values, indent=2, allow_nan=False))


def print_table(title: str, rows: dict[str, str]) -> None:
    """Print names and values as a table on a terminal, as plain lines elsewhere."""
    if not output.is_terminal:
        print_line(title)
        width = max(len(name) for name in rows) + 2
        for name, value in rows.items():
            print_line(f"  {name:<{width}}{value}")
        return
    table = Table(title=Text(title), title_justify="left", show_header=False, box=None, pad_edge=False)
    table.add_column(style="bold")
    table.add_column(overflow="fold")
    for name, value in rows.items():
        table.add_row(Text(name), Text(value))
    output.print(table)


def set_up_logging(verbose: bool) -> None:
    """Log warnings of ct_dip, or everything with ``--verbose``."""
    handler = RichHandler(console=console, show_path=False, show_time=False)
    logger = logging.getLogger("ct_dip")
    logger.handlers = [handler]
    logger.setLevel(logging.DEBUG if verbose else logging.WARNING)


class _LineStage(Stage):
    """Plain lines for a log about a stage that takes long: at its start and end, and every half minute."""

    def __init__(self, name: str, total: int | None) -> None:
        self.name, self.total, self.figures = name, total, ""
        self.start, self.ended, self.told = time.monotonic(), threading.Event(), False
        # The first and the last number that was done, and when: a stage may go on from a checkpoint.
        self.first: tuple[int, float] | None = None
        self.last: tuple[int, float] | None = None

    def update(self, done: int, **figures: float) -> None:
        if self.last is None or done != self.last[0]:
            self.last = done, time.monotonic()
            self.first = self.first or self.last
        self.figures = spell(figures, ", ")

    @contextlib.contextmanager
    def shown(self) -> Iterator[Stage]:
        """Write the lines; from a thread, because a stage may be silent for long."""
        ticker = threading.Thread(target=self._tick, daemon=True)
        ticker.start()
        try:
            yield self
        finally:
            self.ended.set()
            ticker.join()
        if self.told:
            message(f"{self.name}: done after {self._elapsed()}")

    def _tick(self) -> None:
        if self.ended.wait(FIRST_SECONDS):
            return
        self.told = True
        message(f"{self.name}: started")
        while not self.ended.wait(LINE_SECONDS):
            parts = (self._elapsed(), self._done(), self._left(), self.figures)
            message(f"{self.name}: {', '.join(filter(None, parts))}")

    def _done(self) -> str:
        if self.last is None:
            return ""
        return f"{self.last[0]} of {self.total}" if self.total is not None else f"{self.last[0]}"

    def _left(self) -> str:
        """Say how long the rest takes at the pace so far; nothing if that is over."""
        if self.first is None or self.last is None or self.total is None:
            return ""
        (first, start), (done, now) = self.first, self.last
        if not first < done < self.total:
            return ""
        left = (now - start) / (done - first) * (self.total - done) - (time.monotonic() - now)
        return f"about {format_duration(left)} left" if left > 0 else ""

    def _elapsed(self) -> str:
        return format_duration(time.monotonic() - self.start)


class ConsoleProgress(BarProgress):
    """A bar per stage on a terminal, plain lines elsewhere."""

    def __init__(self) -> None:
        super().__init__(console)

    @contextlib.contextmanager
    def _show(self, name: str, total: int | None) -> Iterator[Stage]:
        show = super()._show if console.is_terminal else _lines
        with show(name, total) as stage:
            yield stage


def _lines(name: str, total: int | None) -> contextlib.AbstractContextManager[Stage]:
    return _LineStage(name, total).shown()
