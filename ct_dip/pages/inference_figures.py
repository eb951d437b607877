"""Figures of one `lin-dip` result: its images, its samples, and how the fit of the model went.

Every figure is readable at a width of 800 pixels. Images of one quantity share one scale.
"""

import math
import re
from typing import Any

import numpy as np
from matplotlib import patheffects
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, NullFormatter, StrMethodFormatter
from scipy.stats import norm

from ct_dip.arrays import Floats
from ct_dip.data.prediction import Prediction
from ct_dip.errors import MissingPartError
from ct_dip.evaluation.residuals import residual_histogram
from ct_dip.pages.calibration_figures import BLUE, GREY, ORANGE
from ct_dip.pages.figures import show_image
from ct_dip.quality import psnr

_ATTENUATION = "attenuation (1/mm)"
# What e^{θ/2} is relative to; every θ that belongs to no block is the logarithm of a variance.
_COMMON = {
    "log_scale": "prior of the weights\n(× size of the fitted weights)",
    "log_variance": "prior of the weights",
    "log_g": "g-prior of the weights",
    "log_complement": "complement\n(× its own scale)",
    "log_noise": "noise\n(× what the scan states)",
}
_PANELS = {
    "log_variance": ("Prior of the weights", "standard deviation"),
    "log_length": ("Correlation of filter taps", "length (taps)"),
    "model": ("The whole model", "standard deviation, or its ratio"),
}


def panel_figure(result: Prediction) -> Figure:
    """Draw FBP, DIP, posterior mean and standard deviation, and the truth or reference and the error."""
    std, seen = _std(result), result.evaluated
    compared = result.comparison
    images = {
        "FBP": _needed(result, "fbp", result.images.get("fbp")),
        "DIP": _needed(result, "dip", result.images.get("dip")),
        "posterior mean": result.mean,
    }
    if compared is not None:
        images[compared.name] = compared.image
    images = {name: np.where(seen, image, np.nan) for name, image in images.items()}
    compared_image = None if compared is None else images[compared.name]
    # The scale follows the truth if there is one: a reconstruction may overshoot.
    exact = compared is not None and compared.name == "truth"
    low, high = _range(np.stack([*images.values()]) if compared_image is None else compared_image, exact)

    columns = 2 if compared_image is None else 3
    rows, across = result.mean.shape
    height = 2 * ((8 / columns - 0.6) * min(rows / across, 2) + 1.15)
    figure = Figure(figsize=(8, max(height, 4.4)), layout="constrained")
    axes = figure.subplots(2, columns)
    cells = iter(axes.flat)
    for name, image in images.items():
        axis = next(cells)
        shown = show_image(axis, image, result.pixel_size, vmin=low, vmax=high, cmap="gray")
        quality = (
            f", {psnr(image, compared_image, seen):.1f} dB"
            if compared_image is not None and image is not compared_image
            else ""
        )
        axis.set_title(name + quality)
        _bar(figure, axis, shown, _ATTENUATION)
    if compared is not None:
        error = result.difference(compared)
        shown = show_image(axis := next(cells), error, result.pixel_size, cmap="RdBu_r", **_symmetric(error))
        axis.set_title(f"posterior mean − {compared.name}")
        _bar(figure, axis, shown, "error (1/mm)" if exact else "difference (1/mm)")
    inside = np.where(seen, std, np.nan)
    shown = show_image(axis := next(cells), inside, result.pixel_size, vmin=0, cmap="viridis")
    axis.set_title("standard deviation")
    _bar(figure, axis, shown, "standard deviation (1/mm)")
    for axis in axes.flat:
        axis.label_outer()
    _scale_bar(axes[0, 0], across * result.pixel_size)
    return figure


def samples_figure(result: Prediction, *, count: int = 4) -> Figure:
    """Draw samples of the posterior, and how each differs from the mean.

    Args:
        count: how many, at most.
    """
    samples = np.where(result.evaluated, _needed(result, "samples", result.samples)[:count], np.nan)
    low, high = _range(samples, False)
    rows, across = result.mean.shape
    height = 2 * (6.2 / max(len(samples), 2) * min(rows / across, 2) + 0.5)
    figure = Figure(figsize=(8, max(height, 3.6)), layout="constrained")
    axes = figure.subplots(2, len(samples), squeeze=False)
    differences = samples - result.mean
    for number, (top, bottom) in enumerate(axes.T):
        image = show_image(top, samples[number], result.pixel_size, vmin=low, vmax=high, cmap="gray")
        top.set_title(f"sample {number + 1}")
        limits = _symmetric(differences)
        change = show_image(bottom, differences[number], result.pixel_size, cmap="RdBu_r", **limits)
        bottom.set_title("minus the mean")
    for axis in axes.flat:
        axis.label_outer()
    figure.colorbar(image, ax=axes[0], label=_ATTENUATION)
    figure.colorbar(change, ax=axes[1], label="difference (1/mm)")
    _scale_bar(axes[0, 0], across * result.pixel_size)
    return figure


