"""The published deep-image-prior recipe, as a reference: plain Adam, many steps, minimum-loss iterate.

Network, initialisation (torch's default), step size, γ and number of steps are the published ones; the
networks of several images are fitted together with ``torch.func``, which changes only the rounding.
"""

import copy
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad_and_value, stack_module_state, vmap

from ct_dip.classical.fbp import fbp
from ct_dip.data.scan import Scan
from ct_dip.dip.unet import UNet, UNetShape
from ct_dip.operators import ray_transform
from ct_dip.operators.differences import total_variation

SHAPE = UNetShape(channels=(32, 32, 32), skip_channels=(4, 4), output="sigmoid")
LEARNING_RATE = 1e-4


class Recipe(NamedTuple):
    """γ and steps, as published for a number of views and a noise level."""

    gamma: float
    steps: int


RECIPES = {
    (20, 0.05): Recipe(1e-4, 41_000),
    (5, 0.05): Recipe(1e-5, 14_000),
    (20, 0.10): Recipe(3e-4, 17_000),
}


def fit_published(
    scans: Sequence[Scan],
    recipe: Recipe,
    *,
    seed: int = 0,
    report: Callable[[int, Tensor], None] | None = None,
) -> tuple[Tensor, float]:
    """Images (N, rows, columns) at the least loss of each network, and the seconds taken."""
    geometry = scans[0].geometry
    transform = ray_transform(geometry)
    sinograms = torch.stack([torch.as_tensor(scan.sinogram.copy()) for scan in scans])
    inputs = torch.stack([fbp(y, geometry) for y in sinograms])[:, None, None]
    torch.manual_seed(seed)
    networks = [_with_default_initialisation(UNet(SHAPE)) for _ in scans]
    stacked, _ = stack_module_state(networks)
    weights = {name: values.detach().clone() for name, values in stacked.items()}
    skeleton = copy.deepcopy(networks[0]).to("meta")

    def loss(parameters: dict[str, Tensor], z: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        image = functional_call(skeleton, parameters, (z,))[0, 0]
        value = torch.mean((transform(image) - y) ** 2) + recipe.gamma * total_variation(image)
        return value, image

    step = vmap(grad_and_value(loss, has_aux=True))
    optimiser = torch.optim.Adam(list(weights.values()), LEARNING_RATE)
    least = torch.full((len(scans),), torch.inf)
    best = torch.zeros(len(scans), *geometry.domain_shape)
    start = time.perf_counter()
    for number in range(recipe.steps):
        gradients, (values, images) = step(weights, inputs, sinograms)
        better = values < least
        least = torch.where(better, values, least)
        best[better] = images[better].detach()
        for name, tensor in weights.items():
            tensor.grad = gradients[name]
        optimiser.step()
        if report is not None and number % 1000 == 0:
            report(number, best)
    return best, time.perf_counter() - start


def _with_default_initialisation(network: UNet) -> UNet:
    for module in network.modules():
        if isinstance(module, nn.Conv2d):
            module.reset_parameters()
    return network
