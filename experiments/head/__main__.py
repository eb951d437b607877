"""Head CT slices at three doses: do error bars grow as the errors do?

``CT_DIP_DATA=… python -m experiments.head [--cases 2-500ph …] [--methods tv …] --out DIR``

Photon noise alone would make errors and deviations grow with ``1/√dose``. After the table of all rows, a
second one has both relative to those at the largest dose.
"""

import math
from collections.abc import Iterable
from functools import partial

from benchmarks.measure import Row
from benchmarks.object_list import Item, make_scan
from experiments.study import COLUMNS, Case, run_study

SLICES = (2, 6)  # on no list that settings were chosen or are reported on
PHOTONS = (500, 1000, 4096)
CASES = [
    Case(
        f"{which}-{photons}ph",
        partial(make_scan, Item("head", 64, 60, f"{photons}ph", str(which), seed=which)),
    )
    for which in SLICES
    for photons in PHOTONS
]
DEVIATIONS = {"rmse_near": ("rms error", ".2e"), "mean_std_near": ("mean std", ".2e")}


def dose_table(rows: Iterable[Row]) -> str:
    """Return errors and deviations near the object, relative to those at the largest dose, in Markdown."""
    found = {(row.details["method"], *row.details["label"].split("-")): row.details for row in rows}
    lines = ["| slice | method | photons | 1/√dose | rms error | mean std |", "| --- " * 6 + "|"]
    for (method, which, dose), figures in found.items():
        most = found.get((method, which, f"{PHOTONS[-1]}ph"))
        photons = int(dose.removesuffix("ph"))
        if most is None or photons == PHOTONS[-1] or "error" in most | figures:
            continue
        ratios = [
            f"{figures[name] / most[name]:.2f}" if figures.get(name) and most.get(name) else "–"
            for name in DEVIATIONS
        ]
        law = f"{math.sqrt(PHOTONS[-1] / photons):.2f}"
        lines.append(f"| {' | '.join([which, method, str(photons), law, *ratios])} |")
    return "\n".join(lines)


if __name__ == "__main__":
    print(f"\n{dose_table(run_study('head', CASES, about=__doc__, columns=COLUMNS | DEVIATIONS))}")
