"""Log-likelihood and calibration on the first ten KMNIST test images, for every objective and prior offered.

20 and 5 views, 5 % noise. The first row of each is the default that a user gets; every default was chosen on
images 50 to 99. ``near``: pixels within one pixel of the object; the empty background is known almost
exactly and would dominate a coverage.
"""

import resource
import time
from collections.abc import Iterator

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812  everybody's name for it

from benchmarks.kmnist import kmnist_scans
from benchmarks.measure import Row, plain
from ct_dip.arrays import Bools, Floats
from ct_dip.config import InferenceConfig
from ct_dip.dip.fit import fit_dip
from ct_dip.operators import ray_transform
from ct_dip.posterior.fit import fit_posterior
from ct_dip.posterior.posterior import Posterior
from ct_dip.progress import Progress
from ct_dip.quality import psnr

IMAGES = range(10)
VARIANTS = {
    "default": InferenceConfig(),
    "default, hyperparameters integrated": InferenceConfig(integrate="laplace"),
    "default, linear image": InferenceConfig(image="linear"),
    "g-prior": InferenceConfig(prior="g"),
    "isotropic": InferenceConfig(prior="isotropic"),
    "white complement": InferenceConfig(complement="white"),
    "published floor": InferenceConfig(complement="floor"),
    "evidence at optimum": InferenceConfig(objective="optimum"),
    "evidence at optimum, TV-PredCP": InferenceConfig(objective="optimum", hyperprior="tv-predcp"),
    "evidence at optimum, white complement": InferenceConfig(objective="optimum", complement="white"),
    "evidence at fit, white complement, DIP image": InferenceConfig(
        objective="fit", complement="white", image="dip"
    ),
}
# Published TV-PredCP, as the design records it: (images, mean log-likelihood per pixel).
PUBLISHED = {20: ("images 0-2", (0, 1, 2), 2.83), 5: ("image 0", (0,), 0.64)}


def run() -> Iterator[Row]:
    for views in (20, 5):
        tables: dict[str, list[dict[str, float]]] = {name: [] for name in VARIANTS}
        for scan in kmnist_scans(IMAGES, views=views, noise=0.05):
            assert scan.ground_truth is not None
            truth = scan.ground_truth.astype(np.float64)
            transform, progress = ray_transform(scan.geometry), Progress()
            start = time.perf_counter()
            fit = fit_dip(scan, transform=transform, progress=progress)
            for name, config in VARIANTS.items():
                own = Progress()
                posterior = fit_posterior(fit, scan, config, transform=transform, progress=own)
                if name == "default":
                    seconds = progress.seconds | own.seconds | {"all": time.perf_counter() - start}
                    tables[name].append(figures(posterior, truth) | _prefixed(seconds))
                else:
                    tables[name].append(figures(posterior, truth))
        yield from _published(views, tables["default"])
        for name, rows in tables.items():
            for figure in rows[0]:
                values = np.array([row[figure] for row in rows])
                error = values.std(ddof=1) / np.sqrt(len(values))
                unit = "s" if figure.startswith("seconds") else "dB" if "PSNR" in figure else ""
                label = f"{views} views, {name}: {figure}, mean of {len(values)} ± {error:.3f}"
                yield plain("kmnist-loglik", label, float(values.mean()), unit)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    yield plain("kmnist-loglik", "peak memory of the whole benchmark", peak, "MiB")


def _published(views: int, rows: list[dict[str, float]]) -> Iterator[Row]:
    words, images, theirs = PUBLISHED[views]
    ours = float(np.mean([rows[i]["log-likelihood"] for i in images]))
    yield Row(
        benchmark="kmnist-loglik",
        case=f"{views} views, log-likelihood per pixel, {words}",
        reference="published TV-PredCP",
        reference_value=theirs,
        value=ours,
        unit="nats",
        ratio=ours / theirs,
    )


def figures(posterior: Posterior, truth: Floats) -> dict[str, float]:
    near, levels = _near(truth), (0.5, 0.9, 0.95)
    return {
        "PSNR": psnr(posterior.mean, truth),
        "PSNR of the DIP": psnr(posterior.dip, truth),
        "log-likelihood": posterior.log_likelihood(truth),
        "log-likelihood 1×1": posterior.log_likelihood(truth, 1),
        **{f"coverage {level:.0%}": posterior.coverage(truth, level) for level in levels},
        **{f"coverage {level:.0%} near": posterior.coverage(truth, level, near) for level in levels},
        "σ_y over its true value": posterior.noise_std / posterior.stated_noise_std,
        "effective dimension": posterior.effective_dimension,
        "jitter": posterior.jitter,
    }


def _near(truth: Floats) -> Bools:
    image = torch.as_tensor(truth)[None, None]
    return (F.max_pool2d(image, 3, stride=1, padding=1)[0, 0] > 0.02).numpy()


def _prefixed(seconds: dict[str, float]) -> dict[str, float]:
    return {f"seconds, {stage}": value for stage, value in seconds.items()}
