"""What a run will take, before it takes it: bytes and network passes of every stage, and seconds."""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from ct_dip import memory
from ct_dip.config import RunConfig
from ct_dip.data.scan import Scan
from ct_dip.devices import free_memory, pick_device
from ct_dip.dip.ensemble import Ensemble
from ct_dip.dip.fit import fit_bytes
from ct_dip.dip.presets import resolve, unet_shape
from ct_dip.dip.unet import UNet
from ct_dip.operators import ray_transform
from ct_dip.operators.linear_map import LinearMap
from ct_dip.operators.sparse import estimate_bytes, estimate_peak_bytes
from ct_dip.posterior.regimes import RegimePlan, plan_regime
from ct_dip.tangent.jacobian import Jacobian
from ct_dip.tangent.linearise import linearise
from ct_dip.tangent.taps import tap_pairs

_WORKING_ARRAYS = 20  # images and sinograms in float32 that a classical method holds at once, at most
_EVALUATIONS = {"scale": 15, "optimum": 80, "fit": 80}  # of the evidence per start, as seen
_NOISE_STEPS = 30  # of conjugate gradients with the noise of a compression's rest, as seen
_TRIAL_SECONDS = 0.5  # that the measurement of one kind of work takes, about


@dataclass(frozen=True, kw_only=True)
class StagePlan:
    """One stage: memory that it holds, passes through the network, and seconds if they were measured."""

    name: str
    bytes: int
    passes: int = 0
    seconds: float | None = None


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Stages in order; earlier ones free their working memory before later ones begin."""

    method: str
    pixels: int
    measurements: int
    weights: int  # of the network; 0 without one
    network: str
    regime: str  # of inference; empty without it
    stages: tuple[StagePlan, ...]
    budget: int
    inference: RegimePlan | None = None  # that the run follows

    @property
    def bytes(self) -> int:
        """Peak memory: that of the hungriest stage."""
        return max(stage.bytes for stage in self.stages)

    @property
    def seconds(self) -> float | None:
        """All stages, at most; ``None`` if it was not measured."""
        times = [stage.seconds for stage in self.stages if stage.seconds is not None]
        return sum(times) if times else None

    @property
    def advice(self) -> str:
        """What to change when it does not fit."""
        if self.regime != "exact":
            network = [stage for stage in self.stages if stage.name in ("ray transform", "deep image prior")]
            dip_fits = self.regime and all(stage.bytes <= self.budget for stage in network)
            return "use a smaller image or fewer views" + (", or method dip" if dip_fits else "")
        side = math.isqrt(self.pixels)
        fits = int(side * (self.budget / self.bytes) ** 0.25)
        return f"exact inference fits images of about {fits}² pixels; use inference.regime=compressed"

    def require(self) -> None:
        """Refuse, with the numbers, what would not fit.

        Raises:
            MemoryBudgetError: before any work.
        """
        memory.require(self.bytes, self.budget, what=f"method {self.method}", advice=self.advice)


def plan_run(scan: Scan, config: RunConfig, *, budget: int, measure: bool = False) -> Plan:
    """The plan of a run.

    Args:
        budget: bytes that the run may take.
        measure: whether to try every kind of work for a moment, to say how long the run may last.
    """
    pixels, measurements = math.prod(scan.geometry.domain_shape), scan.sinogram.size
    held = 4 * _WORKING_ARRAYS * (pixels + measurements)  # by every stage
    if _is_sparse(scan, config, budget):
        held += estimate_bytes(scan.geometry, config.kernel)
    stages = [StagePlan(name="ray transform", bytes=held)]
    weights, network = 0, "none"
    if config.method in ("dip", "lin-dip"):
        dip = resolve(config.dip, scan.geometry.domain_shape)
        shape = unet_shape(dip)
        weights = sum(p.numel() for p in UNet(shape).to("meta").parameters())
        norm = f"{shape.norm_groups} norm groups" if shape.norm_groups else "no norm"
        network = f"U-Net, channels {'-'.join(str(c) for c in shape.channels)}, {norm}, {weights} weights"
        stages.append(
            StagePlan(
                name="deep image prior",
                bytes=held + fit_bytes(config.dip, scan.geometry.domain_shape),
                passes=3 * dip.max_steps,
            )
        )
    regime, inference = "", None
    if config.method == "lin-dip":
        device_memory = free_memory(pick_device(config.device))
        inference = plan_regime(shape, scan, config.inference, budget - held, device_memory)
        regime = inference.regime
        stages += [
            StagePlan(name=name, bytes=held + size, passes=inference.passes.get(name, 0))
            for name, size in inference.bytes.items()
        ]
    if config.method not in ("dip", "lin-dip"):
        stages.append(StagePlan(name=config.method, bytes=held))
    plan = Plan(
        method=config.method,
        pixels=pixels,
        measurements=measurements,
        weights=weights,
        network=network,
        regime=regime,
        stages=tuple(stages),
        budget=budget,
        inference=inference,
    )
    return _measured(plan, scan, config) if measure and plan.bytes <= budget else plan


def _is_sparse(scan: Scan, config: RunConfig, budget: int) -> bool:
    """Return whether the ray transform, that of inference if it has its own, is a matrix."""
    fits = estimate_peak_bytes(scan.geometry, config.kernel) <= budget
    return config.backend == "sparse" or (config.backend in ("auto", "tomosipo") and fits)


def _measured(plan: Plan, scan: Scan, config: RunConfig) -> Plan:
    """The same plan with seconds, from a short trial of every kind of work."""
    seconds: dict[str, float] = {}
    start = time.perf_counter()
    transform = ray_transform(scan.geometry)
    seconds["ray transform"] = time.perf_counter() - start
    if plan.weights:
        dip = resolve(config.dip, scan.geometry.domain_shape)
        endless = dip.model_copy(update={"stopping": "budget", "max_steps": 10**9})
        ensemble = Ensemble([scan], endless, [0], transform, torch.device("cpu"))
        seconds["deep image prior"] = dip.max_steps * _rate(ensemble.step)
    if plan.method == "lin-dip":
        network = ensemble.skeleton.to_empty(device="cpu")
        network.initialise(torch.Generator().manual_seed(0), 0.5)
        seconds |= _inference_seconds(plan, config, linearise(network, ensemble.inputs[:1, None]), transform)
    if plan.method in ("cgls", "tv"):
        image = torch.zeros(scan.geometry.domain_shape)
        settings: Any = config.cgls if plan.method == "cgls" else config.tv
        seconds[plan.method] = settings.max_iterations * _rate(lambda: transform.T(transform(image)))
    stages = tuple(
        StagePlan(name=s.name, bytes=s.bytes, passes=s.passes, seconds=seconds.get(s.name))
        for s in plan.stages
    )
    return Plan(**(vars(plan) | {"stages": stages}))


def _inference_seconds(
    plan: Plan, config: RunConfig, jacobian: Jacobian, transform: LinearMap
) -> dict[str, float]:
    """From one chunk of passes, one symmetric product and one factorisation, scaled by their operations."""
    inference = config.inference.resolved()
    count = jacobian.chunk
    images = torch.randn(count, *jacobian.range_shape)
    per_pixel = _rate(lambda: jacobian.T(images)) / count
    if plan.regime != "exact":
        seconds = {stage.name: stage.passes * per_pixel for stage in plan.stages if stage.passes}
        rank = next((s.passes // 2 for s in plan.stages if s.name == "compression"), 0)
        if rank:
            columns = torch.randn(16, *transform.domain_shape)
            per_column = _rate(lambda: transform.T(transform(columns))) / len(columns)
            tall = torch.randn(256, 8192, dtype=torch.float64)
            per_product = _rate(lambda: tall @ tall.T) / (256**2 * 8192)
            seconds["compression"] += rank * _NOISE_STEPS * per_column
            seconds["compression"] += rank**2 * plan.weights * per_product
        return seconds
    side = min(plan.pixels, 512)
    features = torch.randn(side, 1024)
    per_flop = _rate(lambda: features @ features.T) / (side**2 * 1024)
    filters = plan.weights / 9
    grams = len(tap_pairs(3).vectors) * 0.6 * plan.pixels**2 * filters * per_flop
    size = min(plan.measurements, 600)
    matrix = torch.eye(size, dtype=torch.float64) * 2
    factor = _rate(lambda: torch.cholesky_inverse(torch.linalg.cholesky(matrix)))
    evidence = next(stage.bytes for stage in plan.stages if stage.name == "evidence")
    evaluation = factor * (plan.measurements / size) ** 3 + evidence / 10e9  # 10 GB/s through memory
    evaluations = inference.starts * _EVALUATIONS[inference.objective]
    return {
        "feature statistics": 2 * plan.pixels * per_pixel + grams,
        "evidence": evaluations * evaluation,
        "posterior": 4 * factor * (max(plan.measurements, plan.pixels) / size) ** 3,
    }


def _rate(work: Callable[[], Any]) -> float:
    """Seconds of one call, from as many as fit the trial."""
    work()
    start, calls = time.perf_counter(), 0
    while (taken := time.perf_counter() - start) < _TRIAL_SECONDS or not calls:
        work()
        calls += 1
    return taken / calls
