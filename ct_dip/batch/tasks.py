"""Which items go to a worker together, and in which order."""

from collections import deque
from collections.abc import Mapping, Sequence
from typing import NamedTuple

_TASK_SECONDS = 1.0  # of work in a task of small items: a thousand times what it costs to hand it over
_MOST_ITEMS = 100  # in a task


class Task(NamedTuple):
    """Units of one method; the items of a unit are reconstructed together."""

    method: str
    units: tuple[tuple[int, ...], ...]

    @property
    def items(self) -> tuple[int, ...]:
        """Every item once."""
        return tuple(item for unit in self.units for item in unit)


class Tasks:
    """What is still to be done, given away task by task, with all methods at about the same item.

    Units are cut from the list of all items, so that they do not depend on what is done already, nor on the
    number of workers; only what is pending of a unit is given away. Units of a fast method are put together
    to about a second of work.

    Args:
        items: all of the evaluation; ``pending`` by method those that are left.
        per_unit: items of a unit, by method.
    """

    def __init__(
        self, items: Sequence[int], pending: Mapping[str, Sequence[int]], per_unit: Mapping[str, int]
    ) -> None:
        self._left: dict[str, deque[tuple[int, ...]]] = {}
        for method, open_items in pending.items():
            wanted, count = set(open_items), per_unit[method]
            units = (items[first : first + count] for first in range(0, len(items), count))
            kept = (tuple(item for item in unit if item in wanted) for unit in units)
            self._left[method] = deque(unit for unit in kept if unit)
        self._seconds: dict[str, tuple[float, int]] = {}

    def take(self) -> Task | None:
        """Take the next task; ``None`` if nothing is left."""
        open_methods = [method for method, units in self._left.items() if units]
        if not open_methods:
            return None
        method = min(open_methods, key=lambda name: self._left[name][0][0])  # the one that lags behind
        units = self._left[method]
        return Task(method, tuple(units.popleft() for _ in range(min(self._together(method), len(units)))))

    def tell(self, task: Task, seconds: float) -> None:
        """Learn how long a task of a method lasted."""
        total, count = self._seconds.get(task.method, (0.0, 0))
        self._seconds[task.method] = total + seconds, count + len(task.units)

    def _together(self, method: str) -> int:
        total, count = self._seconds.get(method, (0.0, 0))
        if not count:
            return 1
        return max(1, min(_MOST_ITEMS, int(_TASK_SECONDS / max(total / count, 1e-6))))
