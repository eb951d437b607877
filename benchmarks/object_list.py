"""Scans of many kinds of objects, in two lists: one to choose settings on, one to report on.

No object, seed or image is on both lists, but for the Shepp-Logan phantom, of which there is one: its scans
differ. Whoever changes a default looks at `CHOOSE` as often as needed, and at `REPORT` when the change is
finished.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from benchmarks.kmnist import data_folder
from benchmarks.measured_scans import READERS, measured_scan
from ct_dip.arrays import Floats
from ct_dip.data.comparison import Comparison, comparison_of_scan
from ct_dip.data.scan import Scan
from ct_dip.data.simulate import OVERSAMPLING, WATER, NoiseLevel, simulate
from ct_dip.errors import InputError
from ct_dip.geometry import Volume
from ct_dip.scanners import scanner

HEAD_WIDTH = 0.957 * 256  # mm
BODY_WIDTH = 200.0  # mm, of phantoms seen by photons: noise of 3 to 13 % of the mean line integral


@dataclass(frozen=True)
class Item:
    """What is scanned, and how.

    Args:
        kind: a phantom, ``kmnist``, ``head``, or a measured scan.
        side: pixels.
        noise: as ``5%`` of the mean line integral or ``4096ph`` photons; empty for a measured scan.
        which: image, slice or measured scan, where there are several.
        seed: of the phantom and of the noise.
        arc: degrees that the views cover; half a turn, or all of one for a fan, if ``None``.
        quick: whether it belongs to the slice of ten minutes.
    """

    kind: str
    side: int
    views: int
    noise: str = ""
    which: str = ""
    seed: int = 0
    arc: int | None = None
    fan: bool = False
    quick: bool = False

    @property
    def label(self) -> str:
        """Kind and image or seed, and how it was scanned, as ``ellipses17-40-30v-3%-120deg``."""
        name = self.kind + (self.which or str(self.seed or ""))
        parts = [name, str(self.side), f"{self.views}v", self.noise]
        parts += [f"{self.arc}deg" if self.arc else "", "fan" if self.fan else ""]
        return "-".join(part for part in parts if part)

    @property
    def measured(self) -> bool:
        """Whether there is a reference instead of a truth."""
        return self.kind in READERS


def make_scan(item: Item) -> tuple[Scan, Comparison]:
    """Simulate or read the scan, and return it with its truth or reference.

    Simulated objects live on a grid three times as fine; see `ct_dip.data.simulate.simulate`.
    """
    if item.measured:
        return measured_scan(item.kind, item.which, side=item.side, views=item.views, arc=item.arc)
    image, attenuation, pixel_size = _object(item)
    volume = Volume(shape=(item.side, item.side), pixel_size=pixel_size)
    width = volume.size[1]
    geometry = scanner(
        volume,
        views=item.views,
        arc=None if item.arc is None else math.radians(item.arc),
        source_origin=3 * width if item.fan else None,
        origin_detector=2 * width if item.fan else None,
    )
    level = float(item.noise.removesuffix("%").removesuffix("ph"))
    relative = item.noise.endswith("%")
    noise = NoiseLevel(relative=level / 100) if relative else NoiseLevel(photons=level)
    scan = simulate(image, geometry, noise=noise, attenuation=attenuation, seed=item.seed)
    comparison = comparison_of_scan(scan)
    assert comparison is not None
    return scan, comparison


def _object(item: Item) -> tuple[str | Floats, float, float]:
    """Name or relative attenuation, attenuation of value 1 in 1/mm, and edge of a pixel in mm."""
    if item.kind == "kmnist":  # constant on every pixel, so that the truth is the image
        images = np.load(data_folder() / "kmnist_test_first100.npz", allow_pickle=False)["images"]
        return np.kron(images[int(item.which)] / 255, np.ones((OVERSAMPLING, OVERSAMPLING))), 1.0, 1.0
    if item.kind == "head":
        slices = np.load(data_folder() / "head_ct_hu_slices.npz", allow_pickle=False)["slices_hu"]
        return np.maximum(1 + slices[int(item.which)] / 1000, 0), WATER, HEAD_WIDTH / item.side
    return item.kind, WATER, BODY_WIDTH / item.side if item.noise.endswith("ph") else 1.0


CHOOSE = (
    Item("kmnist", 28, 20, "5%", which="50", seed=50, quick=True),
    Item("kmnist", 28, 5, "5%", which="56", seed=56),
    Item("kmnist", 28, 20, "10%", which="53", seed=53, arc=120),
    Item("ellipses", 40, 20, "5%", seed=4, quick=True),
    Item("ellipses", 40, 30, "500ph", seed=11),
    Item("ellipses", 40, 30, "3%", seed=17, arc=120, quick=True),
    Item("rectangles", 40, 20, "5%", seed=11),
    Item("walnut", 40, 40, "2%", seed=11, quick=True),
    Item("grains", 40, 40, "3%", seed=21, quick=True),
    Item("cracks", 40, 30, "5%", seed=21, quick=True),
    Item("head", 64, 40, "4096ph", which="3", seed=11, quick=True),
    Item("shepp-logan", 64, 30, "3%", seed=11, quick=True),
    Item("ellipses", 64, 30, "5%", seed=1),
    Item("walnut", 64, 30, "3%", seed=3),
    Item("cracks", 64, 40, "2%", seed=22, arc=90),
    Item("grains", 64, 60, "1000ph", seed=22),
    Item("rectangles", 48, 30, "2000ph", seed=17, fan=True),
    Item("head", 48, 60, "1000ph", which="7", seed=17),
    Item("neutron", 64, 30),
    Item("ellipses", 128, 60, "5%", seed=1),
)

REPORT = (
    Item("kmnist", 28, 20, "5%", which="0", seed=0, quick=True),
    Item("kmnist", 28, 5, "5%", which="1", seed=1),
    Item("kmnist", 28, 10, "10%", which="2", seed=2),
    Item("kmnist", 28, 20, "5%", which="3", seed=3, arc=120),
    Item("ellipses", 40, 20, "5%", seed=1001, quick=True),
    Item("ellipses", 64, 30, "500ph", seed=1002),
    Item("ellipses", 64, 40, "3%", seed=1003, arc=90),
    Item("rectangles", 40, 20, "5%", seed=1011, quick=True),
    Item("rectangles", 64, 30, "2%", seed=1012, fan=True),
    Item("rectangles", 48, 40, "4096ph", seed=1013),
    Item("shepp-logan", 64, 40, "2%", seed=1021),
    Item("walnut", 48, 30, "3%", seed=1031, quick=True),
    Item("walnut", 64, 60, "1%", seed=1032),
    Item("grains", 48, 40, "5%", seed=1041, quick=True),
    Item("grains", 64, 60, "2000ph", seed=1042),
    Item("cracks", 48, 30, "5%", seed=1051, quick=True),
    Item("cracks", 64, 40, "2%", seed=1052, arc=120),
    Item("head", 64, 40, "4096ph", which="5", seed=1061, quick=True),
    Item("head", 64, 60, "4096ph", which="9", seed=1062, arc=120),
    Item("htc", 64, 30, which="04c", quick=True),
    Item("htc", 64, 30, which="02b", arc=90),
    Item("fips-walnut", 64, 40),
    Item("tooth", 64, 30, which="0"),
    Item("htc", 128, 30, which="01a"),
    Item("fips-walnut", 128, 60),
    Item("tooth", 96, 45, which="1"),
    Item("ellipses", 128, 60, "5%", seed=1004),
    Item("shepp-logan", 128, 60, "1%", seed=1022, arc=120),
    Item("walnut", 128, 60, "2%", seed=1033),
    Item("grains", 128, 60, "3%", seed=1043),
    Item("cracks", 128, 60, "4096ph", seed=1053),
    Item("head", 128, 60, "4096ph", which="1", seed=1063),
)

LISTS = {"choose": CHOOSE, "report": REPORT}


def pick(items: Sequence[Item], starts: Sequence[str] | None, *, quick: bool) -> list[Item]:
    """Return the items whose labels begin in one of some ways, all if ``starts`` is empty.

    Raises:
        InputError: no label begins so.
    """
    items = [item for item in items if item.quick or not quick]
    for start in starts or ():
        if not any(item.label.startswith(start) for item in items):
            labels = ", ".join(item.label for item in items)
            raise InputError(f"--cases {start}: no scan's label begins like this; choose from {labels}")
    return [item for item in items if item.label.startswith(tuple(starts or [""]))]
