"""A scan as the linearised network sees it: ``r ≈ B J δw + ε`` with noise of covariance I."""

import math
from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor, nn

from ct_dip.dip.ensemble import DipFit
from ct_dip.operators.linear_map import LinearMap
from ct_dip.operators.whitened import Whitened
from ct_dip.tangent.jacobian import Jacobian
from ct_dip.tangent.linearise import linearise


class LinearisedScan(NamedTuple):
    """J of a fitted network and B of a scan; the generalised Gauss-Newton matrix is ``JᵀBᵀBJ``.

    Args:
        network: with the fitted weights, and its ``network_input``, (1, 1, rows, columns).
        jacobian: J, (P,) → (rows, columns).
        whitened: B, (rows, columns) → (measurements,).
        residual: ``(y − A f(w̃))/σ``, (measurements,).
        log_noise: ``Σ log σ``.
    """

    network: nn.Module
    network_input: Tensor
    jacobian: Jacobian
    whitened: Whitened
    residual: Tensor
    log_noise: float

    @property
    def design(self) -> LinearMap:
        """``B J``, (P,) → (measurements,)."""
        return self.whitened @ self.jacobian

    def measured_images(self, rows: int, seed: int = 0) -> Iterator[Tensor]:
        """Yield images u, (n, rows, columns), whose ``Σ u uᵀ`` is ``BᵀB``.

        They are the rows of B if there are no more than ``rows`` measurements. Otherwise they are so many
        random combinations ``Bᵀz/√rows`` with signs z, of which ``BᵀB`` is the expectation (Hutchinson,
        1990): a sum of squares then has a relative standard error of at most ``√(2/rows)``.
        """
        (measurements,) = self.whitened.range_shape
        generator = torch.Generator().manual_seed(seed)
        chunk = self.jacobian.chunk
        for first in range(0, min(rows, measurements), chunk):
            count = min(chunk, min(rows, measurements) - first)
            if measurements <= rows:
                picked = torch.zeros(count, measurements)
                picked.diagonal(first).fill_(1)
            else:
                signs = torch.randint(0, 2, (count, measurements), generator=generator)
                picked = (2 * signs - 1) / math.sqrt(rows)
            yield self.whitened.T(picked.to(self.jacobian.weights))

    def convolutions(self) -> dict[str, Tensor]:
        """Return where the weights of every convolution are among all, by the name of its parameter."""
        names = [name for block in self.jacobian.blocks for name in block.parameters]
        sizes = [self.network.get_parameter(name).numel() for name in names]
        every = torch.arange(sum(sizes), device=self.jacobian.weights.device)
        return dict(zip(names, torch.split(every, sizes), strict=True))


def linearise_scan(
    fit: DipFit, sinogram: Tensor, variance: Tensor, transform: LinearMap, *, double: bool = False
) -> LinearisedScan:
    """Linearise a fitted network, on the sinogram's device.

    Args:
        sinogram: y, (views, detectors), and its ``variance`` σ².
        double: whether the network is taken in float64.
    """
    number = torch.float64 if double else torch.float32
    network = fit.network().to(sinogram.device, number)
    network_input = fit.network_input.to(sinogram.device, number)
    jacobian = linearise(network, network_input)
    deviation = variance.to(sinogram.device, torch.float64).sqrt()
    whitened = Whitened(transform, fit.scale / deviation)
    explained = whitened(jacobian.image.double())
    residual = (sinogram.double() / deviation).flatten() - explained
    log_noise = float(deviation.log().sum())
    return LinearisedScan(network, network_input, jacobian, whitened, residual, log_noise)
