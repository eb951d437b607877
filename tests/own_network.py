"""Networks as a user may bring them."""

import torch
from torch import nn

from ct_dip.dip.unet import UNet, WeightBlock


class Wrapped(nn.Module):
    """A U-Net that nobody recognises as one, with the blocks of its prior."""

    def __init__(self, unet: UNet) -> None:
        super().__init__()
        self.inner = nn.ModuleList([unet])

    def forward(self, x):
        return self.inner[0](x)

    def weight_blocks(self):
        return [
            WeightBlock(b.name, b.kernel, tuple(f"inner.0.{p}" for p in b.parameters), b.normalised)
            for b in self.inner[0].weight_blocks()
        ]


def sequential(seed=0, channels=6):
    """Two convolutions, and a sigmoid."""
    torch.manual_seed(seed)
    return nn.Sequential(
        nn.Conv2d(1, channels, 3, padding=1), nn.ReLU(), nn.Conv2d(channels, 1, 1), nn.Sigmoid()
    )
