"""Matplotlib figures: each function returns a `Figure` and touches no global state."""

import io
import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.text import Text

from ct_dip.arrays import Bools, Floats
from ct_dip.files import write_bytes
from ct_dip.quality import psnr
from ct_dip.text import shortened

_DARK_PAPER, _DARK_INK = "#1d2127", "#e8ebee"  # as in report.css
_NOTHING = "#3b4048"  # where there is no pixel: white would be taken for dense material
_CHARACTERS_PER_INCH = 7  # of a figure's title that surely fit: capitals are wider than the average


def reconstruction_panel(
    images: Mapping[str, Floats],
    *,
    pixel_size: float,
    std: Floats | None = None,
    truth: Floats | None = None,
    truth_name: str = "ground truth",
    mask: Bools | None = None,
    title: str | None = None,
) -> Figure:
    """Draw images side by side on one grey scale, with the truth and the errors where it is known.

    Args:
        images: (rows, columns) in 1/mm, by name.
        pixel_size: mm, for the axes.
        std: standard deviation of an image, in 1/mm; adds a panel: beside a single image, below the truth
            if there are several.
        truth: adds a panel with the truth, and one with the error of every image: beside a single
            image, below several.
        truth_name: ``reference`` for a measured scan, which has no ground truth.
        mask: the only pixels that are shown, that the PSNR in the titles counts, and that set the scales.
    """
    if mask is not None and not mask.all():
        images = {name: np.where(mask, image, np.nan) for name, image in images.items()}
        std = None if std is None else np.where(mask, std, np.nan)
        truth = None if truth is None else np.where(mask, truth, np.nan)
    top: dict[str, Floats] = dict(images)
    if truth is not None:
        top[truth_name] = truth
    # A reconstruction may overshoot; the scale follows the truth, or all but the extreme pixels.
    basis = truth if truth is not None else np.stack([*images.values()])
    low, high = np.nanquantile(basis, [0.0, 1.0] if truth is not None else [0.005, 0.998])

    one_row = truth is None or len(images) == 1
    columns = len(top) + one_row * ((truth is not None) + (std is not None))
    width = 3.1 * columns + (1.8 if one_row else 0.9)
    heading = textwrap.wrap(shortened(title or "", 200), int(_CHARACTERS_PER_INCH * width))
    height = (3.3 if one_row else 6.7) + (0.2 + 0.2 * len(heading) if heading else 0.0)
    figure = Figure(figsize=(width, height), layout="constrained")
    axes = figure.subplots(1 if one_row else 2, columns, squeeze=False)
    for axis, (name, image) in zip(axes[0], top.items(), strict=False):
        shown = show_image(axis, image, pixel_size, vmin=low, vmax=high, cmap="gray")
        quality = f", {psnr(image, truth, mask):.1f} dB" if truth is not None and image is not truth else ""
        axis.set_title(name + quality)
    grey = axes[0, : len(top)] if one_row else axes[0]
    figure.colorbar(shown, ax=grey, label="attenuation (1/mm)", shrink=0.9)

    if truth is not None:
        errors = {name: image - truth for name, image in images.items()}
        largest = float(np.nanquantile(np.abs(np.stack([*errors.values()])), 0.995)) or 1.0
        below = axes[0, len(top) : len(top) + 1] if one_row else axes[1, : len(images)]
        for axis, (name, error) in zip(below, errors.items(), strict=False):
            shown = show_image(axis, error, pixel_size, vmin=-largest, vmax=largest, cmap="RdBu_r")
            axis.set_title(f"{name} − {truth_name}")
        figure.colorbar(
            shown,
            ax=below,
            label="error (1/mm)" if truth_name != "reference" else "difference (1/mm)",
            shrink=0.9,
        )
    if std is not None:
        shown = show_image(axes[-1, -1], std, pixel_size, vmin=0, cmap="viridis")
        axes[-1, -1].set_title("standard deviation")
        figure.colorbar(shown, ax=axes[-1, -1], label="standard deviation (1/mm)", shrink=0.9)
    for axis in axes.flat:
        axis.label_outer()
    if not one_row and std is None:  # nothing is below the truth, so it keeps its own labels
        axes[1, -1].set_axis_off()
        axes[0, -1].set_xlabel("x (mm)")
        axes[0, -1].tick_params(labelbottom=True)
    if heading:
        figure.suptitle("\n".join(heading), parse_math=False)
    return figure


def darkened(figure: Figure) -> Figure:
    """Return the figure with light text and axes on a dark ground; the colours of images stay."""
    figure.set_facecolor(_DARK_PAPER)
    for text in figure.findobj(Text):
        text.set_color(_DARK_INK)
    for axis in figure.axes:
        axis.set_facecolor(_DARK_PAPER)
        axis.tick_params(color=_DARK_INK, labelcolor=_DARK_INK)
        for spine in axis.spines.values():
            spine.set_edgecolor(_DARK_INK)
    return figure


def save_png(figure: Figure, path: str | Path, *, dpi: int = 120) -> None:
    """Write a PNG atomically; the same figure gives the same bytes."""
    write_bytes(path, png_bytes(figure, dpi=dpi))


def png_bytes(figure: Figure, *, dpi: int = 120) -> bytes:
    """Render the figure as PNG."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=dpi, metadata={"Software": None})
    return buffer.getvalue()


def show_image(axis: Axes, image: Floats, pixel_size: float, **options: Any) -> Any:
    """Draw an image with axes in mm, the origin in its middle; dark grey where it is NaN."""
    height, width = (n * pixel_size / 2 for n in image.shape)
    axis.set_facecolor(_NOTHING)
    axis.set_xlabel("x (mm)")
    axis.set_ylabel("y (mm)")
    extent = (-width, width, -height, height)
    return axis.imshow(image, extent=extent, interpolation="nearest", **options)
