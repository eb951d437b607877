"""Langevin dynamics with the preconditioner of RMSprop (Welling and Teh, 2011; Li et al., 2016).

For weights of density ``exp(−U(w))``, with V a running mean of the squared gradient and ``G = V^−½``,

    w ← w − ½ ε G ∇U(w) + N(0, ε G)

V follows the gradients during the burn-in and is kept afterwards, so that no correction for its changes is
needed. The step is relative to the stiffest direction: with λ the largest eigenvalue of ``G^½ ∇²U G^½``,
``ε = step/λ``. Of a Gaussian posterior the chain has ``1/(1 − ε h/4)`` times the true variance along an
eigenvector with eigenvalue h: 4/3 along the stiffest one at ``step = 1``, nearly 1 along most others. At
``step = 4`` it diverges.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

_DECAY = 0.99  # of V, by step
_FIRST, _AGAIN, _EVERY = 15, 2, 50  # iterations for λ at the start and later, and steps between
_PROBE = 0.1  # length of the difference that ∇² is taken by, in deviations along the stiffest direction


class Chain(NamedTuple):
    """What a chain kept.

    Args:
        values: at equal distances after the burn-in, (n, …).
        end: the last weights, (P,).
        step: ε.
    """

    values: Tensor
    end: Tensor
    step: float


def preconditioned_langevin(
    gradient: Callable[[Tensor], tuple[Tensor, Tensor]],
    start: Tensor,
    squares: Tensor,
    *,
    burn_in: int,
    steps: int,
    samples: int,
    step: float,
    seed: int = 0,
    report: Callable[[int], None] = lambda done: None,
) -> Chain:
    """Run one chain.

    Args:
        gradient: of U, (P,), and what is kept of the weights, as an image.
        start: weights, (P,).
        squares: first V, (P,): the mean squared gradient that is expected. At equilibrium that is
            ``diag ∇²U``; at a minimum, where chains start, gradients themselves would say 0.
        steps: after the burn-in, of which ``samples`` are kept.
        report: told the number of steps that are done.
    """
    generator = torch.Generator().manual_seed(seed)
    weights, squares = start.clone(), squares.clone()
    direction = torch.randn(start.shape, generator=generator).to(start)
    kept = set(torch.linspace(burn_in, burn_in + steps - 1, samples).long().tolist())
    values, stiffness = [], 1.0
    for done in range(burn_in + steps):
        root = squares.pow(-0.25)  # G^½
        if done == burn_in or (done < burn_in and done % _EVERY == 0):
            iterations = _AGAIN if done else _FIRST
            stiffness, direction = _stiffest(gradient, weights, root, direction, stiffness, iterations)
        slope, value = gradient(weights)
        if done in kept:
            values.append(value)
        if done < burn_in:
            squares.mul_(_DECAY).addcmul_(slope, slope, value=1 - _DECAY)
        noise = torch.randn(start.shape, generator=generator).to(start)
        size = step / stiffness
        weights = weights - 0.5 * size * root.square() * slope + size**0.5 * root * noise
        report(done + 1)
    return Chain(torch.stack(values), weights, step / stiffness)


def _stiffest(
    gradient: Callable[[Tensor], tuple[Tensor, Tensor]],
    weights: Tensor,
    root: Tensor,
    direction: Tensor,
    stiffness: float,
    iterations: int,
) -> tuple[float, Tensor]:
    """Find the largest eigenvalue of ``G^½ ∇²U G^½`` and its eigenvector, by differences of gradients."""
    here, _ = gradient(weights)
    for _ in range(iterations):
        direction = direction / direction.norm()
        length = _PROBE / stiffness**0.5
        there, _ = gradient(weights + length * root * direction)
        direction = root * (there - here) / length
        stiffness = float(direction.norm())
    return stiffness, direction
