"""The plan of a run: memory, network passes and seconds of every stage."""

import dataclasses
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from ct_dip import memory
from ct_dip.progress import format_duration

_TRIAL_SECONDS = 0.5  # that the measurement of one kind of work takes, about


@dataclass(frozen=True, kw_only=True)
class StagePlan:
    """One stage: memory that it holds, passes through the network, and seconds if they were measured."""

    name: str
    bytes: int
    passes: int = 0
    seconds: float | None = None


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Stages in order; earlier ones free their working memory before later ones begin.

    Args:
        held: bytes that every stage holds.
        budget: bytes that the run may take.
        given: objects of Python that the run was given; see `ct_dip.method.Job`.
        facts: what else a user wants to know, as ``network`` and ``regime``.
        advice: what to change when it does not fit.
        details: of the method, that its run follows.
    """

    method: str
    pixels: int
    measurements: int
    held: int
    budget: int
    stages: tuple[StagePlan, ...]
    given: Mapping[str, Any] = field(default_factory=dict)
    facts: dict[str, Any] = field(default_factory=dict)
    advice: str = "use a smaller image or fewer views"
    details: Any = None

    @property
    def bytes(self) -> int:
        """Peak memory: that of the largest stage."""
        return max(stage.bytes for stage in self.stages)

    @property
    def seconds(self) -> float | None:
        """Time of all stages whose time is known, at most; ``None`` if it was not measured."""
        times = [stage.seconds for stage in self.stages if stage.seconds is not None]
        return sum(times) if times else None

    def with_stage(self, name: str, bytes: int = 0, passes: int = 0) -> Self:
        """Add a stage that takes so many bytes beside those that every stage holds."""
        stage = StagePlan(name=name, bytes=self.held + bytes, passes=passes)
        return dataclasses.replace(self, stages=(*self.stages, stage))

    def with_facts(self, **facts: Any) -> Self:
        """Add facts."""
        return dataclasses.replace(self, facts=self.facts | facts)

    def with_seconds(self, seconds: Mapping[str, float]) -> Self:
        """Add the seconds that stages take, by name."""
        stages = (dataclasses.replace(s, seconds=seconds.get(s.name, s.seconds)) for s in self.stages)
        return dataclasses.replace(self, stages=tuple(stages))

    def to_dict(self) -> dict[str, Any]:
        """Return every number, ready for JSON."""
        return {
            "method": self.method,
            "pixels": self.pixels,
            "measurements": self.measurements,
            **self.facts,
            "bytes": self.bytes,
            "budget": self.budget,
            "fits": self.bytes <= self.budget,
            "seconds": self.seconds,
            "stages": [vars(stage) for stage in self.stages],
        }

    def summary(self) -> dict[str, str]:
        """Return the plan in words, by stage."""
        lines = {"sizes": f"{self.pixels} pixels, {self.measurements} measurements"}
        lines |= {name: text for name, text in self.facts.items() if isinstance(text, str)}
        for stage in self.stages:
            parts = [memory.format_bytes(stage.bytes)]
            if stage.passes:
                parts.append(f"about {stage.passes} network passes")
            if stage.seconds is not None:
                parts.append(f"up to about {format_duration(stage.seconds)}")
            lines[stage.name] = ", ".join(parts)
        peak, budget = memory.format_bytes(self.bytes), memory.format_bytes(self.budget)
        lines["memory"] = f"{peak} at the peak; the budget is {budget}"
        if self.bytes > self.budget:
            lines["memory"] += f": it does NOT fit; {self.advice}"
        if self.seconds is not None:
            lines["time"] = f"up to about {format_duration(self.seconds)} in all"
            if unknown := [stage.name for stage in self.stages if stage.seconds is None]:
                lines["time"] += f", and what is not known: {', '.join(unknown)}"
        return lines

    def __str__(self) -> str:
        return "\n".join([f"method: {self.method}", *(f"{k}: {v}" for k, v in self.summary().items())])

    def require(self) -> None:
        """Refuse a run that does not fit into the memory budget, with the numbers.

        Raises:
            MemoryBudgetError: before any work.
        """
        memory.require(self.bytes, self.budget, what=f"method {self.method}", advice=self.advice)


def time_of(work: Callable[[], Any]) -> float:
    """Measure the seconds of one call, from as many calls as fit a short trial."""
    work()
    start, calls = time.perf_counter(), 0
    while (taken := time.perf_counter() - start) < _TRIAL_SECONDS or not calls:
        work()
        calls += 1
    return taken / calls
