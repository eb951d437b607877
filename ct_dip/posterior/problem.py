"""The linear model of a fitted network and a scan: what all regimes of inference condition on the data.

In units of the stated noise, ``r = B J w + B u + s ε``: w the weights, u the complement, r the sinogram minus
what the prior mean explains. The covariance of r is ``K = B (J Σ Jᵀ + D) Bᵀ + s² I``. Vectors are rows:
(n, measurements), (n, P) and (n, pixels).

Where the scan states an error of its detector offset, the noise is ``s² (I + q qᵀ)``, and B and r are
whitened by it, so that no regime need know: see `ct_dip.operators.nuisance`. The derivative in q is taken at
f(w̃). The prior is that of the stated noise alone.
"""

import dataclasses
import hashlib
import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from ct_dip.data.scan import Scan
from ct_dip.dip.ensemble import DipFit
from ct_dip.dip.own_network import network_digest
from ct_dip.dip.unet import UNet
from ct_dip.evidence.marginal import CovarianceSum
from ct_dip.evidence.model import EMPTY_SUBSPACE, EvidenceModel, NoiseOnlySubspace
from ct_dip.operators.basic_maps import Diagonal
from ct_dip.operators.linear_map import LinearMap
from ct_dip.operators.norm import rms_column_norm
from ct_dip.operators.nuisance import NuisanceWhitened, offset_derivative
from ct_dip.operators.ray import transform_digest
from ct_dip.operators.sparse import SparseRayTransform
from ct_dip.operators.whitened import Whitened
from ct_dip.posterior.choose_prior import tv_predcp, weak_hyperprior, weight_prior
from ct_dip.posterior.config import InferenceConfig
from ct_dip.posterior.own_objects import (
    OwnComplement,
    OwnPrior,
    own_complement,
    own_prior,
    with_own_objects,
)
from ct_dip.priors.complement import Complement, published_floor, slope_complement, white_complement
from ct_dip.priors.covariance import WeightCovariance
from ct_dip.priors.predcp import TvPredCp
from ct_dip.priors.weights import BlockPrior, WeightPrior
from ct_dip.tangent.jacobian import Jacobian

_NORM_PROBES = 512  # of the typical column norm: 0.3 % of it
_SCALE_PROBES = 128  # of the g-prior's scales: 6 % of each


@dataclass(frozen=True, kw_only=True, eq=False)
class Problem:
    """The linear model of one scan; see the module.

    Args:
        identity: digest of what everything here was made from.
        prior_mean: m₀ in units of the O(1) image, (pixels,).
        residual: r, (measurements,), float64; ``residual_at_fit`` the same at h(w̃).
        log_noise: ``Σ log σ`` of the measurements, minus ``log|W|`` of what whitens them.
        noise_variance: mean of σ², in units of the O(1) image.
    """

    identity: str
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
        """Dimension of the space of sinograms of images, which is the trace of the stated noise there."""
        return min(self.measurements, self.pixels)

    def project(self, images: Tensor) -> Tensor:
        """Compute ``B x``, (n, pixels) → (n, measurements)."""
        return self.whitened.project(images)

    def back_project(self, sinograms: Tensor) -> Tensor:
        """Compute ``Bᵀ v``, (n, measurements) → (n, pixels)."""
        return self.whitened.back_project(sinograms)

    def images(self, weights: Tensor) -> Tensor:
        """Compute ``J w``, (n, P) → (n, pixels)."""
        return self.jacobian(weights).flatten(1)

    @property
    def design(self) -> LinearMap:
        """``B J``, (P,) → (measurements,)."""
        return self.whitened @ self.jacobian

    def signal(self, covariance: WeightCovariance, pixel_variance: Tensor | None) -> LinearMap:
        """Compute ``B (J Σ Jᵀ + D) Bᵀ``: what is not noise of the measurements' covariance."""
        images: LinearMap = self.jacobian @ covariance @ self.jacobian.T
        if pixel_variance is not None:
            images = images + Diagonal(pixel_variance.reshape(self.jacobian.range_shape))
        return self.whitened @ images @ self.whitened.T

    def unit_images(self, index: Tensor) -> Tensor:
        """Make images that are 1 in one pixel, (n, pixels)."""
        units = self.jacobian.weights.new_zeros(len(index), self.pixels)
        units[torch.arange(len(index), device=units.device), index.to(units.device)] = 1
        return units

    def evidence_model(
        self,
        matrices: CovarianceSum,
        residual: Tensor,
        *,
        complement: Complement | None = None,
        noise_only: NoiseOnlySubspace = EMPTY_SUBSPACE,
        difference_variances: Tensor | None = None,
    ) -> EvidenceModel:
        """Make the evidence of this problem, whatever its matrices are.

        Args:
            matrices: see `EvidenceModel`, and for ``residual`` and ``noise_only``.
            complement: if it is one of the matrices.
            difference_variances: T of TV-PredCP, where that is the hyperprior.
        """
        hyperprior: TvPredCp | Literal["weak", "none"] = weak_hyperprior(self.config)
        if difference_variances is not None:
            assert isinstance(self.prior, BlockPrior)
            hyperprior = tv_predcp(
                self.prior, difference_variances, self.jacobian, self.config, self.fit, self.noise_variance
            )
        return EvidenceModel(
            matrices=matrices,
            prior=self.prior,
            complement=complement,
            residual=residual,
            residual_at_fit=self.residual_at_fit.cpu(),
            log_noise=self.log_noise,
            point="fit" if self.config.objective == "fit" else "optimum",
            hyperprior=hyperprior,
            learn_noise=self.config.noise == "learned",
            noise_only=noise_only,
        )

    def in_float64(self) -> "Problem":
        """Return a copy with products of J in float64, for residuals that float32 does not reach.

        Signals are a million times the noise, so that in float32 a residual may end at a hundredth.
        """
        return dataclasses.replace(self, jacobian=self.jacobian.in_float64())


