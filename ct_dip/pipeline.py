"""The stages of a reconstruction, in order: the one place that knows them all."""

import math
import platform
import resource
import sys
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from ct_dip import memory
from ct_dip.arrays import Floats
from ct_dip.calibration.coverage import coverage
from ct_dip.classical.cgls import cgls
from ct_dip.classical.fbp import fbp
from ct_dip.classical.tv import tv
from ct_dip.config import METHODS, RunConfig
from ct_dip.data.comparison import Comparison, comparison_of_scan
from ct_dip.data.result import Result
from ct_dip.data.scan import Scan
from ct_dip.devices import pick_device
from ct_dip.dip.ensemble import DipFit
from ct_dip.dip.fit import fit_dip
from ct_dip.dip.presets import resolve
from ct_dip.errors import CtDipError, InputError
from ct_dip.operators import ray_transform
from ct_dip.operators.linear_map import LinearMap
from ct_dip.plan import plan_run
from ct_dip.posterior.fit import check_minutes, fit_posterior
from ct_dip.posterior.posterior import Posterior
from ct_dip.progress import Progress
from ct_dip.quality import psnr, ssim

LEVELS = (0.5, 0.9, 0.95)  # at which coverage is reported


@dataclass(frozen=True, kw_only=True)
class _Job:
    """What every method is given."""

    scan: Scan
    sinogram: Tensor  # on the device
    config: RunConfig
    progress: Progress
    budget: int  # bytes
    budget_minutes: float | None = None
    run_folder: Path | None = None
    known: Comparison | None = None  # what the image is compared with when it is finished
    fit: DipFit | None = None  # a network that was fitted before
    own_network: bool = True  # or it was fitted elsewhere, and nobody knows its settings

    def transform(self) -> LinearMap:
        """The scan's ray transform."""
        with self.progress.stage("ray transform"):
            return ray_transform(
                self.scan.geometry,
                self.config.backend,
                kernel=self.config.kernel,
                memory_budget=self.budget,
                device=self.sinogram.device,
            )

    def variance(self) -> tuple[Tensor, dict[str, Any]]:
        """Variance of the measurements, and how it was found."""
        variance, stated = self.scan.variance_or_estimate()
        if stated:
            return torch.as_tensor(variance), {"noise_estimated": False}
        std = math.sqrt(variance.flat[0])
        self.progress.note(f"the scan states no noise; estimated a standard deviation of {std:.3g}")
        return torch.as_tensor(variance), {"noise_estimated": True, "noise_std": std}


class _Outcome(NamedTuple):
    image: Tensor  # 1/mm
    metrics: dict[str, Any]
    traces: dict[str, Any]
    std: Floats | None = None  # 1/mm
    arrays: dict[str, Floats] | None = None
    chosen: dict[str, Any] | None = None  # settings of ``inference`` that were left open


