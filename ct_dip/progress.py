"""What a long job tells while it works: silent and keeping the time here, drawn by the command line."""

import contextlib
import time
from collections.abc import Iterator


class Stage:
    """One stage of a job."""

    def update(self, done: int, **figures: float) -> None:
        """``done`` of the stage's total, and what was found so far, such as ``loss=0.1``."""


class Progress:
    """Stages of a job, and the wall time of each in ``seconds``."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    @contextlib.contextmanager
    def stage(self, name: str, total: int | None = None) -> Iterator[Stage]:
        """Enter a stage of ``total`` steps, if that is known."""
        start = time.perf_counter()
        with self._show(name, total) as stage:
            yield stage
        self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - start

    @contextlib.contextmanager
    def _show(self, name: str, total: int | None) -> Iterator[Stage]:
        yield Stage()

    def note(self, message: str) -> None:
        """Something that the user should know."""
