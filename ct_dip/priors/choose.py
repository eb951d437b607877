"""The prior over weights that a configuration asks for."""

from typing import Literal

from torch import Tensor

from ct_dip.config import InferenceConfig
from ct_dip.dip.ensemble import DipFit
from ct_dip.priors.covariance import WeightCovariance, block_covariance, independent_covariance
from ct_dip.priors.predcp import TvPredCp
from ct_dip.priors.weights import BlockPrior, OneVariancePrior, WeightPrior
from ct_dip.tangent.jacobian import Jacobian
from ct_dip.tangent.statistics import image_differences, term_slices


def one_variance(config: InferenceConfig) -> bool:
    """Whether a single variance is all that there is to fit of the weights' prior."""
    return config.prior != "block" or config.resolved().objective == "scale"


def block_prior(jacobian: Jacobian) -> BlockPrior:
    """One variance and one tap length per block, which begin where the fitted weights put them."""
    return BlockPrior(jacobian.blocks, [jacobian.weights[where] for where in jacobian.slices.values()])


def weight_prior(config: InferenceConfig, jacobian: Jacobian, scales: Tensor | None = None) -> WeightPrior:
    """The prior of a configuration with every open choice made.

    Args:
        scales: s of the g-prior, (P,).
    """
    weights, count = jacobian.weights.double(), len(jacobian.weights)
    if config.prior == "g":
        assert scales is not None
        seen = scales > 0
        norm = (weights[seen] / scales[seen]).square().sum()
        return OneVariancePrior("log_g", float(norm), int(seen.sum()))
    if config.prior == "isotropic":
        return OneVariancePrior("log_variance", float(weights.square().sum()), count)
    prior = block_prior(jacobian)
    if config.objective == "scale":
        return OneVariancePrior("log_scale", float(prior.weight_norm(prior.start)), count)
    return prior


def weight_covariance(
    config: InferenceConfig,
    prior: WeightPrior,
    theta: Tensor,
    jacobian: Jacobian,
    scales: Tensor | None = None,
) -> WeightCovariance:
    """``Σ(θ)`` of `weight_prior` by its products.

    Args:
        theta: of the prior alone.
    """
    if isinstance(prior, BlockPrior):
        return block_covariance(prior, theta, jacobian.slices)
    if config.prior == "block":
        fitted = block_prior(jacobian)
        base = block_covariance(fitted, fitted.start, jacobian.slices)
    else:
        base = independent_covariance(jacobian.blocks, jacobian.slices, scales)
    return base.scaled(float(theta[0].exp()))


def weak_hyperprior(config: InferenceConfig) -> Literal["weak", "none"]:
    """The hyperprior unless it is TV-PredCP, see `tv_predcp`."""
    return "none" if config.hyperprior == "none" else "weak"


def tv_predcp(
    prior: BlockPrior,
    variances: Tensor,
    jacobian: Jacobian,
    config: InferenceConfig,
    fit: DipFit,
    noise_variance: float,
) -> TvPredCp:
    """With ``μ_b = D (f(w̃) − J_b w̃_b)``: the other blocks stay at w̃, this one is drawn.

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