def reconstruct(
    scan: Scan,
    config: RunConfig | None = None,
    *,
    progress: Progress | None = None,
    memory_budget: int | str | None = None,
    budget_minutes: float | None = None,
    run_folder: str | Path | None = None,
    reference: Floats | None = None,
    reference_std: float | None = None,
    fit: DipFit | None = None,
) -> Result:
    """Reconstruct a scan with the method that the configuration names.

    The ground truth of a simulated scan, or a reference, is used for the metrics of the finished image only.

    Args:
        config: what to compute; see `ct_dip.config.load_config`.
        progress: told about every stage.
        memory_budget: bytes or text such as ``"4G"``; see `ct_dip.memory.memory_budget`.
        budget_minutes: that inference may take after the network's fit; see `ct_dip.fit_posterior`.
        run_folder: where a long method keeps its checkpoints, and goes on from them.
        reference: image to compare with, of a scan without a ground truth, in 1/mm, (rows, columns).
        reference_std: noise of the reference's pixels, 1/mm; see `ct_dip.data.comparison`.
        fit: of the network to this scan, if it is at hand, for methods ``dip`` and ``lin-dip``.
    """
    config = (config or RunConfig()).with_preset(scan.geometry.domain_shape)
    progress = progress or Progress()
    budget = memory.memory_budget(memory_budget)
    known = comparison_of_scan(scan, reference, reference_std)
    check_minutes(budget_minutes)
    if budget_minutes is not None and config.method != "lin-dip":
        raise InputError(
            f"a time budget (--budget-minutes) has no effect with method {config.method!r}; drop it, or use "
            "lin-dip"
        )
    if fit is not None:
        _check_fit(fit, scan, config)
    if config.threads is not None:
        torch.set_num_threads(config.threads)
    plan_run(scan, config, budget=budget).require()
    job = _Job(
        scan=scan,
        sinogram=torch.as_tensor(np.array(scan.sinogram), device=pick_device(config.device)),
        config=config,
        progress=progress,
        budget=budget,
        run_folder=None if run_folder is None else Path(run_folder),
        known=known,
        fit=fit,
        budget_minutes=budget_minutes,
        own_network=fit is None,
    )
    methods = {"fbp": _fbp, "cgls": _cgls, "tv": _tv, "dip": _dip, "lin-dip": _lin_dip}
    return _result(job, methods[config.method](job))


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
    job = _Job(
        scan=scan,
        sinogram=torch.as_tensor(np.array(scan.sinogram)),
        config=config.with_preset(scan.geometry.domain_shape),
        progress=progress or Progress(),
        budget=memory.memory_budget(),
        known=comparison_of_scan(scan, reference, reference_std),
        own_network=False,
    )
    return _result(job, _posterior_outcome(job, posterior))


def _result(job: _Job, outcome: _Outcome) -> Result:
    """What a method found, compared with what is known, and where it comes from."""
    image, metrics, traces, std, arrays, chosen = outcome
    scan, config, known = job.scan, job.config, job.known
    mean = image.cpu().numpy().astype(np.float32)
    if not np.isfinite(mean).all():
        raise CtDipError(f"method {config.method} gave an image that is not finite; check its settings")
    arrays = arrays or {}
    if known is not None:
        with job.progress.stage(f"compare with the {known.name}"):
            quality = {"psnr": psnr(mean, known.image, scan.mask), "ssim": ssim(mean, known.image)}
            metrics |= {name: value for name, value in quality.items() if math.isfinite(value)}
        metrics |= known.metrics
        arrays[known.name] = known.image
        if scan.mask is not None:
            arrays["mask"] = scan.mask.astype(np.float32)
    metrics |= {"peak_memory_mb": _peak_memory_mb(), "seeds": {"run": config.seed}}
    settings = _settings(config, scan.geometry.domain_shape)
    settings.get("inference", {}).update(chosen or {})
    if not job.own_network:
        del settings["dip"]
    return Result(
        method=config.method,
        mean=mean,
        pixel_size=scan.geometry.volume.pixel_size,
        scan_digest=scan.digest,
        settings=settings,
        metrics=metrics,
        seconds=job.progress.seconds,
        versions=versions(),
        traces={name: np.asarray(values, dtype=np.float64) for name, values in traces.items()},
        std=std,
        arrays=arrays,
    )


def _check_fit(fit: DipFit, scan: Scan, config: RunConfig) -> None:
    if "dip" not in METHODS[config.method]:
        raise InputError(
            f"a fit of the network has no effect with method {config.method!r}; use dip or lin-dip"
        )
    if fit.image.shape != scan.geometry.domain_shape:
        raise InputError(
            f"the fit has shape {fit.image.shape}, the scan's image {scan.geometry.domain_shape}; "
            "give the scan that it was fitted to"
        )


def _fbp(job: _Job) -> _Outcome:
    settings = job.config.fbp
    with job.progress.stage("filtered back-projection"):
        image = fbp(job.sinogram, job.scan.geometry, filter=settings.filter, cutoff=settings.cutoff)
    return _Outcome(image, {}, {})


