"""The compressed regime against exact inference and against conjugate gradients with random probes.

KMNIST image 0 at 20 views, and generated ellipses at 60; 5 % noise. One network is fitted for every case, and
every regime gets it in a process of its own. ``iterative`` has the settings of the published work: 10 probes,
and a tolerance of 1e-3, with which its evidence is that of the others within its error.

The search of the iterative regime takes hours for larger images. Unless ``--whole`` is given, only a few of
its gradients and one chunk of samples are timed beyond 64², and the search is assumed to take as many
evaluations as it took in the case before; the JSON then says ``extrapolated`` and has both numbers.
"""

import argparse
import math
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor

from benchmarks.inference import Meter, ellipses_scan, fresh
from benchmarks.kmnist import kmnist_scans
from benchmarks.measure import Row, faster, plain
from ct_dip.arrays import Floats
from ct_dip.data.scan import Scan
from ct_dip.dip.ensemble import DipFit
from ct_dip.dip.fit import fit_dip
from ct_dip.methods import load_config
from ct_dip.operators import ray_transform
from ct_dip.posterior.compressed import Compressed
from ct_dip.posterior.config import InferenceConfig
from ct_dip.posterior.fit import fit_posterior
from ct_dip.posterior.iterative import Iterative
from ct_dip.posterior.posterior import Posterior
from ct_dip.posterior.problem import linear_problem
from ct_dip.posterior.sampling import SampledDeviations
from ct_dip.posterior.stochastic_evidence import RENEWAL, Gradient, StochasticEvidence, fit_stochastic
from ct_dip.solvers.lanczos import Estimate
from ct_dip.tangent.linearise import linearise

LARGEST = 64  # side of the largest images with exact inference and a whole iterative search
CHUNK = 10  # samples that the iterative regime draws together
CLOSED_STEP = 16  # every so many pixels are compared with exact inference in closed form
TARGET = 5.0  # times faster than iterative, at 128²


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--cases", nargs="+", default=["kmnist", "64", "128"], help="kmnist, or a side")
    parser.add_argument("--views", type=int, default=60, help="of the generated scans")
    parser.add_argument("--steps", type=int, default=500, help="of the network's fit, at most")
    parser.add_argument("--samples", type=int, default=100, help="of every posterior")
    parser.add_argument("--evaluations", type=int, default=4, help="gradients that are timed beyond 64²")
    parser.add_argument("--whole", action="store_true", help="extrapolate nothing")
    parser.add_argument("--set", action="append", default=[], help="one setting, as inference.probes=20")


def run(options: argparse.Namespace) -> Iterator[Row]:
    steps = [f"dip.max_steps={options.steps}", f"dip.cooldown_steps={max(1, options.steps // 2)}"]
    samples = f"inference.samples={options.samples}"
    config = load_config(settings=[*steps, samples, *options.set], method="lin-dip", preset="balanced")
    evaluations: int | None = None  # of the last iterative search that ran to its end
    for case in options.cases:
        if case == "kmnist":
            (scan,) = kmnist_scans([0], views=20, noise=0.05)
        else:
            scan = ellipses_scan(int(case), options.views)
        side, (views, _) = scan.geometry.domain_shape[0], scan.geometry.range_shape
        label = f"{side}², {views} views"
        start = time.perf_counter()
        fit = fit_dip(scan, config.dip)
        seconds = time.perf_counter() - start
        yield plain("compressed", f"{label}, the network's fit", seconds, "s", steps=fit.steps)
        small = side <= LARGEST
        if not (small or options.whole or evaluations):
            raise SystemExit("a case to take the number of evaluations from must come first, or use --whole")

        exact = fresh(infer, scan, fit, "exact", config.inference) if small else None
        compressed = fresh(infer, scan, fit, "compressed", config.inference)
        if small or options.whole:
            iterative = fresh(infer, scan, fit, "iterative", config.inference)
            evaluations = iterative["evaluations"]
        else:
            iterative = fresh(extrapolate, scan, fit, config.inference, options.evaluations, evaluations)
        yield from _rows(label, exact, compressed, iterative)


def _rows(
    label: str, exact: dict[str, Any] | None, compressed: dict[str, Any], iterative: dict[str, Any]
) -> Iterator[Row]:
    for regime, found in {"exact": exact, "compressed": compressed, "iterative": iterative}.items():
        if found is None:
            continue
        own = {key: value for key, value in found.items() if key not in ("std", "closed_std", "seconds")}
        if exact is not None and regime != "exact":
            own |= difference(found["std"], exact["std"])
            if found["closed_std"] is not None:
                own |= difference(found["closed_std"], exact["std"].flat[::CLOSED_STEP], "closed_deviations")
        yield plain("compressed", f"{label}, {regime} inference", found["seconds"], "s", **own)
    details: dict[str, Any] = {"extrapolated": iterative["extrapolated"], "target_at_128": TARGET}
    if not iterative["extrapolated"]:
        own_error, error = compressed["certificate"], iterative["certificate"]["evidence_error"]
        details |= {
            "evidence_difference": iterative["evidence"] - compressed["evidence"],
            "evidence_error": math.hypot(
                error, own_error["evidence_error"], own_error["noise_log_det_error"]
            ),
        }
    references = {"iterative": (iterative, details)}
    if exact is not None:
        references["exact"] = (exact, {"extrapolated": False})
    for name, (found, more) in references.items():
        row = faster("compressed", f"{label}, inference", name, found["seconds"], compressed["seconds"])
        row.details.update(more)
        yield row


