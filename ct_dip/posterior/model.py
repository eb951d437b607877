"""Build the linear model of a fitted network and a scan: everything that no hyperparameter changes."""

import hashlib
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from ct_dip.checkpoint import stage_result, take
from ct_dip.config import InferenceConfig
from ct_dip.data.scan import Scan
from ct_dip.dip.ensemble import DipFit
from ct_dip.dip.unet import UNet, UNetShape, WeightBlock
from ct_dip.evidence.marginal import CovarianceSum, packed_bytes
from ct_dip.evidence.model import NO_REST, EvidenceModel, Rest
from ct_dip.operators.linear_map import LinearMap
from ct_dip.operators.ray import transform_digest
from ct_dip.posterior.exact import LinearModel
from ct_dip.priors.choose import block_prior, one_variance, tv_predcp, weak_hyperprior, weight_prior
from ct_dip.priors.complement import Complement, published_floor, slope_complement, white_complement
from ct_dip.priors.predcp import TvPredCp
from ct_dip.priors.weights import BlockPrior
from ct_dip.progress import Progress
from ct_dip.tangent.grams import prior_gram, scaled_gram, streaming_bytes
from ct_dip.tangent.jacobian import Jacobian
from ct_dip.tangent.statistics import (
    count_terms,
    difference_variances,
    feature_statistics,
)

FEATURES = "features.npz"
_FIXED = 128 * 2**20  # the kept graph and the passes in flight, as measured


def linear_model(
    fit: DipFit,
    scan: Scan,
    jacobian: Jacobian,
    config: InferenceConfig,
    transform: LinearMap,
    progress: Progress | None = None,
    run_folder: Path | None = None,
) -> LinearModel:
    """Features, matrices and residuals.

    Args:
        jacobian: of the fit.
        transform: the scan's ray transform, on the CPU.
        run_folder: where the features are kept for another run with the same fit.
    """
    config, progress = config.resolved(), progress or Progress()
    variance, _ = scan.variance_or_estimate()
    # A in units of the noise, on the network's O(1) image.
    inverse = torch.as_tensor(fit.scale / np.sqrt(variance))
    whitened = transform.dense(dtype=torch.float64) * inverse.flatten()[:, None]
    found = stage_result(
        run_folder,
        FEATURES,
        features_digest(fit, scan, config, transform),
        lambda: _features(jacobian, config, transform, inverse, progress),
        lambda state: _check_features(state, jacobian, config),
    )
    grams = found["grams"]
    prior = weight_prior(config, jacobian, found.get("scales"))
    hyperprior: TvPredCp | Literal["weak", "none"] = weak_hyperprior(config)
    if config.hyperprior == "tv-predcp":
        assert isinstance(prior, BlockPrior)
        spread = difference_variances(grams, jacobian.range_shape)
        hyperprior = tv_predcp(prior, spread, jacobian, config, fit, float((1 / inverse.square()).mean()))
    image = jacobian.image.double().flatten()
    linear = jacobian(jacobian.weights).double().flatten()  # J w̃
    mean = image - linear if config.prior_mean == "tangent" else torch.zeros_like(image)
    sinogram = torch.as_tensor(scan.sinogram / np.sqrt(variance)).double().flatten()
    complement = _complement(config, jacobian, whitened)
    residual, at_fit = (sinogram - whitened @ x for x in (mean, mean + linear))
    rotation, rest = None, NO_REST
    with progress.stage("measured covariances"):
        if _many_measurements(len(image), len(residual)):
            # With B = Q R only Qᵀ r depends on the image: as many numbers as pixels. The rest is noise.
            rotation, whitened = torch.linalg.qr(whitened)
            inside = rotation.T @ residual
            rest = Rest(len(residual) - len(inside), float(residual @ residual - inside @ inside))
            residual = inside
        matrices = _measured(grams, whitened, complement)
    evidence = EvidenceModel(
        matrices=matrices,
        prior=prior,
        complement=complement,
        residual=residual,
        residual_at_fit=at_fit,
        log_noise=0.5 * float(np.log(variance).sum()),
        point="fit" if config.objective == "fit" else "optimum",
        hyperprior=hyperprior,
        learn_noise=config.noise == "learned",
        rest=rest,
    )
    return LinearModel(grams, whitened, mean, evidence, rotation=rotation)


