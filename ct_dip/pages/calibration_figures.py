"""Figures that ask whether error bars can be trusted; each needs a `Prediction` with a truth or a reference.

Every figure is readable at a width of 800 pixels, in colours (Okabe & Ito) that everybody can tell apart.
"""

from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter
from scipy.stats import norm

from ct_dip.arrays import Bools, Floats
from ct_dip.data.pixel_distribution import PixelDistribution
from ct_dip.data.prediction import Prediction
from ct_dip.data.scores import Mean, Part, PartScores
from ct_dip.errors import MissingPartError
from ct_dip.evaluation.bands import Band, enough_samples, sample_band
from ct_dip.evaluation.coverage import coverage_curve
from ct_dip.evaluation.near import near_object_of
from ct_dip.evaluation.residuals import (
    quantile_band,
    quantile_pairs,
    residual_histogram,
    standardised,
)
from ct_dip.evaluation.score import scores_of
from ct_dip.evaluation.sparsification import error_by_std, sparsification

BLUE, ORANGE, GREEN, GREY = "#0072B2", "#D55E00", "#009E73", "#666666"

_ALL, _NEAR = "all pixels", "inside or near the object"
_PARTS: dict[str, Part] = {_ALL: "all", _NEAR: "near"}
_STYLES = {_ALL: (BLUE, "--"), _NEAR: (ORANGE, "-")}
_FLOOR = 1e-3  # of the largest standard deviation: smaller errors are drawn there
_REACH = 4.0  # largest |z| that a histogram shows


class _Evaluation(NamedTuple):
    """An image with error bars, and what it is compared with."""

    name: str  # truth or reference
    image: Floats
    mean: Floats
    std: Floats  # with the noise of a reference
    distribution: PixelDistribution  # of (image − mean)/std
    samples: Floats | None  # likewise; if there are enough for a band
    near: Bools  # the object, and what is next to it
    seen: Bools  # pixels that are compared
    deviation: str  # what std is
    scores: dict[Part, PartScores]  # figures; curves alone are computed here

    @property
    def regions(self) -> dict[str, Bools]:
        """All pixels, and those of the object where that is a part of them."""
        part = self.near.any() and not (self.near == self.seen).all()
        return {_ALL: self.seen} | ({_NEAR: self.near} if part else {})

    def normal_scores(self, mask: Bools) -> Floats:
        """Return (image − mean)/std inside the mask, N(0, 1) if the error bars are right."""
        return self.distribution.normal_scores(standardised(self.image, self.mean, self.std, mask))

    @property
    def axis_label(self) -> str:
        """What `normal_scores` are."""
        ratio = f"({self.name} − mean) / {self.deviation}"
        return ratio if self.distribution.gaussian else f"normal score of the {self.name}"

    def quantile_band(self, mask: Bools) -> Band:
        """Return the band of the points of `quantile_pairs` inside the mask."""

        def observed(truth: Floats) -> Floats:
            return quantile_pairs(standardised(truth, self.mean, self.std, mask)).observed

        if self.samples is None:
            return quantile_band(int(np.count_nonzero(mask)))
        return sample_band(observed, self.samples)


def calibration_figure(result: Prediction) -> Figure:
    """Plot nominal against empirical coverage, over all pixels and inside or near the object, with bands.

    A band is where 95 % of calibrated models would be at that level; see `ct_dip.evaluation.bands`.
    """
    evaluation = _evaluation(result)
    figure = Figure(figsize=(6.4, 6.2), layout="constrained")
    axis = figure.add_subplot()
    axis.plot([0, 1], [0, 1], color=GREY, linewidth=1, label="calibrated")
    for name, mask in evaluation.regions.items():
        colour, style = _STYLES[name]
        curve = coverage_curve(
            evaluation.image,
            evaluation.mean,
            evaluation.std,
            mask=mask,
            samples=evaluation.samples,
            distribution=evaluation.distribution,
        )
        label = f"{name} ({curve.pixels})"
        axis.plot(curve.levels, curve.empirical, style, color=colour, linewidth=2, label=label)
        _fill(axis, curve.levels, curve.band, colour)
    axis.text(0.97, 0.03, "overconfident", ha="right", color=GREY, style="italic")
    axis.text(0.03, 0.97, "underconfident", va="top", color=GREY, style="italic")
    axis.set(xlim=(0, 1), ylim=(0, 1), aspect="equal")
    axis.set_xlabel("nominal level of the interval")
    axis.set_ylabel(f"fraction of pixels whose {evaluation.name} is inside it")
    for direction in (axis.xaxis, axis.yaxis):
        direction.set_major_formatter(PercentFormatter(1.0, symbol=" %"))
    axis.set_title("Do the intervals cover what they promise?")
    _legend(figure, axis, columns=1)
    return figure


