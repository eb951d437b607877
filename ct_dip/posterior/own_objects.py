"""A weight prior and a complement of the user's own, objects of Python in place of those of a configuration.

All log-parameters of an own prior are found by evidence, with its own hyperprior; so objective ``scale``,
which is about the block prior, becomes ``optimum``. What a prior computes cannot be told from its values, so
that no stage of inference with it is kept for another run.
"""

from collections.abc import Callable

import torch

from ct_dip.errors import InputError
from ct_dip.operators.whitened import Whitened
from ct_dip.posterior.config import InferenceConfig
from ct_dip.priors.complement import Complement
from ct_dip.priors.weights import BlockPrior, WeightPrior
from ct_dip.tangent.jacobian import Jacobian
from ct_dip.tangent.statistics import count_terms

OwnPrior = WeightPrior | Callable[[Jacobian], WeightPrior]
OwnComplement = Complement | Callable[[Jacobian, Whitened], Complement]


def with_own_objects(
    config: InferenceConfig, prior: OwnPrior | None, complement: OwnComplement | None
) -> InferenceConfig:
    """Make every open choice of the configuration that inference with such objects follows.

    Raises:
        InputError: an object is neither of its kind nor makes one.
    """
    for name, given, kind in (("prior", prior, WeightPrior), ("complement", complement, Complement)):
        built_in = (
            f"; for a built-in one: InferenceConfig({name}={given!r})" if isinstance(given, str) else ""
        )
        if given is not None and not isinstance(given, kind) and not callable(given):
            raise InputError(f"{name} must be a {kind.__name__}, or make one, not {given!r}{built_in}")
    config = config.resolved()
    if prior is None and complement is None:
        return config
    changes: dict[str, str] = {}
    if config.hyperprior != "tv-predcp":
        changes["hyperprior"] = "weak"  # that of the objects: flat, unless they say otherwise
    if prior is not None:
        changes |= {"prior": "block", "objective": "fit" if config.objective == "fit" else "optimum"}
    return config.model_copy(update=changes)


def own_prior(prior: OwnPrior, jacobian: Jacobian, config: InferenceConfig) -> WeightPrior:
    """Make the prior for a Jacobian, and check that it is one of its weights.

    Raises:
        InputError: it is not: its parts do not fit each other, or not the network.
    """
    made = prior if isinstance(prior, WeightPrior) else prior(jacobian)
    if not isinstance(made, WeightPrior):
        raise InputError(f"prior must be a WeightPrior, or make one of a Jacobian, not {type(made).__name__}")
    name = type(made).__name__
    if {len(made.names)} != {len(made.start), len(made.lower), len(made.upper)}:
        raise InputError(f"prior {name} must have one start, lower and upper for each of its names")
    covariance = made.covariance(made.start)
    if covariance.domain_shape != jacobian.domain_shape:
        raise InputError(
            f"prior {name} is one of {covariance.domain_shape[0]} weights, the network's convolutions have "
            f"{jacobian.domain_shape[0]}; give a function that makes it of the Jacobian"
        )
    if isinstance(made, BlockPrior):
        if made.blocks != tuple(jacobian.blocks):
            raise InputError(f"prior {name} must have the blocks of the network, jacobian.blocks")
        return made
    if config.hyperprior == "tv-predcp":
        raise InputError(f"hyperprior 'tv-predcp' is about tap lengths, which prior {name} does not have")
    coefficients, terms = made.coefficients(made.start), made.terms()
    most = count_terms(jacobian.blocks)
    if len(coefficients) != len(terms) or len(terms) > most:
        raise InputError(
            f"prior {name} has {len(coefficients)} coefficients and {len(terms)} terms; these must be as "
            f"many, and at most {most}, for which memory is planned"
        )
    probe = jacobian.weights.double()[None]
    summed = sum(float(c) * term(probe) for c, term in zip(coefficients, terms, strict=True))
    if not torch.allclose(covariance(probe), torch.as_tensor(summed), rtol=1e-5):
        raise InputError(
            f"prior {name}: covariance(start) is not the sum of its terms times coefficients(start)"
        )
    return made


def own_complement(
    complement: OwnComplement, jacobian: Jacobian, whitened: Whitened, config: InferenceConfig
) -> Complement:
    """Make the complement for a problem, and check that it is one of its pixels.

    Raises:
        InputError: it is not, or a compression cannot do it.
    """
    made = complement if isinstance(complement, Complement) else complement(jacobian, whitened)
    if not isinstance(made, Complement):
        raise InputError(
            "complement must be a Complement, or make one of a Jacobian and the whitened ray transform, not "
            f"{type(made).__name__}"
        )
    pixels = jacobian.image.numel()
    variance = torch.as_tensor(made.variance).detach().to(jacobian.image.device, torch.float64)
    if variance.shape != (pixels,) or not bool(torch.isfinite(variance).all() & (variance >= 0).all()):
        raise InputError(
            f"the variance of a complement must be {pixels} finite numbers, one per pixel, none below zero"
        )
    if not made.in_model and bool((variance != variance[0]).any()):
        raise InputError("a complement that is only added to the posterior must be the same in every pixel")
    fixed = made.deviation is None and not made.in_units_of_noise
    if made.in_model and fixed and config.regime == "compressed" and config.noise == "learned":
        raise InputError(
            "compressed inference needs a complement in units of the noise, or one with a deviation; give "
            "in_units_of_noise=True, a deviation, or inference.regime=exact"
        )
    return made._replace(variance=variance)
