"""The prior over weights that a configuration asks for."""

from typing import Literal

from torch import Tensor

from ct_dip.dip.ensemble import DipFit
from ct_dip.posterior.config import InferenceConfig
from ct_dip.priors.covariance import independent_covariance
from ct_dip.priors.predcp import TvPredCp
from ct_dip.priors.weights import BlockPrior, OneVariancePrior, WeightPrior
from ct_dip.tangent.jacobian import Jacobian
from ct_dip.tangent.statistics import image_differences, term_slices


def one_variance(config: InferenceConfig) -> bool:
    """Whether a single variance is all that there is to fit of the weights' prior."""
    return config.prior != "block" or config.resolved().objective == "scale"


def block_prior(jacobian: Jacobian) -> BlockPrior:
    """Make a prior with one variance and one tap length per block, started from the fitted weights."""
    return BlockPrior(jacobian.blocks, jacobian.weights, jacobian.slices)


def weight_prior(config: InferenceConfig, jacobian: Jacobian, scales: Tensor | None = None) -> WeightPrior:
    """Make the prior of a configuration with every open choice made.

    Args:
        scales: s of the g-prior, (P,).
    """
    weights, count = jacobian.weights.double(), len(jacobian.weights)
    if config.prior == "block":
        prior = block_prior(jacobian)
        if config.objective != "scale":
            return prior
        base = prior.covariance(prior.start)
        return OneVariancePrior("log_scale", base, float(prior.weight_norm(prior.start)), count)
    base = independent_covariance(jacobian.blocks, jacobian.slices, scales, weights.device)
    if config.prior == "isotropic":
        return OneVariancePrior("log_variance", base, float(weights.square().sum()), count)
    assert scales is not None
    seen = scales > 0
    norm = (weights[seen] / scales[seen]).square().sum()
    return OneVariancePrior("log_g", base, float(norm), int(seen.sum()))


def weak_hyperprior(config: InferenceConfig) -> Literal["weak", "none"]:
    """Make the hyperprior unless it is TV-PredCP, see `tv_predcp`."""
    return "none" if config.hyperprior == "none" else "weak"


def tv_predcp(
    prior: BlockPrior,
    variances: Tensor,
    jacobian: Jacobian,
    config: InferenceConfig,
    fit: DipFit,
    noise_variance: float,
) -> TvPredCp:
    """Make TV-PredCP with ``μ_b = D (f(w̃) − J_b w̃_b)``: other blocks stay at w̃, this one is drawn.

    λ is that of the network's fit, in which ``exp(−λ TV)`` is the image's prior; or the paper's; or given.
    The paper multiplies its γ, which belongs to a mean of squares of O(1) images, by the number of
    measurements; the fit's own λ is that over twice the noise variance.

    Args:
        variances: T of every term, (terms, differences).
        noise_variance: mean over the measurements, in units of the O(1) image.
    """
    alone = jacobian.weights.new_zeros(len(prior.blocks), len(jacobian.weights))
    for row, where in zip(alone, jacobian.slices.values(), strict=True):
        row[where] = jacobian.weights[where]
    means = image_differences((jacobian.image - jacobian(alone)).double())
    by_block = [variances[terms] for terms in term_slices(prior.blocks).values()]
    if config.predcp_strength == "fit":
        strength = fit.tv_weight
    elif config.predcp_strength == "paper":
        strength = 2 * noise_variance * fit.tv_weight
    else:
        strength = float(config.predcp_strength)
    return TvPredCp(prior, means, by_block, strength)
