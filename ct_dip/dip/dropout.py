"""Dropout after every 3×3 convolution: in the fit, and kept on afterwards (Gal and Ghahramani, 2016).

Whole channels are dropped, as pixels beside each other say nearly the same: with probability p a channel is 0
in a pass, else it is divided by 1 − p.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from ct_dip.arrays import Floats
from ct_dip.dip.ensemble import DipFit, Ensemble

_TOGETHER = 10  # passes that are made at once


class DropoutEnsemble(Ensemble):
    """One network that is fitted with dropout; its fit is the one without, of which `dropout_images` draws.

    Args:
        rate: p.
    """

    def __init__(self, *arguments: Any, rate: float) -> None:
        super().__init__(*arguments)
        assert len(self.scans) == 1, "the masks of one network"
        self.variant, self.dropping = f"dropout {rate:g}", True
        _attach(self.skeleton, rate, self.generator, lambda: self.dropping)

    def fits(self) -> list[DipFit]:
        """Return the finished network, with all its channels."""
        self.dropping = False
        return super().fits()


@torch.no_grad()
def dropout_images(fit: DipFit, rate: float, count: int, seed: int, device: torch.device) -> Floats:
    """Draw images by passes with dropout, 1/mm, (count, rows, columns)."""
    network, z = fit.network().to(device), fit.network_input.to(device)
    _attach(network, rate, torch.Generator().manual_seed(seed), lambda: True)
    parts = [z.expand(min(_TOGETHER, count - i), -1, -1, -1) for i in range(0, count, _TOGETHER)]
    images: Floats = fit.scale * torch.cat([network(part)[:, 0] for part in parts]).cpu().numpy()
    return images


def _attach(network: nn.Module, rate: float, generator: torch.Generator, on: Callable[[], bool]) -> None:
    def drop(module: nn.Module, inputs: object, output: Tensor) -> Tensor:
        if not rate or not on():
            return output
        kept = torch.rand(output.shape[:2], generator=generator) >= rate  # (batch, channels)
        return output * (kept / (1 - rate)).to(output)[:, :, None, None]

    for module in network.modules():
        if isinstance(module, nn.Conv2d) and module.kernel_size == (3, 3):
            module.register_forward_hook(drop)
