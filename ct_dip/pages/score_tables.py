"""Scores as tables that a person reads."""

import re

from ct_dip.data.scores import BLOCKS, HeldoutScores, Mean, MeanKind, Scores
from ct_dip.pages.verdicts import near_part

_FIGURES = {
    "psnr": "PSNR, dB",
    "ssim": "SSIM",
    "psnr_fixed": "PSNR of a fixed range, dB",
    "ssim_fixed": "SSIM of a fixed range",
    "mae": "mean absolute error, /mm",
    "rmse": "root mean square error, /mm",
    "crps": "CRPS, /mm",
    "rms_z": "rms of error over its deviation",
    "largest_z": "largest error over its deviation",
    "z_999": "error over its deviation that one pixel in 1000 exceeds",
    "ence": "ENCE",
    "ause": "AUSE",
    "ause_of_no_knowledge": "AUSE of no knowledge",
    "log_density": "log-density of a measurement, nats",
    "rms_z_smoothed": "rms of smoothed error over its deviation",
    "misfit": "misfit",
}
_PLACES = {
    "near": "near the object",
    "flat": "flat parts",
    "edges": "edges",
    "background": "background",
    "blocks_4": "means of 4×4",
    "blocks_8": "means of 8×8",
    "regions": "regions",
}
_WITH_PLACE = re.compile(rf"(.+?)(?:_({'|'.join(_PLACES)}))?")


def coverage_columns(scores: Scores) -> dict[str, dict[float, Mean]]:
    """Return the coverage by nominal level of pixels and of means over blocks, by heading."""
    near = near_part(scores)
    columns = {"all pixels": scores.parts["all"].coverage}
    if near is not None:
        columns[f"on or near the object ({near.pixels} pixels)"] = near.coverage
    kinds: tuple[MeanKind, ...] = ("blocks_4", "blocks_8")
    for kind, width in zip(kinds, BLOCKS, strict=True):
        if (means := scores.means.get(kind)) is not None and means.coverage:
            blocks = f"{means.count} block{'s' if means.count > 1 else ''}"
            columns[f"means of {width}×{width} pixels there ({blocks})"] = means.coverage
    return columns


def score_rows(scores: Scores | HeldoutScores) -> list[tuple[str, str]]:
    """Return every figure there is by a readable name, with its standard error.

    Of held-out views without error bars only the misfit says something of the image.
    """
    row, cells = scores.row(standard_errors=True), []
    told = scores.row()
    if isinstance(scores, HeldoutScores) and not scores.error_bars:
        told = {"heldout_misfit": scores.misfit.value}
    for name, value in told.items():
        if value is not None:
            error = row.get(f"{name}_se")
            cells.append((readable(name), f"{value:.4g} ± {error:.2g}" if error else f"{value:.4g}"))
    return cells


def readable(name: str) -> str:
    """Write ``coverage_95_near`` as ``coverage of 95 %, near the object``."""
    heldout = name.startswith("heldout_")
    match = _WITH_PLACE.fullmatch(name.removeprefix("heldout_"))
    assert match is not None  # every name has a first character
    figure, place = match.groups()
    kind, _, number = figure.rpartition("_")
    if kind == "coverage":
        text = f"coverage of {number} %"
    elif kind == "log_likelihood":
        text = (
            "log-likelihood of the image, nats"
            if number == "image"
            else f"log-likelihood of {number}×{number} pixels, nats"
        )
    else:
        text = _FIGURES[figure]
    return ", ".join([text, *([_PLACES[place]] if place else []), *(["held-out views"] if heldout else [])])
