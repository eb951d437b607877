"""Kronecker factors of the generalised Gauss-Newton matrix, one pair for every convolution.

A convolution has ``z_t = W a_t`` at every place t of its output, with a_t the values under its filter, and a
measurement i has the cotangents ``g_it = ∂(B f)_i/∂z_t``. With one image its part of the matrix is exactly
``H = Σ_i (Σ_t g_it ⊗ a_t)(Σ_t g_it ⊗ a_t)ᵀ``. KFAC-expand (Grosse and Martens, 2016, as Eschenhagen et al.,
2023, call it) drops the products of different places and takes g and a as independent over places:

    H ≈ (Σ_it g_it g_itᵀ) ⊗ (1/T Σ_t a_t a_tᵀ)

which is exact for a single place. Convolutions are not coupled. With eigenvalues γ and α of both factors, H
has the eigenvalues γ_i α_j, so that the prior's δ is added exactly, without damping the factors one by one.
"""

import torch
import torch.nn.functional as F  # noqa: N812  everybody's name for it
from torch import Tensor, nn

from ct_dip.errors import InputError
from ct_dip.weight_posterior.laplace import LaplaceBlock
from ct_dip.weight_posterior.linearised_scan import LinearisedScan


def kfac_blocks(scan: LinearisedScan, rows: int, seed: int = 0) -> list[LaplaceBlock]:
    """Make one block for every convolution; see `LinearisedScan.measured_images` for ``rows``.

    Raises:
        InputError: for grouped convolutions, and padding that is not by zeros.
    """
    places = scan.convolutions()
    modules = {name: scan.network.get_submodule(name.rpartition(".")[0]) for name in places}
    inputs, outputs, image = _run(scan, list(modules.values()))
    sums = [torch.zeros(o.shape[1], o.shape[1], dtype=torch.float64, device=o.device) for o in outputs]
    for seen in scan.measured_images(rows, seed):
        pulled = torch.autograd.grad(image, outputs, seen, is_grads_batched=True, retain_graph=True)
        for total, cotangent in zip(sums, pulled, strict=True):  # (n, 1, outputs, rows, columns)
            flat = cotangent.movedim(2, 0).flatten(1)
            total += flat @ flat.T
    return [
        _block(index, scan.jacobian.weights[index], total, _input_factor(module, parts))
        for (index, module), total, parts in zip(
            zip(places.values(), modules.values(), strict=True), sums, inputs, strict=True
        )
    ]


def _block(index: Tensor, weights: Tensor, output_factor: Tensor, input_factor: Tensor) -> LaplaceBlock:
    gamma, left = torch.linalg.eigh(output_factor)
    alpha, right = torch.linalg.eigh(input_factor)

    def to_weights(coordinates: Tensor) -> Tensor:
        matrices = coordinates.reshape(-1, len(gamma), len(alpha))
        return (left @ matrices @ right.T).flatten(1)

    return LaplaceBlock(
        index=index,
        weights=weights,
        eigenvalues=torch.outer(gamma.clamp_min(0), alpha.clamp_min(0)).flatten(),
        to_weights=to_weights,
    )


def _input_factor(module: nn.Module, parts: tuple[Tensor, ...]) -> Tensor:
    """Return ``1/T Σ_t a_t a_tᵀ``, (inputs · taps, inputs · taps); parts are joined along their channels."""
    assert isinstance(module, nn.Conv2d)
    if module.groups != 1 or module.padding_mode != "zeros" or isinstance(module.padding, str):
        raise InputError(
            "Kronecker factors need convolutions without groups, padded by zeros; use laplace-diag"
        )
    unfolded = F.unfold(
        torch.cat(parts, dim=1), module.kernel_size, module.dilation, module.padding, module.stride
    )[0].double()
    return unfolded @ unfolded.T / unfolded.shape[1]


def _run(
    scan: LinearisedScan, modules: list[nn.Module]
) -> tuple[list[tuple[Tensor, ...]], list[Tensor], Tensor]:
    """Run the network once, and return inputs and outputs of convolutions, and its image."""
    inputs: dict[nn.Module, tuple[Tensor, ...]] = {}
    outputs: dict[nn.Module, Tensor] = {}

    def record(module: nn.Module, parts: tuple[Tensor, ...], output: Tensor) -> None:
        inputs[module], outputs[module] = tuple(part.detach() for part in parts), output

    handles = [module.register_forward_hook(record) for module in modules]
    try:
        image = scan.network(scan.network_input)[0, 0]
    finally:
        for handle in handles:
            handle.remove()
    return [inputs[module] for module in modules], [outputs[module] for module in modules], image
