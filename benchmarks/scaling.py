"""How the whole job grows with the image: 64², 128², 256² of ellipses, 60 views, 5 % noise, 100 samples.

Every size runs in a process of its own: ray transform, network fit and compressed inference with the settings
that ``--preset auto`` gives, then products alone. The power laws that the sizes suggest are extrapolated to
512² with the network of the largest size that was measured; the JSON says ``extrapolated`` there. Channels
are the same from 64² on, so exponents are those in pixels.
"""

import argparse
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch

from benchmarks.inference import Meter, ellipses_scan, fresh
from benchmarks.measure import Row, interleaved, plain
from ct_dip import memory
from ct_dip.config import RunConfig
from ct_dip.data.scan import Scan
from ct_dip.dip.ensemble import DipFit
from ct_dip.dip.fit import fit_dip
from ct_dip.dip.unet import UNet
from ct_dip.methods import load_config
from ct_dip.operators import ray_transform
from ct_dip.operators.linear_map import LinearMap
from ct_dip.posterior.certificate import CompressionCertificate
from ct_dip.posterior.fit import fit_posterior
from ct_dip.posterior.problem import linear_problem
from ct_dip.tangent.jacobian import Jacobian
from ct_dip.tangent.unet.jacobian import UNetJacobian

BEYOND = 512  # side that is extrapolated to
TARGET_SIDE, TARGET_SECONDS, TARGET_MIB = 256, 3600.0, 8e9 / 2**20
VECTORS = 4  # that are timed together, per round
ROUNDS = 3
PRODUCTS = {"J": "seconds_J", "Jᵀ": "seconds_J_adjoint", "covariance": "seconds_covariance"}


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--sizes", nargs="+", type=int, default=[64, 128, 256], help="sides of the images")
    parser.add_argument("--views", type=int, default=60)
    parser.add_argument("--samples", type=int, default=100)
    parser.add_argument("--preset", default="auto", help="of the whole run, as ct-dip has it")
    parser.add_argument("--set", action="append", default=[], help="one setting, as dip.max_steps=100")


def run(options: argparse.Namespace) -> Iterator[Row]:
    found = []
    # Closed deviations, which small images get, would be a stage that the larger ones do not have.
    same = ["inference.regime=compressed", "inference.deviations=samples"]
    for side in options.sizes:
        settings = [f"inference.samples={options.samples}", *same, *options.set]
        config = load_config(settings=settings, method="lin-dip", preset=options.preset)
        found.append(fresh(job, side, options.views, config))
        yield from _rows(found[-1])
    if len(found) > 1:
        yield from _growth(found)


def job(side: int, views: int, config: RunConfig) -> dict[str, Any]:
    """Every figure of one size."""
    own = memory.anonymous_bytes() / 2**20  # of Python and its libraries
    scan, meter = ellipses_scan(side, views), Meter()
    config = config.with_preset(scan.geometry.domain_shape)
    start = time.perf_counter()
    with meter.counting():
        with meter.stage("ray transform"):
            transform = ray_transform(scan.geometry)
        with meter.stage("deep image prior"):
            fit = fit_dip(scan, config.dip, transform=transform)
        posterior = fit_posterior(fit, scan, config.inference, transform=transform, progress=meter)
    seconds = time.perf_counter() - start
    network = fit.network()
    assert isinstance(network, UNet)
    certificate, jacobian = posterior.certificate, UNetJacobian(network, fit.network_input)
    assert isinstance(certificate, CompressionCertificate)
    rank, weights = certificate.rank, len(jacobian.weights)
    maps = max(map(maps_of_a_pass, (jacobian, jacobian.in_float64())))
    held = {
        "activations": jacobian.bytes,
        "maps of a pass": maps,
        "features": 4 * rank * weights,
        "basis": 4 * rank * scan.sinogram.size,
        "ray transform": getattr(transform, "nbytes", 0),
    }
    held_mib = {name: size / 2**20 for name, size in held.items()}
    stages = {
        name: {"seconds": value, "passes": meter.passes[name], "peak_MiB": meter.peaks[name]}
        for name, value in meter.seconds.items()
    }
    return {
        "side": side,
        "pixels": side**2,
        "channels": network.shape.channels[0],
        "measurements": scan.sinogram.size,
        "weights": weights,
        "steps": fit.steps,
        "seconds": seconds,
        "stages": stages,
        "passes": meter.total,
        "rank": rank,
        "certificate": certificate.to_dict(),
        "peak_MiB": meter.peak,
        "libraries_MiB": own,
        "held_MiB": held_mib,
        "peak_stage": max(meter.peaks, key=lambda name: meter.peaks[name]),
        "beyond_all_MiB": meter.peak - own - sum(held_mib.values()),
        **_products(fit, scan, config, jacobian, transform),
    }


