"""The page that compares methods: one table, pictures side by side. One file, no network."""

import base64
import dataclasses
import io
import math
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from jinja2 import Environment, FunctionLoader, StrictUndefined
from markupsafe import Markup
from PIL import Image

from ct_dip.arrays import Floats
from ct_dip.data.column_legend import column_meaning
from ct_dip.data.comparison import Comparison
from ct_dip.data.method_table import ERROR_BARS, HELDOUT, IMAGE, MethodTable
from ct_dip.data.prediction import Prediction
from ct_dip.files import write_bytes
from ct_dip.methods import summary_of
from ct_dip.pages.choice_charts import choice_charts
from ct_dip.pages.table_files import MAIN, cell_text
from ct_dip.progress import format_duration
from ct_dip.text import counted

MARK = '<meta name="generator" content="ct-dip compare">'  # by which a page of ours is known
MOST_SCANS = 12  # whose pictures are in a page, so that a phone still opens it
_STOPS = 9  # of a colour bar's gradient


@dataclass(frozen=True, kw_only=True)
class Scale:
    """A colour scale that all pictures of a kind share; limits in 1/mm."""

    title: str
    colours: str
    low: float
    high: float

    def picture(self, image: Floats) -> str:
        """Return an image as PNG in a data URI; what is not finite is transparent."""
        span = self.high - self.low or 1.0
        shares = np.clip((image - self.low) / span, 0, 1)
        pixels = matplotlib.colormaps[self.colours](np.ma.masked_invalid(shares), bytes=True)
        pixels[~np.isfinite(image), 3] = 0
        buffer = io.BytesIO()
        Image.fromarray(pixels).save(buffer, format="png", optimize=True)
        return "data:image/png;base64," + base64.b64encode(buffer.getvalue()).decode("ascii")

    @property
    def gradient(self) -> str:
        """The colours from low to high, for a style sheet."""
        colours = matplotlib.colormaps[self.colours](np.linspace(0, 1, _STOPS), bytes=True)
        return ", ".join(f"rgb({red} {green} {blue})" for red, green, blue, _ in colours)


def write_compare_page(path: str | Path, table: MethodTable, *, title: str = "") -> None:
    """Write the page of a table.

    Args:
        title: what stands above everything; else the number of methods and scans.
    """
    write_bytes(path, render_compare_page(table, title=title).encode("utf-8"))


def render_compare_page(table: MethodTable, *, title: str = "") -> str:
    """Return the page as text."""
    digests = table.digests
    scans = [table.of_scan(digest) for digest in digests]
    return (
        page_environment()
        .get_template("compare.html.j2")
        .render(
            mark=Markup(MARK),
            style=assets("report.css", "compare.css"),
            script=assets("compare.js"),
            title=title or heading(table),
            ranking=ranking_sentences(table),
            table=table,
            shown=shown_table(table),
            rest=other_figures(table),
            columns=MAIN,
            choices=choice_charts(table),
            scans=[
                {
                    "label": table.scan(digest),
                    "table": shown_table(scan),
                    "pictures": pictures(scan) if number < MOST_SCANS else None,
                }
                for number, (digest, scan) in enumerate(zip(digests, scans, strict=True))
            ],
            most_scans=MOST_SCANS,
            summaries=_summaries(table),
            notes=_notes(table),
            runs=[
                (table.scan(row.scan_digest).name, row) for row in table.rows if row.prediction is not None
            ],
        )
    )


