"""Inference with all matrices at hand; see `ct_dip.posterior.exact`."""

import hashlib
import math
from pathlib import Path

import torch

from ct_dip.config import InferenceConfig
from ct_dip.data.scan import Scan
from ct_dip.dip.ensemble import DipFit
from ct_dip.evidence.laplace import hyperparameter_points
from ct_dip.evidence.stage import evidence_stage
from ct_dip.operators.linear_map import LinearMap
from ct_dip.posterior.deviations import DenseDeviations
from ct_dip.posterior.exact import condition_over
from ct_dip.posterior.inferred import Inferred
from ct_dip.posterior.model import features_digest, linear_model
from ct_dip.posterior.relevance import relevant_pixels
from ct_dip.priors.complement import Complement
from ct_dip.progress import Progress
from ct_dip.tangent.jacobian import Jacobian

# What the search for hyperparameters reads of the configuration; the rest comes after it.
_SEARCHED = {
    *("prior", "prior_mean", "objective", "hyperprior", "predcp_strength", "complement", "noise", "starts")
}


def infer_exact(
    fit: DipFit,
    scan: Scan,
    jacobian: Jacobian,
    config: InferenceConfig,
    transform: LinearMap,
    *,
    seed: int = 0,
    folder: Path | None = None,
    progress: Progress | None = None,
) -> Inferred:
    """The posterior in closed form; ``config`` with every open choice made."""
    progress = progress or Progress()
    model = linear_model(fit, scan, jacobian, config, transform, progress, folder)
    found = evidence_stage(
        model.evidence,
        folder,
        _evidence_digest(fit, scan, config, transform, seed, model.evidence.complement),
        starts=config.starts,
        seed=seed,
        progress=progress,
    )
    with progress.stage("posterior"):
        if config.relevance:
            spots = relevant_pixels(model, found.theta, jacobian.range_shape)
            model = model._replace(relevance=spots)
        points = found.theta[None]
        if config.integrate == "laplace":
            points = hyperparameter_points(model.evidence, found)
        moments = condition_over(model, points)
        if config.temper != 1:
            moments = moments._replace(covariance=condition_over(model, points, config.temper).covariance)
        _, _, noise = model.evidence.split(found.theta)
        return Inferred(
            evidence=found,
            noise=math.exp(float(noise)),
            mean=moments.mean,
            deviations=DenseDeviations(moments.covariance),
            sinogram_variance=(model.design @ moments.covariance * model.design).sum(dim=1),
            effective_dimension=model.evidence.effective_dimension(found.theta),
            spots=int((torch.as_tensor(model.relevance) > 0).sum()),
            jitter=max(found.jitter, moments.jitter),
            certificate={},
            extra={},
        )


def _evidence_digest(
    fit: DipFit,
    scan: Scan,
    config: InferenceConfig,
    transform: LinearMap,
    seed: int,
    complement: Complement | None,
) -> str:
    """Of everything that the hyperparameters depend on."""
    settings = config.model_dump_json(include=_SEARCHED)
    identity = f"{features_digest(fit, scan, config, transform)} {fit.tv_weight!r} {settings} {seed}"
    digest = hashlib.sha256(identity.encode())
    if complement is not None:
        digest.update(repr(complement[1:]).encode())
        digest.update(complement.variance.numpy().tobytes())
    return digest.hexdigest()
