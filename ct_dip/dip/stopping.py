"""Stopping rules, which decide for each network when its cool-down begins.

None of them knows the truth. A rule looks at every iterate and returns which networks should start to
cool down; its whole memory is the tensors in ``state``, so that a fit can be resumed. They live where the
iterates do, and no rule waits for a value: a decision reaches the host with the losses.
"""

from abc import ABC, abstractmethod

import torch
from torch import Tensor


class StoppingRule(ABC):
    """A rule that decides for every network of an ensemble."""

    name: str

    def __init__(self) -> None:
        self.state: dict[str, Tensor] = {}

    @abstractmethod
    def update(self, step: int, misfit: Tensor, images: Tensor) -> Tensor:
        """Take in one iterate; (N,) misfits and (N, rows, columns) images → (N,) bool."""


class Discrepancy(StoppingRule):
    """Stop when the misfit reaches a target, such as that of the noise alone (Morozov).

    The misfit of single iterates jumps while the step size is large, so its running median over the
    last ``window`` steps decides.
    """

    name = "discrepancy"

    def __init__(self, members: int, *, target: Tensor | float, window: int = 15) -> None:
        super().__init__()
        self.target = torch.as_tensor(target)
        self.state["recent"] = torch.full((window, members), torch.inf)

    def update(self, step: int, misfit: Tensor, images: Tensor) -> Tensor:
        """Take in one iterate; see `StoppingRule.update`."""
        recent = self.state["recent"]
        recent[step % len(recent)] = misfit.detach().to(recent)
        self.target = self.target.to(recent)  # once
        return recent.median(dim=0).values <= self.target


class RunningVariance(StoppingRule):
    """Stop when the iterates no longer settle: their variance over a window has passed its minimum.

    Wang et al., Early Stopping for Deep Image Prior (2021): the windowed variance
    ``mean_t ‖x_t − mean x‖²`` falls while the object is found and rises when noise is. The rule fires
    when no smaller value was seen for ``patience`` steps.
    """

    name = "running variance"

    def __init__(
        self, members: int, shape: tuple[int, int], *, window: int = 50, patience: int = 200
    ) -> None:
        super().__init__()
        self.patience = patience
        self.state["recent"] = torch.zeros(window, members, *shape)
        self.state["least"] = torch.full((members,), torch.inf)
        self.state["since"] = torch.zeros(members)

    def update(self, step: int, misfit: Tensor, images: Tensor) -> Tensor:
        """Take in one iterate; see `StoppingRule.update`."""
        recent, least, since = (self.state[name] for name in ("recent", "least", "since"))
        recent[step % len(recent)] = images.detach().to(recent)
        if step + 1 < len(recent):
            return torch.zeros_like(least, dtype=torch.bool)
        variance = recent.var(dim=0, correction=0).sum(dim=(-2, -1))
        better = variance < least
        since.copy_(torch.where(better, 0, since + 1))
        least.copy_(torch.where(better, variance, least))
        return since >= self.patience


class Budget(StoppingRule):
    """Never stop early: the step budget ends the fit."""

    name = "budget"

    def update(self, step: int, misfit: Tensor, images: Tensor) -> Tensor:
        """Take in one iterate; see `StoppingRule.update`."""
        return torch.zeros_like(misfit, dtype=torch.bool)