def _cgls(job: _Job) -> _Outcome:
    settings, sinogram = job.config.cgls, job.sinogram
    transform = job.transform()
    variance, metrics = job.variance()
    with job.progress.stage("CGLS", settings.max_iterations) as stage:
        found = cgls(
            transform,
            sinogram,
            weights=(1 / variance).to(sinogram),
            discrepancy=float(np.sqrt(sinogram.numel())),
            tolerance=settings.tolerance,
            max_iterations=settings.max_iterations,
            report=lambda step, residual: stage.update(step, residual=residual),
        )
    metrics |= {"iterations": len(found.residuals) - 1, "stopped_by": found.reason}
    return _Outcome(found.image, metrics, {"residual": found.residuals})


def _tv(job: _Job) -> _Outcome:
    settings = job.config.tv
    transform = job.transform()
    variance, metrics = job.variance()
    with job.progress.stage("total variation", settings.max_iterations) as stage:
        found = tv(
            transform,
            job.sinogram,
            variance=variance,
            strength=settings.strength,
            isotropic=settings.isotropic,
            tolerance=settings.tolerance,
            max_iterations=settings.max_iterations,
            seed=job.config.seed,
            report=lambda step, objective, gap: stage.update(step, objective=objective, gap=gap),
        )
    if not found.converged:
        job.progress.note(
            f"total variation stopped after {found.iterations} iterations at a relative duality gap of "
            f"{found.gap:.2g}, above tv.tolerance {settings.tolerance:g}; raise tv.max_iterations"
        )
    metrics |= {"iterations": found.iterations, "duality_gap": found.gap, "converged": found.converged}
    return _Outcome(found.image, metrics, {"duality_gap": found.gaps})


def _dip(job: _Job) -> _Outcome:
    fit, metrics = _fit_network(job, job.transform())
    return _Outcome(torch.as_tensor(fit.image), metrics, fit.traces)


def _fit_network(job: _Job, transform: LinearMap) -> tuple[DipFit, dict[str, Any]]:
    _, metrics = job.variance()
    fit = job.fit or fit_dip(
        job.scan,
        job.config.dip,
        seed=job.config.seed,
        transform=transform,
        progress=job.progress,
        run_folder=job.run_folder,
        device=job.sinogram.device,
    )
    metrics |= {"steps": fit.steps, "misfit": fit.misfit, "loss": fit.loss, "stopped_by": fit.stopped_by}
    return fit, metrics


def _lin_dip(job: _Job) -> _Outcome:
    transform = job.transform()
    fit, metrics = _fit_network(job, transform)
    posterior = fit_posterior(
        fit,
        job.scan,
        job.config.inference,
        transform=transform if job.sinogram.is_cpu else None,
        progress=job.progress,
        memory_budget=job.budget,
        budget_minutes=job.budget_minutes,
        run_folder=job.run_folder,
        seed=job.config.seed,
    )
    outcome = _posterior_outcome(job, posterior)
    return outcome._replace(metrics=metrics | outcome.metrics, traces=fit.traces | outcome.traces)


