import mmap
import platform
import subprocess
import sys
import threading
import time

import pytest

from ct_dip import memory
from ct_dip.errors import InputError, MemoryBudgetError
from ct_dip.memory import available_bytes, format_bytes, memory_budget, require


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (1000, 1000),
        ("2000000", 2_000_000),
        ("4G", 4 * 2**30),
        ("1.5 GiB", 3 * 2**29),
        ("500MB", 500 * 2**20),
        ("2k", 2048),
    ],
)
def test_sizes_are_read(given, expected):
    assert memory_budget(given) == expected


@pytest.mark.parametrize("given", ["much", "4X", "", "-4G", 0, -5, "0"])
def test_other_words_are_refused(given):
    with pytest.raises(InputError, match="memory budget"):
        memory_budget(given)


def test_a_forgotten_unit_is_told():
    with pytest.raises(InputError, match="memory budget '4' is 4 bytes; add a unit, as in 4G"):
        memory_budget("4")


def test_the_default_is_the_environment_or_half_of_what_is_free(monkeypatch):
    monkeypatch.delenv("CT_DIP_MEMORY", raising=False)
    assert 0 < memory_budget() <= available_bytes()
    monkeypatch.setenv("CT_DIP_MEMORY", "3M")
    assert memory_budget() == 3 * 2**20


def test_refusals_carry_the_numbers():
    require(10, 10, what="x", advice="y")
    with pytest.raises(MemoryBudgetError, match=r"x needs 2 KiB, the memory budget is 1 KiB; y"):
        require(2048, 1024, what="x", advice="y")


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1023, "0.999 KiB"),
        (1020 * 2**20, "0.996 GiB"),
        (1536, "1.5 KiB"),
        (2**50, "1 PiB"),
    ],
)
def test_bytes_are_spelled(count, text):
    assert format_bytes(count) == text


class Library:
    """A C library that takes thresholds up to a limit, and remembers what it was asked."""

    def __init__(self, limit):
        self.limit, self.asked = limit, []

    def mallopt(self, parameter, value):
        self.asked.append((parameter, value))
        return int(parameter != MMAP or value <= self.limit)

    def malloc_trim(self, pad):
        self.asked.append(("trim", pad))


TRIM, MMAP = -1, -3


@pytest.mark.parametrize(
    ("limit", "asked"),
    [
        (2**27, [(MMAP, 2**27), (TRIM, 2**28)]),
        (2**25, [(MMAP, 2**27), (MMAP, 2**25), (TRIM, 2**28)]),
        (0, [(MMAP, 2**27), (MMAP, 2**25)]),
    ],
    ids=["glibc", "glibc before 2.35", "another one"],
)
def test_freed_memory_is_kept_as_far_as_the_library_lets(monkeypatch, limit, asked):
    library = Library(limit)
    monkeypatch.setattr(memory.ctypes, "CDLL", lambda _: library)
    memory.keep_freed()
    assert library.asked == asked
    memory.give_back()
    assert library.asked == [*asked, ("trim", 0)]


@pytest.mark.parametrize("error", [OSError, TypeError, AttributeError], ids=["none", "Windows", "not glibc"])
@pytest.mark.parametrize("call", [memory.give_back, memory.keep_freed])
def test_where_there_is_no_glibc_nothing_happens(monkeypatch, error, call):
    def load(name):
        raise error

    monkeypatch.setattr(memory.ctypes, "CDLL", load)
    call()


@pytest.mark.skipif(
    platform.libc_ver()[0] != "glibc" or tuple(map(int, platform.libc_ver()[1].split("."))) < (2, 35),
    reason="only glibc from 2.35 on keeps blocks of 64 MiB",
)
def test_memory_that_is_kept_is_not_asked_for_again():
    program = """if True:
        import resource
        from ct_dip.memory import keep_freed
        def faults(rounds):
            before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
            for _ in range(rounds):
                b"x" * 2**26
            return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
        left_alone = faults(3)
        keep_freed()
        faults(1)
        print(left_alone, faults(3))
    """
    out = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    left_alone, kept = map(int, out.split())
    assert kept < 0.1 * left_alone


on_linux = pytest.mark.skipif(not memory._STATUS.exists(), reason="only Linux says what a process holds now")
LARGE = 2**26  # bytes


@on_linux
def test_a_peak_is_that_of_its_block_alone():
    before = memory.anonymous_bytes()
    # Not from malloc, which keeps what is freed once some test has called `keep_freed`.
    private = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
    with memory.PeakMemory(interval=0.01) as first, mmap.mmap(-1, LARGE, flags=private) as work:
        for place in range(0, LARGE, mmap.PAGESIZE):
            work[place] = 1
        time.sleep(0.1)
    with memory.PeakMemory(interval=0.01) as second:
        time.sleep(0.1)
    assert first.bytes - before > 0.95 * LARGE
    assert first.bytes - second.bytes > 0.9 * LARGE


@on_linux
def test_pages_of_files_do_not_count(tmp_path):
    path = tmp_path / "large"
    path.write_bytes(bytes(LARGE))
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as pages:
        before = memory.anonymous_bytes()
        with memory.PeakMemory() as peak:
            assert not any(pages[first] for first in range(0, LARGE, mmap.PAGESIZE))
    assert peak.bytes - before < 0.5 * LARGE


def test_a_peak_ends_with_an_error():
    threads = threading.active_count()
    with pytest.raises(ZeroDivisionError), memory.PeakMemory() as peak:
        raise ZeroDivisionError
    assert threading.active_count() == threads
    assert peak.bytes > 2**20


def test_elsewhere_a_peak_is_that_of_the_process(monkeypatch, tmp_path):
    monkeypatch.setattr(memory, "_STATUS", tmp_path / "missing")
    with memory.PeakMemory() as peak:
        pass
    assert peak.bytes > 2**20
