"""`evaluate`: methods on many items of a dataset, on one machine or many, that survives what fails."""

import contextlib
import dataclasses
import functools
import hashlib
import importlib.util
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ct_dip import memory
from ct_dip.arrays import Floats
from ct_dip.batch.child import Order, package_versions
from ct_dip.batch.clusters import Place, Slurm, check_place, connect, require
from ct_dip.batch.engine import DaskPool, HerePool, Pool, run_tasks
from ct_dip.batch.items import parse_items
from ct_dip.batch.score_files import write_scores
from ct_dip.batch.shares import PROCESS_BYTES, Share, available_cores, share_for
from ct_dip.batch.table import Row, Table, read_rows
from ct_dip.batch.tasks import Tasks
from ct_dip.batch.work import Work
from ct_dip.compare_methods import method_configs
from ct_dip.config import RunConfig
from ct_dip.data.datasets import Dataset, open_dataset
from ct_dip.data.datasets.lodopab import LoDoPaB
from ct_dip.data.datasets.submission import is_uploadable, write_submission
from ct_dip.data.result_file import read_result
from ct_dip.data.scan import Scan
from ct_dip.errors import InputError, MemoryBudgetError
from ct_dip.files import check_writable
from ct_dip.pipeline import plan_run, versions
from ct_dip.progress import Progress
from ct_dip.run_together import batch_size
from ct_dip.text import counted

_FEWEST_UNITS = 4  # that items are dealt to where there are as many, so that a few cores have work
_READ = 100  # items that are tried for one that can be read


