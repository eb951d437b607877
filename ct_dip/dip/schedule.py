"""Learning rates: warm up, stay, and cool down when the stopping rule says so.

The length of the plateau is not fixed beforehand, as in a one-cycle schedule, but found: each network of
an ensemble begins its cool-down when the stopping rule fires for it, and is done when it ends.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """Steps and peak rate of a fit."""

    peak: float
    warmup: int
    cooldown: int
    budget: int  # steps in all, at most

    def rates(self, step: int, cooling_since: Tensor) -> Tensor:
        """Return (N,) rates at ``step``; ``cooling_since`` is the step of each network's rule, or −1."""
        warm = 0.5 * (1 - math.cos(math.pi * min(1.0, (step + 1) / self.warmup)))
        return self.peak * warm * self.heat(step, cooling_since)

    def heat(self, step: int, cooling_since: Tensor) -> Tensor:
        """Return the heat, (N,): 1 before the cool-down, then half a cosine down to 0."""
        into = ((step - cooling_since) / self.cooldown).clamp(0, 1)
        return torch.where(cooling_since >= 0, 0.5 * (1 + torch.cos(math.pi * into)), 1.0)

    def done(self, step: int, cooling_since: Tensor) -> Tensor:
        """Return which networks have cooled down, (N,) bool."""
        return (cooling_since >= 0) & (step - cooling_since >= self.cooldown)

    @property
    def longest(self) -> int:
        """Steps of a fit whose rule never fires: the budget, or the cool-down if that is longer."""
        return self.latest_cooldown + self.cooldown

    @property
    def latest_cooldown(self) -> int:
        """The step at which the budget itself begins the cool-down."""
        return max(0, self.budget - self.cooldown)