def linear_problem(
    fit: DipFit,
    scan: Scan,
    jacobian: Jacobian,
    config: InferenceConfig,
    transform: LinearMap,
    seed: int = 0,
    *,
    prior: OwnPrior | None = None,
    complement: OwnComplement | None = None,
) -> Problem:
    """Set up the problem of a scan.

    Args:
        seed: of the probes of the g-prior's scales.
        prior: in place of the configuration's, and so for ``complement``; see `ct_dip.posterior.own_objects`.
    """
    config = with_own_objects(config, prior, complement)
    variance, _ = scan.variance_or_estimate()
    inverse = torch.as_tensor(fit.scale / np.sqrt(variance)).to(jacobian.weights.device)
    independent = whitened = Whitened(transform, inverse)
    if scan.offset_error:
        per_mm = offset_derivative(jacobian.image.float(), scan.geometry).double() * inverse
        whitened = NuisanceWhitened(transform, inverse, scan.offset_error * per_mm)
    image = jacobian.image.double()
    linear = jacobian(jacobian.weights).double()  # J w̃
    mean = image - linear if config.prior_mean == "tangent" else torch.zeros_like(image)
    sinogram = torch.as_tensor(scan.sinogram / np.sqrt(variance)).double().flatten().to(image.device)
    sinogram = whitened.whiten(sinogram)
    if prior is None:
        scales = _measured_scales(jacobian, independent, seed) if config.prior == "g" else None
        chosen_prior = weight_prior(config, jacobian, scales)
    else:
        chosen_prior = own_prior(prior, jacobian, config)
    if complement is None:
        chosen_complement = _complement(config, jacobian, independent)
    else:
        chosen_complement = own_complement(complement, jacobian, independent, config)
    return Problem(
        identity=f"{scan.digest} {transform_digest(transform, image.device)} {fit_digest(fit)}",
        fit=fit,
        config=config,
        jacobian=jacobian,
        whitened=whitened,
        prior=chosen_prior,
        complement=chosen_complement,
        prior_mean=mean.flatten(),
        residual=sinogram - whitened(mean),
        residual_at_fit=sinogram - whitened(mean + linear),
        log_noise=0.5 * float(np.log(variance).sum()) - whitened.log_det,
        noise_variance=float((1 / inverse.square()).mean()),
    )


def problem_digest(problem: Problem) -> str:
    """Hash everything that products of the problem and its start depend on."""
    settings = problem.config.model_dump(include={"prior", "prior_mean", "objective"})
    bits = f"{torch.__version__} {torch.get_num_threads()} {problem.residual.device}"
    return f"{problem.identity} {settings} {bits}"


def fit_digest(fit: DipFit) -> str:
    """Return a digest of the network, its weights and its input."""
    unet = type(fit.template) is UNet
    network = fit.template.shape if unet else network_digest(fit.template)
    digest = hashlib.sha256(f"{network} {fit.scale}".encode())
    if not unet:  # of whose code nothing else is known
        digest.update(fit.image.tobytes())
    for tensor in (*fit.weights.values(), fit.network_input):
        digest.update(tensor.cpu().numpy().tobytes())
    return digest.hexdigest()


def _complement(config: InferenceConfig, jacobian: Jacobian, whitened: Whitened) -> Complement | None:
    pixels = jacobian.image.numel()
    if config.complement == "none":
        return None
    if config.complement == "white":
        return white_complement(pixels, jacobian.image.device)
    if config.complement == "floor":
        return published_floor(whitened, jacobian.image.device)
    return slope_complement(jacobian.image, pixel_noise(whitened), whitened.inverse.numel())


def pixel_noise(whitened: Whitened) -> float:
    """Compute ``σ/‖A e_j‖`` of a typical pixel: what the noise leaves open in it if all others are known."""
    transform = whitened.transform
    if isinstance(transform, SparseRayTransform):
        total = (transform.squared_row_norms * whitened.inverse.square()).sum()
        return math.sqrt(math.prod(whitened.domain_shape) / float(total))
    return 1 / rms_column_norm(transform, whitened.inverse, probes=_NORM_PROBES)


def _measured_scales(jacobian: Jacobian, whitened: Whitened, seed: int) -> Tensor:
    """``s_j = (mean_i (B J)²_ij)^−½`` by Hutchinson's estimator, ``E (Jᵀ Bᵀ z)²`` for random signs z."""
    generator = torch.Generator().manual_seed(seed)
    signs = torch.randint(0, 2, (_SCALE_PROBES, *whitened.range_shape), generator=generator)
    seen = jacobian.T(whitened.T((2 * signs - 1).to(jacobian.weights))).square().mean(dim=0)
    scale = (seen / whitened.inverse.numel()).rsqrt()
    return torch.where(torch.isfinite(scale), scale, 0.0)
