"""Every method on the same scans: image, error bars, time and memory.

``CT_DIP_DATA=… python -m benchmarks methods [--list report] [--cases ellipses …] [--methods tv-gauss …]``

Settings are the defaults of each method. The reference is lin-dip on the same scan, and what is compared is
the log-likelihood of single pixels in nats; the ratio is that of the densities. With ``--out FILE`` every row
is kept as soon as it is finished, and not measured again. A method that fails has a row that says why, and is
measured again by the next run.
Settings may follow a method's name: ``lin-dip:inference.calibrate=none,inference.objective=optimum``.
"""

import argparse
import math
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.kept_rows import KeptRows
from benchmarks.measure import Row
from benchmarks.object_list import LISTS, Item, make_scan, pick
from ct_dip import memory
from ct_dip.config import RunConfig
from ct_dip.data.prediction import Prediction
from ct_dip.data.scan import Scan
from ct_dip.errors import CtDipError
from ct_dip.methods import load_config, method_names
from ct_dip.pipeline import reconstruct

REFERENCE = "lin-dip"
KMNIST = tuple(Item("kmnist", 28, 20, "5%", which=str(i), seed=i) for i in range(10))
COLUMNS = {
    "psnr": ("PSNR", ".2f"),
    "ssim": ("SSIM", ".3f"),
    "coverage_50_near": ("50 %", ".2f"),
    "coverage_90_near": ("90 %", ".2f"),
    "coverage_95_near": ("95 %", ".3f"),
    "coverage_95_blocks_4": ("4×4", ".2f"),
    "coverage_95_blocks_8": ("8×8", ".2f"),
    "log_likelihood_1": ("nats", ".2f"),
    "log_likelihood_1_near": ("near", ".2f"),
    "crps_near": ("CRPS", ".2e"),
    "cpu_seconds": ("CPU s", ".1f"),
    "peak_memory_mb": ("MB", ".0f"),
}
WIDTH = 44  # of the column of labels
HEADER = " ".join([" " * WIDTH, *(f"{title:>8s}" for title, _ in COLUMNS.values())])


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--list", choices=(*LISTS, "kmnist"), default="choose", help="default: choose")
    parser.add_argument("--quick", action="store_true", help="the scans of the slice of ten minutes")
    parser.add_argument("--cases", nargs="+", metavar="LABEL", help="or how it begins; all if not given")
    parser.add_argument(
        "--methods",
        nargs="+",
        default=method_names(),
        metavar="NAME[:SECTION.KEY=VALUE,...]",
        help="all if not given",
    )
    parser.add_argument("--out", type=Path, help="file of JSON lines to add rows to, and to go on from")


def run(arguments: argparse.Namespace) -> Iterator[Row]:
    kept = KeptRows(arguments.out, lambda row: row.case)
    items = KMNIST if arguments.list == "kmnist" else LISTS[arguments.list]
    for item in pick(items, arguments.cases, quick=arguments.quick):
        best = None
        for method in sorted(arguments.methods, key=lambda name: name != REFERENCE):
            row = kept.get(f"{item.label}: {method}", partial(measure, item, method, best))
            best = row.value if method == REFERENCE else best
            yield row


def spell(row: Row) -> str:
    """A line of the table whose head is `HEADER`."""
    if "error" in row.details:
        return f"{row.case:{WIDTH}s} {row.details['error']}"
    values = [(row.details.get(name), form) for name, (_, form) in COLUMNS.items()]
    cells = ["–" if value is None else format(value, form) for value, form in values]
    return " ".join([f"{row.case:{WIDTH}s}", *(f"{cell:>8s}" for cell in cells)])


def measure(item: Item, method: str, best: float | None) -> Row:
    """Reconstruct one scan by one method.

    Args:
        method: its name, and settings after a colon.
        best: log-likelihood of the reference, if it is known.
    """
    scan, comparison = make_scan(item)
    known: dict[str, Any] = {}
    if comparison.name == "reference":
        known = {"reference": comparison.image, "reference_std": comparison.noise_std}
    figures: dict[str, Any] = {"kind": item.kind, "method": method, "compared_with": comparison.name}
    name, _, settings = method.partition(":")
    config = load_config(method=name, preset="balanced", settings=settings.split(",") if settings else [])
    figures |= scored(scan, config, **known)
    found = figures.get("log_likelihood_1")
    return Row(
        benchmark="methods",
        case=f"{item.label}: {method}",
        reference=REFERENCE if best is not None else None,
        reference_value=best,
        value=math.nan if found is None else found,
        unit="nats",
        ratio=None if best is None or found is None else math.exp(found - best),
        details=figures,
    )


def scored(scan: Scan, config: RunConfig, **known: Any) -> dict[str, Any]:
    """Reconstruct a scan, and return scores, CPU seconds and peak memory, or the error that it ended with.

    Args:
        known: what `ct_dip.pipeline.reconstruct` is told of a reference.
    """
    return predicted(scan, config, **known)[1]


def predicted(scan: Scan, config: RunConfig, **known: Any) -> tuple[Prediction | None, dict[str, Any]]:
    """Reconstruct a scan, and return the prediction, if there is one, beside what `scored` returns."""
    memory.give_back()  # of the method before, which would count as this one's
    start = time.process_time()
    try:
        prediction = reconstruct(scan, config, **known)
    except CtDipError as error:
        return None, {"error": str(error)}
    assert prediction.scores is not None
    figures = {"cpu_seconds": time.process_time() - start, **prediction.scores.row()}
    return prediction, figures | {"peak_memory_mb": prediction.diagnostics.get("peak_memory_mb")}
