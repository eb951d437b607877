"""Build the linear model of a fitted network and a scan: everything that no hyperparameter changes."""

import math
from collections.abc import Iterator
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from ct_dip.config import InferenceConfig
from ct_dip.data.scan import Scan
from ct_dip.dip.ensemble import DipFit
from ct_dip.dip.unet import UNet, UNetShape, WeightBlock
from ct_dip.evidence.marginal import CovarianceSum, packed_bytes
from ct_dip.evidence.model import EvidenceModel
from ct_dip.operators.linear_map import LinearMap
from ct_dip.posterior.exact import LinearModel
from ct_dip.priors.complement import Complement, published_floor, slope_complement, white_complement
from ct_dip.priors.predcp import TvPredCp
from ct_dip.priors.weights import BlockPrior, OneVariancePrior, WeightPrior
from ct_dip.progress import Progress
from ct_dip.tangent.grams import prior_gram, scaled_gram, streaming_bytes
from ct_dip.tangent.jacobian import Jacobian
from ct_dip.tangent.statistics import (
    FeatureStatistics,
    count_terms,
    feature_statistics,
    image_differences,
)

_FIXED = 128 * 2**20  # the kept graph and the passes in flight, as measured


def linear_model(
    fit: DipFit,
    scan: Scan,
    jacobian: Jacobian,
    config: InferenceConfig,
    transform: LinearMap,
    progress: Progress | None = None,
) -> LinearModel:
    """Features, matrices and residuals.

    Args:
        jacobian: of the fit.
        transform: the scan's ray transform, on the CPU.
    """
    config, progress = config.resolved(), progress or Progress()
    variance, _ = scan.variance_or_estimate()
    # A in units of the noise, on the network's O(1) image.
    inverse = torch.as_tensor(fit.scale / np.sqrt(variance))
    whitened = transform.dense(dtype=torch.float64) * inverse.flatten()[:, None]
    prior, grams, hyperprior = _prior(fit, jacobian, config, transform, inverse, progress)
    image = jacobian.image.double().flatten()
    linear = jacobian(jacobian.weights).double().flatten()  # J w̃
    mean = image - linear if config.prior_mean == "tangent" else torch.zeros_like(image)
    sinogram = torch.as_tensor(scan.sinogram / np.sqrt(variance)).double().flatten()
    complement = _complement(config, jacobian, fit, whitened)
    with progress.stage("measured covariances"):
        matrices = _measured(grams, whitened, complement)
    evidence = EvidenceModel(
        matrices=matrices,
        prior=prior,
        complement=complement,
        residual=sinogram - whitened @ mean,
        residual_at_fit=sinogram - whitened @ (mean + linear),
        log_noise=0.5 * float(np.log(variance).sum()),
        point="fit" if config.objective == "fit" else "optimum",
        hyperprior=hyperprior,
        learn_noise=config.noise == "learned",
    )
    return LinearModel(grams, whitened, mean, evidence)


def inference_bytes(shape: UNetShape, scan: Scan, config: InferenceConfig) -> dict[str, int]:
    """Memory that every stage of exact inference holds."""
    network = UNet(shape).to("meta")
    blocks = network.weight_blocks()
    sizes = {name: p.numel() for name, p in network.named_parameters()}
    weights = [sum(sizes[name] for name in block.parameters) for block in blocks]
    pixels, measurements = math.prod(scan.geometry.domain_shape), scan.sinogram.size
    one = config.prior != "block" or config.resolved().objective == "scale"
    terms = 1 if one else count_terms(blocks)
    grams = 4 * terms * pixels**2
    packed = packed_bytes(measurements, terms + 2)
    return {
        "feature statistics": _FIXED + grams + 8 * pixels**2 + streaming_bytes(weights, pixels),
        "evidence": _FIXED + grams + packed + 16 * pixels * measurements,
        "posterior": _FIXED
        + grams
        + packed
        + 8 * (5 * pixels**2 + 4 * measurements * pixels + 3 * measurements**2),
    }