def evidence_figure(result: Prediction) -> Figure:
    """Plot the best objective after every evaluation, and where every start of the search ended."""
    if "evidence" not in result.traces:
        raise MissingPartError(f"this {result.method} result has no evidence; reconstruct with lin-dip")
    trace = result.traces["evidence"]
    figure = Figure(figsize=(8, 4), layout="constrained")
    axis = figure.add_subplot()
    axis.step(
        np.arange(1, len(trace) + 1), trace, ".-", where="post", color=BLUE, linewidth=2, label="best so far"
    )
    ends = [
        end for end in result.diagnostics.get("evidence_starts", []) if end is not None
    ]  # None: it failed
    for number, end in enumerate(ends):
        label = f"where each of {len(ends)} starts ended" if len(ends) > 1 else "where the search ended"
        label = label if number == 0 else "_"
        axis.axhline(end, color=ORANGE, linestyle="--", linewidth=1, label=label)
    axis.set_xlabel("evaluations")
    axis.set_ylabel("log evidence + log hyperprior (nats)")
    axis.xaxis.set_major_locator(MaxNLocator(integer=True))
    axis.ticklabel_format(axis="y", useOffset=False)
    spread = f"; starts differ by {np.ptp(ends):.2g} nats" if len(ends) > 1 else ""
    title = f"The search for hyperparameters ends at {trace[-1]:.1f}{spread}"
    axis.set_title(title.replace(" -", " −"))
    axis.legend(loc="center right")
    return figure


def hyperparameters_figure(result: Prediction) -> Figure:
    """Plot the fitted hyperparameters: deviation and tap length of every block, and the whole model's.

    A variance is shown by its root. A model whose blocks share one scale has the last panel only.
    """
    hyperparameters: dict[str, float] = result.diagnostics.get("hyperparameters", {})
    if not hyperparameters:
        raise MissingPartError(
            f"this {result.method} result has no hyperparameters; reconstruct with lin-dip"
        )
    panels: dict[str, dict[str, float]] = {"log_variance": {}, "log_length": {}, "model": {}}
    for key in sorted(hyperparameters, key=_order):
        kind, _, block = key.partition(".")
        size = math.exp(hyperparameters[key] if kind == "log_length" else hyperparameters[key] / 2)
        panels.setdefault(kind if block else "model", {})[block or _COMMON.get(key, key)] = size
    blocks, model = list(panels["log_variance"]), list(panels["model"])
    rows = [["log_variance", "log_length"]] * bool(blocks) + [["model"] * (1 + bool(blocks))] * bool(model)
    heights = [1.0 + 0.36 * len(blocks)] * bool(blocks) + [1.0 + 0.5 * len(model)] * bool(model)
    figure = Figure(figsize=(8, sum(heights)), layout="constrained")
    axes: dict[str, Axes] = figure.subplot_mosaic(rows, height_ratios=heights)  # type: ignore[arg-type]
    for kind, axis in axes.items():
        _dots(axis, model if kind == "model" else blocks, panels[kind], *_PANELS[kind])
    if blocks:
        axes["log_length"].tick_params(labelleft=False)  # the blocks are those on the left
    if model:
        axes["model"].axvline(1, color=GREY, linewidth=1)
    return figure


def sinogram_figure(result: Prediction) -> Figure:
    """Draw what the posterior mean leaves unexplained in the sinogram, in units of the noise.

    Noise without structure, within ±3, is what a good model leaves. Its mean square is a little below 1,
    since the image has followed some of the noise.
    """
    residuals = _needed(
        result, "sinogram", result.sinogram and result.sinogram.standardised
    )  # (views, detectors)
    figure = Figure(figsize=(8, 4), layout="constrained")
    image, bars = figure.subplots(1, 2, width_ratios=[3, 2])
    views, detectors = residuals.shape
    extent = (-0.5, detectors - 0.5, views - 0.5, -0.5)
    shown = image.imshow(
        residuals, aspect="auto", extent=extent, interpolation="nearest", cmap="RdBu_r", vmin=-4, vmax=4
    )
    figure.colorbar(shown, ax=image, label="(measured − mean) / noise", extend="both")
    image.set_xlabel("detector")
    image.set_ylabel("view")
    image.yaxis.set_major_locator(MaxNLocator(integer=True))
    image.set_title("Residuals of the sinogram")
    histogram = residual_histogram(residuals.ravel(), limit=4, bins=32)
    grid = np.linspace(-4, 4, 201)
    bars.stairs(histogram.density, histogram.edges, fill=True, color=BLUE, alpha=0.5, label="residuals")
    bars.plot(grid, norm.pdf(grid), color=ORANGE, linewidth=2, label="N(0, 1)")
    bars.set_xlabel("(measured − mean) / noise")
    bars.set_ylabel("density")
    bars.set_title(f"mean square {np.mean(residuals**2):.2f}")
    bars.set_ylim(top=1.3 * max(histogram.density.max(), norm.pdf(0)))  # room for the legend
    bars.legend(loc="upper left")
    return figure


