"""Reconstruct a scan: plan, run the method, score the result, and record how it was made."""

import dataclasses
import functools
import math
import platform
import time
from collections.abc import Iterable, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal, overload

import numpy as np
import torch

from ct_dip import memory
from ct_dip.arrays import Floats
from ct_dip.checks import check_type
from ct_dip.classical.tv_strength import strength_at_bound
from ct_dip.config import RunConfig
from ct_dip.data.comparison import Comparison, comparison_of_scan
from ct_dip.data.plausibility import implausible
from ct_dip.data.prediction import Prediction
from ct_dip.data.run_doubts import run_doubts
from ct_dip.data.scan import Scan
from ct_dip.data.scan_file import read_scan
from ct_dip.data.scores import HeldoutScores
from ct_dip.devices import pick_device, pick_threads, use_threads
from ct_dip.errors import CtDipError, InputError
from ct_dip.evaluation.heldout import misses_directions, score_heldout
from ct_dip.evaluation.score import score
from ct_dip.method import Job, Method
from ct_dip.methods import find_method, load_config
from ct_dip.methods.lin_dip.trial import TRIAL
from ct_dip.operators import ray_transform
from ct_dip.operators.sparse import estimate_bytes, estimate_peak_bytes
from ct_dip.progress import Progress
from ct_dip.progress_bars import default_progress
from ct_dip.run_plan import Plan, StagePlan

_WORKING_ARRAYS = 20  # images and sinograms in float32 that a classical method holds at once, at most
_FEWEST_VIEWS = 10  # of which two are held out
_CHECKED_PIXELS = 128**2  # up to which they are held out by default: larger images take minutes
_CHECK = "compare with held-out views"  # name of the stage
AnyScan = Scan | str | Path


@overload
def reconstruct(scan: AnyScan, config: RunConfig | str | None = None, **options: Any) -> Prediction: ...


@overload
def reconstruct(
    scan: Sequence[AnyScan], config: RunConfig | str | None = None, **options: Any
) -> list[Prediction]: ...


def reconstruct(
    scan: AnyScan | Sequence[AnyScan],
    config: RunConfig | str | None = None,
    *,
    progress: Progress | None = None,
    memory_budget: int | str | None = None,
    budget_minutes: float | None = None,
    run_folder: str | Path | None = None,
    resume: Literal["exact", "compatible"] = "exact",
    reference: Floats | None = None,
    reference_std: float | None = None,
    **settings: Any,
) -> Prediction | list[Prediction]:
    """Reconstruct a scan, or several, one after the other.

    The ground truth of a simulated scan, or a reference, is used for the scores of the finished image only.

    Args:
        scan: a `Scan`, the path of a scan file, or a list of them.
        config: what to compute, see `ct_dip.load_config`; or the name of a method, with ``settings``.
        progress: told about every stage; by default a bar in a terminal or a notebook, else nothing.
        memory_budget: bytes or text such as ``"4G"``; see `ct_dip.memory.memory_budget`.
        budget_minutes: for compressed or iterative inference, after the network's fit; see
            `ct_dip.fit_posterior`.
        run_folder: where a long method keeps its stages, and goes on from them.
        resume: see `ct_dip.fit_dip`.
        reference: image to compare with, of a scan without a ground truth, in 1/mm, (rows, columns).
        reference_std: noise of the reference's pixels, 1/mm; see `ct_dip.data.comparison`.
        settings: ``method="tv"`` and what `ct_dip.load_config` takes, as ``strength=0.5``; and objects that
            the method accepts, as ``fit`` or ``network`` of ``lin-dip``. The result's settings name such
            objects under ``given``, and do not repeat it.
    """
    method, config, given = _configure(config, settings)
    wanted = "a Scan, the path of a scan file, or a list of them"
    check_type(scan, Scan | str | Path | Iterable, "scan", wanted)
    if not isinstance(scan, Scan | str | Path):
        if run_folder is not None or reference is not None or given:
            raise InputError("run_folder, reference and objects belong to one scan; reconstruct one by one")
        common = {"memory_budget": memory_budget, "budget_minutes": budget_minutes, "progress": progress}
        results = []
        for each in scan:
            check_type(each, Scan | str | Path, "scan", wanted)
            results.append(reconstruct(each, config, **common).plain())
        return results
    scan = scan if isinstance(scan, Scan) else read_scan(scan)
    config = config.resolved(scan.geometry.domain_shape)
    comparison = comparison_of_scan(scan, reference, reference_std)
    _check_minutes(budget_minutes, method)
    job = make_job(
        scan,
        config,
        memory_budget,
        progress or default_progress(),
        given=given,
        budget_minutes=budget_minutes,
        run_folder=None if run_folder is None else Path(run_folder),
        resume=resume,
    )
    with use_threads(pick_threads(config.threads, scan.geometry.domain_shape)):
        with memory.PeakMemory() as peak:
            prediction = method.run(job)
        prediction = finish(prediction, job, peak.bytes, comparison, memory_budget)
    return dataclasses.replace(prediction, seconds=job.progress.seconds)


