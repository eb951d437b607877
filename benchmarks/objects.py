"""Image and error bars on objects of many kinds, those of `benchmarks.object_list`, beside FBP and TV.

``CT_DIP_DATA=… python -m benchmarks objects [--list report] [--cases walnut …] [--set tv.strength=1]``

Settings are the defaults. PSNR and SSIM are those of FBP, of TV with its default strength and with the best
of `STRENGTHS` by the truth, which no user has, of the network's own image, and of the image shown. The table
has coverage in and near the object: of pixels, and at 95 % of means over blocks of 4×4 and 8×8 of them; JSON
has all figures. The verdict is the report's without the truth. With ``--out FILE`` every row is kept as soon
as it is finished, and not measured again.
"""

import argparse
import json
import time
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import norm

from benchmarks.measure import Row
from benchmarks.object_list import LISTS, Item, make_scan
from ct_dip.arrays import Bools, Floats
from ct_dip.config import METHODS, SECTIONS, load_config
from ct_dip.data.comparison import Comparison
from ct_dip.data.result import Result
from ct_dip.data.scan import Scan
from ct_dip.evaluation.coverage import coverage
from ct_dip.evaluation.near import near_object
from ct_dip.evaluation.residuals import standardised
from ct_dip.pipeline import reconstruct
from ct_dip.quality import psnr, ssim
from ct_dip.report.verdicts import data_findings, measurements, structure, verdict

STRENGTHS = (0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 12.8)
COLUMNS = {
    "psnr_fbp": ("FBP", ".1f"),
    "psnr_tv": ("TV", ".1f"),
    "psnr_best_tv": ("best", ".1f"),
    "psnr_dip": ("DIP", ".1f"),
    "psnr": ("shown", ".1f"),
    "ssim_tv": ("SSIM TV", ".2f"),
    "ssim": ("shown", ".2f"),
    "coverage_50_near": ("50 %", ".2f"),
    "coverage_90_near": ("90 %", ".2f"),
    "coverage_95_near": ("95 %", ".3f"),
    "coverage_95_blocks_4": ("4×4", ".2f"),
    "coverage_95_blocks_8": ("8×8", ".2f"),
    "largest_z": ("max |z|", ".1f"),
    "log_likelihood_1": ("nats", ".2f"),
    "verdict": ("verdict", "s"),
    "seconds_lin-dip": ("s", ".0f"),
}
WIDTH = 31  # of the column of labels
HEADER = " ".join([" " * WIDTH, *(f"{title:>7s}" for title, _ in COLUMNS.values())])


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--list", choices=LISTS, default="choose", help="default: choose")
    parser.add_argument("--quick", action="store_true", help="a slice of ten minutes on two cores")
    parser.add_argument("--cases", nargs="+", metavar="LABEL", help="or how it begins; all if not given")
    parser.add_argument("--set", action="append", default=[], help="section.key=value")
    parser.add_argument("--out", type=Path, help="file of JSON lines to add rows to, and to go on from")


def run(arguments: argparse.Namespace) -> Iterator[Row]:
    out: Path | None = arguments.out
    known = {} if out is None or not out.exists() else _read(out)
    for item in LISTS[arguments.list]:
        if (arguments.quick and not item.quick) or not item.label.startswith(tuple(arguments.cases or [""])):
            continue
        row = known.get((item.label, *arguments.set))
        if row is None:
            row = measure(item, arguments.set)
            if out is not None:
                with out.open("a") as file:
                    file.write(json.dumps(row.as_dict(), ensure_ascii=False) + "\n")
        yield row


def spell(row: Row) -> str:
    """A line of the table whose head is `HEADER`."""
    values = [row.details.get(name) for name in COLUMNS]
    formats = [form for _, form in COLUMNS.values()]
    cells = ["–" if v is None else format(v, form) for v, form in zip(values, formats, strict=True)]
    return " ".join([f"{row.case:{WIDTH}s}", *(f"{cell:>7s}" for cell in cells)])


