"""The linear model of a fitted network and a scan, by its products.

In units of the stated noise, ``r = B J w + B u + s ε``: w the weights, u the complement, r the sinogram minus
what the prior mean explains. Vectors of measurements are columns, (measurements, n); those of weights and of
pixels are rows, (n, P) and (n, pixels).
"""

import dataclasses
import hashlib
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ct_dip.config import InferenceConfig
from ct_dip.data.scan import Scan
from ct_dip.dip.ensemble import DipFit
from ct_dip.operators.linear_map import LinearMap
from ct_dip.operators.norm import rms_column_norm
from ct_dip.operators.ray import transform_digest
from ct_dip.operators.whitened import Whitened
from ct_dip.priors.choose import weight_covariance, weight_prior
from ct_dip.priors.complement import Complement, slope_complement, spectral_floor, white_complement
from ct_dip.priors.covariance import WeightCovariance
from ct_dip.priors.weights import WeightPrior
from ct_dip.tangent.jacobian import Jacobian

_NORM_PROBES = 512  # of the typical column norm: 0.3 % of it
_SCALE_PROBES = 128  # of the g-prior's scales: 6 % of each


@dataclass(frozen=True, kw_only=True, eq=False)
class Problem:
    """See the module.

    Args:
        prior_mean: m₀ in units of the O(1) image, (pixels,).
        residual: r, (measurements,), float64; ``residual_at_fit`` the same at h(w̃).
        log_noise: ``Σ log σ`` of the measurements.
        noise_variance: mean of σ², in units of the O(1) image.
        scales: s of the g-prior, (P,).
    """

    fit: DipFit
    config: InferenceConfig
    jacobian: Jacobian
    whitened: Whitened
    prior: WeightPrior
    complement: Complement | None
    prior_mean: Tensor
    residual: Tensor
    residual_at_fit: Tensor
    log_noise: float
    noise_variance: float
    scales: Tensor | None = None

    @property
    def measurements(self) -> int:
        """How many there are."""
        return len(self.residual)

    @property
    def pixels(self) -> int:
        """How many there are."""
        return len(self.prior_mean)

    @property
    def dimensions(self) -> int:
        """Of the sinograms that an image can have; the trace of the noise among them, if it is as stated."""
        return min(self.measurements, self.pixels)

    def project(self, images: Tensor) -> Tensor:
        """``B x``, (n, pixels) → (measurements, n)."""
        return self.whitened.project(images)

    def back_project(self, columns: Tensor) -> Tensor:
        """``Bᵀ v``, (measurements, n) → (n, pixels)."""
        return self.whitened.back_project(columns)

    def images(self, weights: Tensor) -> Tensor:
        """``J w``, (n, P) → (n, pixels)."""
        return self.jacobian(weights).flatten(1)

    def measure(self, weights: Tensor) -> Tensor:
        """``B J w``, (n, P) → (measurements, n)."""
        return self.project(self.images(weights))

    def pull(self, columns: Tensor) -> Tensor:
        """``Jᵀ Bᵀ v``, (measurements, n) → (n, P)."""
        return self.jacobian.T(self.whitened.T(columns.T.contiguous()))

    def in_float64(self) -> "Problem":
        """The same with products in float64, for residuals that float32 does not reach.

        Signals are a million times the noise, so that in float32 a residual may end at a hundredth.
        """
        whitened = Whitened(self.whitened.transform, self.whitened.inverse.double())
        return dataclasses.replace(self, jacobian=self.jacobian.in_float64(), whitened=whitened)

    def covariance(self, theta: Tensor) -> WeightCovariance:
        """``Σ(θ)``, θ of the prior alone."""
        return weight_covariance(self.config, self.prior, theta, self.jacobian, self.scales)


def problem_digest(problem: Problem) -> str:
    """Of everything that products of the problem and its start depend on."""
    settings = problem.config.model_dump(include={"prior", "prior_mean", "objective"})
    whitened = problem.whitened
    identity = f"{transform_digest(whitened.transform, whitened.inverse.device)} {settings}"
    identity += f" {torch.__version__} {torch.get_num_threads()}"
    digest = hashlib.sha256(identity.encode())
    for tensor in (problem.residual, whitened.inverse, problem.jacobian.weights, problem.jacobian.image):
        digest.update(tensor.detach().cpu().numpy().tobytes())
    return digest.hexdigest()


def matrix_free_problem(
    fit: DipFit, scan: Scan, jacobian: Jacobian, config: InferenceConfig, transform: LinearMap, seed: int = 0
) -> Problem:
    """The problem of a scan; ``config`` with every open choice made."""
    variance, _ = scan.variance_or_estimate()
    inverse = torch.as_tensor(fit.scale / np.sqrt(variance)).to(jacobian.weights)
    whitened = Whitened(transform, inverse)
    image = jacobian.image.flatten()
    linear = jacobian(jacobian.weights).flatten()  # J w̃
    mean = image - linear if config.prior_mean == "tangent" else torch.zeros_like(image)
    sinogram = torch.as_tensor(scan.sinogram / np.sqrt(variance)).double().flatten().to(image.device)

    def unexplained(x: Tensor) -> Tensor:
        return sinogram - whitened(x.reshape(jacobian.range_shape)).double()

    scales = _measured_scales(jacobian, whitened, seed) if config.prior == "g" else None
    return Problem(
        fit=fit,
        config=config,
        jacobian=jacobian,
        whitened=whitened,
        prior=weight_prior(config, jacobian, scales),
        complement=_complement(config, jacobian, whitened),
        prior_mean=mean.double(),
        residual=unexplained(mean),
        residual_at_fit=unexplained(mean + linear),
        log_noise=0.5 * float(np.log(variance).sum()),
        noise_variance=float((1 / inverse.square()).mean()),
        scales=scales,
    )


def _complement(config: InferenceConfig, jacobian: Jacobian, whitened: Whitened) -> Complement | None:
    pixels = jacobian.image.numel()
    if config.complement == "none":
        return None
    if config.complement == "white":
        return white_complement(pixels)
    if config.complement == "floor":
        return spectral_floor(whitened)
    seen = rms_column_norm(whitened, torch.ones_like(whitened.inverse).flatten(), probes=_NORM_PROBES)
    return slope_complement(jacobian.image, 1 / seen, whitened.inverse.numel())


def _measured_scales(jacobian: Jacobian, whitened: Whitened, seed: int) -> Tensor:
    """``s_j = (mean_i (B J)²_ij)^−½`` by Hutchinson's estimator, ``E (Jᵀ Bᵀ z)²`` for random signs z."""
    generator = torch.Generator().manual_seed(seed)
    signs = torch.randint(0, 2, (_SCALE_PROBES, *whitened.range_shape), generator=generator)
    seen = jacobian.T(whitened.T((2 * signs - 1).to(jacobian.weights))).square().mean(dim=0)
    scale = (seen / whitened.inverse.numel()).rsqrt()
    return torch.where(torch.isfinite(scale), scale, 0.0)
