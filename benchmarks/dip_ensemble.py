"""Sixteen small fits together against one after another, per fit, on one thread and on all."""

import time
from collections.abc import Iterator

import torch

from benchmarks.kmnist import kmnist_scans
from benchmarks.measure import Row, faster
from ct_dip.dip.config import DipConfig
from ct_dip.dip.fit import fit_many

MEMBERS = 16
STEPS = 60
ROUNDS = 3


def run() -> Iterator[Row]:
    scans = kmnist_scans(range(MEMBERS), views=20, noise=0.05)
    # A fixed number of steps, so that both sides do the same work.
    config = DipConfig(stopping="budget", max_steps=STEPS, cooldown_steps=1, warmup_steps=1)
    threads = torch.get_num_threads()
    for count in sorted({1, threads}):
        torch.set_num_threads(count)
        fit_many(scans[:2], config)  # warm up
        alone, together = [], []
        for _ in range(ROUNDS):
            start = time.perf_counter()
            for scan in scans[:4]:
                fit_many([scan], config)
            alone.append((time.perf_counter() - start) / 4)
            start = time.perf_counter()
            fit_many(scans, config)
            together.append((time.perf_counter() - start) / MEMBERS)
        yield faster(
            "dip-ensemble",
            f"28², {MEMBERS} networks, {STEPS} steps, {count} thread(s), per fit",
            "one after another",
            min(alone),
            min(together),
        )
    torch.set_num_threads(threads)
