"""The matrices of exact inference: everything of a problem that no hyperparameter changes."""

import dataclasses
import math
from collections.abc import Iterator, Mapping
from pathlib import Path

import torch
from torch import Tensor

from ct_dip.checkpoint import stage_result, take
from ct_dip.data.scan import Scan
from ct_dip.dip.unet import WeightBlock
from ct_dip.evidence.marginal import CovarianceSum, packed_bytes
from ct_dip.evidence.model import EMPTY_SUBSPACE, NoiseOnlySubspace
from ct_dip.posterior.choose_prior import block_prior, one_variance, weight_prior
from ct_dip.posterior.config import InferenceConfig
from ct_dip.posterior.exact import LinearModel
from ct_dip.posterior.problem import Problem
from ct_dip.priors.complement import Complement
from ct_dip.priors.weights import BlockPrior
from ct_dip.progress import Progress
from ct_dip.tangent.footprint import Footprint
from ct_dip.tangent.grams import covariance_gram, prior_gram, scaled_gram, streaming_bytes
from ct_dip.tangent.jacobian import Jacobian
from ct_dip.tangent.statistics import count_terms, difference_variances, feature_statistics

FEATURES = "features.npz"
_FEW_ZEROS = 0.75  # share of numbers that are not zero, from which a matrix is better taken as dense
_FIXED = 128 * 2**20  # the kept graph and the passes in flight, as measured


def linear_model(
    problem: Problem, progress: Progress | None = None, run_folder: Path | None = None
) -> LinearModel:
    """Compute the features, matrices and residuals of a problem.

    Args:
        run_folder: where the features are kept for another run with the same fit.
    """
    config, jacobian, progress = problem.config, problem.jacobian, progress or Progress()
    features = stage_result(
        run_folder,
        FEATURES,
        features_digest(problem),
        lambda: _features(problem, progress),
        lambda state: _check_features(state, jacobian, config),
    )
    grams = features["grams"]
    if config.prior == "g":  # whose scales are exact here, not estimated
        problem = dataclasses.replace(problem, prior=weight_prior(config, jacobian, features["scales"]))
    with progress.stage("projected covariances"):
        return model_of_grams(problem, grams)


def model_of_grams(problem: Problem, grams: Tensor) -> LinearModel:
    """Make the model of a problem whose ``G_t``, (terms, pixels, pixels), are known."""
    variances = None
    if problem.config.hyperprior == "tv-predcp":
        variances = difference_variances(grams, problem.jacobian.range_shape)
    residual, whitened = problem.residual, problem.whitened.dense(device=problem.residual.device)
    rotation, noise_only = None, EMPTY_SUBSPACE
    if _many_measurements(problem.pixels, problem.measurements):
        # With B = Q R only Qᵀ r depends on the image: as many numbers as pixels. The rest is noise.
        rotation, whitened = torch.linalg.qr(whitened)
        inside = rotation.T @ residual
        noise_only = NoiseOnlySubspace(
            len(residual) - len(inside), float(residual @ residual - inside @ inside)
        )
        residual = inside
    evidence = problem.evidence_model(
        _measured(grams, whitened, problem.complement),
        residual,
        complement=problem.complement,
        noise_only=noise_only,
        difference_variances=variances,
    )
    return LinearModel(grams, whitened, problem.prior_mean, evidence, rotation=rotation)


def _many_measurements(pixels: int, measurements: int) -> bool:
    """Whether matrices of the pixels are so much smaller that a rotation to them is worth it."""
    return measurements > 1.2 * pixels