def maps_of_a_pass(jacobian: Jacobian) -> int:
    """Bytes that products with J and Jᵀ take while they are made, beyond what they are given and return."""
    x = torch.randn(jacobian.chunk, len(jacobian.weights)).to(jacobian.weights)
    y = torch.randn(jacobian.chunk, *jacobian.range_shape).to(x)
    taken = []
    for work, vectors in ((jacobian, x), (jacobian.T, y)):
        memory.give_back()
        before = memory.anonymous_bytes()
        with memory.PeakMemory(interval=1e-3) as peak:
            product = work(vectors)
        taken.append(peak.bytes - before - product.nbytes)
    return max(0, *taken)


def _products(
    fit: DipFit, scan: Scan, config: RunConfig, jacobian: Jacobian, transform: LinearMap
) -> dict[str, float]:
    """Seconds per vector."""
    problem = linear_problem(fit, scan, jacobian, config.inference, transform)
    covariance = problem.prior.covariance(problem.prior.start)
    pixels = None if problem.complement is None else problem.complement.variance
    x = torch.randn(VECTORS, len(jacobian.weights))
    y, v = torch.randn(VECTORS, *jacobian.range_shape), torch.randn(VECTORS, problem.measurements)
    signal = problem.signal(covariance, pixels)
    jobs: tuple[Callable[[], Any], ...] = (
        lambda: jacobian(x),
        lambda: jacobian.T(y),
        lambda: signal(v) + v,
    )
    clock = time.process_time if torch.get_num_threads() == 1 else time.perf_counter
    times = interleaved(*jobs, rounds=ROUNDS, summary=min, clock=clock)
    return {key: taken / VECTORS for key, taken in zip(PRODUCTS.values(), times, strict=True)}


def _rows(found: dict[str, Any]) -> Iterator[Row]:
    label = f"{found['side']}²"
    for name, key in PRODUCTS.items():
        yield plain("scaling", f"{label}, one product, {name}", found[key] * 1e3, "ms")
    targets = {"one hour": (TARGET_SECONDS, "seconds", "s"), "8 GB": (TARGET_MIB, "peak_MiB", "MiB")}
    for name, (limit, key, unit) in targets.items():
        counts = found["side"] == TARGET_SIDE
        yield Row(
            benchmark="scaling",
            case=f"{label}, the whole job, {unit}",
            reference=f"target: {name}" if counts else None,
            reference_value=limit if counts else None,
            value=found[key],
            unit=unit,
            ratio=limit / found[key] if counts else None,
            details={k: v for k, v in found.items() if k not in ("seconds", "side")} if unit == "s" else {},
        )


def power_law(sizes: Sequence[float], values: Sequence[float]) -> tuple[float, float]:
    """Exponent and factor of ``value = factor · size^exponent``, by least squares of logarithms."""
    exponent, factor = np.polyfit(np.log(sizes), np.log(np.maximum(values, 1e-9)), 1)
    return float(exponent), float(np.exp(factor))


def _growth(found: Sequence[dict[str, Any]]) -> Iterator[Row]:
    channels = found[-1]["channels"]
    sizes = [each["pixels"] * each["channels"] for each in found]
    measured = [each["side"] for each in found]
    beyond = BEYOND**2 * channels
    laws = {}
    for name, key in PRODUCTS.items():
        laws[key] = power_law(sizes, [each[key] for each in found])
        label = f"exponent of a product in pixels × channels, {name}"
        yield plain("scaling", label, laws[key][0], "", sizes=measured)

    def at(values: Sequence[float]) -> float:
        exponent, factor = power_law(sizes, values)
        return factor * beyond**exponent

    names = [name for name in found[-1]["stages"] if all(name in each["stages"] for each in found)]
    stages = {name: at([each["stages"][name]["seconds"] for each in found]) for name in names}
    figures = ("rank", "passes", "peak_MiB", *PRODUCTS.values())
    details = {key: at([each[key] for each in found]) for key in figures}
    yield plain(
        "scaling",
        f"{BEYOND}², the whole job, EXTRAPOLATED by power laws from {', '.join(f'{s}²' for s in measured)}",
        sum(stages.values()),
        "s",
        extrapolated=True,
        channels=channels,
        stages=stages,
        **details,
    )
