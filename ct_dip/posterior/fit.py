"""From a fitted network to a posterior: linearise, fit hyperparameters by evidence, condition on the data."""

import math
from collections.abc import Iterator
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from ct_dip import memory
from ct_dip.config import InferenceConfig
from ct_dip.data.scan import Scan
from ct_dip.dip.ensemble import DipFit
from ct_dip.dip.unet import UNet, UNetShape
from ct_dip.evidence.fit import EvidenceFit, fit_evidence
from ct_dip.evidence.laplace import hyperparameter_points
from ct_dip.evidence.marginal import CovarianceSum, packed_bytes
from ct_dip.evidence.model import EvidenceModel
from ct_dip.operators import ray_transform
from ct_dip.operators.linear_map import LinearMap
from ct_dip.posterior.exact import LinearModel, Moments, condition_over
from ct_dip.posterior.posterior import Posterior, SinogramCheck
from ct_dip.posterior.relevance import relevant_pixels
from ct_dip.priors.complement import Complement, published_floor, slope_complement, white_complement
from ct_dip.priors.predcp import TvPredCp
from ct_dip.priors.weights import (
    BlockPrior,
    ScaledPrior,
    SingleVariancePrior,
    WeightPrior,
    isotropic_prior,
)
from ct_dip.progress import Progress
from ct_dip.tangent.jacobian import Jacobian
from ct_dip.tangent.statistics import (
    FeatureStatistics,
    feature_statistics,
    image_differences,
    scaled_gram,
    statistics_bytes,
)
from ct_dip.tangent.taps import tap_pairs


def fit_posterior(
    fit: DipFit,
    scan: Scan,
    config: InferenceConfig | None = None,
    *,
    transform: LinearMap | None = None,
    progress: Progress | None = None,
    memory_budget: int | str | None = None,
    seed: int = 0,
) -> Posterior:
    """The posterior of the network linearised at its fit, with hyperparameters by evidence.

    Args:
        fit: what `ct_dip.fit_dip` returned for the scan.
        config: prior, objective, complement, …
        transform: the scan's ray transform, if it is at hand.
        seed: of the further starts of the evidence's search.

    Raises:
        MemoryBudgetError: before any work, if the exact matrices would not fit.
    """
    config, progress = (config or InferenceConfig()).resolved(), progress or Progress()
    memory.require(
        max(inference_bytes(fit.shape, scan).values()),
        memory.memory_budget(memory_budget),
        what="exact inference",
        advice="use a smaller image or fewer views",
    )
    if transform is None:
        transform = ray_transform(scan.geometry)
    with progress.stage("linearisation"):
        jacobian = Jacobian(fit.network(), fit.network_input)
    model = linear_model(fit, scan, jacobian, config, transform, progress)
    found = fit_evidence(model.evidence, starts=config.starts, seed=seed, progress=progress)
    with progress.stage("posterior"):
        if config.complement == "slope":
            spots = relevant_pixels(model, found.theta, jacobian.range_shape)
            model = model._replace(relevance=spots)
        points = found.theta[None]
        if config.integrate == "laplace":
            points = hyperparameter_points(model.evidence, found)
        moments = condition_over(model, points)
        assert config.temper is not None
        if config.temper != 1:
            moments = moments._replace(covariance=condition_over(model, points, config.temper).covariance)
        return _describe(fit, scan, config, model, found, moments)


def inference_bytes(shape: UNetShape, scan: Scan) -> dict[str, int]:
    """Memory that every stage of exact inference holds."""
    network = UNet(shape).to("meta")
    blocks = network.weight_blocks()
    pixels, measurements = math.prod(scan.geometry.domain_shape), scan.sinogram.size
    weights = sum(w.numel() for w in network.parameters())
    terms = sum(len(tap_pairs(block.kernel).distances) for block in blocks)
    held = 4 * terms * pixels**2 + packed_bytes(measurements, terms + 2)
    return {
        "feature statistics": statistics_bytes(blocks, pixels, weights),
        "evidence": held,
        "posterior": held + 8 * (4 * pixels**2 + 4 * measurements * pixels + 2 * measurements**2),
    }


