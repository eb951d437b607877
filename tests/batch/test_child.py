"""A child that hangs, crashes or cannot start is the failure of its item alone."""

import os
import signal
import time

import cloudpickle
import pytest

from ct_dip.batch import child as module
from ct_dip.batch.child import Child, Order, run_task
from ct_dip.batch.table import Row
from ct_dip.batch.tasks import Task
from ct_dip.errors import CtDipError, OutputError


class Pretend:
    """Work whose method says what goes wrong with item 1."""

    def run(self, method, items):
        print("chatter on standard output")
        if 1 in items:
            if method == "hang":
                time.sleep(1000)
            elif method == "crash":
                os.kill(os.getpid(), signal.SIGSEGV)
            elif method == "memory":
                os.kill(os.getpid(), signal.SIGKILL)
            elif method == "full":
                raise OutputError("the disk is full")
        return [Row(item=i, method=method, label=str(os.getpid()), state="done") for i in items]


@pytest.fixture
def order():
    cloudpickle.register_pickle_by_value(__import__("sys").modules[__name__])
    yield Order(work=cloudpickle.dumps(Pretend()), identity="pretend", threads=1, item_seconds=1.0)
    if hasattr(module._local, "child"):
        module._local.child.close()
        del module._local.child


@pytest.mark.parametrize(
    ("method", "error"),
    [
        ("hang", "stopped after 0.0167 minutes, the limit of its time (--item-minutes)"),
        ("crash", "its process ended by SIGSEGV"),
        ("memory", "its process ended by SIGKILL: out of memory?"),
    ],
)
def test_the_others_are_done_by_another_child(order, method, error):
    rows, seconds = run_task(order, Task(method, ((0,), (1,), (2, 3))), ["a", "b", "c", "d"])
    assert [row.item for row in rows] == [0, 1, 2, 3]
    assert [row.state for row in rows] == ["done", "failed", "done", "done"]
    assert (rows[1].label, rows[1].error) == ("b", error)
    assert rows[0].label != rows[2].label == rows[3].label  # which here is the child's number
    assert seconds > 0


@pytest.mark.parametrize("method", ["hang", "memory"])
def test_of_items_that_are_run_together_only_the_one_fails_that_ends_the_child(order, method):
    rows, _ = run_task(order, Task(method, ((0, 1, 2, 3), (4, 5))), ["a", "b", "c", "d", "e", "f"])
    assert [row.item for row in rows] == [0, 1, 2, 3, 4, 5]
    assert [row.state for row in rows] == ["done", "failed", "done", "done", "done", "done"]
    assert rows[1].label == "b"


def test_a_child_is_kept_for_the_next_task(order):
    task = Task("fine", ((0,),))
    (first,), _ = run_task(order, task, ["a"])
    (second,), _ = run_task(order, task, ["a"])
    assert first == second


def test_results_that_cannot_be_written_are_no_failure_of_an_item(order):
    with pytest.raises(OutputError, match="disk is full"):
        run_task(order, Task("full", ((1,),)), ["b"])


def test_a_child_that_cannot_start_says_why():
    with pytest.raises(CtDipError, match=r"cannot start: ModuleNotFoundError.*nowhere"):
        Child(Order(work=b"cnowhere\nThing\n.", identity="x", threads=1))
