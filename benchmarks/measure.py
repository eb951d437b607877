"""What every benchmark shares: a clock and a row."""

import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Row:
    """One comparison. ``ratio`` above 1: better than the reference; None where there is none.

    ``details`` are further keys of the JSON object.
    """

    benchmark: str
    case: str
    reference: str | None
    reference_value: float | None
    value: float
    unit: str
    ratio: float | None
    details: dict[str, Any] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        own = asdict(self)
        return own | own.pop("details")


def faster(benchmark: str, case: str, reference: str, theirs: float, ours: float) -> Row:
    """A row on seconds, where less is better; printed in milliseconds."""
    return Row(
        benchmark=benchmark,
        case=case,
        reference=reference,
        reference_value=theirs * 1e3,
        value=ours * 1e3,
        unit="ms",
        ratio=theirs / ours,
    )


def plain(benchmark: str, case: str, value: float, unit: str, **details: Any) -> Row:
    """A figure that has no reference."""
    return Row(
        benchmark=benchmark,
        case=case,
        reference=None,
        reference_value=None,
        value=value,
        unit=unit,
        ratio=None,
        details=details,
    )


def interleaved(
    *jobs: Callable[[], Any],
    rounds: int = 15,
    summary: Callable[[list[float]], float] = statistics.median,
    clock: Callable[[], float] = time.perf_counter,
) -> list[float]:
    """Seconds of each job, run in turns so that a busy moment of the machine hits all of them.

    Orders change from round to round: a job that always followed the same other one would find the caches as
    that one left them.

    Args:
        summary: of the rounds of a job. The least is what the machine can do; the median, what it does.
        clock: `time.process_time` counts a process of one thread alone, whatever else the machine does.
    """
    times: list[list[float]] = [[] for _ in jobs]
    for job in jobs:
        job()  # warm up
    orders = balanced_orders(len(jobs))
    for number in range(rounds):
        for index in orders[number % len(orders)]:
            start = clock()
            jobs[index]()
            times[index].append(clock() - start)
    return [summary(taken) for taken in times]


def balanced_orders(count: int) -> list[list[int]]:
    """Orders of some jobs in which each follows every other one equally often (Williams 1949)."""
    first = [(place + 1) // 2 if place % 2 else (count - place // 2) % count for place in range(count)]
    orders = [[(job + shift) % count for job in first] for shift in range(count)]
    return orders if count % 2 == 0 else orders + [order[::-1] for order in orders]
