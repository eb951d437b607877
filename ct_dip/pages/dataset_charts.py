"""Charts of a dataset's page, as numbers for its template: how figures vary over items, and calibration."""

from dataclasses import dataclass

import numpy as np

from ct_dip.data.scores import LEVELS
from ct_dip.pages.evaluation_rows import EvaluationRows
from ct_dip.text import counted

BINS = 24
FEWEST = 3  # items of a distribution that is worth a picture
_SPREAD = (0.1, 0.9)  # quantiles over items

# Figures whose distribution is shown, by their names in `ct_dip.data.scores.Scores.row`.
SHOWN = {
    "psnr": ("PSNR, dB", "How close the image is; to the right is better."),
    "log_likelihood_1": ("Log-likelihood, nats", "Image and error bars together; to the right is better."),
    "rms_z_near": (
        "Error over error bar",
        "Root mean square near the object, for each item. 1 is right: above it error bars are too narrow, "
        "below it too wide.",
    ),
}


@dataclass(frozen=True, kw_only=True)
class Histogram:
    """Of one method: bars from 0 to 1 that share an axis with those of other methods.

    Args:
        bars: heights relative to the tallest; ``median`` its place on the axis from 0 to 1.
        text: median and number of items, in words.
    """

    method: str
    bars: list[float]
    median: float
    text: str


@dataclass(frozen=True, kw_only=True)
class Distribution:
    """One figure over items, for every method.

    Args:
        ticks: (place from 0 to 1, text) on the common axis.
    """

    title: str
    about: str
    histograms: list[Histogram]
    ticks: list[tuple[float, str]]


def distributions(rows: EvaluationRows) -> list[Distribution]:
    """Return the figures of `SHOWN` that items have."""
    made = []
    for figure, (title, about) in SHOWN.items():
        values = {method: rows.values(method, figure) for method in rows.methods}
        values = {method: found for method, found in values.items() if len(found) >= FEWEST}
        if values:
            made.append(_distribution(title, about, values))
    return made


def _distribution(title: str, about: str, values: dict[str, list[float]]) -> Distribution:
    from matplotlib.ticker import MaxNLocator

    every = np.concatenate(list(values.values()))
    ticks = MaxNLocator(nbins=4, min_n_ticks=2).tick_values(float(every.min()), float(every.max()))
    low, high = float(ticks[0]), float(ticks[-1])
    counts = {method: np.histogram(found, BINS, (low, high))[0] for method, found in values.items()}
    tallest = max(int(each.max()) for each in counts.values())
    return Distribution(
        title=title,
        about=about,
        histograms=[
            Histogram(
                method=method,
                bars=(counts[method] / tallest).tolist(),
                median=(float(np.median(found)) - low) / (high - low),
                text=f"median {np.median(found):.4g}, {counted(len(found), 'item')}",
            )
            for method, found in values.items()
        ],
        ticks=[((float(tick) - low) / (high - low), f"{tick:g}") for tick in ticks],
    )


@dataclass(frozen=True, kw_only=True)
class Calibration:
    """Coverage of one method, pooled and item by item.

    Args:
        levels: nominal.
        everywhere, near: coverage of all pixels, and of those near the object, averaged over items.
        spread: between which the coverage near the object is, for 8 items of 10.
        items: number of them.
        text: the same at 95 % in words.
    """

    method: str
    levels: list[float]
    everywhere: list[float]
    near: list[float]
    spread: list[tuple[float, float]]
    items: int
    text: str


def calibrations(rows: EvaluationRows) -> list[Calibration]:
    """Return the calibration of all methods with error bars on items whose truth is known."""
    made = []
    for method in rows.methods:
        found = {
            ending: {level: rows.values(method, f"coverage_{round(100 * level)}{ending}") for level in LEVELS}
            for ending in ("", "_near")
        }
        if not all(found[""].values()):
            continue
        near = found["_near"] if all(found["_near"].values()) else found[""]
        spread = {level: np.quantile(near[level], _SPREAD) for level in LEVELS}
        low, high = spread[0.95]
        made.append(
            Calibration(
                method=method,
                levels=list(LEVELS),
                everywhere=[float(np.mean(found[""][level])) for level in LEVELS],
                near=[float(np.mean(near[level])) for level in LEVELS],
                spread=[(float(each[0]), float(each[1])) for each in spread.values()],
                items=len(near[0.95]),
                text=(
                    f"95 % error bars hold {100 * np.mean(near[0.95]):.1f} % of the pixels near the object; "
                    f"{100 * low:.1f} to {100 * high:.1f} % in the middle 80 % of the items"
                ),
            )
        )
    return made
