"""The strength of total variation: what cross-validation over views chooses, against the best by the truth.

``CT_DIP_DATA=… python -m experiments.tv_strength [--objects first|second|third] [--network] [--out FILE]``

Rules were compared on the first list; what came of that on the second is in the README. The third, of
`benchmarks.object_list`, was looked at when the rule was settled. With ``--network``, the network's own image
for the preset's strength, the chosen one and half of it.
"""

import argparse
import dataclasses
import json
import math
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from benchmarks.kmnist import data_folder, kmnist_scans
from benchmarks.object_list import CHOOSE, make_scan
from ct_dip.classical.tv import DEFAULT_STRENGTH, TvSolver
from ct_dip.classical.tv_strength import choose_tv_strength
from ct_dip.data.scan import Scan
from ct_dip.data.simulate import NoiseLevel, simulate
from ct_dip.dip.config import DipConfig
from ct_dip.dip.fit import fit_dip
from ct_dip.geometry import Volume
from ct_dip.operators import ray_transform
from ct_dip.quality import psnr
from ct_dip.scanners import scanner

SWEEP = [0.025 * 2 ** (k / 2) for k in range(17)]
HEAD_PIXEL = 0.957 * 256 / 64  # mm


class Case(NamedTuple):
    """What is scanned, and how; ``noise`` is relative, or a number of photons where it is above one."""

    kind: str
    side: int
    views: int
    noise: float
    seed: int  # or KMNIST image, or slice of the head
    arc: float = 180.0  # degrees

    def scan(self) -> Scan:
        """Simulate the scan."""
        if self.kind == "kmnist":
            return kmnist_scans([self.seed], views=self.views, noise=self.noise)[0]
        level = NoiseLevel(photons=self.noise) if self.noise > 1 else NoiseLevel(relative=self.noise)
        head = self.kind == "head"
        volume = Volume(shape=(self.side, self.side), pixel_size=HEAD_PIXEL if head else 1.0)
        geometry = scanner(volume, views=self.views, arc=math.radians(self.arc))
        image: Any = self.kind
        if head:
            slices = np.load(data_folder() / "head_ct_hu_slices.npz", allow_pickle=False)["slices_hu"]
            image = np.maximum(1 + slices[self.seed] / 1000, 0)
        return simulate(image, geometry, noise=level, seed=self.seed)


FIRST = (
    Case("ellipses", 40, 20, 0.05, 11),
    Case("ellipses", 64, 30, 4096, 101),
    Case("rectangles", 32, 20, 0.05, 102),
    Case("rectangles", 64, 15, 0.02, 103),
    Case("walnut", 40, 40, 0.02, 11),
    Case("walnut", 64, 60, 0.05, 104),
    Case("shepp-logan", 48, 30, 0.03, 105),
    Case("ellipses", 48, 30, 0.03, 106, 120),
    Case("kmnist", 28, 20, 0.05, 50),
    Case("kmnist", 28, 5, 0.05, 51),
    Case("kmnist", 28, 10, 0.1, 52),
    Case("kmnist", 28, 30, 0.05, 53),
    Case("head", 64, 40, 4096, 3),
    Case("rectangles", 40, 10, 0.1, 116),
)
SECOND = (
    Case("ellipses", 32, 10, 0.1, 17),
    Case("ellipses", 64, 60, 0.01, 108),
    Case("ellipses", 40, 30, 500, 109),
    Case("rectangles", 48, 30, 0.01, 17),
    Case("rectangles", 40, 40, 0.03, 110, 90),
    Case("walnut", 48, 30, 0.03, 17),
    Case("walnut", 64, 30, 2000, 111),
    Case("shepp-logan", 64, 20, 0.05, 112),
    Case("kmnist", 28, 5, 0.1, 54),
    Case("kmnist", 28, 20, 0.1, 55),
    Case("kmnist", 28, 10, 0.05, 56),
    Case("kmnist", 28, 30, 0.1, 57),
    Case("head", 64, 40, 4096, 7),
    Case("ellipses", 28, 20, 0.05, 114),
    Case("walnut", 32, 20, 0.05, 115, 120),
)
THIRD = (
    "grains21-40-40v-3%",
    "cracks21-40-30v-5%",
    "shepp-logan11-64-30v-3%",
    "cracks22-64-40v-2%-90deg",
    "grains22-64-60v-1000ph",
    "rectangles17-48-30v-2000ph-fan",
    "head7-48-60v-1000ph",
    "neutron-64-30v",
)


def load(objects: str) -> dict[str, Scan]:
    """Scans by name; a measured one has its reference as a truth, which only scores what was chosen."""
    if objects != "third":
        cases = FIRST if objects == "first" else SECOND
        return {" ".join(str(part) for part in case): case.scan() for case in cases}
    scans = {}
    for item in CHOOSE:
        if item.label in THIRD:
            scan, comparison = make_scan(item)
            scans[item.label] = dataclasses.replace(scan, ground_truth=comparison.image.astype(np.float32))
    return scans


def study(name: str, scan: Scan, *, network: bool) -> dict[str, Any]:
    """PSNR of a sweep, of the default, of the strength that predicts best, and of the rule."""
    assert scan.ground_truth is not None
    truth, inside = scan.ground_truth, scan.evaluated
    transform, sinogram = ray_transform(scan.geometry), torch.as_tensor(scan.sinogram.copy())
    variance = torch.as_tensor(scan.variance_or_estimate()[0])
    start = time.perf_counter()
    choice = choose_tv_strength(transform, sinogram, variance, scan.geometry)
    seconds = time.perf_counter() - start
    solver = TvSolver(transform, sinogram[None], variance[None])
    quality = {}
    for strength in sorted({*SWEEP, DEFAULT_STRENGTH, choice.picked, choice.recommended}, reverse=True):
        solver.solve(strength, tolerance=1e-3, max_iterations=2000)
        quality[strength] = psnr(solver.images[0].numpy(), truth, inside)
    row: dict[str, Any] = {
        "name": name,
        "best strength": max(SWEEP, key=lambda strength: quality[strength]),
        "best": max(quality.values()),
        "default": quality[DEFAULT_STRENGTH],
        "picked strength": choice.picked,
        "picked": quality[choice.picked],
        "rule strength": choice.recommended,
        "rule": quality[choice.recommended],
        "seconds": seconds,
    }
    if network:
        settings = {"preset": None, "rule": choice.recommended, "half": choice.recommended / 2}
        for label, network_strength in settings.items():
            fit = fit_dip(scan, DipConfig(strength=network_strength), transform=transform)
            row[f"network, {label}"] = psnr(fit.image, truth, inside)
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--objects", choices=["first", "second", "third"], default="first")
    parser.add_argument("--network", action="store_true", help="fit networks, too")
    parser.add_argument("--out", type=Path, help="file that rows are appended to, as JSON")
    arguments = parser.parse_args()
    losses = []
    for name, scan in load(arguments.objects).items():
        row = study(name, scan, network=arguments.network)
        losses.append([row["best"] - row[key] for key in ("default", "picked", "rule")])
        numbers = {key: round(value, 2) for key, value in row.items() if key != "name"}
        print(f"{name}: {numbers}", flush=True)
        if arguments.out:
            with arguments.out.open("a") as file:
                print(json.dumps(row), file=file)
    for statistic, values in (("mean", np.mean(losses, axis=0)), ("worst", np.max(losses, axis=0))):
        print(f"{statistic} loss, dB: default {values[0]:.2f}, picked {values[1]:.2f}, rule {values[2]:.2f}")


if __name__ == "__main__":
    main()