def make_job(
    scan: Scan,
    config: RunConfig,
    memory_budget: int | str | None,
    progress: Progress,
    given: Mapping[str, Any] | None = None,
    **options: Any,
) -> Job[RunConfig]:
    """Return what the method is given, if it fits the memory budget."""
    planned = plan_run(scan, config, budget=memory.memory_budget(memory_budget), given=given)
    planned.require()
    for warning in implausible(scan):
        progress.note(warning)
    method = find_method(config.method)
    if scan.offset_error and "error bars" in method.gives and not method.uses_offset_error:
        progress.note(
            f"error bars of method {method.name} take the detector offset as exact; lin-dip knows of its "
            f"standard error, {scan.offset_error:.2g} mm"
        )
    return Job(
        scan=scan,
        sinogram=torch.as_tensor(np.array(scan.sinogram), device=pick_device(config.device)),
        config=config,
        progress=progress,
        budget=planned.budget,
        plan=planned,
        given=given or {},
        **options,
    )


def finish(
    prediction: Prediction,
    job: Job[RunConfig],
    peak_bytes: int,
    comparison: Comparison | None,
    memory_budget: int | str | None,
) -> Prediction:
    """Add where a prediction comes from and how it compares; torch's threads are still those of the run."""
    scan, config, method = job.scan, job.config, job.plan.method
    if not np.isfinite(prediction.mean).all():
        raise CtDipError(f"method {method} gave an image that is not finite; check its settings")
    threads = pick_threads(config.threads, scan.geometry.domain_shape)
    told = config.model_copy(update={"threads": threads}).model_dump(mode="json")
    facts: dict[str, Any] = {}
    for section, chosen in prediction.settings.items():
        if chosen is None:
            told.pop(section)
            continue
        was_chosen = told[section].get("strength") == "auto"
        if was_chosen and (end := strength_at_bound(chosen.get("strength", math.nan))):
            facts["tv_strength_at_bound"] = end
        told[section] |= chosen
    if job.given:  # which these settings cannot repeat
        told["given"] = {key: getattr(v, "__name__", type(v).__name__) for key, v in job.given.items()}
    facts |= {
        "device": str(job.sinogram.device),
        "peak_memory_mb": peak_bytes / 2**20,
        "seeds": {"run": config.seed},
    }
    if prediction.std is not None and misses_directions(scan.geometry):
        facts["misses_directions"] = True
    if scan.offset_error and prediction.std is not None:
        facts["offset_error"] = scan.offset_error if find_method(method).uses_offset_error else 0.0
    diagnostics = prediction.diagnostics | facts
    warnings = (*prediction.warnings, *(doubt.warning for doubt in run_doubts(diagnostics)))
    for warning in warnings:  # those of the scan were told before the run
        job.progress.note(warning)
    prediction = dataclasses.replace(
        prediction,
        mean=prediction.mean.astype(np.float32),
        method=method,
        pixel_size=scan.geometry.volume.pixel_size,
        scan_digest=scan.digest,
        detector_row=scan.detector_row,
        row_spacing=scan.row_spacing,
        settings=told,
        diagnostics=diagnostics,
        warnings=(*implausible(scan), *warnings),
        versions=versions(),
        traces={name: np.asarray(values, dtype=np.float64) for name, values in prediction.traces.items()},
        comparison=comparison,
        mask=None if scan.evaluated.all() else scan.evaluated,
    )
    if comparison is not None:
        with job.progress.stage(f"compare with the {comparison.name}"):
            scores = score(prediction, comparison, scan.evaluated)
        prediction = dataclasses.replace(prediction, scores=scores)
    compared, sampled = comparison is not None, prediction.samples is not None
    if prediction.heldout is None and _checks_views(scan, config, job.given, compared, sampled):
        with job.progress.stage(_CHECK):
            prediction = dataclasses.replace(prediction, heldout=_heldout(job, memory_budget))
    return prediction


def plan(
    scan: AnyScan,
    config: RunConfig | str | None = None,
    *,
    memory_budget: int | str | None = None,
    measure: bool = True,
    **settings: Any,
) -> Plan:
    """Estimate the memory and the time of a reconstruction, without running it.

    Args:
        scan, config, memory_budget, settings: as for `ct_dip.reconstruct`.
        measure: whether to time a moment of every kind of work, in order to estimate how long the run takes;
            on a CPU only.
    """
    _, config, given = _configure(config, settings)
    scan = scan if isinstance(scan, Scan) else read_scan(scan)
    config = config.resolved(scan.geometry.domain_shape)
    measure = measure and pick_device(config.device).type == "cpu"
    with use_threads(pick_threads(config.threads, scan.geometry.domain_shape)):
        budget = memory.memory_budget(memory_budget)
        return plan_run(scan, config, budget=budget, measure=measure, given=given)