def measure(item: Item, settings: list[str]) -> Row:
    """Reconstruct one scan with every method, and compare."""
    scan, comparison = make_scan(item)
    inside = scan.evaluated
    figures: dict[str, Any] = {"kind": item.kind, "compared_with": comparison.name, "settings": settings}

    def note(name: str, image: Floats, seconds: float | None = None) -> None:
        figures[f"psnr_{name}"] = psnr(image, comparison.image, inside)
        figures[f"ssim_{name}"] = ssim(image, comparison.image, inside)
        if seconds is not None:
            figures[f"seconds_{name}"] = seconds

    note("fbp", *_timed(scan, "fbp", settings))
    note("tv", *_timed(scan, "tv", settings))
    sweep = {s: _timed(scan, "tv", [*settings, f"tv.strength={s}"])[0] for s in STRENGTHS}
    best = max(sweep, key=lambda strength: psnr(sweep[strength], comparison.image, inside))
    note("best_tv", sweep[best])
    figures["best_tv_strength"] = best
    start, cpu = time.perf_counter(), time.process_time()
    result = _reconstruct(scan, "lin-dip", settings)
    figures["seconds_lin-dip"] = time.perf_counter() - start
    figures["cpu_seconds_lin-dip"] = time.process_time() - cpu  # which does not depend on other processes
    network = ("ray transform", "deep image prior")
    note("dip", result.arrays["dip"], sum(result.seconds[stage] for stage in network))
    figures |= scores(result, comparison, inside)
    found = data_findings(result.metrics, measurements(result), structure(result))
    figures["verdict"] = verdict(result, None, found).level
    for name in ("steps", "misfit", "stopped_by", "regime", "sigma_y", "sigma_y_stated", "evidence"):
        figures[name] = result.metrics[name]
    return Row(
        benchmark="objects",
        case=item.label,
        reference="TV",
        reference_value=figures["psnr_tv"],
        value=figures["psnr"],
        unit="dB",
        ratio=10 ** ((figures["psnr"] - figures["psnr_tv"]) / 20),  # of root mean squared errors
        details=figures,
    )


def scores(result: Result, comparison: Comparison, mask: Bools) -> dict[str, float | None]:
    """What is known of image and error bars, by name."""
    assert result.std is not None
    mean, std = result.mean.astype(np.float64), comparison.widened(result.std)
    measured = comparison.name == "reference"
    near = near_object(mean if measured else comparison.image, mask, noisy=measured)
    found: dict[str, float | None] = {
        "psnr": psnr(mean, comparison.image, mask),
        "ssim": ssim(mean, comparison.image, mask),
        "log_likelihood_1": float(np.mean(norm.logpdf(comparison.image[mask], mean[mask], std[mask]))),
        "largest_z": float(np.abs(standardised(comparison.image, mean, std, mask)).max()),
    }
    levels = (0.5, 0.9, 0.95)
    for ending, part in {"": mask, "_near": near}.items():
        covered = coverage(comparison.image, mean, std, levels, part)
        found |= {
            f"coverage_{round(100 * p)}{ending}": float(c) for p, c in zip(levels, covered, strict=True)
        }
    for width in (4, 8):
        whole = _blocks(near.astype(float), width) == 1
        spread = _blocks(result.arrays["samples"] - mean, width).std(axis=0)
        deviation = np.hypot(spread, comparison.noise_std / width)
        parts = _blocks(comparison.image, width), _blocks(mean, width), deviation
        for level in levels:
            share = float(coverage(*parts, [level], whole)[0]) if whole.any() else None
            found[f"coverage_{round(100 * level)}_blocks_{width}"] = share
    return found


def _blocks(images: Floats, width: int) -> Floats:
    """Means over squares of pixels, (…, rows, columns) → (…, rows / width, columns / width)."""
    rows, columns = (size // width for size in images.shape[-2:])
    whole = images[..., : rows * width, : columns * width]
    return np.asarray(whole.reshape(*images.shape[:-2], rows, width, columns, width).mean(axis=(-3, -1)))


def _reconstruct(scan: Scan, method: str, settings: list[str]) -> Result:
    """With those of the settings that the method reads."""
    read: Any = METHODS[method]  # type: ignore[index]
    sections = [setting.partition("=")[0].partition(".")[0] for setting in settings]
    own = [
        setting
        for setting, section in zip(settings, sections, strict=True)
        if section in read or section not in SECTIONS
    ]
    return reconstruct(scan, load_config(method=method, settings=own))


def _timed(scan: Scan, method: str, settings: list[str]) -> tuple[Floats, float]:
    """Image, and seconds that it took."""
    start = time.perf_counter()
    return _reconstruct(scan, method, settings).mean, time.perf_counter() - start


def _read(path: Path) -> dict[tuple[str, ...], Row]:
    """Rows by label and settings."""
    own = {field.name for field in fields(Row)}
    known = {}
    for line in path.read_text().splitlines():
        values = json.loads(line)
        details = {name: values.pop(name) for name in list(values) if name not in own}
        row = Row(**values, details=details)
        known[(row.case, *details["settings"])] = row
    return known
