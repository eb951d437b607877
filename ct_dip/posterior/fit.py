"""From a fitted network to a posterior: linearise, fit hyperparameters by evidence, condition on the data."""

import hashlib
import math
from pathlib import Path

import numpy as np
import torch

from ct_dip import memory
from ct_dip.arrays import Floats
from ct_dip.config import InferenceConfig
from ct_dip.data.scan import Scan
from ct_dip.dip.ensemble import DipFit
from ct_dip.evidence.fit import EvidenceFit
from ct_dip.evidence.laplace import hyperparameter_points
from ct_dip.evidence.stage import evidence_stage
from ct_dip.operators import ray_transform
from ct_dip.operators.linear_map import LinearMap
from ct_dip.posterior.exact import LinearModel, Moments, condition_over
from ct_dip.posterior.model import features_digest, inference_bytes, linear_model
from ct_dip.posterior.posterior import Posterior, SinogramCheck
from ct_dip.posterior.relevance import relevant_pixels
from ct_dip.priors.weights import BlockPrior
from ct_dip.progress import Progress
from ct_dip.tangent.jacobian import Jacobian


def fit_posterior(
    fit: DipFit,
    scan: Scan,
    config: InferenceConfig | None = None,
    *,
    transform: LinearMap | None = None,
    progress: Progress | None = None,
    memory_budget: int | str | None = None,
    run_folder: str | Path | None = None,
    seed: int = 0,
) -> Posterior:
    """The posterior of the network linearised at its fit, with hyperparameters by evidence.

    Args:
        fit: what `ct_dip.fit_dip` returned for the scan.
        config: prior, objective, complement, …
        transform: the scan's ray transform on the CPU, if it is at hand: exact inference is float64 linear
            algebra, and runs there.
        run_folder: where features and evidence are kept: the same fit with another objective finds its
            features there, and with another temper or number of samples its hyperparameters, too.
        seed: of the further starts of the evidence's search.

    Raises:
        MemoryBudgetError: before any work, if the exact matrices would not fit.
    """
    config, progress = (config or InferenceConfig()).resolved(), progress or Progress()
    memory.require(
        max(inference_bytes(fit.shape, scan, config).values()),
        memory.memory_budget(memory_budget),
        what="exact inference",
        advice="use a smaller image or fewer views",
    )
    if transform is None:
        transform = ray_transform(scan.geometry)
    with progress.stage("linearisation"):
        jacobian = Jacobian(fit.network(), fit.network_input)
    folder = None if run_folder is None else Path(run_folder)
    model = linear_model(fit, scan, jacobian, config, transform, progress, folder)
    found = evidence_stage(
        model.evidence,
        folder,
        _evidence_digest(fit, scan, config, model, seed),
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
        assert config.temper is not None
        if config.temper != 1:
            moments = moments._replace(covariance=condition_over(model, points, config.temper).covariance)
        linear = fit.scale * moments.mean.numpy().reshape(fit.image.shape)
        mean = {"dip": fit.image, "linear": linear, "mean": (fit.image + linear) / 2}[config.image]
        _, _, noise = model.evidence.split(found.theta)
        stated = np.sqrt(scan.variance_or_estimate()[0])
        relative = math.exp(float(noise) / 2)
        return Posterior(
            mean=np.asarray(mean, dtype=np.float64),
            dip=np.asarray(fit.image, dtype=np.float64),
            linear=linear,
            scale=fit.scale,
            unit_covariance=moments.covariance,
            sinogram=_check_sinogram(scan, model, moments, mean / fit.scale, stated, relative),
            evidence=found,
            hyperparameters=_hyperparameters(found, jacobian),
            noise_std=relative * float(np.sqrt(np.mean(stated**2))),
            stated_noise_std=float(np.sqrt(np.mean(stated**2))),
            effective_dimension=model.evidence.effective_dimension(found.theta),
            spots=int((torch.as_tensor(model.relevance) > 0).sum()),
            jitter=max(found.jitter, moments.jitter),
        )


# What the search for hyperparameters reads of the configuration; the rest comes after it.
_SEARCHED = {
    *("prior", "prior_mean", "objective", "hyperprior", "predcp_strength", "complement", "noise", "starts")
}


def _evidence_digest(fit: DipFit, scan: Scan, config: InferenceConfig, model: LinearModel, seed: int) -> str:
    """Of everything that the hyperparameters depend on; the residuals stand for the ray transform."""
    settings = config.model_dump_json(include=_SEARCHED)
    identity = f"{features_digest(fit, scan, config)} {fit.tv_weight!r} {settings} {seed}"
    digest = hashlib.sha256(identity.encode())
    for residual in (model.evidence.residual, model.evidence.residual_at_fit):
        digest.update(residual.numpy().tobytes())
    return digest.hexdigest()


def _check_sinogram(
    scan: Scan, model: LinearModel, moments: Moments, image: Floats, stated: Floats, relative: float
) -> SinogramCheck:
    """The posterior predictive of the sinogram, for an O(1) image and noise ``relative · stated``."""
    size = scan.sinogram.shape
    projected = (model.whitened @ torch.as_tensor(image).double().flatten()).numpy().reshape(size)
    signal = (model.whitened @ moments.covariance * model.whitened).sum(dim=1).numpy().reshape(size)
    return SinogramCheck(
        mean=stated * projected,
        std=stated * np.sqrt(signal + relative**2),
        standardised=(scan.sinogram / stated - projected) / relative,
    )


def _hyperparameters(found: EvidenceFit, jacobian: Jacobian) -> dict[str, float]:
    """By name; with objective ``scale`` also the block parameters that it scaled."""
    values = dict(zip(found.names, found.theta.tolist(), strict=True))
    if "log_scale" in values:
        prior = BlockPrior(jacobian.blocks, [jacobian.weights[w] for w in jacobian.slices.values()])
        for name, value in zip(prior.names, prior.start.tolist(), strict=True):
            values[name] = value + (values["log_scale"] if name.startswith("log_variance") else 0.0)
    return values
