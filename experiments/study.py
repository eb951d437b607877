"""What the studies of single scans share: cases, methods, rows that are kept, a table and pictures.

A study is a list of cases, run as ``python -m experiments.NAME [--cases LABEL …] [--methods …] --out DIR``.
Every row is kept in ``DIR/rows.jsonl`` as soon as it is measured, its images beside it. A second run measures
what is missing or has failed; ``--kept`` measures nothing and shows what is there.
"""

import argparse
import functools
import math
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from benchmarks.kept_rows import KeptRows
from benchmarks.measure import Row, plain
from benchmarks.methods import predicted
from ct_dip.data.comparison import Comparison
from ct_dip.data.prediction import Prediction
from ct_dip.data.scan import Scan
from ct_dip.evaluation.near import near_object_of
from ct_dip.evaluation.score import score
from ct_dip.files import atomic_path
from ct_dip.memory import keep_freed
from ct_dip.methods import load_config
from ct_dip.methods.dip import STAGE
from ct_dip.methods.tv import CHOICE
from ct_dip.pages.figures import reconstruction_panel, save_png

METHODS = ("fbp", "tv", "dip", "lin-dip")
DIAGNOSTICS = ("steps", "stopped_by", "misfit", "sigma_y", "sigma_y_stated", "regime")  # kept, not shown
COLUMNS = {
    "psnr": ("PSNR, dB", ".2f"),
    "ssim": ("SSIM", ".3f"),
    "coverage_50_near": ("50 % near", ".2f"),
    "coverage_95_near": ("95 % near", ".3f"),
    "cpu_seconds": ("CPU s", ".0f"),
    "peak_memory_mb": ("MB", ".0f"),
}
Columns = Mapping[str, tuple[str, str]]  # titles and formats, by the name of a figure


@dataclass(frozen=True)
class Case:
    """One scan of a study.

    Args:
        label: which names files, too.
        make: gives the scan, and the truth or reference that images are compared with.
        network: settings of the methods that fit a network, as ``dip.preset=medium``.
        figures: gives further figures of a prediction, by name.
    """

    label: str
    make: Callable[[], tuple[Scan, Comparison]]
    network: tuple[str, ...] = ()
    figures: Callable[[Prediction], dict[str, float]] = lambda prediction: {}


def run_study(
    name: str, cases: Sequence[Case], *, about: str | None, columns: Columns = COLUMNS
) -> list[Row]:
    """Measure what the command line asks for, draw every case, and print the table; return its rows."""
    parser = argparse.ArgumentParser(prog=f"python -m experiments.{name}", description=about)
    parser.add_argument("--cases", nargs="+", default=[""], metavar="LABEL", help="or how it begins")
    parser.add_argument("--methods", nargs="+", default=list(METHODS), metavar="NAME")
    parser.add_argument("--out", type=Path, default=Path(name), help=f"folder, default {name}")
    parser.add_argument("--kept", action="store_true", help="measure nothing, show what is there")
    arguments = parser.parse_args()
    for start in arguments.cases:
        if not any(case.label.startswith(start) for case in cases):
            labels = ", ".join(case.label for case in cases)
            parser.error(f"--cases {start}: no case begins like this; choose from {labels}")
    keep_freed()  # as the command line does
    arguments.out.mkdir(parents=True, exist_ok=True)
    kept, rows = KeptRows(arguments.out / "rows.jsonl", lambda row: row.case), []
    for case in cases:
        if not case.label.startswith(tuple(arguments.cases)):
            continue
        make = functools.cache(case.make)  # once for all methods
        found = {}
        for method in sorted(arguments.methods, key=lambda method: method == "dip"):  # after lin-dip
            key = f"{case.label}: {method}"
            if not arguments.kept:
                found[method] = kept.get(key, partial(measure, name, case, method, make, arguments.out))
                print(cells(found[method], columns), file=sys.stderr, flush=True)
            elif key in kept.known:
                found[method] = kept.known[key]
        rows += [found[method] for method in arguments.methods if method in found]
        if (figure := draw(case.label, arguments.methods, arguments.out)) is not None:
            save_png(figure, arguments.out / f"{case.label}.png", dpi=70)
    print(table(rows, columns))
    return rows


