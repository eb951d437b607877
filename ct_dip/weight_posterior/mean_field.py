"""Independent Gaussians over convolution weights, ``q(w) = Π N(μ_j, σ_j²)``, fitted to a scan.

They minimise ``E_q U(w) + KL(q‖p)``, the negative evidence lower bound, by one draw a step. Biases and
parameters of normalisations are fitted without a variance. There are two ways to draw:

``weights``: ``w = μ + σ ε`` (Blundell et al., 2015), an unbiased estimate of the bound.

``local``: outputs of convolutions instead of their weights, ``z = μ * a + (σ² * a²)^½ ε`` (Kingma et al.,
2015), which has far less noise in its gradients. With independent ε at all places it is what Molchanov et al.
(2017) and others do, and the same as ``weights`` if a convolution has one place. If it has many, all of them
share their weights, and a line integral sums what is here independent: it sees less noise than it would of
the weights, and the variances come out larger than those of the bound.
"""

import math
from collections.abc import Callable, Iterator
from typing import Any, Literal, NamedTuple

import torch
import torch.nn.functional as F  # noqa: N812  everybody's name for it
from torch import Tensor, nn

from ct_dip.weight_posterior.potential import Potential

Divergence = Callable[[Tensor, Tensor], Tensor]
Noise = Literal["local", "weights"]

_FIRST_STD = 0.01  # relative to the rms of a convolution's weights
_FASTER = 10  # rate of log σ relative to that of μ
_HOT = 0.6  # part of the steps before the rates fall
_LEAST_VARIANCE = 1e-16  # of an output, so that its root has a gradient


class MeanField(NamedTuple):
    """What was fitted: mean and log standard deviation of every parameter, (P,); −inf if it has none."""

    mean: Tensor
    log_std: Tensor


def empirical_bayes(mean: Tensor, log_std: Tensor) -> Tensor:
    """Return ``KL(q‖N(0, s²))`` of one convolution, with the prior variance at which it is least.

    That is ``s² = mean_j(μ_j² + σ_j²)``, and the divergence ``Σ_j ½ log(s²/σ_j²)``.
    """
    prior = (mean.square() + (2 * log_std).exp()).mean()
    return 0.5 * len(mean) * prior.log() - log_std.sum()


def fit_mean_field(
    potential: Potential,
    divergence: Divergence,
    *,
    steps: int,
    rate: float,
    noise: Noise,
    warm_up: float = 0.0,
    seed: int = 0,
    report: Callable[..., None] = lambda done, **figures: None,
) -> tuple[MeanField, Tensor]:
    """Fit by Adam, from the fitted network and small variances on.

    Args:
        divergence: KL of one convolution, of its means and log standard deviations, (k,) each.
        rate: of the means; it falls to 0 in the last steps.
        noise: see the module.
        warm_up: part of the steps in which the divergence's weight grows from 0 to 1.
        report: told the number of steps that are done, and both terms.

    Returns:
        What was fitted, and the negative bound of every step, (steps,).
    """
    generator = torch.Generator().manual_seed(seed)
    mean = potential.start.clone().requires_grad_()
    log_std = torch.full_like(mean, -math.inf)
    for where in potential.slices.values():
        log_std[where] = (_FIRST_STD * potential.start[where].square().mean().sqrt()).log()
    log_std.requires_grad_()
    adam = torch.optim.Adam([{"params": [mean]}, {"params": [log_std]}])
    trace = []
    for done in range(steps):
        late = max(0.0, (done / steps - _HOT) / (1 - _HOT))
        for group, factor in zip(adam.param_groups, (1, _FASTER), strict=True):
            group["lr"] = factor * rate * 0.5 * (1 + math.cos(math.pi * late))
        share = min(1.0, (done + 1) / (warm_up * steps)) if warm_up else 1.0
        draw = local_draw if noise == "local" else weight_draw
        energy = potential.of_image(draw(potential, MeanField(mean, log_std), generator))
        parts = [divergence(mean[where], log_std[where]) for where in potential.slices.values()]
        distance = torch.stack(parts).sum()
        mean.grad, log_std.grad = torch.autograd.grad(energy + share * distance, [mean, log_std])
        adam.step()
        trace.append(float(energy.detach() + distance.detach()))
        report(done + 1, potential=float(energy.detach()), divergence=float(distance.detach()))
    return MeanField(mean.detach(), log_std.detach()), torch.tensor(trace)


def weight_draw(potential: Potential, q: MeanField, generator: torch.Generator) -> Tensor:
    """Return the image of weights drawn from q, (rows, columns)."""
    return potential.image(q.mean + q.log_std.exp() * _normal(q.mean, generator))


def local_draw(potential: Potential, q: MeanField, generator: torch.Generator) -> Tensor:
    """Return an image whose convolutions were drawn at every place of their outputs, (rows, columns)."""

    def add_noise(variance: Tensor) -> Callable[..., Tensor]:
        def hook(module: Any, parts: tuple[Tensor, ...], output: Tensor) -> Tensor:
            squares = torch.cat(parts, dim=1).square()
            spread = F.conv2d(
                squares, variance, None, module.stride, module.padding, module.dilation, module.groups
            )
            return output + (spread + _LEAST_VARIANCE).sqrt() * _normal(output, generator)

        return hook

    handles = []
    for name, where in potential.slices.items():
        module: nn.Module = potential.network.get_submodule(name.rpartition(".")[0])
        variance = (2 * q.log_std[where]).exp().view(potential.sizes[name])
        handles.append(module.register_forward_hook(add_noise(variance)))
    try:
        return potential.image(q.mean)
    finally:
        for handle in handles:
            handle.remove()


@torch.no_grad()
def draw_images(potential: Potential, q: MeanField, count: int, seed: int = 0) -> Iterator[Tensor]:
    """Yield images of weights drawn from q, (1, rows, columns) each, units of the O(1) image."""
    generator = torch.Generator().manual_seed(seed)
    for _ in range(count):
        yield weight_draw(potential, q, generator)[None]


def _normal(like: Tensor, generator: torch.Generator) -> Tensor:
    return torch.randn(like.shape, generator=generator).to(like)
