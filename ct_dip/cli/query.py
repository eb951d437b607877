"""``ct-dip query``: how sure the posterior is about a region."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ct_dip.cli.console import message, print_json, print_table
from ct_dip.cli.options import Verbose, load_mask
from ct_dip.errors import InputError

if TYPE_CHECKING:
    from ct_dip.arrays import Bools
    from ct_dip.evaluation.region import Estimate, RegionReport

Roi = tuple[float, float, float, float]


def query(
    result: Annotated[Path, typer.Argument(help="Result file with posterior samples.")],
    roi: Annotated[
        str | None,
        typer.Option(help="Corners x0,y0,x1,y1 in mm; x right, y up, from the rotation axis."),
    ] = None,
    mask: Annotated[
        Path | None,
        typer.Option(help="Picture (or NPY) of the image's shape; the region is where it is not zero."),
    ] = None,
    above: Annotated[float | None, typer.Option(help="Threshold in 1/mm: also the area above it.")] = None,
    level: Annotated[float, typer.Option(help="Probability of the credible intervals.")] = 0.95,
    as_json: Annotated[bool, typer.Option("--json", help="Every number, on standard output.")] = False,
    verbose: Verbose = False,
) -> None:
    """Posterior of a region: its mean attenuation, and its area above a threshold."""
    from ct_dip.data.result_file import read_result
    from ct_dip.evaluation.region import query_region

    loaded = read_result(result)
    shape = loaded.mean.shape[0], loaded.mean.shape[1]
    region = choose_region(roi, mask, shape, loaded.pixel_size)
    if loaded.samples is None:
        raise InputError(
            f"{result} (method {loaded.method}) holds no posterior samples; reconstruct the scan with "
            "--method lin-dip --set inference.samples=100"
        )
    report = query_region(loaded.samples, loaded.mean, region, loaded.pixel_size, above=above, level=level)
    for note in notes(report, roi, shape, loaded.pixel_size):
        message(f"note: {note}")
    if as_json:
        where = {"mask": str(mask)} if roi is None else {"roi": parse_roi(roi)}
        print_json({"result": str(result), **where, **asdict(report)})
    else:
        print_table(f"{result}, {f'roi {roi}' if mask is None else mask}", region_summary(report))


def region_summary(report: "RegionReport") -> dict[str, str]:
    """A report in a few lines."""
    lines = {
        "region": f"{report.pixels} pixels, {report.area:.4g} mm²",
        "mean attenuation": _interval(report.attenuation, report.level, "/mm"),
    }
    if report.area_above is not None:
        lines[f"P(mean > {report.above:g} /mm)"] = _probability(report)
        lines[f"area above {report.above:g} /mm"] = _interval(report.area_above, report.level, "mm²")
    lines["posterior samples"] = f"{report.samples}; ± is the Monte-Carlo standard error that they leave"
    return lines


def _interval(estimate: "Estimate", level: float, unit: str) -> str:
    error = f" ± {estimate.mean_error:.1g}" if estimate.mean_error else ""
    return (
        f"{estimate.mean:.4g}{error} {unit}, {100 * level:.4g} % interval {estimate.low:.4g} to "
        f"{estimate.high:.4g} (ends ± {estimate.interval_error:.1g})"
    )


def _probability(report: "RegionReport") -> str:
    """Beyond a thousandth the number is the tail of a model, not knowledge."""
    probability, error = report.probability_above or 0.0, report.probability_error or 0.0
    if probability < 1e-3:
        return "below 0.001"
    return "above 0.999" if probability > 0.999 else f"{probability:.3g} ± {error:.1g}"


def choose_region(roi: str | None, mask: Path | None, shape: tuple[int, int], pixel_size: float) -> "Bools":
    """The pixels that one of the two options names, (rows, columns)."""
    from ct_dip.evaluation.region import region_mask

    if mask is not None and roi is None:
        return load_mask(mask, shape)
    if roi is None or mask is not None:
        given = "neither --roi nor --mask is" if roi is None else "both --roi and --mask are"
        raise InputError(f"{given} given; choose the region with --roi x0,y0,x1,y1 (mm) or --mask FILE")
    return region_mask(shape, pixel_size, parse_roi(roi))


def notes(report: "RegionReport", roi: str | None, shape: tuple[int, int], pixel_size: float) -> list[str]:
    """What a reader of the numbers should know."""
    from ct_dip.evaluation.region import CAVEAT

    remarks = []
    half_height, half_width = (n * pixel_size / 2 for n in shape)
    reach_x, reach_y = (max(map(abs, parse_roi(roi or "0,0,0,0")[axis::2])) for axis in (0, 1))
    if reach_x > half_width * (1 + 1e-6) or reach_y > half_height * (1 + 1e-6):
        # Somebody may count from a corner of the image, and would get another region than they mean.
        remarks.append(
            f"--roi {roi} reaches beyond the image, which ends at x ±{half_width:.4g} and "
            f"y ±{half_height:.4g} mm; only the part inside counts"
        )
    if report.area_above is not None and not report.enough_samples:
        remarks.append(
            f"{report.samples} samples are few for a level of {report.level:g}: "
            "the interval of the area is their range"
        )
    if report.pixels > 1:
        remarks.append(CAVEAT)
    return remarks


def parse_roi(text: str) -> Roi:
    """Four numbers of ``x0,y0,x1,y1``."""
    try:
        x0, y0, x1, y1 = (float(word) for word in text.split(","))
    except ValueError as error:
        raise InputError(
            f"--roi {text!r} must be four numbers x0,y0,x1,y1 in mm without spaces, as -5,-5,5,5"
        ) from error
    return x0, y0, x1, y1