def measure(
    study: str, case: Case, method: str, make: Callable[[], tuple[Scan, Comparison]], folder: Path
) -> Row:
    """Reconstruct one scan by one method, and keep its images.

    The network's image, from which `lin-dip` starts, is that of `dip`: it is kept, and not fitted again.
    """
    scan, comparison = make()
    if method == "dip" and (path := _images(folder, case.label, method)).exists():
        arrays = np.load(path)
        network = Prediction(mean=arrays["mean"], mask=scan.evaluated)
        scores = score(network, comparison, scan.evaluated).row()
        prediction: Prediction | None = network
        figures: dict[str, Any] = {"cpu_seconds": float(arrays["seconds"]), **scores}
    else:
        known: dict[str, Any] = {}
        if comparison.name == "reference":
            known = {"reference": comparison.image, "reference_std": comparison.noise_std}
        settings = case.network if "dip" in method else ()
        config = load_config(method=method, preset="balanced", settings=list(settings))
        prediction, figures = predicted(scan, config, **known)
    if prediction is not None:
        figures |= case.figures(prediction)
        figures |= {name: prediction.diagnostics.get(name) for name in DIAGNOSTICS}
        figures["image"] = (prediction.settings.get("inference") or {}).get("image")  # which one is shown
        images: dict[str, Any] = {
            "mask": scan.evaluated,
            "pixel_size": scan.geometry.volume.pixel_size,
            comparison.name: comparison.image,
        }
        if method == "lin-dip":
            seconds = sum(prediction.seconds[stage] for stage in ("ray transform", CHOICE, STAGE))
            keep_images(folder, case.label, "dip", mean=prediction.images["dip"], seconds=seconds, **images)
        if prediction.std is not None:
            figures["mean_std_near"] = float(prediction.std[near_object_of(prediction)].mean())
            images["std"] = prediction.std
        keep_images(folder, case.label, method, mean=prediction.mean, **images)
    about = {"label": case.label, "method": method, "reference_noise": comparison.noise_std}
    return plain(study, f"{case.label}: {method}", figures.get("psnr") or math.nan, "dB", **about, **figures)


def keep_images(folder: Path, label: str, method: str, **images: Any) -> None:
    """Write the images of a method beside the rows."""
    with atomic_path(_images(folder, label, method)) as path, path.open("wb") as file:
        np.savez_compressed(file, **images)


def _images(folder: Path, label: str, method: str) -> Path:
    return folder / f"{label}-{method}.npz"


def draw(label: str, methods: Iterable[str], folder: Path) -> Figure | None:
    """Draw the kept images of a case side by side, with the last deviations; nothing if there are none."""
    paths = {method: _images(folder, label, method) for method in methods}
    kept = {method: dict(np.load(path)) for method, path in paths.items() if path.exists()}
    if not kept:
        return None
    *_, last = kept.values()
    stds = [arrays["std"] for arrays in kept.values() if "std" in arrays]
    measured = "reference" in last
    return reconstruction_panel(
        {method: arrays["mean"] for method, arrays in kept.items()},
        pixel_size=float(last["pixel_size"]),
        std=stds[-1] if stds else None,
        truth=last["reference" if measured else "truth"],
        truth_name="reference" if measured else "ground truth",
        mask=last["mask"],
        title=f"{folder.name}: {label}",
    )


def table(rows: Iterable[Row], columns: Columns = COLUMNS) -> str:
    """Return the rows as a table in Markdown."""
    titles = ["case", "method", *(title for title, _ in columns.values())]
    lines = [titles, ["---"] * len(titles), *(cells(row, columns) for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def cells(row: Row, columns: Columns) -> list[str]:
    """Return the cells of a row; a dash where a method has no such figure, or why it failed."""
    found = row.details
    values = [(found.get(name), form) for name, (_, form) in columns.items()]
    shown = ["–" if value is None else format(value, form) for value, form in values]
    return [found["label"], found["method"], *([found["error"]] if "error" in found else shown)]
