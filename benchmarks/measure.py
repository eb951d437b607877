"""What every benchmark shares: a clock and a row."""

import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Row:
    """One comparison. ``ratio`` above 1: better than the reference; None where there is none."""

    benchmark: str
    case: str
    reference: str | None
    reference_value: float | None
    value: float
    unit: str
    ratio: float | None

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


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


def plain(benchmark: str, case: str, value: float, unit: str) -> Row:
    """A figure that has no reference."""
    return Row(
        benchmark=benchmark,
        case=case,
        reference=None,
        reference_value=None,
        value=value,
        unit=unit,
        ratio=None,
    )


def interleaved(*jobs: Callable[[], Any], rounds: int = 15) -> list[float]:
    """Median seconds of each job, run in turns so that a busy moment of the machine hits all of them."""
    times: list[list[float]] = [[] for _ in jobs]
    for job in jobs:
        job()  # warm up
    for _ in range(rounds):
        for job, taken in zip(jobs, times, strict=True):
            start = time.perf_counter()
            job()
            taken.append(time.perf_counter() - start)
    return [statistics.median(taken) for taken in times]