def _posterior_outcome(job: _Job, posterior: Posterior) -> _Outcome:
    settings, known = job.config.inference, job.known
    found = posterior.evidence
    if not found.converged:
        job.progress.note("the search for hyperparameters did not converge; its best values are used")
    if found.at_bound:
        job.progress.note(f"hyperparameters at the end of their range: {', '.join(found.at_bound)}")
    if not posterior.certificate.get("converged", True):
        job.progress.note(
            f"the {posterior.regime} inference did NOT reach what it was asked for: {_shortfall(posterior)}"
        )
    drawn, asked = (posterior.certificate.get(name, 0) for name in ("samples", "samples_asked"))
    if drawn < asked:
        known_to = (
            "" if posterior.std_error is None else f", so error bars are known to {(2 * drawn) ** -0.5:.0%}"
        )
        job.progress.note(
            f"there was time for {drawn} of {asked} samples{known_to}; raise the time budget "
            "(--budget-minutes) for more"
        )
    if posterior.jitter:
        job.progress.note(f"a covariance needed a jitter of {posterior.jitter:.2g} to be factorised")
    metrics: dict[str, Any] = {
        "regime": posterior.regime,
        "certificate": posterior.certificate,
        "evidence": found.evidence,
        "evidence_objective": found.objective,
        "evidence_evaluations": found.evaluations,
        "evidence_converged": found.converged,
        "evidence_starts": [value if math.isfinite(value) else None for value in found.found],
        "at_bound": list(found.at_bound),
        "spots": posterior.spots,
        "jitter": posterior.jitter,
        "sigma_y": posterior.noise_std,
        "sigma_y_stated": posterior.stated_noise_std,
        "effective_dimension": posterior.effective_dimension,
        "sinogram_chi2": float(np.mean(posterior.sinogram.standardised**2)),
        "hyperparameters": posterior.hyperparameters,
    }
    if known is not None:
        with job.progress.stage("calibration"):
            metrics |= {
                f"coverage_{round(100 * level)}": float(covered)
                for level, covered in zip(
                    LEVELS,
                    coverage(
                        known.image, posterior.mean, known.widened(posterior.std), LEVELS, job.scan.mask
                    ),
                    strict=True,
                )
            }
            if settings.complement != "none":  # without one there is no density
                metrics["log_likelihood_patch"] = posterior.widest_patch
                for name, patch in (("", posterior.widest_patch), ("_1x1", 1)):
                    metrics[f"log_likelihood_per_pixel{name}"] = posterior.log_likelihood(
                        known.image, patch, noise_std=known.noise_std
                    )
    arrays = {
        "fbp": fbp(job.sinogram, job.scan.geometry, filter="hann").cpu().numpy(),
        "dip": posterior.dip,
        "linear": posterior.linear,
        "sinogram_mean": posterior.sinogram.mean,
        "sinogram_std": posterior.sinogram.std,
        "sinogram_standardised": posterior.sinogram.standardised,
    }
    if posterior.std_error is not None:
        arrays["std_error"] = posterior.std_error
    samples = min(settings.samples, posterior.certificate.get("samples", settings.samples))
    if samples:
        with job.progress.stage("samples"):
            arrays["samples"] = posterior.sample(samples, seed=job.config.seed)
            metrics["sampling_jitter"] = posterior.sampling_jitter
    if settings.patch:
        for rows, columns, covariance in posterior.covariance(settings.patch):
            arrays[f"patch_{rows.start}_{columns.start}"] = covariance
    traces = {"evidence": found.trace}
    chosen = {"regime": posterior.regime, "samples": samples}
    return _Outcome(torch.as_tensor(posterior.mean), metrics, traces, posterior.std, arrays, chosen)


def _shortfall(posterior: Posterior) -> str:
    """What did not converge, with its numbers."""
    found = posterior.certificate
    parts = []
    if found.get("discarded_trace", 0) > found.get("discarded_trace_allowed", 1):
        parts.append(
            f"a compression of rank {found['rank']} leaves {found['discarded_trace']:.2g} of the noise's "
            f"trace outside, above inference.compression {found['discarded_trace_allowed']:g}; give it more "
            "memory or time, or allow more"
        )
    if not parts:
        parts.append(f"a solve ended at a relative residual of {found['residual']:.2g}")
    return "; ".join(parts)


def _settings(config: RunConfig, shape: tuple[int, int]) -> dict[str, Any]:
    """The configuration with every open choice made: it runs again to the same result."""
    settings = config.resolved() | {"threads": torch.get_num_threads()}
    if "dip" in settings:
        settings["dip"] = resolve(config.dip, shape).model_dump(mode="json")
    if "inference" in settings:
        settings["inference"] = config.inference.resolved().model_dump(mode="json")
    return settings


def versions() -> dict[str, str]:
    """Of everything that decides the numbers."""
    packages = ("ct_dip", "torch", "numpy", "scipy", "astra-toolbox")
    return {"python": platform.python_version()} | {name: version(name) for name in packages}


def _peak_memory_mb() -> float:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / 2**20 if sys.platform == "darwin" else peak / 2**10