def difference(ours: Floats, theirs: Floats, name: str = "deviations") -> dict[str, float]:
    """Relative difference of deviations, over pixels; n samples alone make a median of 0.47/√n."""
    median, most = np.quantile(np.abs(ours / theirs - 1), [0.5, 0.95])
    return {f"{name}_median_difference": float(median), f"{name}_95_difference": float(most)}


def infer(scan: Scan, fit: DipFit, regime: str, config: InferenceConfig) -> dict[str, Any]:
    """Everything about one regime."""
    transform, meter = ray_transform(scan.geometry), Meter()
    start = time.perf_counter()
    with meter.counting():
        config = config.model_copy(update={"regime": regime})
        posterior = fit_posterior(fit, scan, config, transform=transform, progress=meter)
        posterior.sample(config.samples)  # which exact inference has not done yet
    seconds = time.perf_counter() - start
    certificate = {} if posterior.certificate is None else posterior.certificate.to_dict()
    return {
        "seconds": seconds,
        "extrapolated": False,
        "seconds_by_stage": meter.seconds,
        "passes": meter.total,
        "passes_by_stage": meter.passes,
        "evidence": posterior.evidence.evidence,
        "parameters": dict(zip(posterior.evidence.names, posterior.evidence.theta.tolist(), strict=True)),
        "evaluations": posterior.evidence.evaluations,
        "converged": posterior.evidence.converged,
        "samples": config.samples,
        "rank": certificate.get("rank"),
        "certificate": certificate,
        "peak_MiB": meter.peak,
        "std": posterior.std,
        "closed_std": closed_deviations(posterior),
    }


def closed_deviations(posterior: Posterior) -> Floats | None:
    """Of some pixels without the noise of samples, where the regime has a closed form."""
    found = posterior.deviations
    if not (isinstance(found, SampledDeviations) and isinstance(found.conditional, Compressed)):
        return None
    index = torch.arange(0, posterior.std.size, CLOSED_STEP)
    variance = [found.conditional.pixel_covariance(part).diagonal() for part in torch.split(index, 64)]
    return posterior.scale * (torch.cat(variance).clamp_min(0) + found.floor).sqrt().numpy()


class Timed(StochasticEvidence):
    """An evidence that keeps the time of its parts."""

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        self.seconds: dict[str, list[float]] = {"gradient": [], "value": [], "preconditioner": []}
        super().__init__(*arguments, **settings)

    def solver(self, theta: Tensor, renew: bool = False) -> Iterative:
        """Timed where it makes a new preconditioner."""
        start, old = time.perf_counter(), self._solver
        found = super().solver(theta, renew)
        if old is None or renew:
            self.seconds["preconditioner"].append(time.perf_counter() - start)
        return found

    def gradient(self, theta: Tensor) -> Gradient:
        """Timed."""
        start = time.perf_counter()
        found = super().gradient(theta)
        self.seconds["gradient"].append(time.perf_counter() - start)
        return found

    def log_evidence(self, theta: Tensor) -> Estimate:
        """Timed."""
        start = time.perf_counter()
        found = super().log_evidence(theta)
        self.seconds["value"].append(time.perf_counter() - start)
        return found


def extrapolate(
    scan: Scan, fit: DipFit, config: InferenceConfig, timed: int, evaluations: int
) -> dict[str, Any]:
    """The iterative regime from its parts: some gradients, a preconditioner, a value, a chunk of samples.

    The first gradient is slower than those that begin where the one before ended, and is counted once.
    """
    config = config.model_copy(update={"regime": "iterative"}).resolved()
    meter = Meter()
    with meter.counting():
        start = time.perf_counter()
        transform = ray_transform(scan.geometry)
        jacobian = linearise(fit.network().double(), fit.network_input.double())
        problem = linear_problem(fit, scan, jacobian, config, transform)
        evidence = Timed(
            problem, probes=config.probes, tolerance=config.tolerance, rank=config.preconditioner_rank
        )
        found = fit_stochastic(evidence, steps=max(1, timed - 1))
        drawn = time.perf_counter()
        evidence.solver(found.evidence.theta).deviations(CHUNK, torch.Generator().manual_seed(0))
        end = time.perf_counter()
    first, *later = evidence.seconds["gradient"]
    preconditioner = evidence.seconds["preconditioner"][0]
    parts = {
        "first_gradient": first,
        "further_gradients": (evaluations - 1) * float(np.mean(later or [first])),
        "new_preconditioners": ((evaluations - 1) // (RENEWAL + 1) + 1) * preconditioner,
        "value": evidence.seconds["value"][0],
        "samples": math.ceil(config.samples / CHUNK) * (end - drawn),
    }
    return {
        "seconds": sum(parts.values()),
        "extrapolated": True,
        "extrapolated_parts": parts,
        "measured_seconds": end - start,
        "measured_gradients": evidence.seconds["gradient"],
        "measured_samples": CHUNK,
        "measured_passes": meter.total,
        "evaluations": evaluations,
        "gradient_residual": found.worst_residual,
        "unconverged": found.unconverged,
        "peak_MiB": meter.peak,
    }