def linear_model(
    fit: DipFit,
    scan: Scan,
    jacobian: Jacobian,
    config: InferenceConfig,
    transform: LinearMap,
    progress: Progress | None = None,
) -> LinearModel:
    """Everything that is constant in the hyperparameters."""
    config, progress = config.resolved(), progress or Progress()
    variance, _ = scan.variance_or_estimate()
    # A in units of the noise, on the network's O(1) image.
    inverse = torch.as_tensor(fit.scale / np.sqrt(variance)).flatten()
    whitened = transform.dense(dtype=torch.float64) * inverse[:, None]
    weights = [jacobian.weights[where] for where in jacobian.slices.values()]
    if config.prior == "g":
        rows = inverse.reshape(transform.range_shape).float()
        with progress.stage("feature statistics"):
            gram, scales = scaled_gram(jacobian, transform, rows)
        grams = gram[None]
        seen = scales > 0
        prior: WeightPrior = SingleVariancePrior(
            "log_g", torch.ones(1), jacobian.weights[seen] / scales[seen]
        )
    else:
        statistics = feature_statistics(jacobian, progress=progress)
        grams = statistics.grams
        prior = (
            isotropic_prior(statistics, weights)
            if config.prior == "isotropic"
            else BlockPrior(statistics, weights)
        )
    hyperprior: TvPredCp | Literal["weak", "none"]
    if config.hyperprior != "tv-predcp":
        hyperprior = config.hyperprior
    else:
        assert isinstance(prior, BlockPrior)  # the configuration saw to it
        hyperprior = _predcp(prior, statistics, jacobian, _predcp_strength(fit, config, variance))
    if config.objective == "scale":
        prior = ScaledPrior(prior)
    image = jacobian.image.double().flatten()
    mean = torch.zeros_like(image)
    if config.prior_mean == "tangent":
        mean = image - jacobian(jacobian.weights).double().flatten()
    sinogram = torch.as_tensor(scan.sinogram / np.sqrt(variance)).double().flatten()
    complement = _complement(config, jacobian, fit, whitened)
    with progress.stage("measured covariances"):
        matrices = _measured(grams, whitened, complement)
    evidence = EvidenceModel(
        matrices=matrices,
        prior=prior,
        complement=complement,
        residual=sinogram - whitened @ mean,
        residual_at_fit=sinogram - whitened @ image,
        point="fit" if config.objective == "fit" else "optimum",
        hyperprior=hyperprior,
        learn_noise=config.noise == "learned",
    )
    return LinearModel(grams, whitened, mean, evidence)


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


def _predcp_strength(fit: DipFit, config: InferenceConfig, variance: np.ndarray) -> float:
    """λ: that of the network's fit, in which ``exp(−λ TV)`` is the image's prior; or the paper's, or given.

    The paper multiplies its γ, which belongs to a mean of squares, by the number of measurements; the fit's
    own λ is that over twice the noise variance.
    """
    if config.predcp_strength == "fit":
        return fit.tv_weight
    if config.predcp_strength == "paper":
        return 2 * float(np.mean(variance)) * fit.tv_weight
    return float(config.predcp_strength)


def _describe(
    fit: DipFit,
    scan: Scan,
    config: InferenceConfig,
    model: LinearModel,
    found: EvidenceFit,
    moments: Moments,
) -> Posterior:
    shape = fit.image.shape
    _, _, noise = model.evidence.split(found.theta)
    linear = fit.scale * moments.mean.numpy().reshape(shape)
    mean = {"dip": fit.image, "linear": linear, "mean": (fit.image + linear) / 2}[config.image]
    deviations = torch.as_tensor(np.sqrt(scan.variance_or_estimate()[0])).flatten()  # stated σ
    unit = torch.as_tensor(mean / fit.scale).double().flatten()
    projected = model.whitened @ unit
    signal = (model.whitened @ moments.covariance * model.whitened).sum(dim=1)
    size = scan.sinogram.shape
    measured = torch.as_tensor(scan.sinogram.copy()).double().flatten()
    relative = math.exp(float(noise) / 2)
    return Posterior(
        mean=np.asarray(mean, dtype=np.float64),
        dip=np.asarray(fit.image, dtype=np.float64),
        linear=linear,
        scale=fit.scale,
        unit_covariance=moments.covariance,
        sinogram=SinogramCheck(
            mean=(deviations * projected).numpy().reshape(size),
            std=(deviations * (signal + relative**2).sqrt()).numpy().reshape(size),
            standardised=((measured / deviations - projected) / relative).numpy().reshape(size),
        ),
        evidence=found,
        hyperparameters=dict(zip(found.names, found.theta.tolist(), strict=True)),
        noise_std=relative * float(deviations.square().mean().sqrt()),
        stated_noise_std=float(deviations.square().mean().sqrt()),
        effective_dimension=model.evidence.effective_dimension(found.theta),
        jitter=max(found.jitter, moments.jitter),
    )
