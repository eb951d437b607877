"""From what a method found to a `Result`: compared with what is known, and told where it comes from."""

import math
import platform
from importlib.metadata import version
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from ct_dip.arrays import Floats
from ct_dip.classical.fbp import fbp
from ct_dip.config import RunConfig
from ct_dip.data.comparison import Comparison, comparison_of_scan
from ct_dip.data.result import Result
from ct_dip.data.scan import Scan
from ct_dip.dip.presets import resolve
from ct_dip.errors import CtDipError, InputError
from ct_dip.evaluation.coverage import coverage
from ct_dip.posterior.posterior import Posterior
from ct_dip.progress import Progress
from ct_dip.quality import psnr, ssim

LEVELS = (0.5, 0.9, 0.95)  # at which coverage is reported


class Outcome(NamedTuple):
    """What a method found."""

    image: Tensor  # 1/mm
    metrics: dict[str, Any]
    traces: dict[str, Any]
    std: Floats | None = None  # 1/mm
    arrays: dict[str, Floats] | None = None
    chosen: dict[str, Any] | None = None  # settings of ``inference`` that were left open


def posterior_result(
    posterior: Posterior,
    scan: Scan,
    config: RunConfig | None = None,
    *,
    progress: Progress | None = None,
    reference: Floats | None = None,
    reference_std: float | None = None,
) -> Result:
    """A posterior that `ct_dip.fit_posterior` gave, as the result that `reconstruct` would make of it.

    Args:
        scan: that it belongs to.
        config: that the posterior was made with; ``samples`` and ``patch`` of its section ``inference`` say
            what goes into the result.
        reference: as for `reconstruct`; ``reference_std`` too.
    """
    config = (config or RunConfig()).model_copy(update={"method": "lin-dip"})
    if posterior.mean.shape != scan.geometry.domain_shape:
        raise InputError(
            f"the posterior has shape {posterior.mean.shape}, the scan's image "
            f"{scan.geometry.domain_shape}; give the scan that it was made from"
        )
    config, progress = config.with_preset(scan.geometry.domain_shape), progress or Progress()
    comparison = comparison_of_scan(scan, reference, reference_std)
    outcome = posterior_outcome(posterior, scan, config, comparison, progress)
    return make_result(outcome, scan, config, comparison, progress, own_network=False)


def make_result(
    outcome: Outcome,
    scan: Scan,
    config: RunConfig,
    comparison: Comparison | None,
    progress: Progress,
    *,
    own_network: bool = True,
) -> Result:
    """What a method found, compared with what is known, and where it comes from.

    Args:
        own_network: or it was fitted elsewhere, and nobody knows its settings.
    """
    image, metrics, traces, std, arrays, chosen = outcome
    mean = image.cpu().numpy().astype(np.float32)
    if not np.isfinite(mean).all():
        raise CtDipError(f"method {config.method} gave an image that is not finite; check its settings")
    arrays = arrays or {}
    if comparison is not None:
        with progress.stage(f"compare with the {comparison.name}"):
            seen = scan.evaluated
            quality = {"psnr": psnr(mean, comparison.image, seen), "ssim": ssim(mean, comparison.image, seen)}
            metrics |= {name: value for name, value in quality.items() if math.isfinite(value)}
        metrics |= comparison.metrics
        arrays[comparison.name] = comparison.image
    if not scan.evaluated.all():
        arrays["mask"] = scan.evaluated.astype(np.float32)
    metrics["seeds"] = {"run": config.seed}
    settings = _settings(config, scan.geometry.domain_shape)
    settings.get("inference", {}).update(chosen or {})
    if not own_network:
        del settings["dip"]
    return Result(
        method=config.method,
        mean=mean,
        pixel_size=scan.geometry.volume.pixel_size,
        scan_digest=scan.digest,
        settings=settings,
        metrics=metrics,
        seconds=progress.seconds,
        versions=versions(),
        traces={name: np.asarray(values, dtype=np.float64) for name, values in traces.items()},
        std=std,
        arrays=arrays,
    )


