"""A number of the geometry that is known with an error only, as part of the noise.

If the detector offset o is known to a standard error τ, then, to first order,
``y = A x + ε + (o − ô) ∂A x/∂o``, and the noise in units of its own deviation σ has the covariance
``I + u uᵀ`` with ``u = τ (∂A x/∂o)/σ``: one direction in which all measurements err together. Whitening with
its square root, which is known in closed form, leaves noise of covariance I again, so that no regime of
inference needs to know::

    W = (I + u uᵀ)^−½ = I − κ u uᵀ,    κ = (1 − (1 + |u|²)^−½)/|u|²,    log|W| = −½ log(1 + |u|²)
"""

import math
from dataclasses import replace

from torch import Tensor

from ct_dip.geometry import Geometry
from ct_dip.operators import ray_transform
from ct_dip.operators.linear_map import LinearMap
from ct_dip.operators.whitened import Whitened

_STEP = 0.25  # of a bin, to either side


def offset_derivative(image: Tensor, geometry: Geometry) -> Tensor:
    """``∂A x/∂o``, (rows, columns) → (views, detectors), per mm of the detector offset."""
    step = _STEP * geometry.detector_pitch
    after, before = (
        ray_transform(replace(geometry, detector_offset=geometry.detector_offset + shift), "astra")(image)
        for shift in (step, -step)
    )
    return (after - before) / (2 * step)


class NuisanceWhitened(Whitened):
    """``W diag(1/σ) A``, (rows, columns) → (measurements,).

    Args:
        transform, inverse: A and 1/σ, as of `Whitened`.
        nuisance: u, (measurements,).
    """

    def __init__(self, transform: LinearMap, inverse: Tensor, nuisance: Tensor) -> None:
        super().__init__(transform, inverse)
        self.nuisance = nuisance.flatten()
        self._energy = float(self.nuisance.double().square().sum())

    @property
    def log_det(self) -> float:
        """``log|W|``, which the log-density of whitened data has more."""
        return -0.5 * math.log1p(self._energy)

    def whiten(self, v: Tensor) -> Tensor:
        """``W v`` of sinograms that are in units of σ already, (n, measurements)."""
        factor = (1 - 1 / math.sqrt(1 + self._energy)) / self._energy if self._energy else 0.0
        u = self.nuisance.to(v)
        return v - factor * (v @ u)[..., None] * u

    def _forward(self, x: Tensor) -> Tensor:
        return self.whiten(super()._forward(x))

    def _adjoint(self, y: Tensor) -> Tensor:
        return super()._adjoint(self.whiten(y))
