"""Scans of one geometry, reconstructed as one batch where the method can."""

import contextlib
import dataclasses
from collections.abc import Sequence
from typing import Any

from ct_dip import memory
from ct_dip.arrays import Floats
from ct_dip.config import RunConfig
from ct_dip.data.comparison import comparison_of_scan
from ct_dip.data.prediction import Prediction
from ct_dip.data.scan import Scan
from ct_dip.devices import pick_threads, use_threads
from ct_dip.methods import find_method
from ct_dip.pipeline import finish, make_job, plan_run, reconstruct
from ct_dip.progress import Progress

_Pair = tuple[Scan, Floats | None]  # with what it is compared with, if that is no truth


def reconstruct_together(
    scans: Sequence[Scan], references: Sequence[Floats | None], config: RunConfig, memory_budget: int
) -> list[Prediction | Exception]:
    """Reconstruct scans; what went wrong with one takes the place of its prediction.

    Scans that are alike are run as one batch (`ct_dip.method.Method.run_many`). The last bits of what comes
    out depend on which scans share the batch, and on nothing else. If a batch fails, its scans are run one by
    one, so that only those fail that would have failed alone.

    Args:
        references: to compare with, where there is one but no truth, 1/mm, (rows, columns).
    """
    alike: dict[tuple[Any, ...], list[int]] = {}
    for index, scan in enumerate(scans):
        kind = scan.geometry, scan.noise is None, scan.ground_truth is None
        alike.setdefault(kind, []).append(index)
    found: dict[int, Prediction | Exception] = {}
    for indices in alike.values():
        most = 1
        if len(indices) > 1:
            with contextlib.suppress(Exception):  # alone, each of them says what is wrong
                most = batch_size(scans[indices[0]], config, memory_budget)
        for first in range(0, len(indices), most):
            group = indices[first : first + most]
            pairs = [(scans[index], references[index]) for index in group]
            batch = _run_batch(pairs, config, memory_budget)
            found |= zip(group, batch, strict=True)
    return [found[index] for index in range(len(scans))]


def batch_size(scan: Scan, config: RunConfig, memory_budget: int) -> int:
    """Return how many scans like this one the method runs as one batch within a memory budget."""
    config = config.resolved(scan.geometry.domain_shape)
    plan = plan_run(scan, config, budget=memory_budget)
    return find_method(config.method).batch_size(scan, config, plan)


def _run_batch(pairs: Sequence[_Pair], config: RunConfig, budget: int) -> Sequence[Prediction | Exception]:
    if len(pairs) > 1:
        with contextlib.suppress(Exception):
            return _run_many(pairs, config, budget)
    return [_prediction_or_error(*pair, config, budget) for pair in pairs]


def _run_many(pairs: Sequence[_Pair], config: RunConfig, budget: int) -> list[Prediction]:
    shape, progress = pairs[0][0].geometry.domain_shape, Progress()
    config = config.resolved(shape)
    compared = [comparison_of_scan(*pair) for pair in pairs]
    jobs = [make_job(scan, config, budget, progress) for scan, _ in pairs]
    with use_threads(pick_threads(config.threads, shape)):
        with memory.PeakMemory() as peak:
            predictions = find_method(config.method).run_many(jobs)
        predictions = [
            finish(prediction, job, peak.bytes, comparison, budget)
            for prediction, job, comparison in zip(predictions, jobs, compared, strict=True)
        ]
    seconds = {stage: taken / len(pairs) for stage, taken in progress.seconds.items()}
    return [dataclasses.replace(prediction.plain(), seconds=seconds) for prediction in predictions]


def _prediction_or_error(
    scan: Scan, reference: Floats | None, config: RunConfig, budget: int
) -> Prediction | Exception:
    try:
        # Quietly: the evaluation shows one bar, not those of its items.
        made = reconstruct(scan, config, memory_budget=budget, reference=reference, progress=Progress())
        return made.plain()
    except Exception as error:  # whatever it is, the other scans still have something to show
        return error