def posterior_outcome(
    posterior: Posterior, scan: Scan, config: RunConfig, comparison: Comparison | None, progress: Progress
) -> Outcome:
    """Mean and deviations of a posterior, its samples and patches, and whether they can be trusted."""
    settings, fit = config.inference, posterior.evidence
    _tell_doubts(posterior, progress)
    metrics: dict[str, Any] = {
        "regime": posterior.regime,
        "device": str(posterior.deviations.std.device),
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
        "sinogram_chi2": float(np.mean(posterior.sinogram.standardised**2)),
        "hyperparameters": posterior.hyperparameters,
    }
    if comparison is not None:
        with progress.stage("calibration"):
            metrics |= _calibration(posterior, comparison, scan, density=settings.complement != "none")
    arrays = {
        "fbp": fbp(torch.as_tensor(np.array(scan.sinogram)), scan.geometry, filter="hann").numpy(),
        "dip": posterior.dip,
        "linear": posterior.linear,
        "sinogram_mean": posterior.sinogram.mean,
        "sinogram_std": posterior.sinogram.std,
        "sinogram_standardised": posterior.sinogram.standardised,
    }
    if posterior.std_error is not None:
        arrays["std_error"] = posterior.std_error
    samples = settings.samples
    if posterior.certificate is not None:
        samples = min(samples, posterior.certificate.samples)
    if samples:
        with progress.stage("samples"):
            arrays["samples"] = posterior.sample(samples, seed=config.seed)
            metrics["sampling_jitter"] = posterior.sampling_jitter
    if settings.patch:
        for rows, columns, covariance in posterior.covariance(settings.patch):
            arrays[f"patch_{rows.start}_{columns.start}"] = covariance
    traces = {"evidence": fit.trace}
    chosen = {"regime": posterior.regime, "samples": samples, "image": posterior.shown}
    return Outcome(torch.as_tensor(posterior.mean), metrics, traces, posterior.std, arrays, chosen)


def _calibration(
    posterior: Posterior, comparison: Comparison, scan: Scan, *, density: bool
) -> dict[str, Any]:
    """Coverage of what is known, and its density, if the posterior has one: not without a complement."""
    covered = coverage(
        comparison.image, posterior.mean, comparison.widened(posterior.std), LEVELS, scan.evaluated
    )
    metrics: dict[str, Any] = {
        f"coverage_{round(100 * level)}": float(share) for level, share in zip(LEVELS, covered, strict=True)
    }
    if density:
        metrics["log_likelihood_patch"] = posterior.widest_patch
        for name, patch in (("", posterior.widest_patch), ("_1x1", 1)):
            metrics[f"log_likelihood_per_pixel{name}"] = posterior.log_likelihood(
                comparison.image, patch, noise_std=comparison.noise_std, mask=scan.evaluated
            )
    return metrics


def _tell_doubts(posterior: Posterior, progress: Progress) -> None:
    """What inference did not reach."""
    fit, certificate = posterior.evidence, posterior.certificate
    if not fit.converged:
        progress.note("the search for hyperparameters did not converge; its best values are used")
    if fit.at_bound:
        progress.note(f"hyperparameters at the end of their range: {', '.join(fit.at_bound)}")
    for warning in [] if certificate is None else certificate.warnings():
        progress.note(warning)
    if posterior.jitter:
        progress.note(f"a covariance needed a jitter of {posterior.jitter:.2g} to be factorised")


def _settings(config: RunConfig, shape: tuple[int, int]) -> dict[str, Any]:
    """The configuration with every open choice made: it runs again to the same result."""
    settings = config.resolved() | {"threads": torch.get_num_threads()}
    if "dip" in settings:
        settings["dip"] = resolve(config.dip, shape).model_dump(mode="json")
    if "inference" in settings:
        settings["inference"] = config.inference.resolved().model_dump(mode="json")
    return settings


def versions() -> dict[str, str]:
    """List the versions of everything that decides the numbers."""
    packages = ("ct_dip", "torch", "numpy", "scipy", "astra-toolbox")
    return {"python": platform.python_version()} | {name: version(name) for name in packages}
