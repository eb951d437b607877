"""The loop that gives tasks away, takes their rows back, and writes them down."""

import asyncio
import concurrent.futures
import contextlib
import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Protocol

from ct_dip.batch.child import Order, run_task
from ct_dip.batch.clusters import require
from ct_dip.batch.table import Row, Table
from ct_dip.batch.tasks import Task, Tasks
from ct_dip.batch.work import Work, failed
from ct_dip.errors import CtDipError
from ct_dip.progress import Stage

_WAIT_SECONDS = 5.0
_AHEAD = 2  # tasks per worker that are given away, so that none waits for the client


class Pool(Protocol):
    """Something that runs tasks."""

    def slots(self) -> int:
        """Return how many tasks it runs at once."""
        ...

    def submit(self, task: Task, labels: list[str]) -> Any:
        """Begin a task; the future's result is its rows and the seconds that it lasted."""
        ...

    def wait(self, futures: Iterable[Any]) -> list[Any]:
        """Wait a while for some of the futures, and return those that are finished.

        Raises:
            CtDipError: the pool is gone.
        """
        ...


class HerePool:
    """This process, one task after the other."""

    def __init__(self, work: Work) -> None:
        self.work = work

    def slots(self) -> int:
        """One at a time."""
        return 1

    def submit(self, task: Task, labels: list[str]) -> Any:
        """Run it at once."""
        future: concurrent.futures.Future[tuple[list[Row], float]] = concurrent.futures.Future()
        start = time.perf_counter()
        try:
            rows = [row for unit in task.units for row in self.work.run(task.method, unit)]
            future.set_result((rows, time.perf_counter() - start))
        except Exception as error:
            future.set_exception(error)
        return future

    def wait(self, futures: Iterable[Any]) -> list[Any]:
        """All of them are finished."""
        return list(futures)


class DaskPool:
    """Workers of a Dask cluster.

    Args:
        client: that is connected.
    """

    def __init__(self, client: Any, order: Order) -> None:
        self.client = client
        # A value that is computed, rather than scattered, comes back when the worker that held it dies.
        self._order = client.submit(Order, **vars(order), key=f"order-{order.identity}")

    def slots(self) -> int:
        """Return the threads of all workers that are there now; jobs may still wait in a queue."""
        with _connected():
            return max(1, sum(self.client.nthreads().values()))

    def submit(self, task: Task, labels: list[str]) -> Any:
        """Give it to the scheduler."""
        with _connected():
            return self.client.submit(run_task, self._order, task, labels, pure=False)

    def wait(self, futures: Iterable[Any]) -> list[Any]:
        """Wait for the first to finish."""
        futures, distributed = list(futures), require("distributed", "batch")
        with _connected(), contextlib.suppress(TimeoutError):
            distributed.wait(futures, timeout=_WAIT_SECONDS, return_when="FIRST_COMPLETED")
        return [future for future in futures if future.done()]


@contextlib.contextmanager
def _connected() -> Iterator[None]:
    """Say what whatever Dask raises in this block means: tasks never do so here."""
    try:
        yield
    except (Exception, asyncio.CancelledError) as error:
        raise CtDipError(
            f"the Dask scheduler is gone ({type(error).__name__}); what was finished is kept, and the same "
            "command goes on from there"
        ) from error


def run_tasks(
    pool: Pool,
    tasks: Tasks,
    table: Table,
    labels: Mapping[int, str],
    *,
    max_failures: int | None = None,
    stage: Stage | None = None,
) -> None:
    """Run all tasks, and write every row into the table as soon as it is there.

    Args:
        max_failures: after more of which the run stops.
        stage: told how it goes.

    Raises:
        CtDipError: too many failed, results cannot be written, or the pool is gone; finished rows are kept.
    """
    under_way: dict[Any, Task] = {}
    failures, slots, asked = 0, 1, 0.0
    watch = Watch(stage)
    watch.tell()  # the pace counts from here
    while True:
        if time.monotonic() - asked > _WAIT_SECONDS:
            slots, asked = pool.slots(), time.monotonic()
        while len(under_way) < _AHEAD * slots and (task := tasks.take()) is not None:
            table.mark([(item, task.method) for item in task.items], "running")
            under_way[pool.submit(task, [labels[item] for item in task.items])] = task
        if not under_way:
            return
        for future in pool.wait(under_way):
            task = under_way.pop(future)
            rows = list(_rows(future, task, tasks, labels))
            table.record(rows)
            watch.count(rows)
            failures += sum(row.state == "failed" for row in rows)
            if max_failures is not None and failures > max_failures:
                last = next(row for row in reversed(rows) if row.state == "failed")
                raise CtDipError(
                    f"{failures} failed, more than --max-failures {max_failures}; the last was {last.label} "
                    f"with {last.method}: {last.error}"
                )
        watch.tell()
        table.beat()


def _rows(future: Any, task: Task, tasks: Tasks, labels: Mapping[int, str]) -> Iterator[Row]:
    with _connected():  # the result is fetched only now
        error = future.exception()
        found = future.result() if error is None else None
    if found is not None:
        rows, seconds = found
        tasks.tell(task, seconds)
        yield from rows
    elif isinstance(error, CtDipError):  # no single item's: a folder that is full, a worker that cannot start
        raise error
    else:
        for item in task.items:
            yield failed(item, task.method, labels[item], f"{type(error).__name__}: {error}")


class Watch:
    """What a user sees of a run: items per hour, failures, and running means of the image's quality."""

    def __init__(self, stage: Stage | None) -> None:
        self.stage, self.start = stage, time.monotonic()
        self.done = self.failed = 0
        self.sums: dict[str, tuple[float, int]] = {}

    def count(self, rows: Iterable[Row]) -> None:
        """Take in finished rows."""
        for row in rows:
            self.done += row.state == "done"
            self.failed += row.state == "failed"
            if (quality := row.scores.get("psnr")) is not None:
                total, count = self.sums.get(row.method, (0.0, 0))
                self.sums[row.method] = total + quality, count + 1

    def tell(self) -> None:
        """Tell the stage how it goes; items per hour fall while nothing is finished."""
        if self.stage is not None:
            hours = max(time.monotonic() - self.start, 1e-3) / 3600
            means = {f"psnr_{method}": total / count for method, (total, count) in self.sums.items()}
            both = self.done + self.failed
            self.stage.update(both, failed=self.failed, per_hour=both / hours, **means)
