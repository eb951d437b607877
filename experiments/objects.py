"""Error bars on objects of many kinds: how temper and complement were chosen, and what they are worth.

``CT_DIP_DATA=… python -m experiments.objects [--set inference.temper=0.2] [--cases walnut-64 …]``

Generated objects against their truth, and measured scans, of which no benchmark reports error bars, against a
reference with noise of its own. Printed are the log-likelihood of single pixels, and how much 95 % intervals
hold: of all pixels, of those in or near the object, and of means over blocks of 4×4 and 8×8 pixels there.
"""

import argparse
from typing import NamedTuple

import numpy as np
from scipy.stats import norm

from ct_dip.arrays import Bools, Floats
from ct_dip.data.scan import Scan
from ct_dip.data.simulate import NoiseLevel, simulate
from ct_dip.dip.fit import fit_dip
from ct_dip.evaluation.coverage import coverage
from ct_dip.evaluation.near import near_object
from ct_dip.geometry import Volume
from ct_dip.methods import load_config
from ct_dip.operators import ray_transform
from ct_dip.posterior.fit import fit_posterior
from ct_dip.scanners import scanner
from experiments.measured_calibration import local_rms, scan_and_references


class Object(NamedTuple):
    """What is scanned, and how."""

    name: str  # of a phantom, or of a scan of HTC 2022
    side: int
    views: int
    noise: float | None = None  # relative; ``None`` for a measured scan
    seed: int = 0

    @property
    def label(self) -> str:
        """Name and size."""
        return f"{self.name}-{self.side}"

    def scan(self) -> tuple[Scan, Floats, Floats]:
        """The scan, truth or reference, and an image of noise like the latter's."""
        if self.noise is None:
            return scan_and_references(self.name, views=self.views, pixels=self.side)
        geometry = scanner(Volume(shape=(self.side, self.side)), views=self.views)
        scan = simulate(self.name, geometry, noise=NoiseLevel(relative=self.noise), seed=self.seed)
        assert scan.ground_truth is not None
        truth = scan.ground_truth.astype(np.float64)
        return scan, truth, np.zeros_like(truth)


OBJECTS = (
    Object("ellipses", 32, 30, 0.05, 7),
    Object("walnut", 32, 20, 0.05, 8),
    Object("ellipses", 40, 20, 0.05, 4),
    Object("ellipses", 48, 40, 0.02, 6),
    Object("walnut", 48, 30, 0.03, 5),
    Object("ellipses", 64, 30, 0.05, 1),
    Object("walnut", 64, 30, 0.03, 3),
    Object("ellipses", 128, 60, 0.05, 1),
    Object("04c", 64, 30),
    Object("01a", 128, 30),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", nargs="+", choices=[o.label for o in OBJECTS], help="all if not given")
    parser.add_argument("--set", action="append", default=[], help="section.key=value")
    arguments = parser.parse_args()
    config = load_config(method="lin-dip", preset="auto", settings=arguments.set)
    print("object         log-lik.  all   near  4×4   8×8")
    for each in OBJECTS:
        if arguments.cases and each.label not in arguments.cases:
            continue
        scan, truth, noise = each.scan()
        own = config.with_preset(scan.geometry.domain_shape)
        transform = ray_transform(scan.geometry)
        fit = fit_dip(scan, own.dip, transform=transform)
        posterior = fit_posterior(fit, scan, own.inference, transform=transform)
        inside = scan.evaluated
        std = np.hypot(posterior.std, local_rms(noise, inside))
        measured = each.noise is None  # its reference is noise where nothing is
        near = near_object(posterior.mean if measured else truth, inside, noisy=measured)
        score = np.mean(norm.logpdf(truth[inside], posterior.mean[inside], std[inside]))
        held = [_held(truth, posterior.mean, std, mask) for mask in (inside, near)]
        spread = posterior.sample(100) - posterior.mean
        for width in (4, 8):
            whole = _blocks(near.astype(float), width) == 1
            averaged = np.sqrt(np.mean(_blocks(noise, width)[whole] ** 2))  # neighbours are not independent
            block = np.hypot(_blocks(spread, width).std(axis=0), averaged)
            held.append(_held(_blocks(truth, width), _blocks(posterior.mean, width), block, whole))
        print(f"{each.label:14s} {score:8.3f}  {'  '.join(f'{h:.3f}'.lstrip('0') for h in held)}", flush=True)


def _held(truth: Floats, mean: Floats, std: Floats, mask: Bools) -> float:
    return float(coverage(truth, mean, std, [0.95], mask)[0]) if mask.any() else float("nan")


def _blocks(images: Floats, width: int) -> Floats:
    """Means over squares of pixels, (…, rows, columns) → (…, rows / width, columns / width)."""
    rows, columns = (size // width for size in images.shape[-2:])
    part = images[..., : rows * width, : columns * width]
    found: Floats = part.reshape(*images.shape[:-2], rows, width, columns, width).mean(axis=(-3, -1))
    return found


if __name__ == "__main__":
    main()