def _std(result: Prediction) -> Floats:
    if result.std is None:
        raise MissingPartError(
            f"this {result.method} result has no standard deviation; reconstruct with lin-dip"
        )
    return result.std


def _needed(result: Prediction, name: str, values: Floats | None) -> Floats:
    if values is None or not len(values):
        raise MissingPartError(f"this {result.method} result has no {name}; reconstruct with lin-dip")
    return values


def _range(images: Floats, all_of_it: bool) -> tuple[float, float]:
    """Choose the grey scale: all values, or all but the extreme pixels."""
    low, high = np.nanquantile(images, [0.0, 1.0] if all_of_it else [0.005, 0.998])
    return float(low), float(high)


def _symmetric(values: Floats) -> dict[str, float]:
    largest = float(np.nanquantile(np.abs(values), 0.995)) or 1.0
    return {"vmin": -largest, "vmax": largest}


def _bar(figure: Figure, axis: Axes, shown: Any, label: str) -> None:
    bar = figure.colorbar(shown, ax=axis, location="bottom", label=label, shrink=0.9, aspect=25)
    bar.ax.xaxis.set_major_locator(MaxNLocator(4))


def _scale_bar(axis: Axes, width: float) -> None:
    """Draw a scale bar of 1, 2 or 5 · 10ᵏ mm, at most a third of the width of the image."""
    power = 10.0 ** math.floor(math.log10(width / 3))
    length = max(step * power for step in (1, 2, 5) if step * power <= width / 3)
    left, right = axis.get_xlim()
    bottom, top = axis.get_ylim()
    start, level = left + 0.07 * (right - left), bottom + 0.07 * (top - bottom)
    outline = [patheffects.withStroke(linewidth=5, foreground="black")]
    axis.plot([start, start + length], [level, level], color="white", linewidth=3, path_effects=outline)
    axis.text(
        start,
        level + 0.03 * (top - bottom),
        f"{length:g} mm",
        color="white",
        ha="left",
        va="bottom",
        path_effects=[patheffects.withStroke(linewidth=2.5, foreground="black")],
    )
    axis.set_xlim(left, right)
    axis.set_ylim(bottom, top)


def _dots(axis: Axes, names: list[str], values: dict[str, float], title: str, label: str) -> None:
    """Draw one value per line on a log axis, first on top; a name without a value keeps its line."""
    for line, name in enumerate(names):
        if name in values:
            at = values[name], line
            axis.plot(*at, "o", color=BLUE)
            axis.annotate(f"{values[name]:.3g}", at, xytext=(7, 4), textcoords="offset points")
    axis.set_yticks(range(len(names)), names)
    axis.set_ylim(len(names) - 0.5, -0.7)
    axis.grid(axis="y", color="#dddddd")
    axis.set_xscale("log")
    numbers = list(values.values()) or [1.0]
    low, high = math.log10(min(numbers) / 1.2), math.log10(3 * max(numbers))
    axis.set_xlim(10.0 ** math.floor(low), 10.0 ** math.ceil(high))
    axis.xaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
    axis.xaxis.set_minor_formatter(NullFormatter())
    axis.set_xlabel(label)
    axis.set_title(title)


def _order(key: str) -> tuple[int, int, int, str]:
    """Sort hyperparameters as the network goes: in, down0, …, up0, skip0, …, out; last the model."""
    block = re.match(r"\w+\.([a-z]+)(\d*)", key)
    if block is None:
        return 9, list(_COMMON).index(key) if key in _COMMON else 99, 0, key
    kind, number = block.groups()
    return {"in": 0, "down": 1, "up": 2, "skip": 2}.get(kind, 3), int(number or 0), kind == "skip", key
