"""Report the progress of a long job. This class only keeps the time; `progress_bars` draws."""

import contextlib
import time
from collections.abc import Iterator

from ct_dip import memory


class Stage:
    """One stage of a job."""

    def update(self, done: int, **figures: float) -> None:
        """Report that ``done`` of the stage's total is done, and figures such as ``loss=0.1``."""


class Progress:
    """Stages of a job, and the wall time of each in ``seconds``.

    What a stage frees goes back to the system at its end.
    """

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    @contextlib.contextmanager
    def stage(self, name: str, total: int | None = None) -> Iterator[Stage]:
        """Enter a stage of ``total`` steps, if that is known."""
        start = time.perf_counter()
        with self._show(name, total) as stage:
            yield stage
        memory.give_back()
        self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - start

    @contextlib.contextmanager
    def _show(self, name: str, total: int | None) -> Iterator[Stage]:
        yield Stage()

    def note(self, message: str) -> None:
        """Tell the user something."""


def format_duration(seconds: float) -> str:
    """Return a duration as people write it: ``56 ms``, ``2.3 s``, ``3 min 50 s``, ``24 h 46 min``."""
    if seconds < 0.1:
        return f"{1000 * seconds:.0f} ms" if seconds >= 1e-3 else "under 1 ms"
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    if round(seconds) < 60:
        return f"{seconds:.0f} s"
    (unit, part), size = (("min", "s"), 1) if round(seconds) < 3600 else (("h", "min"), 60)
    whole, rest = divmod(round(seconds / size), 60)
    return f"{whole} {unit} {rest} {part}" if rest else f"{whole} {unit}"
