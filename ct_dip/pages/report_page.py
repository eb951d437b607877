"""The page of one result: what is it, how sure are we, and should I believe that? One file, no network.

Python computes every number that does not depend on the reader, and the verdicts; `report.js` draws the
images from the embedded floats and answers what the reader asks.
"""

import math
from collections.abc import Iterator, Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

from ct_dip.arrays import Floats
from ct_dip.data.legend import meaning
from ct_dip.data.pixel_distribution import PixelDistribution
from ct_dip.data.prediction import Prediction
from ct_dip.data.scores import LEVELS, Scores
from ct_dip.errors import ResultError
from ct_dip.evaluation.region import CAVEAT
from ct_dip.evaluation.score import scores_of
from ct_dip.files import write_bytes
from ct_dip.methods import summary_of, title_of
from ct_dip.pages.calibration_chart import calibration_chart, log_axes
from ct_dip.pages.certainty import certainty
from ct_dip.pages.finding import percent
from ct_dip.pages.findings import data_findings
from ct_dip.pages.packed import pack, pack_steps
from ct_dip.pages.score_tables import coverage_columns, score_rows
from ct_dip.pages.verdicts import heldout_finding, place_findings, verdict
from ct_dip.progress import format_duration
from ct_dip.quality import psnr

SAMPLE_PIXELS = 1 << 22  # of samples in the page, a byte each: a phone must still open it
_SAMPLE_STEP = 1 / 16  # standard deviations: what rounding adds to a variance is below a thousandth of it
_FARTHEST, _TAIL_STEP = 20.0, 0.05  # standard deviations that the table of tails has

SIGN = {"good": "✓", "caution": "!", "poor": "✗", "unknown": "?"}  # colour is never the only sign
TITLES = {
    "dip": "Network alone",
    "fbp": "Classical (FBP)",
    "tv": "Total variation",
    "truth": "Truth",
    "reference": "Reference",
}


def write_report(path: str | Path, result: Prediction, *, source: str = "") -> None:
    """Write the page of ``result``; ``source`` is what a reader would call the scan.

    Raises:
        ResultError: the parts of the result do not fit together.
        OutputError: the file cannot be written.
    """
    write_bytes(path, render_report(result, source=source).encode("utf-8"))


def render_report(result: Prediction, *, source: str = "") -> str:
    """Render the page as text."""
    check_result(result)
    scores, heldout, chart = scores_of(result), result.heldout, calibration_chart(result)
    findings, reach = data_findings(result), result.pixel_distribution.reach(0.95)
    believed = verdict(result, scores, findings)
    if heldout is not None:
        findings.insert(0, heldout_finding(heldout))
    if scores is not None:
        findings[:0] = place_findings(scores)
    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters["percent"] = percent
    environment.filters["duration"] = format_duration
    environment.filters["meaning"] = meaning
    environment.filters["short"] = lambda value: f"{value:.3g}"
    return environment.from_string(_asset("report.html.j2")).render(
        result=result,
        source=source,
        method=title_of(result.method),
        summary=summary_of(result.method),
        script=Markup(_asset("report.js")),
        style=Markup(_asset("report.css")),
        data=payload(result),
        verdict=believed,
        certainty=certainty(result),
        freed=freed_sentence(result),
        classical=classical_sentence(result, scores),
        findings=findings,
        sign=SIGN,
        scores=scores,
        chart=chart,
        reach=reach,
        error_chart=None
        if chart is None
        else log_axes([(reach * s, reach * e) for s, e in chart.error_bins]),
        coverage=None if chart is None or scores is None else coverage_columns(scores),
        levels=LEVELS,
        region_caveat=CAVEAT,
        settings=list(flatten(result.settings)),
        figures=[row for each in (scores, heldout) if each is not None for row in score_rows(each)],
        metrics=list(flatten(result.diagnostics)),
    )


def freed_sentence(result: Prediction) -> str:
    """Explain the blocks of wide error bars, if there are any; see `ct_dip.posterior.relevance`."""
    count = result.diagnostics.get("freed_pixels")
    if not isinstance(count, int) or not count:
        return ""
    pixels = "1 pixel has a wider error bar" if count == 1 else f"{count} pixels have wider error bars"
    return f"{pixels} than the network alone gives, since the measurements contradict it there."


