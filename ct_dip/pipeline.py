"""The stages of a reconstruction, in order: the one place that knows them all."""

import math
import platform
import resource
import sys
from importlib.metadata import version
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ct_dip import memory
from ct_dip.arrays import Floats
from ct_dip.classical.cgls import cgls
from ct_dip.classical.fbp import fbp
from ct_dip.classical.tv import tv
from ct_dip.config import RunConfig
from ct_dip.data.noise import estimate_white_std
from ct_dip.data.result import Result
from ct_dip.data.scan import Scan
from ct_dip.devices import pick_device
from ct_dip.errors import CtDipError, ScanError
from ct_dip.operators import ray_transform
from ct_dip.operators.linear_map import LinearMap
from ct_dip.progress import Progress
from ct_dip.quality import psnr, ssim

_WORKING_ARRAYS = 20  # images and sinograms in float32 that a classical method holds at once, at most
Outcome = tuple[Tensor, dict[str, Any], dict[str, Any]]  # image, metrics, traces


def reconstruct(
    scan: Scan,
    config: RunConfig | None = None,
    *,
    progress: Progress | None = None,
    memory_budget: int | str | None = None,
) -> Result:
    """Reconstruct a scan with the method that the configuration names.

    The ground truth of a simulated scan is used for the metrics of the finished image only.

    Args:
        config: what to compute; see `ct_dip.config.load_config`.
        progress: told about every stage.
        memory_budget: bytes or text such as ``"4G"``; see `ct_dip.memory.memory_budget`.
    """
    config, progress = config or RunConfig(), progress or Progress()
    budget = memory.memory_budget(memory_budget)
    if config.threads is not None:
        torch.set_num_threads(config.threads)
    memory.require(
        _WORKING_ARRAYS * 4 * int(np.prod(scan.geometry.domain_shape) + np.prod(scan.geometry.range_shape)),
        budget,
        what=f"method {config.method}",
        advice="use a smaller image or fewer views",
    )
    device = pick_device(config.device)
    sinogram = torch.as_tensor(np.array(scan.sinogram), device=device)
    run = {"fbp": _fbp, "cgls": _cgls, "tv": _tv}[config.method]
    image, metrics, traces = run(scan, sinogram, config, progress, budget)
    mean = image.cpu().numpy().astype(np.float32)
    if not np.isfinite(mean).all():
        raise CtDipError(f"method {config.method} gave an image that is not finite; check its settings")
    if scan.ground_truth is not None:
        with progress.stage("compare with the truth"):
            quality = {
                "psnr": psnr(mean, scan.ground_truth, scan.mask),
                "ssim": ssim(mean, scan.ground_truth),
            }
            metrics |= {name: value for name, value in quality.items() if math.isfinite(value)}
    metrics["peak_memory_mb"] = _peak_memory_mb()
    return Result(
        method=config.method,
        mean=mean,
        pixel_size=scan.geometry.volume.pixel_size,
        scan_digest=scan.digest,
        settings=config.resolved() | {"threads": torch.get_num_threads()},
        metrics=metrics,
        seconds=progress.seconds,
        versions=versions(),
        traces={name: np.asarray(values, dtype=np.float64) for name, values in traces.items()},
    )


def _fbp(scan: Scan, sinogram: Tensor, config: RunConfig, progress: Progress, budget: int) -> Outcome:
    settings = config.fbp
    with progress.stage("filtered back-projection"):
        image = fbp(sinogram, scan.geometry, filter=settings.filter, cutoff=settings.cutoff)
    return image, {}, {}


def _cgls(scan: Scan, sinogram: Tensor, config: RunConfig, progress: Progress, budget: int) -> Outcome:
    settings = config.cgls
    transform = _transform(scan, config, progress, budget)
    variance, metrics = _variance(scan, progress)
    with progress.stage("CGLS", settings.max_iterations) as stage:
        found = cgls(
            transform,
            sinogram,
            weights=1 / variance.to(sinogram),
            discrepancy=float(np.sqrt(sinogram.numel())),
            tolerance=settings.tolerance,
            max_iterations=settings.max_iterations,
            report=lambda step, residual: stage.update(step, residual=residual),
        )
    metrics |= {"iterations": len(found.residuals) - 1, "stopped_by": found.reason}
    return found.image, metrics, {"residual": found.residuals}


def _tv(scan: Scan, sinogram: Tensor, config: RunConfig, progress: Progress, budget: int) -> Outcome:
    settings = config.tv
    transform = _transform(scan, config, progress, budget)
    variance, metrics = _variance(scan, progress)
    with progress.stage("total variation", settings.max_iterations) as stage:
        found = tv(
            transform,
            sinogram,
            variance=variance,
            strength=settings.strength,
            isotropic=settings.isotropic,
            tolerance=settings.tolerance,
            max_iterations=settings.max_iterations,
            seed=config.seed,
            report=lambda step, objective, gap: stage.update(step, objective=objective, gap=gap),
        )
    if not found.converged:
        progress.note(
            f"total variation stopped after {found.iterations} iterations at a relative duality gap of "
            f"{found.gap:.2g}, above tv.tolerance {settings.tolerance:g}; raise tv.max_iterations"
        )
    metrics |= {"iterations": found.iterations, "duality_gap": found.gap, "converged": found.converged}
    return found.image, metrics, {"duality_gap": found.gaps}


def _transform(scan: Scan, config: RunConfig, progress: Progress, budget: int) -> LinearMap:
    with progress.stage("ray transform"):
        return ray_transform(
            scan.geometry,
            config.backend,
            kernel=config.kernel,
            memory_budget=budget,
            device=pick_device(config.device),
        )


def _variance(scan: Scan, progress: Progress) -> tuple[Tensor, dict[str, Any]]:
    """Variance of the measurements and how it was found: by the scan's model, or estimated."""
    variance: Floats | None = scan.variance
    if variance is not None:
        resolution = 1e-6 * float(np.abs(scan.sinogram).max())
        if math.sqrt(variance.min()) < resolution:
            raise ScanError(
                f"the scan states a noise of {math.sqrt(variance.min()):.2g}, below {resolution:.2g}, the "
                "resolution of its float32 sinogram; state a realistic one, or none"
            )
        return torch.as_tensor(variance), {"noise_estimated": False}
    std = estimate_white_std(scan.sinogram)
    if std == 0:
        raise ScanError(
            "the scan states no noise, and none can be estimated from its sinogram; "
            "add noise to the scan, or use method fbp"
        )
    progress.note(f"the scan states no noise; estimated a standard deviation of {std:.3g}")
    return torch.full(scan.sinogram.shape, std**2), {"noise_estimated": True, "noise_std": std}


def versions() -> dict[str, str]:
    """Of everything that decides the numbers."""
    packages = ("ct_dip", "torch", "numpy", "scipy", "astra-toolbox")
    return {"python": platform.python_version()} | {name: version(name) for name in packages}


def _peak_memory_mb() -> float:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / 2**20 if sys.platform == "darwin" else peak / 2**10
