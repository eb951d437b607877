"""Snapshots of one network on a cyclic schedule (Huang et al., 2017).

The first cycle is a whole fit. When it has cooled down the rate jumps back to its peak and falls again, along
half a cosine as long as the cool-down was, and again; the weights at the end of every cycle are kept.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ct_dip.dip.ensemble import DipFit, Ensemble
from ct_dip.dip.schedule import Schedule


@dataclass(frozen=True, kw_only=True)
class CyclicSchedule(Schedule):
    """Cool-downs one after the other; with one cycle the plain schedule."""

    cycles: int

    def heat(self, step: int, cooling_since: Tensor) -> Tensor:
        """Return the heat, (N,): 1 before the first cool-down and at the start of each, 0 at its end."""
        past = ((step - cooling_since) // self.cooldown).clamp(0, self.cycles - 1)
        return super().heat(step, torch.where(cooling_since >= 0, cooling_since + past * self.cooldown, -1))

    def done(self, step: int, cooling_since: Tensor) -> Tensor:
        """Return which networks have cooled down for the last time, (N,) bool."""
        return super().done(step, cooling_since + (cooling_since >= 0) * (self.cycles - 1) * self.cooldown)

    @property
    def longest(self) -> int:
        """Steps of a fit whose rule never fires."""
        return super().longest + (self.cycles - 1) * self.cooldown


class SnapshotEnsemble(Ensemble):
    """One network that is kept at the end of every cycle; a fit for each of them."""

    def __init__(self, *arguments: Any, cycles: int) -> None:
        super().__init__(*arguments)
        assert len(self.scans) == 1, "the snapshots of one network"
        self.variant = f"{cycles} snapshots"
        self.schedule: CyclicSchedule = CyclicSchedule(**vars(self.schedule), cycles=cycles)
        self.snapshots = self.adam.weights.new_zeros(cycles, self.adam.weights.shape[1])

    def step(self) -> dict[str, float]:
        """Take one step, and a snapshot at the end of a cycle."""
        figures = super().step()
        since = int(self.cooling_since[0])
        cycle, into = divmod(self.adam.steps - since, self.schedule.cooldown)
        if since >= 0 and cycle and not into:
            self.snapshots[cycle - 1] = self.adam.weights[0]
        return figures

    def state(self) -> dict[str, Tensor]:
        """Return everything that the rest of the fit depends on."""
        return super().state() | {"snapshots": self.snapshots}

    def restore(self, state: dict[str, Tensor]) -> None:
        """Take back what `state` gave."""
        super().restore(state)
        self.snapshots.copy_(state["snapshots"])

    def fits(self) -> list[DipFit]:
        """Return the network at the end of every cycle."""
        results = []
        for weights in self.snapshots:
            self.kept[0] = weights
            results += super().fits()
        return results
