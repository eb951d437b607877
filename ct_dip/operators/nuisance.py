"""A number of the geometry that is known with an error only, as part of the noise.

If the detector offset o is known to a standard error τ, then, to first order,
``y = A x + ε + (o − ô) ∂A x/∂o``, and the noise in units of its own deviation σ has the covariance
``I + q qᵀ`` with ``q = τ (∂A x/∂o)/σ``: one direction in which all measurements err together. Whitening with
its square root, which is known in closed form, leaves noise of covariance I again, so that no regime of
inference needs to know::

    W = (I + q qᵀ)^−½ = I − κ q qᵀ,    κ = (1 − (1 + |q|²)^−½)/|q|²,    log|W| = −½ log(1 + |q|²)

A shift of the detector is one of the rotation axis's shadow: for a parallel beam the two are the same, for a
fan nearly, so that one number stands for both.
"""

import math
from dataclasses import replace

from torch import Tensor

from ct_dip.geometry import Geometry
from ct_dip.operators import ray_transform
from ct_dip.operators.linear_map import LinearMap
from ct_dip.operators.whitened import Whitened

_STEP = 0.5  # of a pixel's shadow, to either side: with less, the edges of single pixels are seen


def offset_derivative(image: Tensor, geometry: Geometry) -> Tensor:
    """Compute ``∂A x/∂o``, (rows, columns) → (views, detectors), per mm of the detector offset.

    The derivative is taken at this image and at the geometry's own offset, as the difference of two ray
    transforms with detectors that are shifted to either side by half of a pixel's shadow.
    """
    step = _STEP * geometry.volume.pixel_size * geometry.detector_pitch / geometry.origin_pitch
    after, before = (
        ray_transform(replace(geometry, detector_offset=geometry.detector_offset + shift), "astra")(image)
        for shift in (step, -step)
    )
    return (after - before) / (2 * step)


class NuisanceWhitened(Whitened):
    """``W diag(1/σ) A``, (rows, columns) → (measurements,).

    Args:
        transform, inverse: A and 1/σ, as of `Whitened`.
        nuisance: q, (measurements,).
    """

    def __init__(self, transform: LinearMap, inverse: Tensor, nuisance: Tensor) -> None:
        super().__init__(transform, inverse)
        self.nuisance = nuisance.flatten()
        self._energy = float(self.nuisance.double().square().sum())  # |q|²
        self.log_det = -0.5 * math.log1p(self._energy)
        self.noise_variance = 1 + self.nuisance.double().square()

    def whiten(self, v: Tensor) -> Tensor:
        """Compute ``W v`` of sinograms in units of σ, (…, measurements)."""
        return self._stretched(v, 1 / math.sqrt(1 + self._energy))

    def unwhiten(self, v: Tensor) -> Tensor:
        """Compute ``W⁻¹ v``, (…, measurements) → the same."""
        return self._stretched(v, math.sqrt(1 + self._energy))

    def _stretched(self, v: Tensor, factor: float) -> Tensor:
        """Multiply by a factor along q."""
        q = self.nuisance.to(v)
        return v + (factor - 1) / max(self._energy, 1e-300) * (v @ q)[..., None] * q

    def _forward(self, x: Tensor) -> Tensor:
        return self.whiten(super()._forward(x))

    def _adjoint(self, y: Tensor) -> Tensor:
        return super()._adjoint(self.whiten(y))
