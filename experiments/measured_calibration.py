"""Error bars of a measured scan, held against a reference that has noise of its own.

``CT_DIP_DATA=… python -m experiments.measured_calibration --name 02b --views 60 --pixels 256 --out DIR``

A measured scan has no ground truth. The *reference* is FBP of all 720 views with all detectors, on a finer
grid, averaged over our pixels. Its own noise is estimated from two half-scans: FBP of the even and of the odd
views differ by twice the noise of FBP of all. That noise is larger where rays lost more, so it is taken from
the pixels around each one; the report, which knows one number, has its root mean square. Compared are pixels
inside the field of view. Settings are the defaults. Those of the network were chosen on 02b (30 views, 128²)
and others, those of the error bars on 01a, 04c and others.
"""

import argparse
import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
from scipy.ndimage import uniform_filter

from benchmarks.kmnist import data_folder
from ct_dip.arrays import Bools, Floats
from ct_dip.cli.console import ConsoleProgress
from ct_dip.data.comparison import Comparison
from ct_dip.data.result_file import write_result
from ct_dip.data.scan import Scan
from ct_dip.evaluation.score import score
from ct_dip.importers.reference import reference_image
from ct_dip.methods import load_config
from ct_dip.pages.all_figures import figures
from ct_dip.pages.report_page import write_report
from ct_dip.pipeline import reconstruct
from experiments.real_scans import field_of_view, load_htc

WIDTH = 76.0
FULL_VIEWS = 720
NEIGHBOURS = 9  # pixels across the squares in which the noise of the reference is estimated


def scan_and_references(name: str, *, views: int, pixels: int) -> tuple[Scan, Floats, Floats]:
    """Few views in bins as wide as a pixel, the reference, and an image of noise like its own, in 1/mm."""
    full = load_htc(data_folder() / "htc2022" / f"htc2022_{name}_full.mat", pixels=pixels, width=WIDTH)
    finer = max(1, 512 // pixels)
    reference = reference_image(full, filter="hann", finer=finer)
    even, odd = (
        reference_image(full.select_views(slice(first, None, 2)), filter="hann", finer=finer)
        for first in (0, 1)
    )
    inside = field_of_view(full)
    few = full.bin_detectors(finer).select_views(slice(None, None, FULL_VIEWS // views))
    return dataclasses.replace(few, mask=inside), reference, (even - odd) / 2


def local_rms(values: Floats, inside: Bools) -> Floats:
    """Over the neighbours of every pixel that are inside; 0 outside."""
    squares, counts = (
        uniform_filter(np.where(inside, part, 0.0), NEIGHBOURS) for part in (values.astype(float) ** 2, 1.0)
    )
    return np.where(inside, np.sqrt(np.maximum(squares, 0) / np.maximum(counts, 1e-12)), 0.0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--name", default="02b")
    parser.add_argument("--views", type=int, default=60)
    parser.add_argument("--pixels", type=int, default=256)
    parser.add_argument("--set", action="append", default=[], help="section.key=value")
    parser.add_argument("--out", type=Path, default=Path("measured_calibration"))
    arguments = parser.parse_args()
    scan, reference, like_noise = scan_and_references(
        arguments.name, views=arguments.views, pixels=arguments.pixels
    )
    inside = scan.mask
    assert inside is not None
    noise = local_rms(like_noise, inside)
    typical = float(np.sqrt(np.mean(noise[inside] ** 2)))
    config = load_config(method="lin-dip", preset="auto", settings=arguments.set)
    arguments.out.mkdir(parents=True, exist_ok=True)
    result = reconstruct(
        scan,
        config,
        reference=reference,
        reference_std=typical,
        progress=ConsoleProgress(),
        run_folder=arguments.out / "run",
    )
    write_result(result, arguments.out / "result.h5")
    write_report(arguments.out / "report.html", result, source=scan.source)
    figures(result, arguments.out / "figures")
    scores = result.scores
    assert result.std is not None
    assert scores is not None
    exact = Comparison(name="reference", image=reference)  # whose noise is in the deviations, or in nothing
    widened = dataclasses.replace(result.plain(), std=np.hypot(result.std, noise), samples=None)
    held = {
        what: {str(level): mean.value for level, mean in each.parts["all"].coverage.items()}
        for what, each in {
            "coverage": score(widened, exact, inside),
            "coverage_if_its_noise_is_the_same_everywhere": scores,
            "coverage_if_its_noise_is_ignored": score(result, exact, inside),
        }.items()
    }
    summary: dict[str, Any] = {"psnr": scores.row()["psnr"]}
    summary |= {key: result.diagnostics[key] for key in ("sigma_y", "sigma_y_stated")} | held
    summary |= {
        "reference_noise": typical,
        "reference_noise_5_and_95_percent": np.quantile(noise[inside], [0.05, 0.95]).tolist(),
        "mean_std": float(result.std[inside].mean()),
        "rms_difference": scores.parts["all"].rmse.value,
        "effective_dimension": result.diagnostics["effective_dimension"],
        "certificate": result.diagnostics["certificate"],
        "seconds": result.seconds,
        "peak_memory_mb": result.diagnostics["peak_memory_mb"],
    }
    print(json.dumps(summary, indent=2))


if __name__ == "__main__":
    main()
