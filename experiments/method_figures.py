"""Every method on one generated scan: the figures and the costs of docs/which-method.md.

``python -m experiments.method_figures [--results FOLDER] [--docs docs]``

Ellipses of 40² pixels, 20 views, 5 % noise, seed 0; settings are the defaults of each method. Results are
kept in ``--results``; a method whose result is there is not run again.
"""

import argparse
import dataclasses
import time
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from ct_dip.arrays import Floats
from ct_dip.data.prediction import Prediction
from ct_dip.data.result_file import read_result, write_result
from ct_dip.data.scan import Scan
from ct_dip.data.simulate import NoiseLevel, simulate
from ct_dip.geometry import Volume
from ct_dip.methods import load_config
from ct_dip.pages.figures import save_png
from ct_dip.pipeline import reconstruct
from ct_dip.scanners import scanner

FAMILIES = {
    "classical": ("fbp", "cgls", "tv", "bootstrap"),
    "pixels": ("tv-gauss", "tv-langevin", "gmrf", "lmrf", "matern-gp"),
    "spread": ("dip", "dip-mll", "mc-dropout", "ensemble", "snapshot", "swag"),
    "weights": (
        *("laplace-diag", "laplace-kfac", "laplace-last-layer", "laplace-subnetwork"),
        *("sgld", "mfvi", "sparse-vd"),
    ),
    "linearised": ("lin-dip", "lin-dip-paper", "lin-ensemble"),
}
COLUMNS = {
    "psnr": ".1f",
    "coverage_50_near": ".2f",
    "coverage_95_near": ".2f",
    "log_likelihood_1": ".2f",
    "crps_near": ".2e",
}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m experiments.method_figures", description=__doc__)
    parser.add_argument("--results", type=Path, default=Path("method-results"))
    parser.add_argument("--docs", type=Path, default=Path("docs"), help="where the figures go")
    arguments = parser.parse_args()
    arguments.results.mkdir(exist_ok=True)
    print("| method |", " | ".join(COLUMNS), "| CPU s |")
    for family, methods in FAMILIES.items():
        predictions = {}
        for method in methods:
            predictions[method] = result(method, arguments.results / f"{method}.h5")
            print(line(method, predictions[method]), flush=True)
        save_png(family_figure(predictions), arguments.docs / f"methods-{family}.png", dpi=80)


def example_scan() -> Scan:
    """Simulate the scan that every method is shown on."""
    geometry = scanner(Volume(shape=(40, 40)), views=20)
    return simulate("ellipses", geometry, noise=NoiseLevel(relative=0.05), seed=0)


def result(method: str, path: Path) -> Prediction:
    """Read the result that is there, or make it; ``cpu_seconds`` are among its diagnostics."""
    if path.exists():
        return read_result(path)
    start = time.process_time()
    prediction = reconstruct(example_scan(), load_config(method=method)).plain()
    facts = prediction.diagnostics | {"cpu_seconds": time.process_time() - start}
    prediction = dataclasses.replace(prediction, diagnostics=facts)
    write_result(prediction, path)
    return prediction


def line(method: str, prediction: Prediction) -> str:
    """Return a line of the table of scores and costs."""
    assert prediction.scores is not None
    row = prediction.scores.row()
    cells = ["–" if row[name] is None else format(row[name], form) for name, form in COLUMNS.items()]
    return f"| {' | '.join([method, *cells, format(prediction.diagnostics['cpu_seconds'], '.1f')])} |"


def family_figure(predictions: dict[str, Prediction]) -> Figure:
    """Draw image, error bar and error of some methods, a column each, on scales that all figures share.

    Error bars and errors have one scale: an honest error bar is as dark as the errors around it.
    """
    truth = example_scan().ground_truth
    assert truth is not None
    high = float(truth.max())
    figure = Figure(figsize=(1.75 * len(predictions) + 1.1, 5.6), layout="constrained")
    axes = figure.subplots(3, len(predictions), squeeze=False)
    for axis in axes.flat:
        axis.set_xticks([])
        axis.set_yticks([])
    for column, (method, prediction) in zip(axes.T, predictions.items(), strict=True):
        assert prediction.scores is not None
        assert prediction.scores.psnr is not None
        column[0].set_title(f"{method}\n{prediction.scores.psnr.value:.1f} dB", fontsize=10)
        grey = column[0].imshow(prediction.mean, vmin=0, vmax=high, cmap="gray", interpolation="nearest")
        panels: list[Floats | None] = [prediction.std, np.abs(prediction.mean - truth)]
        for axis, values in zip(column[1:], panels, strict=True):
            if values is None:
                axis.text(0.5, 0.5, "no error bars", ha="center", va="center", transform=axis.transAxes)
                axis.set_box_aspect(1)
            else:
                shown = axis.imshow(values, vmin=0, vmax=high / 4, cmap="magma_r", interpolation="nearest")
    for axis, label in zip(axes[:, 0], ("image", "error bar (1 std)", "|image − truth|"), strict=True):
        axis.set_ylabel(label)
    pad = 0.1 / len(predictions)  # a share of the width
    figure.colorbar(grey, ax=axes[0], label="1/mm", pad=pad)
    figure.colorbar(shown, ax=axes[1:], label="1/mm", extend="max", shrink=0.5, pad=pad)
    return figure


if __name__ == "__main__":
    main()
