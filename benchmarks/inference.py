"""What the benchmarks of inference share: scans, fresh processes, and a count of network passes."""

import contextlib
import multiprocessing
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from typing import Any, TypeVar

from torch import Tensor

from ct_dip.data.scan import Scan
from ct_dip.data.simulate import NoiseLevel, simulate
from ct_dip.geometry import Volume
from ct_dip.memory import PeakMemory, keep_freed
from ct_dip.progress import Progress, Stage
from ct_dip.scanners import scanner
from ct_dip.tangent.unet.linearised import LinearisedUNet

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


class Meter(Progress):
    """Seconds, network passes and memory of every stage.

    Attributes:
        total: passes so far, products with J or Jᵀ of one vector each; ``passes`` those of every stage.
        peaks: of anonymous memory, MiB, in every stage; ``peak`` is that of all that `counting` saw.
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
        with PeakMemory() as peak:
            yield Stage()
        self.passes[name] = self.passes.get(name, 0) + self.total - before
        self.peaks[name] = max(self.peaks.get(name, 0.0), peak.bytes / 2**20)

    @contextlib.contextmanager
    def counting(self) -> Iterator[None]:
        """Count the passes of every linearised network, and watch the memory, in this block."""
        network_class: Any = LinearisedUNet
        jvp, cotangents = network_class.jvp, network_class.cotangents

        def counted_jvp(network: LinearisedUNet, weights: Tensor) -> Tensor:
            self.total += len(weights)
            changes: Tensor = jvp(network, weights)
            return changes

        def counted_cotangents(network: LinearisedUNet, images: Tensor) -> Iterator[Any]:
            self.total += len(images)
            pulled: Iterator[Any] = cotangents(network, images)
            return pulled

        try:
            network_class.jvp, network_class.cotangents = counted_jvp, counted_cotangents
            with PeakMemory() as peak:
                yield
        finally:
            network_class.jvp, network_class.cotangents = jvp, cotangents
        self.peak = max(peak.bytes / 2**20, *self.peaks.values(), 0.0)  # which are sampled at other times
