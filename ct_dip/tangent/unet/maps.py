"""Feature maps in memory: (n, channels, rows, columns), with the channels of a place next to each other.

In this layout, torch's channels-last, convolutions reach the speed of large matrix products, and a map is a
matrix (places, channels) without a copy.
"""

import torch
from torch import Tensor


def constant(x: Tensor) -> Tensor:
    """Copy a map, so that no training step changes it."""
    return x.detach().clone(memory_format=torch.channels_last)


def flat(x: Tensor) -> Tensor:
    """View (n, channels, rows, columns) as (n, places, channels)."""
    return x.permute(0, 2, 3, 1).flatten(1, 2)


def as_map(x: Tensor, places: tuple[int, int]) -> Tensor:
    """Undo `flat`: view (n, places, channels) as (n, channels, rows, columns)."""
    return x.reshape(len(x), *places, x.shape[-1]).permute(0, 3, 1, 2)
