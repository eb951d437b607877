"""Feature maps in memory: (n, channels, rows, columns), with the channels of a place next to each other.

In this layout, torch's channels-last, convolutions reach the speed of large matrix products, and a map is a
matrix (places, channels) without a copy.
"""

import torch
from torch import Tensor


def constant(x: Tensor) -> Tensor:
    """A copy that no training step changes."""
    return x.detach().clone(memory_format=torch.channels_last)


def flat(x: Tensor) -> Tensor:
    """(n, channels, rows, columns) → (n, places, channels), a view."""
    return x.permute(0, 2, 3, 1).flatten(1, 2)


def as_map(x: Tensor, places: tuple[int, int]) -> Tensor:
    """The way back, from (n, places, channels)."""
    return x.reshape(len(x), *places, x.shape[-1]).permute(0, 3, 1, 2)
