"""What lin-dip says of an object."""

import math
from dataclasses import dataclass
from typing import Any

import torch

from ct_dip.arrays import Floats
from ct_dip.classical.fbp import fbp
from ct_dip.data.prediction import Patch, Prediction
from ct_dip.errors import InputError, MissingPartError
from ct_dip.evidence.fit import EvidenceFit
from ct_dip.method import Job
from ct_dip.methods.dip import (
    used_settings,
)
from ct_dip.methods.lin_dip.config import LinDipRun
from ct_dip.methods.lin_dip.trial import Trial
from ct_dip.posterior.posterior import Posterior
from ct_dip.priors.weights import WeightPrior
from ct_dip.progress import Progress
from ct_dip.tangent.jacobian import Jacobian

# Of freedom of a pixel's Student distribution: chosen among 3, 5 and ∞ on scans of eight kinds; see
# experiments/README.md.
_DEGREES = 3.0


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class LinDipPrediction(Prediction):
    """A prediction that can be asked anything, as long as it is in memory: its file holds a plain one."""

    posterior: Posterior

    @property
    def tangent(self) -> Jacobian:
        """J, the network's Jacobian at its fit."""
        return self.posterior.problem.jacobian

    @property
    def network(self) -> torch.nn.Module:
        """The fitted network."""
        return self.posterior.problem.fit.network()

    @property
    def prior(self) -> WeightPrior:
        """The prior of the weights; ``prior.covariance(theta)`` is its Σ."""
        return self.posterior.problem.prior

    @property
    def evidence(self) -> EvidenceFit:
        """The fit of the hyperparameters, ``evidence.theta``."""
        return self.posterior.evidence

    def sample(self, count: int, seed: int = 0) -> Floats:
        """Images that are as likely as the true one, (count, rows, columns), drawn afresh."""
        return self.posterior.sample(count, seed)

    def covariances(self, width: int) -> list[Patch]:
        """Covariances of the patches of ``width`` pixels that tile the image."""
        widest = self.posterior.widest_patch
        if widest is not None and width > widest:
            raise MissingPartError(
                f"covariances of {self.posterior.regime} inference are reliable for patches of {widest}² "
                f"pixels or fewer, not {width}²"
            )
        return self.posterior.covariance(width)


def make_prediction(
    posterior: Posterior,
    job: Job[LinDipRun],
    diagnostics: dict[str, Any],
    total_variation: Floats | None,
    trial: Trial | None,
) -> LinDipPrediction:
    """Draw samples and patches of a posterior, and gather what inference says of itself."""
    settings, fit, scan = job.config.inference, posterior.evidence, job.scan
    if posterior.mean.shape != scan.geometry.domain_shape:
        raise InputError(
            f"the posterior has shape {posterior.mean.shape}, the scan's image "
            f"{scan.geometry.domain_shape}; give the scan that it was made from"
        )
    _tell_doubts(posterior, job.progress)
    diagnostics |= {
        "regime": posterior.regime,
        "certificate": {} if posterior.certificate is None else posterior.certificate.to_dict(),
        "evidence": fit.evidence,
        "evidence_objective": fit.objective,
        "evidence_evaluations": fit.evaluations,
        "evidence_converged": fit.converged,
        "evidence_starts": [value if math.isfinite(value) else None for value in fit.found],
        "at_bound": list(fit.at_bound),
        "freed_pixels": posterior.freed_pixels,
        "jitter": posterior.jitter,
        "sigma_y": posterior.noise_std,
        "sigma_y_stated": posterior.stated_noise_std,
        "effective_dimension": posterior.effective_dimension,
        "sinogram_chi2": float((posterior.sinogram.standardised**2).mean()),
        "hyperparameters": posterior.hyperparameters,
    }
    if trial is not None:
        diagnostics |= {"widening": trial.widening, "heldout_rms_z_before": trial.before.rms_z.value}
    count = settings.samples
    if posterior.certificate is not None:
        count = min(count, posterior.certificate.samples)
    samples = None
    if count:
        with job.progress.stage("samples"):
            samples = posterior.sample(count, seed=job.config.seed)
            diagnostics["sampling_jitter"] = posterior.sampling_jitter
    chosen = {"regime": posterior.regime, "samples": count, "image": posterior.shown}
    own = dict.fromkeys(job.given.keys() & {"prior", "complement"})
    if own:
        chosen |= own | posterior.problem.config.model_dump(include={"objective", "hyperprior"})
    return LinDipPrediction(
        mean=posterior.mean,
        std=posterior.std,
        std_error=posterior.std_error,
        degrees=_DEGREES if settings.pixels == "student" else math.inf,
        samples=samples,
        images=_images(posterior, job, total_variation),
        heldout=None if trial is None else trial.after,
        sinogram=posterior.sinogram,
        patches=tuple(posterior.covariance(settings.patch)) if settings.patch else (),
        diagnostics=diagnostics,
        traces=posterior.problem.fit.traces | {"evidence": fit.trace},
        settings=used_settings(job.given, posterior.problem.fit) | {"inference": chosen},
        posterior=posterior,
    )


def _images(posterior: Posterior, job: Job[LinDipRun], total_variation: Floats | None) -> dict[str, Floats]:
    """Images that are shown beside the mean."""
    images = {
        "fbp": fbp(job.sinogram, job.scan.geometry, filter="hann").cpu().numpy(),
        "dip": posterior.dip,
        "linear": posterior.linear,
    }
    return images if total_variation is None else images | {"tv": total_variation}


def _tell_doubts(posterior: Posterior, progress: Progress) -> None:
    """Note what inference did not reach."""
    fit, certificate = posterior.evidence, posterior.certificate
    if fit.at_bound:
        progress.note(f"hyperparameters at the end of their range: {', '.join(fit.at_bound)}")
    for warning in [] if certificate is None else certificate.warnings():
        progress.note(warning)
    if posterior.jitter:
        progress.note(f"a covariance needed a jitter of {posterior.jitter:.2g} to be factorised")