def page_environment() -> Environment:
    """Return where pages that compare are made: templates of this package, and how numbers are written."""
    environment = Environment(
        loader=FunctionLoader(_asset),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["counted"] = counted
    environment.filters["duration"] = format_duration
    environment.filters["meaning"] = column_meaning
    environment.filters["short"] = lambda value: f"{value:.2g}"
    return environment


def assets(*names: str) -> Markup:
    """Return style sheets or scripts of this package, one after the other."""
    return Markup("").join(Markup(_asset(name)) for name in names)


def heading(table: MethodTable) -> str:
    """Say how many methods, or settings of one, and scans there are."""
    count, scans = len(table.methods), len(table.digests)
    made = {row.prediction.method for row in table.rows if row.prediction is not None}
    what = f"{count} settings of {made.pop()}" if len(made) == 1 < count else counted(count, "method")
    return f"{what} on {'one scan' if scans == 1 else f'{scans} scans'}"


def ranking_sentences(table: MethodTable) -> list[str]:
    """Say what the methods are ranked by, and which is first."""
    finished = {row.prediction.scores.compared_with for row in _scored(table)}
    sentences = []
    if table.criterion == HELDOUT:
        known = "All that is known is a reference image" if "reference" in finished else "No truth is known"
        if "truth" in finished:
            known = "Not every scan has a known truth"
        sentences.append(
            f"{known}, so methods are ranked by held-out views: each was run once more without "
            "some of the views, and had to predict them. The number is the log predictive density per "
            "measurement; larger is better. A good image and honest error bars both raise it. It "
            "judges the method on fewer views, not the very images that are shown."
        )
        sentences += _first(table, HELDOUT, "Best prediction of held-out views")
    elif table.criterion == IMAGE:
        against = "truth" if "reference" not in finished else "reference, which is no truth"
        sentences.append(
            f"Images are ranked by PSNR against the {against}; error bars by their log-likelihood and CRPS."
        )
        sentences += _first(table, IMAGE, "Best image")
        sentences += _first(table, ERROR_BARS, "Best error bars by log-likelihood")
        sentences += _first(table, "crps", "Best error bars by CRPS")
        with_bars = [method for method in table.methods if table.mean(method, ERROR_BARS) is not None]
        if len(with_bars) == 1:
            sentences.append(f"Only {with_bars[0]} has error bars.")
    else:
        sentences.append(
            "There is nothing to rank by: no truth is known, and no views were held out "
            "(ct-dip compare SCAN --heldout does that). Methods are in the order in which they were given."
        )
    if table.pixels_differ:
        sentences.append(table.pixels_differ)
    if len(table.digests) > 1:
        sentences.append(
            "Numbers are means over scans with their standard errors. All methods saw the same scans, so "
            "differences between methods are more certain than these errors suggest."
        )
    return sentences


def _first(table: MethodTable, column: str, what: str) -> list[str]:
    best = table.best(column)
    return [f"{what}: {' and '.join(best)}{table.doubt(column)}."] if best else []


def _scored(table: MethodTable) -> list[Any]:
    rows = [row for row in table.rows if row.prediction is not None]
    return [row for row in rows if row.prediction is not None and row.prediction.scores is not None]


def shown_table(table: MethodTable) -> dict[str, Any]:
    """Return columns and rows of the main table, best first, as text, with what sorts them."""
    columns = [name for name in MAIN if name in table.columns]
    best = {name: table.best(name) for name in columns}
    failed = {row.method: row.error for row in table.rows if row.error}
    scans = len(table.digests)
    rows = []
    for method in table.ranked():
        means = {name: table.mean(method, name) for name in columns}
        count = sum(row.method == method and not row.error for row in table.rows)
        rows.append(
            {
                "method": method,
                "count": "" if count == scans else f"{count} of {scans} scans",
                "error": failed.get(method, ""),
                "cells": [
                    {
                        "column": name,
                        "text": cell_text(name, mean),
                        "value": "" if mean is None else repr(mean.value),
                        "best": method in best[name],
                        "fewer": mean is not None and scans > 1 and mean.count < scans,
                        "count": 0 if mean is None else mean.count,
                    }
                    for name, mean in means.items()
                ],
            }
        )
    return {"columns": columns, "rows": rows}


def other_figures(table: MethodTable) -> list[tuple[str, list[tuple[str, str, bool]]]]:
    """Return the columns that are not main ones: a name, then number, error and mark for every method."""
    methods = table.ranked()
    lines = []
    for name in table.columns:
        if name not in MAIN:
            best = table.best(name)
            cells = [(*cell_text(name, table.mean(method, name)), method in best) for method in methods]
            lines.append((name, cells))
    return lines


def pictures(scan: MethodTable, *, longest: int | None = None) -> dict[str, Any] | None:
    """Return image, error and error bar of every method on one scan, on scales that they share.

    Args:
        longest: pixels of a picture's longer side at most; blocks of pixels are averaged to get there.
    """
    methods = scan.ranked()
    found = {row.method: row.prediction for row in scan.rows if row.prediction is not None}
    if not found:
        return None
    predictions = [found[method] for method in methods if method in found]
    compared = next((each.comparison for each in predictions if each.comparison is not None), None)
    factor = 1 if longest is None else math.ceil(max(predictions[0].mean.shape) / longest)
    images = [_reduced(_masked(each, each.mean), factor) for each in predictions]
    errors = [_reduced(each.difference(compared), factor) for each in predictions] if compared else []
    bars = [None if each.std is None else _reduced(_masked(each, each.std), factor) for each in predictions]
    if compared is not None:
        compared = dataclasses.replace(compared, image=_reduced(compared.image, factor))
    grey, error, bar = scales(images, errors, [each for each in bars if each is not None], compared)
    columns = [
        {
            "method": method,
            "image": grey.picture(images[place]),
            "error": error.picture(errors[place]) if error is not None else None,
            "bar": bar.picture(std) if bar is not None and (std := bars[place]) is not None else None,
        }
        for place, method in enumerate(method for method in methods if method in found)
    ]
    known = None
    if compared is not None:
        seen = np.where(np.isfinite(images[0]), compared.image, np.nan)
        known = {"name": compared.name, "image": grey.picture(seen)}
    scale_list = [each for each in (grey, error, bar) if each is not None]
    return {"methods": columns, "known": known, "error": error, "bar": bar, "scales": scale_list}


def scales(
    images: Sequence[Floats], errors: Sequence[Floats], bars: Sequence[Floats], compared: Comparison | None
) -> tuple[Scale, Scale | None, Scale | None]:
    """Return scales of attenuation, error and error bar; NaN in the images does not count.

    A reconstruction may overshoot: the grey scale is that of the truth, or of all but extreme pixels.
    """
    shown = np.isfinite(images[0])
    if compared is not None and compared.name == "truth":
        low, high = compared.image[shown].min(), compared.image[shown].max()
    else:
        low, high = np.nanquantile(np.stack(images), [0.005, 0.998])
    grey = Scale(title="attenuation, 1/mm", colours="gray", low=float(low), high=float(high))
    error = bar = None
    if errors and compared is not None:
        largest = float(np.nanquantile(np.abs(np.stack(errors)), 0.995)) or 1.0
        title = f"image minus {compared.name}, 1/mm"
        error = Scale(title=title, colours="RdBu_r", low=-largest, high=largest)
    if bars:
        widest = float(np.nanquantile(np.stack(bars), 0.995)) or 1.0
        bar = Scale(title="standard deviation, 1/mm", colours="viridis", low=0.0, high=widest)
    return grey, error, bar


def _reduced(image: Floats, factor: int) -> Floats:
    """Return means over blocks of factor × factor pixels; what is left over at the edges is cut."""
    if factor == 1:
        return image
    rows, columns = (n // factor for n in image.shape)
    blocks = image[: rows * factor, : columns * factor].reshape(rows, factor, columns, factor)
    return np.asarray(blocks.mean(axis=(1, 3)))


def _masked(prediction: Prediction, image: Floats) -> Floats:
    return np.where(prediction.evaluated, image, np.nan)


def _summaries(table: MethodTable) -> dict[str, str]:
    """Return what every method does, by name."""
    names = {row.prediction.method for row in table.rows if row.prediction is not None}
    names |= {row.method for row in table.rows}
    return {name: summary for name in sorted(names) if (summary := summary_of(name))}


def _notes(table: MethodTable) -> list[str]:
    """List what failed, and what to know before believing a row; each once."""
    several, notes = len(table.digests) > 1, []
    for row in table.rows:
        where = f"{row.method}{f' on {table.scan(row.scan_digest).name}' if several else ''}"
        if row.error:
            notes.append(f"{where} failed: {row.error}")
        own = () if row.prediction is None else row.prediction.warnings
        notes += [f"{where}: {warning}" for warning in (*own, *row.warnings)]
    return list(dict.fromkeys(notes))


def _asset(name: str) -> str:
    return files("ct_dip.pages").joinpath(name).read_text(encoding="utf-8")