def _configure(
    config: RunConfig | str | None, settings: dict[str, Any]
) -> tuple[Method[Any], RunConfig, dict[str, Any]]:
    """Return the method, its configuration, and the objects of Python among the settings."""
    if isinstance(config, str):
        settings, config = settings | {"method": config}, None
    name = config.method if config is not None else settings.get("method")
    method = find_method(name if isinstance(name, str) else load_config(**settings).method)
    settings = {key: value for key, value in settings.items() if value is not None}
    # Text is a setting: prior="g" chooses one that there is.
    given = {k: v for k, v in settings.items() if k in method.accepts and not isinstance(v, str)}
    settings = {key: value for key, value in settings.items() if key not in given}
    if config is None:
        config = load_config(**settings)
    elif settings:
        raise InputError(
            f"{', '.join(settings)} together with a configuration has no effect with method {method.name!r}; "
            "put settings into the configuration (it accepts as objects: "
            f"{', '.join(method.accepts) or 'none'})"
        )
    return method, config, given


def _checks_views(
    scan: Scan, config: RunConfig, given: Mapping[str, Any], compared: bool, sampled: bool
) -> bool:
    """Whether to hold out views of a method that does not do so itself.

    By default where nothing else shows whether the error bars hold.
    """
    if config.check != "auto" or compared or not sampled:
        return config.check == "views"
    many = len(np.unique(scan.geometry.angles)) >= _FEWEST_VIEWS
    return many and math.prod(scan.geometry.domain_shape) <= _CHECKED_PIXELS and not given


def _heldout(job: Job[RunConfig], memory_budget: int | str | None) -> HeldoutScores:
    """How the method predicts views that it did not see: the same run again, without a fifth of them."""
    config = job.config.model_copy(update={"check": "none"})
    folder = None if job.run_folder is None or not find_method(config.method).keeps_stages else job.run_folder
    # Those that were made from all views say nothing of the views that are left out.
    objects = {name: value for name, value in job.given.items() if name not in ("fit", "posterior")}
    again: dict[str, Any] = objects | {
        "memory_budget": memory_budget,
        "budget_minutes": job.budget_minutes,
        "run_folder": None if folder is None else folder / "held-out views",
        "resume": job.resume,
        "progress": Progress(),  # one stage of this run
    }
    return score_heldout(job.scan, lambda scan: reconstruct(scan, config, **again))


def plan_run(
    scan: Scan,
    config: RunConfig,
    *,
    budget: int,
    measure: bool = False,
    given: Mapping[str, Any] | None = None,
) -> Plan:
    """Plan a run.

    Args:
        budget: bytes that the run may take.
        measure: whether to time a moment of every kind of work, in order to estimate how long the run takes.
        given: objects of Python that the method accepts, by name.
    """
    method = find_method(config.method)
    pixels, measurements = math.prod(scan.geometry.domain_shape), scan.sinogram.size
    held = 4 * _WORKING_ARRAYS * (pixels + measurements)  # by every stage
    if assembles(scan, config, budget):
        held += estimate_bytes(scan.geometry, config.kernel)
    start = Plan(
        method=method.name,
        pixels=pixels,
        measurements=measurements,
        held=held,
        budget=budget,
        stages=(StagePlan(name="ray transform", bytes=held),),
        given=given or {},
    )
    plan = method.plan(scan, config, start)
    truth, samples = scan.ground_truth is not None, "samples" in method.gives
    holds_out = any(stage.name == TRIAL for stage in plan.stages)  # itself
    if not holds_out and _checks_views(scan, config, plan.given, truth, samples):
        passes = sum(stage.passes for stage in plan.stages)
        plan = plan.with_stage(_CHECK, plan.bytes, passes=passes)  # with a ray transform of its own
    if not measure or plan.bytes > budget:
        return plan
    begin = time.perf_counter()
    transform = ray_transform(scan.geometry)
    seconds = {"ray transform": time.perf_counter() - begin}
    seconds |= method.seconds(scan, config, plan, transform)
    known = [seconds[stage.name] for stage in plan.stages if stage.name in seconds]
    return plan.with_seconds(seconds | {_CHECK: sum(known)})


def assembles(scan: Scan, config: RunConfig, budget: int) -> bool:
    """Return whether the ray transform, that of inference if it has its own, is a matrix that fits."""
    fits = estimate_peak_bytes(scan.geometry, config.kernel) <= budget
    return config.backend == "sparse" or (config.backend in ("auto", "tomosipo") and fits)


def _check_minutes(minutes: float | None, method: Method[Any]) -> None:
    if minutes is None:
        return
    if not minutes > 0:
        raise InputError(
            f"a time budget of {minutes:g} minutes must be positive; give for example 10, or leave it out "
            "for no limit"
        )
    if not method.limits_time:
        raise InputError(
            f"a time budget (budget_minutes) has no effect with method {method.name!r}; drop it, or use one "
            "that can be cut short, as lin-dip"
        )


def versions() -> dict[str, str]:
    """List the versions of everything that decides the numbers."""
    return dict(_versions())


@functools.cache
def _versions() -> dict[str, str]:  # reading them takes 10 ms, as long as a small FBP
    packages = ("ct_dip", "torch", "numpy", "scipy", "astra-toolbox")
    return {"python": platform.python_version()} | {name: version(name) for name in packages}