def std_error_figure(result: Prediction) -> Figure:
    """Plot the absolute error of every pixel against its standard deviation, with means of equal bins.

    On log axes a calibrated model's means lie on a line, ``√(2/π) std`` if it is Gaussian. Errors below a
    thousandth of the largest deviation are drawn there.
    """
    evaluation = _evaluation(result)
    figure = Figure(figsize=(8, 5.6), layout="constrained")
    axis = figure.add_subplot()
    top = float(evaluation.std.max())
    floor = _FLOOR * top
    std = np.maximum(evaluation.std, floor)[evaluation.seen]
    error = np.maximum(np.abs(evaluation.image - evaluation.mean), floor)[evaluation.seen]
    density = axis.hexbin(
        std, error, xscale="log", yscale="log", gridsize=38, mincnt=1, bins="log", cmap="Greys", vmin=0.3
    )
    # A single pixel is light grey, not white.
    figure.colorbar(density, ax=axis, label="pixels").ax.set_ylim(bottom=1)
    ends = np.array([std.min(), std.max()])
    expected, reach = evaluation.distribution.mean_absolute, evaluation.distribution.reach(0.95)
    label = f"calibrated: mean |error| = {expected:.2f} std"
    axis.plot(ends, expected * ends, color=GREEN, linewidth=2, label=label)
    axis.plot(ends, reach * ends, ":", color=GREEN, linewidth=2, label="calibrated: 95 % are below")
    binned = error_by_std(evaluation.image, evaluation.mean, evaluation.std, mask=evaluation.seen)
    axis.errorbar(
        np.maximum(binned.std, floor),
        np.maximum(binned.error, floor),
        yerr=2 * binned.standard_error,
        fmt="o-",
        color=ORANGE,
        capsize=3,
        label="mean |error| in bins, ± 2 standard errors",
    )
    axis.set_ylim(0.8 * floor, 2 * max(error.max(), expected * top))
    axis.set_xlabel(f"{evaluation.deviation} (1/mm)")
    axis.set_ylabel(
        f"|{evaluation.name} − mean| (1/mm)" if evaluation.name == "reference" else "absolute error (1/mm)"
    )
    axis.set_title("Are the uncertain pixels the wrong ones?")
    _legend(figure, axis)
    return figure


def residual_figure(result: Prediction) -> Figure:
    """Plot a histogram of the standardised residuals and N(0, 1), on a linear and a logarithmic axis."""
    evaluation = _evaluation(result)
    figure = Figure(figsize=(8, 4.4), layout="constrained")
    linear, logarithmic = figure.subplots(1, 2)
    grid = np.linspace(-_REACH, _REACH, 201)
    smallest = []
    for name, mask in evaluation.regions.items():
        colour, style = _STYLES[name]
        z = evaluation.normal_scores(mask)
        histogram = residual_histogram(z, limit=_REACH, bins=32)
        smallest.append(0.5 / z.size / np.diff(histogram.edges)[0])
        label = f"{name}: rms {_figure(evaluation.scores[_PARTS[name]].rms_z)}"
        label += f", {100 * histogram.outside:.1f} % beyond ±{_REACH:g}"
        for axis in (linear, logarithmic):
            axis.stairs(
                histogram.density, histogram.edges, color=colour, linestyle=style, linewidth=1.8, label=label
            )
    for axis in (linear, logarithmic):
        axis.plot(grid, norm.pdf(grid), color=GREY, linewidth=1.5, label="N(0, 1)")
        axis.set_xlim(-_REACH, _REACH)
        axis.set_xlabel(evaluation.axis_label)
        axis.set_ylabel("density")
    logarithmic.set_yscale("log")
    logarithmic.set_ylim(bottom=min(smallest))
    linear.set_title("The bulk")
    logarithmic.set_title("The tails: log axis")
    _legend(figure, linear)
    return figure


