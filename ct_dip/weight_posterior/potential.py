"""The negative logarithm of what weights are to a scan: likelihood, total variation, and their own prior."""

import math

import torch
from torch import Tensor
from torch.func import functional_call

from ct_dip.dip.ensemble import DipFit
from ct_dip.dip.own_network import weight_blocks
from ct_dip.dip.unet import SLOPE
from ct_dip.operators.differences import total_variation
from ct_dip.operators.linear_map import LinearMap
from ct_dip.operators.whitened import Whitened


class Potential:
    """``U(w) = ½ ‖(A x − y)/σ‖² + λ TV(f(w))``, ``x = scale · f(w)``, of all parameters of a network, flat.

    λ is that of the network's fit, which ends with the minimisation of this function.

    Args:
        sinogram: y, (views, detectors), and its ``variance`` σ².

    Attributes:
        network: that parameters are put into; ``sizes`` their shapes by name.
        start: fitted parameters, (P,), in the order of ``named_parameters``.
        slices: where the weights of every convolution are among them, by name: what is uncertain.
        whitened: B, A in units of the noise, on the O(1) image.
    """

    def __init__(self, fit: DipFit, sinogram: Tensor, variance: Tensor, transform: LinearMap) -> None:
        device = sinogram.device
        self.network = fit.network().to(device).requires_grad_(False)
        self._network_input = fit.network_input.to(device)
        self._tv_weight = fit.tv_weight
        deviation = variance.to(device, torch.float64).sqrt()
        self.whitened = Whitened(transform, fit.scale / deviation)
        self._sinogram = (sinogram / deviation).float().flatten()
        parameters = dict(self.network.named_parameters())
        self.sizes = {name: p.shape for name, p in parameters.items()}
        self.start = torch.cat([p.flatten() for p in parameters.values()])
        names = [name for block in weight_blocks(self.network) for name in block.parameters]
        self.slices: dict[str, slice] = {}
        first = 0
        for name, parameter in parameters.items():
            if name in names:
                self.slices[name] = slice(first, first + parameter.numel())
            first += parameter.numel()

    def image(self, flat: Tensor) -> Tensor:
        """Return the O(1) image of parameters (P,), (rows, columns)."""
        parts = torch.split(flat, [size.numel() for size in self.sizes.values()])
        own = {name: part.view(size) for (name, size), part in zip(self.sizes.items(), parts, strict=True)}
        output: Tensor = functional_call(self.network, own, (self._network_input,))
        return output[0, 0]

    def of_image(self, image: Tensor) -> Tensor:
        """Return U of an image, a scalar."""
        residual = self.whitened(image) - self._sinogram
        return 0.5 * residual.square().sum() + self._tv_weight * total_variation(image, isotropic=True)

    def __call__(self, flat: Tensor) -> Tensor:
        """Return U, a scalar."""
        return self.of_image(self.image(flat))

    def prior_precision(self) -> Tensor:
        """Return the precision of the prior of every parameter, (P,): N(0, …) as a U-Net is initialised.

        He et al. (2015): variance ``2 / ((1 + slope²) fan_in)`` of a convolution's weights; 1 of all else.
        """
        precision = torch.ones_like(self.start)
        for name, where in self.slices.items():
            fan_in = math.prod(self.sizes[name][1:])
            precision[where] = 0.5 * (1 + SLOPE**2) * fan_in
        return precision

    def curvature(self, probes: int, seed: int = 0) -> Tensor:
        """Estimate the diagonal of the likelihood's Gauss-Newton matrix at the fit, (P,), by signs z.

        ``E (JᵀBᵀz)²``, each with a relative standard error of at most ``√(2/probes)`` (Hutchinson, 1990).
        """
        flat = self.start.clone().requires_grad_()
        image = self.image(flat)
        generator = torch.Generator().manual_seed(seed)
        total = torch.zeros_like(flat)
        for _ in range(probes):
            signs = torch.randint(0, 2, self._sinogram.shape, generator=generator)
            seen = self.whitened.T((2 * signs - 1).to(image))
            (slope,) = torch.autograd.grad(image, flat, seen, retain_graph=True)
            total += slope.square() / probes
        return total
