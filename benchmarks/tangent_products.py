"""Products with J and Jᵀ of the presets' networks: against torch.func, and against the machine.

Times are seconds per vector, the least of several rounds that are run in turns with the references and with
a large matrix product (``sgemm``). The arithmetic of a product is counted as that of plain convolutions, two
operations per multiply-add: one pass with the weights (without the first layer, whose input is fixed)
and one with their changes. Normalisation, activations and interpolation are not counted, and what a product
saves by doing less is not subtracted: the rate is that of the work, not of the arithmetic units.

On a machine that is not idle run it with OMP_NUM_THREADS=1: then the clock is that of the process, while two
threads that wait for each other on busy cores measure the other programs.
"""

import math
import time
from collections.abc import Callable, Iterator

import torch
from torch import Tensor
from torch.func import functional_call, jvp, vjp, vmap

from benchmarks.measure import Row, faster, interleaved, plain
from ct_dip.dip.presets import PRESETS
from ct_dip.dip.unet import UNet, UNetShape
from ct_dip.tangent.unet.jacobian import UNetJacobian
from ct_dip.tangent.unet.linearised import LinearisedUNet

# Side, preset, vectors, and rounds: short products need more of them to meet a quiet moment.
CASES = ((28, "small", 32, 20), (128, "medium", 4, 8), (256, "medium", 2, 8))
SGEMM = 4096


def run() -> Iterator[Row]:
    for case in CASES:
        yield from _case(*case)


def _case(side: int, preset: str, vectors: int, rounds: int) -> Iterator[Row]:
    chosen = PRESETS[preset]
    network = UNet(
        UNetShape(
            channels=chosen.channels, skip_channels=chosen.skip_channels, norm_groups=chosen.norm_groups
        )
    )
    network.initialise(torch.Generator().manual_seed(0), 0.5)
    z = torch.rand(1, 1, side, side)
    jacobian = UNetJacobian(network, z)
    weights, image = jacobian.weights, _image_of_weights(network, z)
    x, y = torch.randn(vectors, len(weights)), torch.randn(vectors, side, side)
    left, right = torch.randn(SGEMM, SGEMM), torch.randn(SGEMM, SGEMM)

    def push(v: Tensor) -> Tensor:
        change: Tensor = jvp(image, (weights,), (v,))[1]
        return change

    pull = vjp(image, weights)[1]

    def step() -> None:
        network.zero_grad()
        network(z).square().mean().backward()

    @torch.no_grad()
    def forward() -> Tensor:
        return network(z)

    label = f"{side}², {preset}"
    operations = product_operations(network, z)
    jobs: dict[str, tuple[Callable[[], object], ...]] = {
        "J": (lambda: jacobian(x), lambda: vmap(push)(x), lambda: [push(v) for v in x]),
        "Jᵀ": (lambda: jacobian.T(y), lambda: vmap(pull)(y), lambda: [pull(v) for v in y]),
    }
    pair = [0.0, 0.0]  # seconds of J and Jᵀ together: the better reference, and ours
    for name, products in jobs.items():
        *times, sgemm, once, trained = interleaved(
            *products,
            *(lambda: left @ right, forward, step),
            rounds=rounds,
            summary=min,
            clock=time.process_time if torch.get_num_threads() == 1 else time.perf_counter,
        )
        ours, mapped, looped = (time / vectors for time in times)
        pair[0], pair[1] = pair[0] + min(mapped, looped), pair[1] + ours
        case = f"{label}, {name}, per vector"
        yield faster("tangent-products", case, "vmap of torch.func", mapped, ours)
        yield faster("tangent-products", case, "loop over torch.func", looped, ours)
        yield faster("tangent-products", case, "one training step", trained, ours)
        yield faster("tangent-products", case, "one forward pass", once, ours)
        rate, peak = operations / ours / 1e9, 2 * SGEMM**3 / sgemm / 1e9
        yield Row(
            benchmark="tangent-products",
            case=f"{label}, {name}, rate",
            reference=f"sgemm of {SGEMM}³",
            reference_value=peak,
            value=rate,
            unit="Gflop/s",
            ratio=rate / peak,
        )
    yield faster("tangent-products", f"{label}, J and Jᵀ, per pair", "the better of vmap and loop", *pair)
    yield plain("tangent-products", f"{label}, memory of J", jacobian.bytes / 2**20, "MiB")


def product_operations(network: UNet, network_input: Tensor) -> int:
    """Floating-point operations of the convolutions in one product with J or Jᵀ."""
    convolutions = LinearisedUNet(network, network_input).convolutions
    passes = {
        name: 2 * math.prod(layer.output_shape) * layer.size[1:].numel()
        for name, layer in convolutions.items()
    }
    return 2 * sum(passes.values()) - passes["first.weight"]


def _image_of_weights(network: UNet, z: Tensor) -> Callable[[Tensor], Tensor]:
    """The image as a function of the flat weights of the convolutions."""
    names = [name for block in network.weight_blocks() for name in block.parameters]
    fixed = {name: value.detach() for name, value in network.named_parameters()}
    sizes = [fixed[name].numel() for name in names]

    def image(weights: Tensor) -> Tensor:
        parts = torch.split(weights, sizes)
        own = {name: part.reshape(fixed[name].shape) for name, part in zip(names, parts, strict=True)}
        found: Tensor = functional_call(network, fixed | own, (z,))[0, 0]
        return found

    return image
