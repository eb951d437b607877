"""How much memory a job may take, how much it takes, and what becomes of it when it is freed."""

import contextlib
import ctypes
import os
import re
import sys
import threading
from pathlib import Path
from typing import Self

from ct_dip.errors import InputError, MemoryBudgetError

_NO_GLIBC = (OSError, AttributeError, TypeError)  # what a call of its functions raises elsewhere
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # M_TRIM_THRESHOLD and M_MMAP_THRESHOLD of malloc.h
_STATUS = Path("/proc/self/status")
_FEWEST = 2**20  # bytes that are believed without a unit: fewer are a unit that was forgotten
_UNITS = {"": 1, "k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40}


def available_bytes() -> int:
    """Memory that can still be taken: the system's, or what the container's limit leaves."""
    candidates = []
    meminfo = Path("/proc/meminfo")
    if meminfo.exists():
        match = re.search(r"MemAvailable:\s+(\d+) kB", meminfo.read_text())
        if match:
            candidates.append(int(match[1]) * 1024)
    limit, used = Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory.current")
    if limit.exists() and used.exists() and limit.read_text().strip() != "max":
        candidates.append(int(limit.read_text()) - int(used.read_text()))
    if not candidates:  # macOS: the physical memory is the best that the standard library knows
        candidates.append(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    return max(0, min(candidates))


def memory_budget(given: int | str | None = None) -> int:
    """Bytes that one job may take.

    Args:
        given: bytes, or text such as ``"4G"``. ``None``: the variable ``CT_DIP_MEMORY``, or half
            of what is available, so that two jobs, or one and a browser, live side by side.
    """
    if given is None:
        given = os.environ.get("CT_DIP_MEMORY")
    if given is None:
        return available_bytes() // 2
    if isinstance(given, int):
        budget = given
    else:
        match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([kmgt]?)(?:i?b)?\s*", given, re.IGNORECASE)
        if not match:
            raise InputError(f"memory budget {given!r} is not a size; write for example 4G or 500M")
        budget = int(float(match[1]) * _UNITS[match[2].lower()])
        if not match[2] and 0 < budget < _FEWEST:
            raise InputError(f"memory budget {given!r} is {budget} bytes; add a unit, as in {match[1]}G")
    if budget <= 0:
        raise InputError(f"memory budget {given!r} must be positive; write for example 4G or 500M")
    return budget


def require(needed: int, budget: int, *, what: str, advice: str) -> None:
    """Refuse, with the numbers, what does not fit."""
    if needed > budget:
        raise MemoryBudgetError(
            f"{what} needs {format_bytes(needed)}, the memory budget is {format_bytes(budget)}; "
            f"{advice}, or raise the budget (CT_DIP_MEMORY)"
        )


def format_bytes(count: int) -> str:
    """``format_bytes(1_900_000_000)`` is ``'1.77 GiB'``."""
    size = float(count)
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if size < 999.5:  # 1020 MiB, three digits of which are 1.02e+03, are 0.996 GiB
            return f"{size:.3g} {unit}"
        size /= 1024
    return f"{size:.3g} PiB"


def anonymous_bytes() -> int:
    """Return the anonymous memory of this process: what it asked for, without pages that files are mapped to.

    Where the system does not say it, as elsewhere than on Linux: the most memory that the process ever held.
    """
    match = re.search(r"RssAnon:\s+(\d+) kB", _STATUS.read_text()) if _STATUS.exists() else None
    if match:
        return int(match[1]) * 1024
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


class PeakMemory:
    """The most anonymous memory that this process holds while a block runs, sampled by a thread.

    Args:
        interval: seconds between two samples.

    Attributes:
        bytes: the peak, when the block is left.

    Example:
        >>> with PeakMemory() as peak:
        ...     work = bytearray(2**24)
        >>> peak.bytes > 2**24
        True
    """

    def __init__(self, interval: float = 0.05) -> None:
        self.bytes = 0
        self._interval, self._done = interval, threading.Event()
        self._sampler = threading.Thread(target=self._sample, name="peak memory", daemon=True)

    def _sample(self) -> None:
        while not self._done.wait(self._interval):
            self.bytes = max(self.bytes, anonymous_bytes())

    def __enter__(self) -> Self:
        self.bytes = anonymous_bytes()
        self._sampler.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._sampler.join()
        self.bytes = max(self.bytes, anonymous_bytes())


def keep_freed() -> None:
    """Let glibc keep what is freed, if that is the C library: for a program whose process is its own.

    Inference asks for the same large arrays again and again. Left alone, the library returns them to the
    system, which then clears every page again, at 28² for a third of the time of a product with Jᵀ. (Beyond
    128 MiB it still does: kept for ever, such arrays leave holes of half a gigabyte at 256².)
    """
    with contextlib.suppress(*_NO_GLIBC):
        mallopt = ctypes.CDLL(None).mallopt
        # Before 2.35 the library takes no more than 32 MiB. If it took neither, the other threshold would do
        # harm: it ends the adaptation of this one.
        if any(mallopt(_MMAP_THRESHOLD, size) for size in (2**27, 2**25)):
            mallopt(_TRIM_THRESHOLD, 2**28)


def give_back() -> None:
    """Return to the system what was freed but is kept by the C library for later, where it can do that.

    `ct_dip.progress.Progress` does so at the end of every stage; loops whose heap grows do it on their way.
    """
    with contextlib.suppress(*_NO_GLIBC):
        ctypes.CDLL(None).malloc_trim(0)
