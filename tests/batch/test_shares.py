"""Workers from cores and memory."""

import pytest

from ct_dip.batch.shares import PROCESS_BYTES, available_cores, share_for
from ct_dip.data.simulate import simulate
from ct_dip.errors import MemoryBudgetError
from ct_dip.geometry import Volume
from ct_dip.memory import format_bytes
from ct_dip.methods import load_config
from ct_dip.operators.sparse import estimate_peak_bytes
from ct_dip.pipeline import assembles, plan_run
from ct_dip.scanners import scanner

SCAN = simulate("ellipses", scanner(Volume(shape=(64, 64)), views=20))
CONFIGS = [load_config(method="fbp"), load_config(method="dip")]
NEEDED = plan_run(SCAN, CONFIGS[1].resolved((64, 64)), budget=2**40).bytes


@pytest.mark.parametrize("cores", [1, 2, 8])
def test_every_core_has_a_worker_where_memory_allows(cores):
    share = share_for(SCAN, CONFIGS, cores=cores, budget=2**40)
    assert (share.workers, share.threads, share.plan_bytes) == (cores, 1, NEEDED)
    # A little less free memory changes nothing that a result depends on.
    assert share_for(SCAN, CONFIGS, cores=cores, budget=int(0.9 * 2**40)).threads == 1


@pytest.mark.parametrize("fits", [1, 2, 3])
def test_workers_fit_the_budget_and_idle_cores_become_threads(fits):
    budget = fits * (PROCESS_BYTES + 2 * NEEDED)
    share = share_for(SCAN, CONFIGS, cores=8, budget=budget)
    assert share.workers * (PROCESS_BYTES + share.item_bytes) <= budget
    assert share.plan_bytes <= share.item_bytes
    assert share.workers >= fits
    assert share.threads == 8 // share.workers


def test_a_worker_with_the_matrix_goes_before_two_without():
    scan = simulate("ellipses", scanner(Volume(shape=(96, 96)), views=400))
    matrix, tv = estimate_peak_bytes(scan.geometry), load_config(method="tv")
    one, two = (
        share_for(scan, [tv], cores=2, budget=2 * (PROCESS_BYTES + int(part * matrix))) for part in (0.9, 2.0)
    )
    assert (one.workers, one.threads, two.workers, two.threads) == (1, 2, 2, 1)
    assert assembles(scan, tv.resolved((96, 96)), one.item_bytes)
    none = share_for(scan, [tv], cores=2, budget=PROCESS_BYTES + matrix // 2)  # not even one has room for it
    assert none.workers == 1
    without = load_config(method="tv", settings=["backend=astra"])
    assert share_for(scan, [without], cores=2, budget=2 * (PROCESS_BYTES + int(0.9 * matrix))).workers == 2


def test_an_item_that_does_not_fit_is_refused_with_the_numbers():
    for budget in (2**20, PROCESS_BYTES + NEEDED // 2):
        words = (
            "method dip needs .* beside 400 MiB for its process; the memory budget is {};.*--budget-memory"
        )
        with pytest.raises(MemoryBudgetError, match=words.format(format_bytes(budget))):
            share_for(SCAN, CONFIGS, cores=2, budget=budget)


def test_there_is_a_core():
    assert available_cores() >= 1
