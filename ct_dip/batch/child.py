"""A process beside every worker that does its work, and that can be killed without harm.

A runaway item cannot be stopped from inside a process: Python's signals reach the main thread alone, where
Dask's own loop runs, and a solver in C does not look at them. Nor does a process survive an item that crashes
it or takes all memory. So a worker hands every item to a child process. When the time is up, the operating
system kills the child; whatever ends a child is written down as the error of the item that it was at, and the
next item gets a new one. Of items that were run together, each is then tried alone. Worker, scheduler and
client notice nothing.
"""

import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from ct_dip.batch.table import Row
from ct_dip.batch.tasks import Task
from ct_dip.errors import CtDipError, OutputError

_WATCH_SECONDS = 1.0  # between two looks whether the parent is still there
_GONE = (OSError, EOFError, pickle.UnpicklingError)  # what a pipe to a process that ended raises
_local = threading.local()  # a child for every thread of a worker


@dataclass(frozen=True, kw_only=True)
class Order:
    """What a worker passes on; it needs neither torch nor the dataset's code to do so.

    Args:
        work: a pickled `ct_dip.batch.work.Work`; ``identity`` tells two of them apart.
        threads: of BLAS and torch.
        item_seconds: stop an item after this many seconds; ``None``: no limit.
    """

    work: bytes
    identity: str
    threads: int
    item_seconds: float | None = None


class Child:
    """A process that runs `Work.run` when it is asked to.

    Raises:
        CtDipError: it cannot be started.
    """

    def __init__(self, order: Order) -> None:
        paths = os.pathsep.join(path or str(Path.cwd()) for path in sys.path)
        environment = os.environ | {"PYTHONPATH": paths, "OMP_NUM_THREADS": str(order.threads)}
        self.identity = order.identity
        self.process = subprocess.Popen(
            [sys.executable, "-m", "ct_dip.batch.child"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment | {"MKL_NUM_THREADS": str(order.threads)},
        )
        try:
            self._send(order.work)
            problem = self._receive()
        except _GONE:
            problem = f"it {self._end()}"
        if problem:
            self.close()
            raise CtDipError(f"a worker cannot start: {problem}")

    def run(self, method: str, items: Sequence[int], seconds: float | None) -> list[Row] | str:
        """Return the rows of some items, or why the child ended before it had them.

        Raises:
            OutputError: results cannot be written.
        """
        timed_out = threading.Event()

        def stop() -> None:
            timed_out.set()
            self.process.kill()

        timer = None if seconds is None else threading.Timer(seconds, stop)
        if timer is not None:
            timer.start()
        try:
            self._send((method, tuple(items)))
            answer = self._receive()
        except _GONE:
            end = self._end()
            if timed_out.is_set() and seconds is not None:
                return f"stopped after {seconds / 60:.3g} minutes, the limit of its time (--item-minutes)"
            return f"its process {end}"
        finally:
            if timer is not None:
                timer.cancel()
        if isinstance(answer, CtDipError):
            raise answer
        return list(answer)

    @property
    def alive(self) -> bool:
        """Whether it can be asked."""
        return self.process.poll() is None

    def close(self) -> None:
        """End it."""
        self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe is not None
            pipe.close()

    def _end(self) -> str:
        """Make sure that it is gone, and say how it went."""
        self.process.kill()
        code = self.process.wait()
        hint = ": out of memory?" if code == -signal.SIGKILL else ""
        return f"ended by {signal.Signals(-code).name if code < 0 else f'exit code {code}'}{hint}"

    def _receive(self) -> Any:
        assert self.process.stdout is not None
        return pickle.load(self.process.stdout)

    def _send(self, message: Any) -> None:
        assert self.process.stdin is not None
        pickle.dump(message, self.process.stdin)
        self.process.stdin.flush()


def run_task(order: Order, task: Task, labels: Sequence[str]) -> tuple[list[Row], float]:
    """Run a task's units one after the other in this thread's child: what a Dask worker executes.

    Args:
        labels: of all items in order.

    Returns:
        Rows in the same order, and the seconds that it took.
    """
    start, rows, names = time.perf_counter(), [], dict(zip(task.items, labels, strict=True))
    for unit in task.units:
        answer = _run_items(order, task.method, unit)
        if isinstance(answer, list):
            rows += answer
            continue
        for item in unit:  # alone, only those fail that end the child or take too long by themselves
            alone = answer if len(unit) == 1 else _run_items(order, task.method, [item])
            if isinstance(alone, list):
                rows += alone
            else:
                label = names[item]
                rows.append(Row(item=item, method=task.method, label=label, state="failed", error=alone))
    return rows, time.perf_counter() - start


def _run_items(order: Order, method: str, items: Sequence[int]) -> list[Row] | str:
    """Run some items together in this thread's child, or in a new one if that is gone; see `Child.run`."""
    child: Child | None = getattr(_local, "child", None)
    if child is None or not child.alive or child.identity != order.identity:
        if child is not None:
            child.close()
        _local.child = child = Child(order)
    return child.run(method, items, None if order.item_seconds is None else order.item_seconds * len(items))


def package_versions() -> dict[str, str]:
    """Return the versions of what decides the numbers, without loading any of it."""
    return {name: version(name) for name in ("ct_dip", "torch", "numpy", "astra-toolbox")}


def _watch_parent() -> None:
    """End this process when its parent is gone: a worker that is killed must not leave a child at work."""
    parent = os.getppid()
    while os.getppid() == parent:
        time.sleep(_WATCH_SECONDS)
    os._exit(1)


def main() -> None:
    """Answer on standard output what is asked on standard input, until that is closed."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a library prints must not get between the answers
    threading.Thread(target=_watch_parent, daemon=True).start()
    from ct_dip.memory import keep_freed

    keep_freed()
    questions = sys.stdin.buffer
    try:
        work, problem = pickle.loads(pickle.load(questions)), ""
    except Exception as error:  # a dataset or method whose code is not here
        problem = f"{type(error).__name__}: {error}"
    pickle.dump(problem, answers)
    answers.flush()
    while not problem:
        try:
            method, items = pickle.load(questions)
        except EOFError:
            return
        answer: Any
        try:
            answer = work.run(method, items)
        except OutputError as error:
            answer = error
        pickle.dump(answer, answers)
        answers.flush()


if __name__ == "__main__":
    main()
