"""Total variation with weights of photons alone, with one level for all rays, and with our default.

``CT_DIP_DATA=… python -m experiments.photon_weights [--side 64] [--photons 500,4096,100000]``

The default is photons and a constant (`ct_dip.data.noise.unexplained_variance`). Scans are simulated on a
grid three times as fine, 60 views, with objects of no report; figures are PSNR in dB, preset ``fast``.
"""

import argparse
import dataclasses

import numpy as np

from benchmarks.object_list import Item, make_scan
from ct_dip.arrays import Floats
from ct_dip.data.noise import WhiteNoise, third_difference_ratio
from ct_dip.data.scan import Scan
from ct_dip.pipeline import reconstruct

# Kind: seed, and which of its images.
OBJECTS = {
    "walnut": (3, ""),
    "grains": (22, ""),
    "cracks": (22, ""),
    "ellipses": (1, ""),
    "rectangles": (17, ""),
    "head": (11, "3"),
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Stated(WhiteNoise):
    """A variance of every ray that nothing is added to."""

    values: Floats

    def variance(self, sinogram: Floats) -> Floats:
        """Return it as it was given."""
        return self.values


def quality(scan: Scan) -> float:
    """Reconstruct a scan, and return its PSNR."""
    scores = reconstruct(scan, "tv", preset="fast").scores
    assert scores is not None
    assert scores.psnr is not None
    return scores.psnr.value


def row(kind: str, side: int, photons: int) -> str:
    """Return one line of the table."""
    seed, which = OBJECTS[kind]
    scan, _ = make_scan(Item(kind, side, 60, f"{photons}ph", which=which, seed=seed))
    assert scan.variance is not None
    typical = float(np.sqrt(np.median(scan.variance)))
    images = [
        quality(dataclasses.replace(scan, noise=noise))
        for noise in (Stated(std=typical, values=scan.variance), WhiteNoise(std=typical), scan.noise)
    ]
    third = third_difference_ratio(scan.sinogram, scan.variance)
    return f"| {kind}, {photons:,} | {third:.2f} | {' | '.join(f'{each:.2f}' for each in images)} |"


def main() -> None:
    """Print the table, row by row."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--side", type=int, default=64)
    parser.add_argument("--photons", default="500,4096,100000")
    arguments = parser.parse_args()
    print("| object, photons | third differences | photons alone | one level | photons and a constant |")
    print("| --- | --- | --- | --- | --- |")
    for photons in arguments.photons.split(","):
        for kind in OBJECTS:
            print(row(kind, arguments.side, int(photons)), flush=True)


if __name__ == "__main__":
    main()
