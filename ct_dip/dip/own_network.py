"""A network of the user's own in place of the U-Net: any module (1, 1, rows, columns) → the same shape.

Its initial weights are where the fit starts, all its parameters are fitted, and its buffers stay as they are.
Its output is multiplied by a scale of the data: it must be able to show values between 0 and 1.
"""

import copy
import hashlib
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor, nn

from ct_dip.dip.config import DipConfig, ResolvedDipConfig
from ct_dip.dip.presets import resolve, unet_shape
from ct_dip.dip.unet import WeightBlock
from ct_dip.errors import InputError

UNET_SETTINGS = ("channels", "skip_channels", "norm_groups", "output", "upsampling")


class FeatureCount(NamedTuple):
    """Numbers in the outputs of all layers of a network, and in the largest one."""

    all: int
    largest: int


def weight_blocks(network: nn.Module) -> list[WeightBlock]:
    """Return the network's own ``weight_blocks()``, or else one block for every convolution.

    Raises:
        InputError: there are no convolutions, or some with weights that no prior is made for.
    """
    own: Callable[[], list[WeightBlock]] | None = getattr(network, "weight_blocks", None)
    if own is not None:
        return own()
    convolutions = [(n, m) for n, m in network.named_modules() if isinstance(m, nn.Conv2d)]
    plain = all(isinstance(m._parameters.get("weight"), nn.Parameter) for _, m in convolutions)
    if not convolutions or not plain or any(len(set(m.kernel_size)) > 1 for _, m in convolutions):
        raise InputError(
            f"{type(network).__name__} must have convolutions (torch.nn.Conv2d) with square kernels, whose "
            "weights are parameters: its Jacobian is that of their weights"
        )
    parameters = dict(network.named_parameters())  # of weights that several layers share, the first name
    named = [(n, m, f"{n}.weight".removeprefix(".")) for n, m in convolutions]  # no name: the network itself
    return [
        WeightBlock(n or "all", m.kernel_size[0], (weight,), False)
        for n, m, weight in named
        if weight in parameters
    ]


def check_network(network: nn.Module, shape: tuple[int, int]) -> FeatureCount:
    """Run a copy of a network on one image, twice, and count its features.

    Args:
        shape: of the image, (rows, columns).

    Raises:
        InputError: it cannot be fitted or linearised: no convolutions, frozen parameters, an output of
            another shape, one that is not finite, or one that is another in the second pass.
    """
    name = network_name(network)
    if not isinstance(network, nn.Module):
        raise InputError(f"network must be a torch.nn.Module, not {name}")
    weight_blocks(network)
    frozen = [n for n, p in network.named_parameters() if not p.requires_grad]
    if frozen:
        raise InputError(
            f"parameter {frozen[0]} of {name} does not require a gradient, but all parameters are fitted; "
            "register tensors that must not change as buffers (register_buffer)"
        )
    trial = copy.deepcopy(network).cpu().float()
    sizes: list[int] = []

    def count(module: nn.Module, inputs: object, output: object) -> None:
        if isinstance(output, Tensor):
            sizes.append(output.numel())

    hooks = [m.register_forward_hook(count) for m in trial.modules() if not list(m.children())]
    image = torch.rand(1, 1, *shape, generator=torch.Generator().manual_seed(0))
    before = [buffer.clone() for buffer in trial.buffers()]
    with torch.no_grad():
        first = _run(trial, image, name)
        for hook in hooks:
            hook.remove()
        second = _run(trial, image, name)
    if not torch.isfinite(first).all():
        raise InputError(f"the output of {name} is not finite for an image of values between 0 and 1")
    kept = all(torch.equal(old, new) for old, new in zip(before, trial.buffers(), strict=True))
    if not kept or not torch.equal(first, second):
        raise InputError(
            f"{name} gives a different output in every pass: use no dropout, and batch normalisation with "
            "track_running_stats=False, or call its eval() first"
        )
    return FeatureCount(sum(sizes), max(sizes))


def _run(network: nn.Module, image: Tensor, name: str) -> Tensor:
    try:
        output = network(image)
    except Exception as error:  # of somebody else's code
        raise InputError(f"{name} fails on an image of shape {tuple(image.shape)}: {error}") from error
    if not isinstance(output, Tensor) or output.shape != image.shape:
        found = tuple(output.shape) if isinstance(output, Tensor) else type(output).__name__
        raise InputError(
            f"{name} makes {found} of an image of shape {tuple(image.shape)}; it must keep the shape"
        )
    return output


def refuse_unet_settings(settings: ResolvedDipConfig, shape: tuple[int, int]) -> None:
    """Refuse settings of the U-Net that a network of the user's own would ignore.

    Raises:
        InputError: that names them.
    """
    preset = resolve(DipConfig(preset=settings.preset), shape)
    if unet_shape(settings) == unet_shape(preset):
        return
    told = [f"dip.{name}" for name in UNET_SETTINGS if getattr(settings, name) != getattr(preset, name)]
    raise InputError(f"{', '.join(told)} has no effect with a network of your own; drop it")


def network_name(network: object) -> str:
    """Return the name of a network's class, or of whatever was given in its place."""
    return type(network).__name__


def network_digest(network: nn.Module) -> str:
    """Identify a network: its class, and names, shapes and values of its parameters and buffers."""
    digest = hashlib.sha256()
    for name, tensor in (*network.named_parameters(), *network.named_buffers()):
        digest.update(f"{name} {tuple(tensor.shape)} {tensor.dtype}".encode())
        digest.update(tensor.detach().cpu().contiguous().numpy().tobytes())
    return f"{type(network).__qualname__} {digest.hexdigest()}"
