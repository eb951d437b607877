"""Adam on a matrix of weights, one row per network, each with its own step size."""

import torch
from torch import Tensor


class Adam:
    """Kingma & Ba (2015) on flat weights (N, P).

    Networks of an ensemble cool down at different steps, which a torch optimiser, with one learning rate
    per parameter, cannot do; and all its state is three tensors and a count.

    The gradient's size is remembered for a hundred steps, not the usual thousand, since the objective changes
    when the filter comes off the residuals: gradients that grow a hundredfold would make steps of six times
    the rate, which throw a fit of low noise far off; now they are twice the rate.
    """

    def __init__(
        self, weights: Tensor, *, beta1: float = 0.9, beta2: float = 0.99, eps: float = 1e-8
    ) -> None:
        self.weights = weights
        self.mean = torch.zeros_like(weights)
        self.square = torch.zeros_like(weights)
        self.steps = 0
        self.beta1, self.beta2, self.eps = beta1, beta2, eps

    def step(self, gradient: Tensor, rates: Tensor) -> None:
        """Take one step with learning rates (N,)."""
        self.steps += 1
        self.mean.lerp_(gradient, 1 - self.beta1)
        self.square.mul_(self.beta2).addcmul_(gradient, gradient, value=1 - self.beta2)
        root_mean_square = (self.square / (1 - self.beta2**self.steps)).sqrt_().add_(self.eps)
        rates = rates / (1 - self.beta1**self.steps)
        self.weights.addcdiv_(self.mean * -rates[:, None], root_mean_square)

    def state(self) -> dict[str, Tensor]:
        """Return everything that the next step depends on."""
        return {
            "weights": self.weights,
            "mean": self.mean,
            "square": self.square,
            "steps": torch.tensor(self.steps),
        }

    def restore(self, state: dict[str, Tensor]) -> None:
        """Take back what `state` gave."""
        for name in ("weights", "mean", "square"):
            getattr(self, name).copy_(state[name])
        self.steps = int(state["steps"])
