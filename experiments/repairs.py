"""Repairs of sinograms beside algotom's, on simulated stripes and outliers, and on clean scans.

``pip install '.[peers]'``, then ``CT_DIP_DATA=… python -m experiments.repairs``

Stripes: 4 % of the detectors read a constant too much or too little, 1 to 5 % of the largest line integral.
Outliers: 0.1 % of the readings are too large by 20 to 100 % of it. Figures are rms differences from the scan
before stripes or outliers, in deviations of its noise: 0 is a perfect repair, and right for a clean scan.
"""

from collections.abc import Callable

import numpy as np

from benchmarks.object_list import Item, make_scan
from ct_dip.arrays import Floats
from ct_dip.geometry import Geometry
from ct_dip.preprocess.outliers import remove_outliers
from ct_dip.preprocess.stripes import remove_stripes

# Generated seeds and images that no list has.
SCANS = (
    Item("ellipses", 128, 180, "20000ph", seed=201),
    Item("grains", 128, 180, "20000ph", seed=202),
    Item("walnut", 128, 180, "20000ph", seed=203),
    Item("rectangles", 128, 180, "20000ph", seed=204),
    Item("head", 128, 180, "20000ph", which="4", seed=205),
    Item("ellipses", 64, 60, "4096ph", seed=206),
    Item("walnut", 64, 60, "4096ph", seed=207),
    Item("grains", 64, 60, "4096ph", seed=208),
)
Repair = Callable[[Floats, Geometry], Floats]


def repairs() -> dict[str, dict[str, Repair]]:
    """Return the repairs of each kind of error, by name; those of algotom with its defaults."""
    from algotom.prep import removal

    return {
        "stripes": {
            "ours": lambda p, geometry: remove_stripes(p, geometry)[0],
            "sorting": lambda p, _: removal.remove_stripe_based_sorting(p),
            "normalization": lambda p, _: removal.remove_stripe_based_normalization(p),
            "filtering": lambda p, _: removal.remove_stripe_based_filtering(p),
            "all": lambda p, _: removal.remove_all_stripe(p),
        },
        "outliers": {
            "ours": lambda p, _: remove_outliers(p)[0],
            "zinger": lambda p, _: removal.remove_zinger(p, threshold=0.1),
        },
    }


def errors_of(kind: str, sinogram: Floats, random: np.random.Generator) -> Floats:
    """Draw stripes or outliers for a sinogram."""
    largest, columns = float(sinogram.max()), sinogram.shape[1]
    if kind == "stripes":
        bad = random.random(columns) < 0.04
        sizes = random.uniform(0.01, 0.05, columns) * random.choice([-1, 1], columns)
        return np.zeros(sinogram.shape) + largest * np.where(bad, sizes, 0)
    hit = random.random(sinogram.shape) < 0.001
    return largest * np.where(hit, random.uniform(0.2, 1, hit.shape), 0)


def main() -> None:
    """Print a table for stripes and one for outliers."""
    for kind, by_name in repairs().items():
        print(f"\n| scan | {kind} | {' | '.join(by_name)} | clean scans, in this order |")
        print("| --- " * (len(by_name) + 3) + "|")
        for item in SCANS:
            scan, _ = make_scan(item)
            assert scan.variance is not None
            clean, noise = scan.sinogram.astype(np.float64), np.sqrt(scan.variance)
            wrong = clean + errors_of(kind, clean, np.random.default_rng(item.seed))

            def left(found: Floats, clean: Floats = clean, noise: Floats = noise) -> str:
                return f"{float(np.sqrt((((found - clean) / noise) ** 2).mean())):.2f}"

            mended = [left(repair(wrong, scan.geometry)) for repair in by_name.values()]
            touched = [left(repair(clean.copy(), scan.geometry)) for repair in by_name.values()]
            cells = [item.label, left(wrong), *mended, ", ".join(touched)]
            print(f"| {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
