"""What the benchmarks of inference share: scans, fresh processes, and a count of network passes."""

import contextlib
import multiprocessing
import re
import resource
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

from torch import Tensor

from ct_dip.data.scan import Scan
from ct_dip.data.simulate import NoiseLevel, simulate
from ct_dip.geometry import Volume
from ct_dip.memory import keep_freed
from ct_dip.progress import Progress, Stage
from ct_dip.scanners import scanner
from ct_dip.tangent.linearised import LinearisedUNet

T = TypeVar("T")


def ellipses_scan(side: int, views: int, noise: float = 0.05) -> Scan:
    """A generated scan of ellipses, parallel beam."""
    geometry = scanner(Volume(shape=(side, side)), views=views)
    return simulate("ellipses", geometry, noise=NoiseLevel(relative=noise), seed=0)


def fresh(function: Callable[..., T], *arguments: Any) -> T:
    """Call a function in a process of its own, so that its peak memory is its own."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        pool.submit(keep_freed).result()  # as the command line does
        return pool.submit(function, *arguments).result()


def peak_memory() -> float:
    """Of this process so far, or since `restart_peak`, which every stage of a `Meter` calls; MiB.

    ``ru_maxrss`` of a new process begins with what its parent held, so the kernel's own mark is better.
    """
    return _status("VmHWM") or resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def memory_now() -> float:
    """Of this process, MiB; where the system does not say it, its peak."""
    return _status("VmRSS") or peak_memory()


def restart_peak() -> float:
    """Forget the peak so far, which is returned; where the system cannot do that it goes on."""
    peak = peak_memory()
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")
    return peak


def _status(key: str) -> float | None:
    status = Path("/proc/self/status")
    found = re.search(rf"{key}:\s+(\d+) kB", status.read_text()) if status.exists() else None
    return int(found[1]) / 1024 if found else None


class Meter(Progress):
    """Seconds, network passes and memory of every stage.

    Attributes:
        total: passes so far, products with J or Jᵀ of one vector each; ``passes`` those of every stage.
        peaks: of the process, MiB, in every stage; ``peak`` is that of all of them and of what is between.
    """

    def __init__(self) -> None:
        super().__init__()
        self.total = 0
        self.passes: dict[str, int] = {}
        self.peaks: dict[str, float] = {}
        self.peak = 0.0

    @contextlib.contextmanager
    def _show(self, name: str, total: int | None) -> Iterator[Stage]:
        before = self.total
        self.restart_peak()
        yield Stage()
        self.passes[name] = self.passes.get(name, 0) + self.total - before
        self.peaks[name] = max(self.peaks.get(name, 0.0), self.restart_peak())

    def restart_peak(self) -> float:
        """The peak since this was last asked for; it counts for ``peak``."""
        found = restart_peak()
        self.peak = max(self.peak, found)
        return found

    @contextlib.contextmanager
    def counting(self) -> Iterator[None]:
        """Count the passes of every linearised network meanwhile."""
        network_class: Any = LinearisedUNet
        tangent, adjoint = network_class.tangent, network_class.adjoint

        def counted_tangent(network: LinearisedUNet, weights: Tensor) -> Tensor:
            self.total += len(weights)
            found: Tensor = tangent(network, weights)
            return found

        def counted_adjoint(network: LinearisedUNet, images: Tensor) -> Iterator[Any]:
            self.total += len(images)
            found: Iterator[Any] = adjoint(network, images)
            return found

        try:
            network_class.tangent, network_class.adjoint = counted_tangent, counted_adjoint
            yield
        finally:
            network_class.tangent, network_class.adjoint = tangent, adjoint