def classical_sentence(result: Prediction, scores: Scores | None) -> str:
    """Explain how total variation relates to the image, if it is shown or closer to the truth."""
    compared, total_variation = result.comparison, result.images.get("tv")
    if result.shows_total_variation:
        return (
            "The image shown is the total-variation one: it predicted held-out views better than the network "
            "did, or fits the measurements far better. The error bars around it are those of the network."
        )
    if compared is None or total_variation is None or result.std is None:
        return ""
    if scores is None or scores.psnr is None:
        return ""
    ours, theirs = scores.psnr.value, psnr(total_variation, compared.image, result.evaluated)
    if theirs <= ours:
        return ""
    return (
        f"Total variation comes closer to the {compared.name} here: {theirs:.1f} against {ours:.1f} dB. But "
        "it does not say where it may be wrong, or by how much; the error bars do, for this image."
    )


def check_result(result: Prediction) -> None:
    """Refuse what could only be drawn wrongly."""
    if not (math.isfinite(result.pixel_size) and result.pixel_size > 0):
        raise ResultError(f"the result's pixel size is {result.pixel_size} mm; reconstruct again")
    for name, values in {"mean": result.mean, "std": result.std, **_images(result)}.items():
        if values is None:
            continue
        if values.shape != result.mean.shape:
            raise ResultError(
                f"the result's {name} has shape {values.shape}, its image {result.mean.shape}; "
                "reconstruct again"
            )
        if not np.isfinite(values).all():
            raise ResultError(f"the result's {name} has values that are not finite; reconstruct again")
    if result.std is not None and result.std.min() < 0:
        raise ResultError("the result's std has negative values; reconstruct again")
    samples = result.samples
    if samples is not None and (samples.ndim != 3 or samples.shape[1:] != result.mean.shape):
        raise ResultError(
            f"the result's samples have shape {samples.shape}, expected (n, {result.mean.shape[0]}, "
            f"{result.mean.shape[1]}); reconstruct again"
        )


def payload(result: Prediction) -> dict[str, Any]:
    """Collect everything that the script needs; arrays are packed by `ct_dip.pages.packed`."""
    compared, seen = result.comparison, result.evaluated
    basis = (result.mean if compared is None else compared.image)[seen]
    # A reconstruction may overshoot; the scale follows the truth, or all but the extreme pixels.
    exact = compared is not None and compared.name == "truth"
    low, high = (float(v) for v in np.quantile(basis, [0.0, 1.0] if exact else [0.005, 0.998]))
    if high <= low:
        low, high = low - 0.5 * (abs(low) or 1), low + 0.5 * (abs(low) or 1)
    first = ("mean", "Best estimate") if result.std is not None else ("image", "Image")
    about = best_estimate(result) if result.std is not None else ""
    images = [_image(*first, "attenuation", low, high, result.mean, about)]
    for name, values in _images(result).items():
        images.append(_image(name, TITLES[name], "attenuation", low, high, values))
    if result.std is not None:
        reach = result.pixel_distribution.reach(0.95)
        wide = reach * float(np.quantile(result.std[seen], 0.998)) or 1.0  # the script widens it likewise
        about = " ".join(filter(None, [ABOUT["std"], freed_sentence(result)]))
        images.append(_image("std", "Error bar (95 %)", "std", 0.0, wide, result.std, about))
    if compared is not None:
        error = result.difference(compared)
        largest = float(np.nanquantile(np.abs(error), 0.995)) or 1.0
        name, title = ("error", "Error") if exact else ("difference", "Difference")
        images.append(_image(name, title, "error", -largest, largest, None))  # the script subtracts
    return {
        "shape": list(result.mean.shape),
        "pixelSize": result.pixel_size,
        "images": images,
        "mask": None if seen.all() else pack_steps(seen.astype(np.float32), 1.0),
        "pixels": _distribution(result.pixel_distribution),
        "samples": _samples(result),
        "sinogram": _sinogram(result),
        "threshold": {"start": _round((low + high) / 2, high - low), "low": low, "high": high},
    }


def _distribution(pixels: PixelDistribution) -> dict[str, Any]:
    """Tabulate the reach of a 95 % interval and the upper tails, in standard deviations."""
    z = np.arange(0, _FARTHEST + _TAIL_STEP / 2, _TAIL_STEP)
    return {"reach": pixels.reach(0.95), "step": _TAIL_STEP, "tails": pixels.upper_tail(z).tolist()}