def quantile_figure(result: Prediction) -> Figure:
    """Plot quantiles of the standardised residuals against N(0, 1), with bands of 95 % at every point."""
    evaluation = _evaluation(result)
    figure = Figure(figsize=(6.4, 6.2), layout="constrained")
    axis = figure.add_subplot()
    for name, mask in evaluation.regions.items():
        colour, _ = _STYLES[name]
        z = evaluation.normal_scores(mask)
        pairs = quantile_pairs(z)
        band = evaluation.quantile_band(mask)
        marker = "s" if name == _ALL else "o"
        axis.plot(
            pairs.normal, pairs.observed, marker, color=colour, markersize=3, label=f"{name} ({z.size})"
        )
        _fill(axis, pairs.normal, band, colour)
    low, high = axis.get_xlim()
    axis.plot([low, high], [low, high], color=GREY, linewidth=1, zorder=1, label="N(0, 1)")
    axis.set_xlim(low, high)
    axis.set_xlabel("quantile of N(0, 1)")
    axis.set_ylabel(f"quantile of {evaluation.axis_label}")
    axis.set_title("Standardised residuals, quantile by quantile")
    _legend(figure, axis, columns=1)
    return figure


def sparsification_figure(result: Prediction) -> Figure:
    """Plot the mean absolute error of what remains when the most uncertain pixels are removed."""
    evaluation = _evaluation(result)
    regions = evaluation.regions
    figure = Figure(figsize=(8 if len(regions) > 1 else 5.5, 4.4), layout="constrained")
    axes = figure.subplots(1, len(regions), squeeze=False)[0]
    for axis, (name, mask) in zip(axes, regions.items(), strict=True):
        curve = sparsification(
            evaluation.image,
            evaluation.mean,
            evaluation.std,
            mask=mask,
            distribution=evaluation.distribution,
        )
        axis.plot(curve.removed, curve.error, color=ORANGE, linewidth=2, label="most uncertain first")
        axis.plot(
            curve.removed, curve.oracle, "--", color=BLUE, linewidth=2, label="oracle: largest error first"
        )
        axis.plot(
            curve.removed, curve.expected, "-.", color=GREEN, linewidth=1.5, label="what the model expects"
        )
        axis.axhline(curve.error[0], color=GREY, linestyle=":", linewidth=1.5, label="at random")
        axis.set(xlim=(0, 1), ylim=(0, None))
        axis.xaxis.set_major_formatter(PercentFormatter(1.0, symbol=" %"))
        axis.ticklabel_format(axis="y", style="plain")
        axis.set_xlabel("pixels removed")
        part = evaluation.scores[_PARTS[name]]
        axis.set_title(f"{name}\nAUSE {_figure(part.ause)}, at random {_figure(part.ause_of_no_knowledge)}")
    against = "" if evaluation.name == "truth" else ",\nagainst the reference"
    axes[0].set_ylabel(f"mean absolute error of the rest{against} (1/mm)")
    _legend(figure, axes[0])
    return figure


def _evaluation(result: Prediction) -> _Evaluation:
    if result.std is None:
        raise MissingPartError(
            f"this {result.method} result has no standard deviations to calibrate; reconstruct with lin-dip"
        )
    compared = result.comparison
    if compared is None:
        raise MissingPartError(
            "this result has no truth to compare with; simulate a scan, or reconstruct with a reference"
        )
    if not result.std.any():
        raise MissingPartError("every standard deviation is 0: there is nothing to compare the errors with")
    samples = result.samples
    if samples is not None:
        samples = compared.in_its_place(samples) if enough_samples(len(samples)) else None
    scores = scores_of(result)
    assert scores is not None  # there is something to compare with
    return _Evaluation(
        name=compared.name,
        image=compared.image,
        mean=result.mean,
        std=compared.widened(result.std),
        distribution=result.pixel_distribution,
        samples=samples,
        near=near_object_of(result),
        seen=result.evaluated,
        deviation="√(std² + noise²)" if compared.noise_std else "standard deviation",
        scores=scores.parts,
    )


def _fill(axis: Axes, x: Floats, band: Band, colour: str) -> None:
    """Draw a band, and name it once in the legend by the way it was found."""
    how = "from posterior samples" if band.source == "samples" else "as if pixels were independent"
    label = f"shaded: 95 % of calibrated models, {how}"
    named = label in axis.get_legend_handles_labels()[1]
    axis.fill_between(
        x,
        band.lower,
        band.upper,
        color=colour,
        alpha=0.18,
        linewidth=0,
        label="_" if named else label,
    )


def _legend(figure: Figure, axis: Axes, columns: int = 2) -> None:
    """Place the legend below the axes, where no curve is."""
    handles, labels = axis.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=columns, frameon=False)


def _figure(value: Mean | float | None) -> str:
    value = value.value if isinstance(value, Mean) else value
    return "–" if value is None else f"{value:.2f}"
