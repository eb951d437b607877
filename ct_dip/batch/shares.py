"""How many items run side by side: from cores, and from the memory that one of them takes.

Threads and the memory of an item change the last bits of a result, or the regime of inference. So they come
from the machine and the first item, not from the number of workers, and the table of record keeps them.
"""

import itertools
import os
from collections.abc import Iterable
from dataclasses import dataclass

from ct_dip import memory
from ct_dip.config import RunConfig
from ct_dip.data.scan import Scan
from ct_dip.errors import MemoryBudgetError
from ct_dip.pipeline import assembles, plan_run

PROCESS_BYTES = 400 * 2**20  # of a worker and its child with an image of 28²: 65 and 315 MiB as measured


@dataclass(frozen=True, kw_only=True)
class Share:
    """How an evaluation shares a machine: ``workers`` at once, each with threads and bytes of its own.

    Args:
        item_bytes: that an item may take; ``plan_bytes`` what the first one will take by its plan.
    """

    workers: int
    threads: int
    item_bytes: int
    plan_bytes: int


def share_for(scan: Scan, configs: Iterable[RunConfig], *, cores: int, budget: int) -> Share:
    """Return as many workers as cores, or as many as fit into the memory budget.

    Fewer workers with an assembled ray transform go before more without: at LoDoPaB's size it takes 0.41 s
    of a core for a projection and its adjoint, ASTRA without a matrix 1.4 s. Cores that memory leaves idle
    become threads. The memory of an item is a power of two, so that a machine with a little less free memory
    than yesterday still does the same.

    Raises:
        MemoryBudgetError: not even one item fits.
    """
    configs = [config.resolved(scan.geometry.domain_shape) for config in configs]
    for matrix, workers in itertools.product((True, False), range(cores, 0, -1)):
        most = max(1, budget // workers - PROCESS_BYTES)
        for item_bytes in (1 << (most.bit_length() - 1), most):
            plans = [plan_run(scan, config, budget=item_bytes) for config in configs]
            needed = max(plan.bytes for plan in plans)
            assembled = all(assembles(scan, config, item_bytes) for config in configs)
            if needed <= item_bytes and (assembled or not matrix):
                return Share(
                    workers=workers, threads=cores // workers, item_bytes=item_bytes, plan_bytes=needed
                )
    hungriest = max(plans, key=lambda plan: plan.bytes)
    item, process, all_ = map(memory.format_bytes, (hungriest.bytes, PROCESS_BYTES, budget))
    advice = f"{hungriest.advice}, or " if budget > PROCESS_BYTES else ""
    raise MemoryBudgetError(
        f"method {hungriest.method} needs {item} for an item, beside {process} for its process; the memory "
        f"budget is {all_}; {advice}raise the budget (--budget-memory, CT_DIP_MEMORY; with "
        "--slurm its memory)"
    )


def available_cores() -> int:
    """Return the cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