ABOUT = {
    "image": "The image that the method gives. It does not say how sure it is.",
    "dip": "What the network drew by itself, before the error bars were worked out.",
    "tv": "Total variation: the image with the least edge content that explains the measurements.",
    "fbp": "Filtered back-projection, the formula that most scanners use. Noisy and streaky with few views.",
    "truth": "The object that was scanned, known because the scan was simulated.",
    "reference": "An image of the same object to compare with, which has errors of its own.",
    "std": "Half of the 95 % interval of every pixel: bright is least certain.",
    "error": "Best estimate minus truth: red is too dense, blue too thin.",
    "difference": "Best estimate minus reference: red is denser than the reference, blue thinner.",
}


SHOWN = {  # what `inference.image` was, of lin-dip
    "mean": "the average of the image that the fitted network draws and of the posterior mean around it",
    "linear": "the posterior mean: the average of all images, weighted by how well they explain the data",
    "dip": "the image that the fitted network draws",
    "tv": "the total-variation image, which suits the measurements better than the network's",
}


def best_estimate(result: Prediction) -> str:
    """Say what the image with error bars is."""
    shown = str((result.settings.get("inference") or {}).get("image"))
    what = SHOWN.get(shown, f"the mean of what {title_of(result.method)} considers possible")
    return f"The image to look at: {what}. The error bars are around this image."


def _image(
    name: str, title: str, kind: str, low: float, high: float, values: Floats | None, about: str = ""
) -> dict[str, Any]:
    return {
        "name": name,
        "title": title,
        "about": about or ABOUT[name],
        "kind": kind,
        "low": low,
        "high": high,
        "data": None if values is None else pack(values),
    }


def _images(result: Prediction) -> dict[str, Floats]:
    """Return the images shown beside the best estimate, in a fixed order."""
    images = {name: result.images[name] for name in TITLES if name in result.images}
    if result.comparison is not None:
        images[result.comparison.name] = result.comparison.image
    return images


def _samples(result: Prediction) -> dict[str, Any] | None:
    from scipy.special import stdtrit

    samples, std = result.samples, result.std
    if samples is None or std is None or len(samples) < 2:  # one alone has no spread
        return None
    kept = samples[: max(2, SAMPLE_PIXELS // result.mean.size)]
    deviations = np.divide(kept - result.mean, std, out=np.zeros_like(kept), where=std > 0)
    # The spread of a region's mean is estimated from so many samples; see ct_dip.evaluation.region.
    return {
        "count": len(kept),
        "of": len(samples),
        "width": float(stdtrit(len(kept), 0.975)),
        **pack_steps(deviations, _SAMPLE_STEP),
    }


def _sinogram(result: Prediction) -> dict[str, Any] | None:
    """Pack the measured sinogram, that of the image, and what it leaves unexplained in units of the noise."""
    if result.sinogram is None:
        return None
    explained, residuals, measured = (
        result.sinogram.mean,
        result.sinogram.standardised,
        result.sinogram.measured,
    )
    low, high = float(explained.min()), float(explained.max())
    return {
        "shape": list(residuals.shape),
        "low": low,
        "high": high if high > low else low + 1,
        "measured": None if measured is None else pack_steps(measured, 1e-6),
        "explained": pack_steps(explained, 1e-6),
        "residuals": pack_steps(residuals, _SAMPLE_STEP),
    }


def flatten(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Yield ``{"tv": {"strength": 0.8}}`` as ``tv.strength``, ``0.8``."""
    for key, value in values.items():
        if isinstance(value, Mapping):
            yield from flatten(value, f"{prefix}{key}.")
        elif isinstance(value, float):
            yield prefix + str(key), f"{value:.6g}"
        elif isinstance(value, list):
            yield prefix + str(key), ", ".join(f"{v:.6g}" if isinstance(v, float) else str(v) for v in value)
        else:
            yield prefix + str(key), str(value)


def _round(value: float, spread: float) -> float:
    """Round to about a hundredth of the spread."""
    return round(value, 2 - math.floor(math.log10(spread)))


def _asset(name: str) -> str:
    return files("ct_dip.pages").joinpath(name).read_text(encoding="utf-8")