def _many_measurements(pixels: int, measurements: int) -> bool:
    """Whether matrices of the pixels are so much smaller that a rotation to them is worth it."""
    return measurements > 1.2 * pixels


def inference_bytes(shape: UNetShape, scan: Scan, config: InferenceConfig) -> dict[str, int]:
    """Memory that every stage of exact inference holds."""
    network = UNet(shape).to("meta")
    blocks = network.weight_blocks()
    sizes = {name: p.numel() for name, p in network.named_parameters()}
    weights = [sum(sizes[name] for name in block.parameters) for block in blocks]
    pixels, measurements = math.prod(scan.geometry.domain_shape), scan.sinogram.size
    terms = 1 if one_variance(config) else count_terms(blocks)
    grams = 4 * terms * pixels**2
    rotation = 0
    if _many_measurements(pixels, measurements):
        rotation, measurements = 24 * pixels * measurements, pixels
    packed = rotation + packed_bytes(measurements, terms + 2)
    return {
        "feature statistics": _FIXED + grams + 8 * pixels**2 + streaming_bytes(weights, pixels),
        "evidence": _FIXED + grams + packed + 16 * pixels * measurements,
        "posterior": _FIXED
        + grams
        + packed
        + 8 * (5 * pixels**2 + 4 * measurements * pixels + 3 * measurements**2),
    }


def features_digest(fit: DipFit, scan: Scan, config: InferenceConfig, transform: LinearMap) -> str:
    """Of everything that the features depend on."""
    identity = f"{scan.digest} {fit.shape} {fit.scale} {config.prior} {one_variance(config)}"
    identity += f" {transform_digest(transform)} {torch.__version__} {torch.get_num_threads()}"
    digest = hashlib.sha256(identity.encode())
    for tensor in (*fit.weights.values(), fit.network_input):
        digest.update(tensor.numpy().tobytes())
    return digest.hexdigest()


def _features(
    jacobian: Jacobian,
    config: InferenceConfig,
    transform: LinearMap,
    inverse: Tensor,
    progress: Progress,
) -> dict[str, Tensor]:
    """``grams`` (terms, pixels, pixels) of the prior's sum; for the g-prior also its ``scales`` (P,).

    Args:
        inverse: of the noise, in units of the O(1) image, (views, detectors).
    """
    if config.prior == "g":
        gram, scales = scaled_gram(jacobian, transform, inverse.float(), progress=progress)
        return {"grams": gram[None], "scales": scales}
    if config.prior == "isotropic":
        return {"grams": prior_gram(jacobian, _independent_taps, progress=progress)[None]}
    prior = block_prior(jacobian)  # before the work: it refuses weights that it cannot start from
    if not one_variance(config):
        return {"grams": feature_statistics(jacobian, progress=progress).grams}

    def taps(block: WeightBlock) -> Tensor:
        return prior.tap_covariance(prior.start, prior.blocks.index(block))

    return {"grams": prior_gram(jacobian, taps, progress=progress)[None]}


def _check_features(
    state: Mapping[str, Tensor], jacobian: Jacobian, config: InferenceConfig
) -> dict[str, Tensor]:
    """What `_features` gave, from its file."""
    pixels, dtype = math.prod(jacobian.range_shape), jacobian.weights.dtype
    terms = 1 if one_variance(config) else count_terms(jacobian.blocks)
    features = {"grams": take(state, "grams", (terms, pixels, pixels), dtype)}
    if config.prior == "g":
        features["scales"] = take(state, "scales", (len(jacobian.weights),), dtype)
    return features


def _independent_taps(block: WeightBlock) -> Tensor:
    return torch.eye(block.kernel**2, dtype=torch.float64)


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


def _complement(config: InferenceConfig, jacobian: Jacobian, whitened: Tensor) -> Complement | None:
    if config.complement == "none":
        return None
    if config.complement == "white":
        return white_complement(whitened.shape[1])
    if config.complement == "floor":
        return published_floor(whitened)
    seen = math.sqrt(float(whitened.square().sum()) / whitened.shape[1])
    return slope_complement(jacobian.image, 1 / seen, len(whitened))