def evaluate(
    dataset: Dataset | str | Path | Sequence[str | Path],
    methods: Sequence[str | RunConfig],
    *,
    out: str | Path,
    items: str | Sequence[int] | None = None,
    part: str | None = None,
    views: int | None = None,
    bin: int = 1,
    side: int | None = None,
    config: str | Path | None = None,
    settings: Sequence[str] = (),
    workers: int | None = None,
    threads: int | None = None,
    scheduler: str | None = None,
    slurm: str | None = None,
    memory_budget: int | str | None = None,
    light: bool = False,
    retry_failed: bool = False,
    max_failures: int | None = None,
    item_minutes: float | None = None,
    submission: bool = False,
    progress: Progress | None = None,
    **options: Any,
) -> list[Row]:
    """Reconstruct and score items of a dataset by several methods, and return a row for each.

    The folder ``out`` has the table of record (`ct_dip.batch.table`), result files, and all scores as CSV and
    Parquet. An item that fails has a row that says why, and does not stop the run. After any interruption the
    same call continues it, and it may have more items or methods than before. Results do not depend on the
    number of workers; on another machine they may differ in the last bits, or in the regime of inference,
    see `ct_dip.batch.shares`.

    Args:
        dataset: what `ct_dip.open_dataset` takes, with ``part``, ``views``, ``bin`` and ``side``; or a
            `Dataset`.
        methods: names or configurations, one per method; ``config``, ``settings`` and ``options`` as in
            `ct_dip.compare`.
        items: as ``"0:100"`` or a list of numbers; ``None``: all.
        workers: processes of this machine; ``None``: as many as cores and memory allow; 0: this process
            alone, without Dask.
        threads: of every worker; ``None``: one, or more where memory leaves cores idle.
        scheduler: address of a Dask scheduler that is there; ``slurm``: jobs to start, as
            ``"partition=main,jobs=4,cores=8"``.
        memory_budget: of all workers of this machine together; of one worker with a scheduler elsewhere. Jobs
            of SLURM have the memory that ``slurm`` says.
        light: keep scores alone, without result files.
        retry_failed: run items again that have failed before.
        max_failures: stop after more failures than this; ``None``: never.
        item_minutes: stop an item after this many minutes, and count it as failed; a batch of small images
            gets as many times that.
        submission: write ``submission-METHOD.zip`` for LoDoPaB's challenge, once all items are done.
        progress: shows how many items are done.
    """
    folder, progress = Path(out), progress or Progress()
    if isinstance(dataset, Dataset):
        if part is not None or views is not None or bin != 1 or side is not None:
            raise InputError("part, views, bin and side belong to a path; open the dataset with them")
    else:
        dataset = open_dataset(dataset, part=part, views=views, bin=bin, side=side)
    numbers = parse_items(items, len(dataset))
    if submission:
        _check_submission(dataset, numbers, light)
    configs = _by_name(list(method_configs(methods, config, settings, options)))
    place = _place(workers, scheduler, slurm, item_minutes, max_failures, threads)
    if place.workers != 0:
        check_place(place)  # now, rather than after a look at the data and with a table written
    check_writable(folder / "scores.csv")
    first = _first_readable(dataset, numbers)
    with Table(folder) as table:
        share = _share(place, first, configs, memory_budget, threads, table)
        configs = {
            name: each.model_copy(update={"threads": share.threads}) if each.threads == "auto" else each
            for name, each in configs.items()
        }
        labels = {item: dataset.label(item) for item in numbers}
        most = -(-len(numbers) // _FEWEST_UNITS)
        units = {n: min(most, batch_size(first, c, share.item_bytes)) for n, c in configs.items()}
        units |= table.fact("units") or {}
        facts = _facts(dataset, configs, share, light) | {"units": units}
        table.begin(facts, labels, list(configs))
        _check_unchanged(dataset, folder)
        if retry_failed:
            table.retry_failed()
        work = Work(
            dataset=dataset,
            configs=configs,
            folder=None if light else folder.resolve(),
            memory_budget=share.item_bytes,
        )
        pending: dict[str, list[int]] = {name: [] for name in configs}
        for item, method in table.pairs("pending"):
            pending[method].append(item)
        tasks = Tasks(numbers, pending, units)
        left = sum(map(len, pending.values()))
        if left:
            place = dataclasses.replace(place, workers=min(share.workers, left))
            with (
                _pool(place, work, share, item_minutes, progress) as pool,
                progress.stage("evaluate", left) as stage,
            ):
                try:
                    run_tasks(pool, tasks, table, labels, max_failures=max_failures, stage=stage)
                finally:
                    write_scores(folder)
    rows = write_scores(folder) if not left else read_rows(folder)
    if submission:
        _write_submissions(folder, dataset, rows, progress)
    return rows


def _check_submission(dataset: Dataset, numbers: Sequence[int], light: bool) -> None:
    if not isinstance(dataset, LoDoPaB):
        raise InputError("--submission is for LoDoPaB's challenge; give its folder, or drop --submission")
    if light:
        raise InputError("--submission needs the images, which --light does not keep; drop one of them")
    if len(numbers) < len(dataset):
        raise InputError(f"--submission needs all {len(dataset)} items, not {len(numbers)}; drop --items")


def _write_submissions(folder: Path, dataset: Dataset, rows: Sequence[Row], progress: Progress) -> None:
    assert isinstance(dataset, LoDoPaB)
    use = "can be uploaded to" if is_uploadable(dataset) else "is for a trial: these scans are not those of"
    for method in dict.fromkeys(row.method for row in rows):
        found = {row.item: folder / row.result for row in rows if row.method == method and row.result}
        path = folder / f"submission-{method}.zip"
        write_submission(path, dataset, functools.partial(_image, found))
        progress.note(f"{path} {use} LoDoPaB's challenge")


def _image(found: Mapping[int, Path], item: int) -> Floats | None:
    return read_result(found[item]).mean if item in found else None


def _by_name(configs: Sequence[RunConfig]) -> dict[str, RunConfig]:
    named = {each.method: each for each in configs}
    if len(named) < len(configs):
        raise InputError("a method is given twice; evaluate its settings in folders of their own")
    return named


def _place(
    workers: int | None,
    scheduler: str | None,
    slurm: str | None,
    item_minutes: float | None,
    max_failures: int | None,
    threads: int | None,
) -> Place:
    """Check where to run, and the limits."""
    if scheduler is not None and slurm is not None:
        raise InputError("--scheduler and --slurm are two places to run; give one of them")
    if workers is not None and (scheduler is not None or slurm is not None):
        raise InputError("--workers is for this machine; drop it, or --scheduler and --slurm")
    for name, value, least in (
        ("workers", workers, 0),
        ("threads", threads, 1),
        ("max-failures", max_failures, 0),
    ):
        if value is not None and value < least:
            raise InputError(f"--{name} {value} must be at least {least}")
    if item_minutes is not None and not 0 < item_minutes < math.inf:
        raise InputError(f"--item-minutes {item_minutes:g} must be positive; give for example 30")
    if item_minutes is not None and workers == 0:
        raise InputError("--item-minutes needs a worker that can be stopped; give --workers 1 or more")
    return Place(
        workers=-1 if workers is None else workers,
        scheduler=scheduler,
        slurm=None if slurm is None else Slurm.parse(slurm),
    )


def _first_readable(dataset: Dataset, items: Sequence[int]) -> Scan:
    """Read the first item that can be read: its shape decides how many fit into memory."""
    problem: Exception | None = None
    for item in items[:_READ]:
        try:
            return dataset[item]
        except InputError as error:
            problem = problem or error
    raise InputError(f"none of the first {min(len(items), _READ)} items can be read: {problem}")


def _check_unchanged(dataset: Dataset, folder: Path) -> None:
    """Refuse to go on with other data than those of the results that are there, as one of them tells."""
    row = next((row for row in read_rows(folder) if row.state == "done"), None)
    if row is not None and dataset[row.item].digest != row.scan_digest:
        raise InputError(
            f"item {row.item}, {row.label}, has changed since {folder} was begun; restore the data that it "
            "was begun with, or give another --out"
        )


def _share(
    place: Place,
    scan: Scan,
    configs: Mapping[str, RunConfig],
    memory_budget: int | str | None,
    threads: int | None,
    table: Table,
) -> Share:
    """How many workers, and what each of them gets: as the table was begun with, if that is there."""
    if place.slurm is not None:
        if memory_budget is not None:
            raise InputError("--budget-memory has no effect with --slurm; write memory=… there for a job's")
        cores, budget = place.slurm.cores, place.slurm.memory_bytes
    else:
        cores = available_cores() if place.scheduler is None else 1
        budget = memory.memory_budget(memory_budget)
    share = share_for(scan, configs.values(), cores=cores, budget=budget)
    known = table.fact("threads"), table.fact("item_bytes")
    if threads is not None or known[0] is not None:
        share = dataclasses.replace(share, threads=threads or known[0])
    if known[1] is not None:
        share = dataclasses.replace(share, item_bytes=known[1])
        for config in configs.values():  # a method may be new
            plan = plan_run(scan, config.resolved(scan.geometry.domain_shape), budget=share.item_bytes)
            if plan.bytes > share.item_bytes:
                needed, each = map(memory.format_bytes, (plan.bytes, share.item_bytes))
                raise MemoryBudgetError(
                    f"method {plan.method} needs {needed}, and {table.folder} was begun with {each} for an "
                    "item; give another --out"
                )
    if place.slurm is not None:
        fits = min(cores // share.threads, budget // (share.item_bytes + PROCESS_BYTES))
        return dataclasses.replace(share, workers=max(1, min(share.workers, fits)))
    if place.scheduler is not None or place.workers < 0:
        return share
    most = max(1, budget // (share.plan_bytes + PROCESS_BYTES))
    if place.workers > most:
        each, all_ = map(memory.format_bytes, (share.plan_bytes + PROCESS_BYTES, budget))
        raise MemoryBudgetError(
            f"--workers {place.workers}: each takes {each}, the memory budget is {all_}; give at most "
            f"{most}, or a larger --budget-memory"
        )
    return dataclasses.replace(share, workers=place.workers)


def _facts(dataset: Dataset, configs: Mapping[str, RunConfig], share: Share, light: bool) -> dict[str, Any]:
    """Everything that decides the results of an item, for the table of record."""
    return {
        "dataset": dataset.describe(),
        "views": dataset.views,
        "bin": dataset.bin,
        "methods": {name: each.model_dump(mode="json") for name, each in configs.items()},
        "light": light,
        "threads": share.threads,
        "item_bytes": share.item_bytes,
        "versions": versions(),
    }


@contextlib.contextmanager
def _pool(
    place: Place, work: Work, share: Share, item_minutes: float | None, progress: Progress
) -> Iterator[Pool]:
    if place.workers == 0 and place.scheduler is None and place.slurm is None:
        yield HerePool(work)
        return
    blob = require("cloudpickle", "batch").dumps(work)
    order = Order(
        work=blob,
        identity=hashlib.sha256(blob).hexdigest()[:16],
        threads=share.threads,
        item_seconds=None if item_minutes is None else 60 * item_minutes,
    )
    with connect(place) as client:
        here = package_versions()
        for worker, there in client.run(package_versions).items() if place.scheduler else ():
            if there != here:
                raise InputError(f"worker {worker} has {there}, here is {here}; install the same there")
        where = (
            f"{counted(place.workers, 'worker')} of"
            if place.scheduler is None and place.slurm is None
            else "on"
        )
        # Without bokeh Dask gives an address, too; whether a scheduler elsewhere has it is not known here.
        shown = place.scheduler is not None or importlib.util.find_spec("bokeh") is not None
        dashboard = f", dashboard at {client.dashboard_link}" if shown else ""
        progress.note(f"{where} {client.scheduler.address}{dashboard}")
        yield DaskPool(client, order)
