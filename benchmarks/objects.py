"""Image and error bars on objects of many kinds, those of `benchmarks.object_list`, beside FBP and TV.

``CT_DIP_DATA=… python -m benchmarks objects [--list report] [--cases walnut …] [--set tv.strength=1]``

Settings are the defaults. PSNR and SSIM are those of FBP, of TV with its default strength and with the best
of `STRENGTHS` by the truth, which no user has, of the network's own image, and of the image shown. The table
has coverage in and near the object: of pixels, and at 95 % of means over blocks of 4×4 and 8×8 of them; JSON
has all figures. The verdict is the report's without the truth. With ``--out FILE`` every row is kept as soon
as it is finished, and not measured again.
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
from ct_dip.data.prediction import Prediction
from ct_dip.evaluation.score import score
from ct_dip.methods import find_method, load_config
from ct_dip.pages.findings import data_findings
from ct_dip.pages.verdicts import verdict
from ct_dip.pipeline import reconstruct

METHODS = ("fbp", "tv", "lin-dip")
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
    kept = KeptRows(arguments.out, lambda row: (row.case, *row.details["settings"]))
    for item in pick(LISTS[arguments.list], arguments.cases, quick=arguments.quick):
        yield kept.get((item.label, *arguments.set), partial(measure, item, arguments.set))


def spell(row: Row) -> str:
    """A line of the table whose head is `HEADER`."""
    values = [row.details.get(name) for name in COLUMNS]
    formats = [form for _, form in COLUMNS.values()]
    cells = ["–" if v is None else format(v, form) for v, form in zip(values, formats, strict=True)]
    return " ".join([f"{row.case:{WIDTH}s}", *(f"{cell:>7s}" for cell in cells)])


def measure(item: Item, settings: list[str]) -> Row:
    """Reconstruct one scan with every method, and compare."""
    scan, comparison = make_scan(item)
    known: dict[str, Any] = {}
    if comparison.name == "reference":
        known = {"reference": comparison.image, "reference_std": comparison.noise_std}
    figures: dict[str, Any] = {"kind": item.kind, "compared_with": comparison.name, "settings": settings}

    def predict(method: str, *more: str) -> Prediction:
        config = load_config(method=method, preset="balanced", settings=[*_read_by(method, settings), *more])
        start, cpu = time.perf_counter(), time.process_time()
        prediction: Prediction = reconstruct(scan, config, **known)
        figures[f"seconds_{method}"] = time.perf_counter() - start
        figures[f"cpu_seconds_{method}"] = time.process_time() - cpu  # without what other processes took
        return prediction

    def note(name: str, image: Prediction) -> None:
        row = score(image, comparison, scan.evaluated).row()
        figures.update({f"psnr_{name}": row["psnr"], f"ssim_{name}": row["ssim"]})

    sweep = {strength: predict("tv", f"tv.strength={strength}") for strength in STRENGTHS}
    best = max(sweep, key=lambda strength: _psnr(sweep[strength]))
    figures["best_tv_strength"] = best
    note("best_tv", sweep[best])
    note("tv", predict("tv"))
    note("fbp", predict("fbp"))
    shown = predict("lin-dip")
    note("dip", Prediction(mean=shown.images["dip"]))
    figures["seconds_dip"] = sum(shown.seconds[stage] for stage in ("ray transform", "deep image prior"))
    for scores in (shown.scores, shown.heldout):
        figures |= {} if scores is None else scores.row()
    figures["verdict"] = verdict(shown, None, data_findings(shown)).level
    for name in ("steps", "misfit", "stopped_by", "regime", "sigma_y", "sigma_y_stated", "evidence"):
        figures[name] = shown.diagnostics[name]
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


def _psnr(prediction: Prediction) -> float:
    scores = prediction.scores
    return -math.inf if scores is None or scores.psnr is None else scores.psnr.value


def _read_by(method: str, settings: list[str]) -> list[str]:
    """Those of the settings that a method reads; views are held out of the last one's data only."""
    sections = {name: set(find_method(name).config.sections()) for name in METHODS}
    others = set().union(*sections.values()) - sections[method]
    if method != METHODS[-1]:
        others.add("check")
    return [setting for setting in settings if setting.partition("=")[0].partition(".")[0] not in others]