def inference_bytes(network: Footprint, scan: Scan, config: InferenceConfig) -> dict[str, int]:
    """Estimate the memory that every stage of exact inference holds."""
    pixels, measurements = math.prod(scan.geometry.domain_shape), scan.sinogram.size
    terms = 1 if one_variance(config) else count_terms(network.blocks)
    fixed = max(_FIXED, network.jacobian_bytes)
    grams = 4 * terms * pixels**2
    rotation = 0
    if _many_measurements(pixels, measurements):
        rotation, measurements = 24 * pixels * measurements, pixels
    packed = rotation + packed_bytes(measurements, terms + 2)
    given_tv = 0
    if config.tv == "majorant":  # two models more, of which one has 2 d_x measurements and the other all
        given_tv = 24 * pixels * (scan.sinogram.size + 4 * pixels) + 2 * packed_bytes(pixels, terms + 2)
    return {
        "prior covariances": fixed + grams + 8 * pixels**2 + streaming_bytes(network.block_weights, pixels),
        "hyperparameters": fixed + grams + packed + 16 * pixels * measurements,
        "posterior": fixed
        + grams
        + packed
        + given_tv
        + 8 * (5 * pixels**2 + 4 * measurements * pixels + 3 * measurements**2),
    }


def features_digest(problem: Problem) -> str:
    """Identify everything that the features depend on."""
    config = problem.config
    bits = f"{torch.__version__} {torch.get_num_threads()} {problem.residual.device}"
    return f"{problem.identity} {config.prior} {one_variance(config)} {bits}"


def _features(problem: Problem, progress: Progress) -> dict[str, Tensor]:
    """``grams`` (terms, pixels, pixels) of the prior's sum; for the g-prior also its ``scales`` (P,)."""
    jacobian, config = problem.jacobian, problem.config
    if config.prior == "g":
        whitened = problem.whitened
        gram, scales = scaled_gram(jacobian, whitened.transform, whitened.inverse.float(), progress=progress)
        return {"grams": gram[None], "scales": scales}
    if config.prior == "isotropic":
        return {"grams": prior_gram(jacobian, _independent_taps, progress=progress)[None]}
    if not isinstance(problem.prior, BlockPrior) and not one_variance(config):  # of the user's own
        terms = [covariance_gram(jacobian, term, progress=progress) for term in problem.prior.terms()]
        return {"grams": torch.stack(terms)}
    prior = block_prior(jacobian)  # before the work: it refuses weights that it cannot start from
    if not one_variance(config):
        return {"grams": feature_statistics(jacobian, progress=progress).grams}

    def taps(block: WeightBlock) -> Tensor:
        return prior.tap_covariance(prior.start, prior.blocks.index(block))

    return {"grams": prior_gram(jacobian, taps, progress=progress)[None]}


def _check_features(
    state: Mapping[str, Tensor], jacobian: Jacobian, config: InferenceConfig
) -> dict[str, Tensor]:
    """Check what `_features` gave, as read from its file."""
    pixels, dtype = math.prod(jacobian.range_shape), jacobian.weights.dtype
    terms = 1 if one_variance(config) else count_terms(jacobian.blocks)
    features = {"grams": take(state, "grams", (terms, pixels, pixels), dtype)}
    if config.prior == "g":
        features["scales"] = take(state, "scales", (len(jacobian.weights),), dtype)
    return {name: tensor.to(jacobian.weights.device) for name, tensor in features.items()}


def _independent_taps(block: WeightBlock) -> Tensor:
    return torch.eye(block.kernel**2, dtype=torch.float64)


def _measured(grams: Tensor, whitened: Tensor, complement: Complement | None) -> CovarianceSum:
    # Hardly anything is zero where an uncertain offset joins all measurements; half of a rotation's R is.
    few = int(whitened.count_nonzero()) < _FEW_ZEROS * whitened.numel()
    product = whitened.to_sparse_csr() if few else whitened
    in_model = complement is not None and complement.in_model

    def matrices() -> Iterator[Tensor]:
        for gram in grams:
            yield product @ (product @ gram.double()).T
        if complement is not None and in_model:
            yield (whitened * complement.variance) @ whitened.T
        yield torch.eye(len(whitened), dtype=torch.float64, device=whitened.device)

    return CovarianceSum(len(whitened), matrices(), len(grams) + in_model + 1, whitened.device)
