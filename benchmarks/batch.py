"""``ct-dip evaluate`` against a plain loop over ``ct_dip.reconstruct`` in one process, and what it adds.

First KMNIST scans (28², 20 views, 5 % noise) with a network each, where small fits are done as one batch;
then many items of filtered back-projection, where nearly nothing is done. Times of the evaluation are from
the call to its return, with the start of the workers.
"""

import argparse
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.kmnist import kmnist_scans
from benchmarks.measure import Row, faster, plain
from ct_dip.batch.evaluate import evaluate
from ct_dip.batch.table import Row as TableRow
from ct_dip.data.datasets import Dataset
from ct_dip.data.scan import Scan
from ct_dip.pipeline import reconstruct

_SAMPLE_SECONDS = 0.2


class Repeated(Dataset):
    """A few scans in memory, again and again."""

    def __init__(self, scans: list[Scan], count: int) -> None:
        super().__init__()
        self.scans, self.count = scans, count

    def __len__(self) -> int:
        return self.count

    def label(self, index: int) -> str:
        """Return the number as text."""
        return f"item{index:05d}"

    def describe(self) -> str:
        """Return what is repeated."""
        return f"{self.count} items that repeat {len(self.scans)} KMNIST scans"

    def read(self, index: int) -> Scan:
        """Return a scan from memory."""
        return self.scans[index % len(self.scans)]


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--scans", type=int, default=64, help="of KMNIST, 100 at most (default 64)")
    parser.add_argument("--method", default="dip", help="on these (default dip)")
    parser.add_argument("--items", type=int, default=10_000, help="of filtered back-projection")
    parser.add_argument("--workers", type=int, default=2)


def run(arguments: argparse.Namespace) -> Iterator[Row]:
    if arguments.scans:
        yield from _networks(arguments.scans, arguments.method, arguments.workers)
    if arguments.items:
        yield from _overhead(arguments.items, arguments.workers)


def _networks(count: int, method: str, workers: int) -> Iterator[Row]:
    dataset = Repeated(kmnist_scans(range(count), views=20, noise=0.05), count)
    with _Processes() as processes:
        rows, ours = _evaluated(dataset, method, workers)
    start, own = time.perf_counter(), time.process_time()
    alone = [reconstruct(scan, method=method).plain() for scan in dataset]
    theirs, theirs_cpu = time.perf_counter() - start, time.process_time() - own
    case = f"{method}, {count} KMNIST scans, {workers} workers"
    yield faster("batch", case, "loop over reconstruct", theirs, ours)
    # What is left of the ratio on one core, whatever else the machine does; start-up included.
    yield faster("batch", f"{case}: CPU time", "loop over reconstruct", theirs_cpu, processes.cpu)
    psnr = [
        prediction.scores.psnr.value for prediction in alone if prediction.scores and prediction.scores.psnr
    ]
    quality = np.array([row.scores["psnr"] for row in rows]) - np.array(psnr)
    yield plain(
        "batch",
        f"{case}: PSNR minus that of the loop",
        float(quality.mean()),
        "dB",
        standard_error=float(quality.std(ddof=1) / np.sqrt(count)),
        largest=float(np.abs(quality).max()),
    )


def _overhead(count: int, workers: int) -> Iterator[Row]:
    scans = kmnist_scans(range(100), views=20, noise=0.05)
    reconstruct(scans[0], method="fbp")
    start, own = time.perf_counter(), time.process_time()
    for scan in scans:
        reconstruct(scan, method="fbp")
    each, each_cpu = (
        (now - then) / len(scans) for now, then in ((time.perf_counter(), start), (time.process_time(), own))
    )
    with _Processes() as few:
        _, start_up = _evaluated(Repeated(scans, workers), "fbp", workers)
    with _Processes() as many:
        _, seconds = _evaluated(Repeated(scans, count), "fbp", workers)
    case = f"fbp, {count} items of 28², {workers} workers"
    yield plain(
        "batch",
        f"{case}: core time an item beyond the loop's {1e3 * each:.1f} ms",
        1e3 * (workers * (seconds - start_up) / count - each),
        "ms",
        items_per_second=count / seconds,
        start_up=start_up,
    )
    yield plain(
        "batch",
        f"{case}: CPU time an item of all processes beyond the loop's {1e3 * each_cpu:.1f} ms",
        1e3 * ((many.cpu - few.cpu) / count - each_cpu),
        "ms",
    )
    middle, end = many.between(0.4, 0.6), many.between(0.8, 1.0)
    yield plain(
        "batch", f"{case}: memory of all processes, last against middle fifth", end - middle, "MiB", end=end
    )


def _evaluated(dataset: Dataset, method: str, workers: int) -> tuple[list[TableRow], float]:
    with tempfile.TemporaryDirectory() as folder:
        start = time.perf_counter()
        rows = evaluate(dataset, [method], out=Path(folder) / "out", workers=workers, threads=1, light=True)
        seconds = time.perf_counter() - start
    if bad := [row for row in rows if row.state != "done"]:
        raise SystemExit(f"{len(bad)} items are not done; the first: {bad[0].error}")
    return rows, seconds


class _Processes:
    """Memory and CPU time of this process and all below it, sampled by a thread.

    Attributes:
        memory: resident, MiB, one number per sample.
    """

    def __enter__(self) -> "_Processes":
        self.memory: list[float] = []
        self._cpu: dict[int, tuple[float, float]] = {}  # by process: first and last
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._sample, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: Any) -> None:
        self._done.set()
        self._thread.join()

    @property
    def cpu(self) -> float:
        """Seconds in all processes while the block ran."""
        return sum(last - first for first, last in self._cpu.values())

    def _sample(self) -> None:
        import psutil  # which Dask needs

        here = psutil.Process()
        while not self._done.wait(_SAMPLE_SECONDS):
            total = 0
            for process in [here, *here.children(recursive=True)]:
                try:
                    times = process.cpu_times()
                    total += process.memory_info().rss
                except psutil.Error:  # it has just ended
                    continue
                used = times.user + times.system
                first = used if process == here else 0.0
                self._cpu[process.pid] = self._cpu.get(process.pid, (first, used))[0], used
            self.memory.append(total / 2**20)

    def between(self, first: float, last: float) -> float:
        """Median memory in a part of the block."""
        count = len(self.memory)
        return float(np.median(self.memory[int(first * count) : max(1, int(last * count))] or [np.nan]))