def _prior(
    fit: DipFit,
    jacobian: Jacobian,
    config: InferenceConfig,
    transform: LinearMap,
    inverse: Tensor,
    progress: Progress,
) -> tuple[WeightPrior, Tensor, TvPredCp | Literal["weak", "none"]]:
    """The prior over weights, the matrices (terms, pixels, pixels) of its sum, and its hyperprior.

    Args:
        inverse: of the noise, in units of the O(1) image, (views, detectors).
    """
    count = len(jacobian.weights)
    hyperprior: Literal["weak", "none"] = "none" if config.hyperprior == "none" else "weak"
    if config.prior == "g":
        gram, scales = scaled_gram(jacobian, transform, inverse.float(), progress=progress)
        seen = scales > 0
        norm = float((jacobian.weights[seen] / scales[seen]).double().square().sum())
        return OneVariancePrior("log_g", norm, int(seen.sum())), gram[None], hyperprior
    if config.prior == "isotropic":
        gram = prior_gram(
            jacobian, lambda block: torch.eye(block.kernel**2, dtype=torch.float64), progress=progress
        )
        norm = float(jacobian.weights.double().square().sum())
        return OneVariancePrior("log_variance", norm, count), gram[None], hyperprior
    prior = BlockPrior(jacobian.blocks, [jacobian.weights[where] for where in jacobian.slices.values()])
    if config.objective == "scale":

        def taps(block: WeightBlock) -> Tensor:
            return prior.tap_covariance(prior.start, prior.blocks.index(block))

        gram = prior_gram(jacobian, taps, progress=progress)
        norm = float(prior.weight_norm(prior.start))
        return OneVariancePrior("log_scale", norm, count), gram[None], hyperprior
    statistics = feature_statistics(jacobian, progress=progress)
    if config.hyperprior == "tv-predcp":
        strength = _predcp_strength(fit, config, 1 / inverse.square())
        return prior, statistics.grams, _predcp(prior, statistics, jacobian, strength)
    return prior, statistics.grams, hyperprior


def _measured(grams: Tensor, whitened: Tensor, complement: Complement | None) -> CovarianceSum:
    sparse = whitened.to_sparse_csr()
    in_model = complement is not None and complement.in_model

    def matrices() -> Iterator[Tensor]:
        for gram in grams:
            yield sparse @ (sparse @ gram.double()).T
        if complement is not None and in_model:
            yield (whitened * complement.variance) @ whitened.T
        yield torch.eye(len(whitened), dtype=torch.float64)

    return CovarianceSum(len(whitened), matrices(), len(grams) + in_model + 1)


def _complement(
    config: InferenceConfig, jacobian: Jacobian, fit: DipFit, whitened: Tensor
) -> Complement | None:
    if config.complement == "none":
        return None
    if config.complement == "white":
        return white_complement(whitened.shape[1])
    if config.complement == "floor":
        return published_floor(whitened)
    seen = math.sqrt(float(whitened.square().sum()) / whitened.shape[1])
    return slope_complement(jacobian.image, fit.shape.output, 1 / seen)


def _predcp(
    prior: BlockPrior, statistics: FeatureStatistics, jacobian: Jacobian, strength: float
) -> TvPredCp:
    """With ``μ_b = D (f(w̃) − J_b w̃_b)``: the other blocks stay at w̃, this one is drawn."""
    alone = jacobian.weights.new_zeros(len(prior.blocks), len(jacobian.weights))
    for row, where in zip(alone, jacobian.slices.values(), strict=True):
        row[where] = jacobian.weights[where]
    means = image_differences((jacobian.image - jacobian(alone)).double())
    variances = statistics.difference_variances(jacobian.range_shape)
    by_block = [variances[terms] for terms in statistics.terms.values()]
    return TvPredCp(prior, means, by_block, strength)


def _predcp_strength(fit: DipFit, config: InferenceConfig, variance: Tensor) -> float:
    """λ: that of the network's fit, in which ``exp(−λ TV)`` is the image's prior; or the paper's, or given.

    The paper multiplies its γ, which belongs to a mean of squares of O(1) images, by the number of
    measurements; the fit's own λ is that over twice the noise variance.

    Args:
        variance: of the noise in units of the O(1) image.
    """
    if config.predcp_strength == "fit":
        return fit.tv_weight
    if config.predcp_strength == "paper":
        return 2 * float(variance.mean()) * fit.tv_weight
    return float(config.predcp_strength)
