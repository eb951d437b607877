"""Digests of what stages of inference depend on, which label their files."""

import hashlib

from ct_dip.posterior.compressed import Compressed
from ct_dip.posterior.conditional import WeightConditional
from ct_dip.posterior.exact_model import features_digest
from ct_dip.posterior.problem import Problem, problem_digest

# What the search for hyperparameters reads of the configuration; the rest comes after it.
_SEARCHED = {
    *("prior", "prior_mean", "objective", "hyperprior", "predcp_strength", "complement", "noise", "starts")
}


def evidence_digest(problem: Problem, seed: int) -> str:
    """Identify everything that the hyperparameters depend on."""
    settings = problem.config.model_dump_json(include=_SEARCHED)
    identity = f"{features_digest(problem)} {problem.fit.tv_weight!r} {settings} {seed}"
    return identity + _complement_digest(problem)


def samples_digest(problem: Problem, tempered: WeightConditional) -> str:
    """Identify everything that samples depend on but their seed."""
    identity = f"{problem_digest(problem)} {problem.config} {tempered.noise} {type(tempered).__name__}"
    digest = hashlib.sha256((identity + _complement_digest(problem)).encode())
    for _, tensor in tempered.covariance.factors:
        digest.update(tensor.detach().cpu().numpy().tobytes())
    if isinstance(tempered, Compressed):
        digest.update(tempered.factor.cpu().numpy().tobytes())
    return digest.hexdigest()


def _complement_digest(problem: Problem) -> str:
    if problem.complement is None:
        return ""
    variance = problem.complement.variance.cpu().numpy().tobytes()
    return f" {problem.complement[1:]} {hashlib.sha256(variance).hexdigest()}"
