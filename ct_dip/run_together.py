"""Runs of one method that are made as one batch: scans of one geometry, or settings on one scan."""

import contextlib
import dataclasses
import json
from collections.abc import Callable, Sequence

from ct_dip import memory
from ct_dip.config import RunConfig
from ct_dip.data.comparison import Comparison
from ct_dip.data.prediction import Prediction
from ct_dip.data.scan import Scan
from ct_dip.devices import pick_threads, use_threads
from ct_dip.methods import find_method
from ct_dip.pipeline import finish, make_job, plan_run
from ct_dip.progress import Progress


def batch_size(scan: Scan, config: RunConfig, memory_budget: int | str | None) -> int:
    """Return how many runs like this one the method makes as one batch within a memory budget."""
    config = config.resolved(scan.geometry.domain_shape)
    plan = plan_run(scan, config, budget=memory.memory_budget(memory_budget))
    return find_method(config.method).batch_size(scan, config, plan)


def batch_key(config: RunConfig) -> str:
    """Return what configurations of one batch have in common: all but what may vary in it."""
    told = config.model_dump(mode="json")
    for name in find_method(config.method).varies_in_batch:
        section, _, key = name.partition(".")
        del told[section][key]
    return json.dumps(told, sort_keys=True)


def run_together(
    scans: Sequence[Scan],
    configs: Sequence[RunConfig],
    comparisons: Sequence[Comparison | None],
    memory_budget: int | str | None,
    progress: Progress,
) -> list[Prediction]:
    """Make N runs as one batch; see `ct_dip.method.Method.run_many` for what they must have in common.

    Args:
        scans, configs, comparisons: of every run; a comparison is what its image is scored by.
    """
    shape = scans[0].geometry.domain_shape
    resolved = [config.resolved(shape) for config in configs]
    jobs = [
        make_job(scan, config, memory_budget, progress) for scan, config in zip(scans, resolved, strict=True)
    ]
    with use_threads(pick_threads(resolved[0].threads, shape)), memory.PeakMemory() as peak:
        made = iter(find_method(resolved[0].method).run_many(jobs))
        predictions = [
            finish(next(made), job, peak.bytes, comparison, memory_budget).plain()
            for job, comparison in zip(jobs, comparisons, strict=True)
        ]
    seconds = {stage: taken / len(jobs) for stage, taken in progress.seconds.items()}
    return [dataclasses.replace(prediction, seconds=seconds) for prediction in predictions]


class Batches:
    """Runs of several configurations on a scan, made as batches and kept until they are asked for."""

    def __init__(self) -> None:
        self._made: dict[tuple[str, str], Prediction | None] = {}

    def take(
        self,
        scan: Scan,
        configs: Sequence[RunConfig],
        comparison: Comparison | None,
        memory_budget: int | str | None,
        progress: Callable[[], Progress],
    ) -> Prediction | None:
        """Return the run of the first configuration, or ``None`` if it must be made alone.

        A batch that fails is not tried again: alone, each of its runs says what is wrong.

        Args:
            configs: that have a `batch_key` in common; those that follow will be asked for, too.
        """
        keys = [(scan.digest, config.model_dump_json()) for config in configs]
        if len(configs) > 1 and keys[0] not in self._made:
            found: Sequence[Prediction | None] = [None]
            with contextlib.suppress(Exception):
                configs = configs[: batch_size(scan, configs[0], memory_budget)]
                if (count := len(configs)) > 1:
                    found, told = [None] * count, progress()
                    told.note(f"{count} runs of {configs[0].method} as one batch")
                    found = run_together([scan] * count, configs, [comparison] * count, memory_budget, told)
            self._made |= zip(keys, found, strict=False)  # keys beyond the batch are of the next one
        return self._made.pop(keys[0], None)
