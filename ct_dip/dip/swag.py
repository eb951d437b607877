"""Stochastic weight averaging: a Gaussian of the weights along a continued fit (SWAG, Maddox et al., 2019).

After its cool-down a network keeps on learning at a constant rate, every step from some of the views: without
that noise in its gradients it would come to rest. Of the weights that it passes, w̄ is the mean, s² the
variance of each, and the rows of D are the last K differences from the mean of then:

    w = w̄ + s z₁/√2 + Dᵀ z₂/√(2 (K − 1)),      z₁, z₂ ~ N(0, I)
"""

import dataclasses
import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.func import functional_call

from ct_dip.arrays import Floats
from ct_dip.dip.ensemble import DipFit, Ensemble
from ct_dip.dip.schedule import Schedule


class WeightMoments:
    """Mean, variance and last differences of weights (P,) that are seen one after the other.

    Args:
        weights: of the same size, device and type as those to come.
        kept: K.
    """

    def __init__(self, weights: Tensor, kept: int) -> None:
        self.mean, self.squares = torch.zeros_like(weights), torch.zeros_like(weights)
        self.differences = weights.new_zeros(kept, len(weights))
        self.count = torch.zeros((), dtype=torch.long)

    def update(self, weights: Tensor) -> None:
        """Take in weights (P,), by Welford's recursion."""
        place, before = int(self.count) % len(self.differences), weights - self.mean
        self.count += 1
        self.mean += before / int(self.count)
        self.differences[place] = weights - self.mean
        self.squares += before * self.differences[place]

    @property
    def variance(self) -> Tensor:
        """s², (P,)."""
        return self.squares / int(self.count)

    def sample(self, count: int, generator: torch.Generator) -> Tensor:
        """Sample weights, (count, P)."""
        kept = min(int(self.count), len(self.differences))
        each = torch.randn(count, len(self.mean), generator=generator).to(self.mean)
        low = torch.randn(count, kept, generator=generator).to(self.mean)
        spread = low @ self.differences[:kept] / max(1, kept - 1) ** 0.5
        return self.mean + (each * self.variance.sqrt() + spread) / 2**0.5


@dataclass(frozen=True, kw_only=True)
class CollectingSchedule(Schedule):
    """The plain schedule, and ``steps`` more at a constant ``rate``."""

    rate: float
    steps: int

    def rates(self, step: int, cooling_since: Tensor) -> Tensor:
        """Return (N,) rates at ``step``; see `Schedule.rates`."""
        return torch.where(super().done(step, cooling_since), self.rate, super().rates(step, cooling_since))

    def done(self, step: int, cooling_since: Tensor) -> Tensor:
        """Return which networks have nothing more to collect, (N,) bool."""
        return super().done(step, cooling_since + (cooling_since >= 0) * self.steps)

    @property
    def longest(self) -> int:
        """Steps of a fit whose rule never fires."""
        return super().longest + self.steps


@dataclass(frozen=True, kw_only=True, repr=False)
class SwagFit(DipFit):
    """A network at the mean of the weights that it passed; ``moments`` are theirs."""

    moments: WeightMoments

    @torch.no_grad()
    def draw(self, count: int, seed: int) -> Floats:
        """Draw images of sampled weights, 1/mm, (count, rows, columns)."""
        moments, images = self.moments, []
        network, generator = self.network().to(moments.mean.device), torch.Generator().manual_seed(seed)
        sizes = [weights.shape for weights in self.weights.values()]
        for _ in range(count):
            parts = torch.split(moments.sample(1, generator)[0], [size.numel() for size in sizes])
            weights = {name: p.view(s) for name, p, s in zip(self.weights, parts, sizes, strict=True)}
            images.append(functional_call(network, weights, (self.network_input.to(moments.mean),))[0, 0])
        drawn: Floats = self.scale * torch.stack(images).cpu().numpy()
        return drawn


class SwagEnsemble(Ensemble):
    """One network that goes on at a constant rate when it is fitted; its fit is a `SwagFit`.

    Args:
        collected: weights that are taken after the cool-down, one of ``every`` so many steps.
        batch: share of the views that such a step sees.
        rate: relative to the peak rate of the fit.
        differences: K.
    """

    def __init__(
        self, *arguments: Any, collected: int, every: int, batch: float, rate: float, differences: int
    ) -> None:
        super().__init__(*arguments)
        assert len(self.scans) == 1, "the path of one network"
        self.variant = f"SWAG {collected} {every} {batch:g} {rate:g} {differences}"
        self.every, self.batch, plain = every, batch, self.schedule
        self.schedule: CollectingSchedule = CollectingSchedule(
            **vars(plain), rate=rate * plain.peak, steps=collected * every
        )
        self.moments = WeightMoments(self.adam.weights[0], differences)

    def step(self) -> dict[str, float]:
        """Take one step, and after the cool-down collect the weights."""
        before, figures = self.adam.steps, super().step()
        since = int(self.cooling_since[0])
        into = self.adam.steps - since - self.schedule.cooldown
        if since >= 0 and into > 0 and into % self.every == 0 and self.adam.steps > before:
            self.moments.update(self.adam.weights[0])
        return figures

    def _evaluate_all(self, z: Tensor, ramp: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Compute the same, after the cool-down from random views alone."""
        since = int(self.cooling_since[0])
        if since < 0 or self.adam.steps - since < self.schedule.cooldown:
            return super()._evaluate_all(z, ramp)
        whole, views = self.targets, self.targets.precision.shape[1]
        chosen = torch.randperm(views, generator=self.generator)[: math.ceil(self.batch * views)]
        weight = torch.zeros(views, 1)
        weight[chosen] = views / len(chosen)
        self.targets = dataclasses.replace(whole, precision=whole.precision * weight.to(whole.precision))
        found = super()._evaluate_all(z, ramp)
        self.targets = whole
        return found

    def state(self) -> dict[str, Tensor]:
        """Return everything that the rest of the fit depends on."""
        return super().state() | {f"moments.{name}": part for name, part in vars(self.moments).items()}

    def restore(self, state: dict[str, Tensor]) -> None:
        """Take back what `state` gave."""
        super().restore(state)
        for name, part in vars(self.moments).items():
            part.copy_(state[f"moments.{name}"])

    def fits(self) -> list[DipFit]:
        """Return the network at the mean of its weights."""
        self.kept[0] = self.moments.mean
        return [SwagFit(**vars(fit), moments=self.moments) for fit in super().fits()]
