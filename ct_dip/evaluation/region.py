"""What the posterior says about a region: its mean attenuation, and its area above a threshold.

Pixels are correlated, so error bars of single pixels do not tell that of their mean; posterior samples do.
With samples ``x_k``, k = 1…n, and the region's pixels R,

    m   = mean_R(posterior mean)                    exact
    s²  = 1/n Σ_k (mean_R(x_k) − m)²                one degree of freedom per sample: m is not estimated
    m ± t s,  P(mean_R > c) = T((m − c)/s)          T, t: Student's distribution, n degrees, and its quantile

since the mean of a region is linear in the image, hence Gaussian as the posterior is. Student's rather than
the normal distribution accounts for the s that was sampled: over repetitions of the sampling the interval has
its nominal probability, however few samples there are. The area above a threshold is a count, far from
Gaussian; its mean and quantiles are those of the samples, at ranks p(n + 1) for the same reason. A threshold
close to a plateau biases it: pixels whose error bars reach across the threshold are below it in many samples,
each on its own, so their sum loses area in every sample and has a tight interval around the wrong place. Then
the area of the image itself is outside of the interval, which a note says.

All of this is as good as the posterior itself, which knows too little about errors that many pixels share:
`CAVEAT` says what was found.
"""

import dataclasses
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scipy.special import stdtr, stdtrit

from ct_dip.arrays import Bools, Floats
from ct_dip.checks import check_level
from ct_dip.data.mask_file import read_mask
from ct_dip.data.pixel_distribution import GAUSSIAN
from ct_dip.data.result_file import AnyResult, load_result
from ct_dip.errors import InputError, MissingPartError
from ct_dip.geometry import Volume

# What experiments/README.md found: pixels are covered about as they should be, means of many of them less.
CAVEAT = (
    "intervals of regions can be too narrow, and probabilities too sure: on 21 scans of many kinds, 95 % "
    "intervals held 97 % of the means of squares of 4×4 pixels and 90 % of 8×8, on single scans fewer"
)


Roi = tuple[float, float, float, float]


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """A posterior of one number.

    Args:
        mean, std: of the posterior.
        low, high: ends of the central credible interval.
        mean_sampling_error: standard error of ``mean`` by the number of samples; 0 if it is exact.
        interval_sampling_error: the same of the less certain end of the interval; too small for
            quantiles that are at the end of the samples' range (`RegionReport.enough_samples`).
    """

    mean: float
    std: float
    low: float
    high: float
    mean_sampling_error: float
    interval_sampling_error: float


@dataclass(frozen=True, kw_only=True)
class RegionReport:
    """Answers about a region.

    Args:
        pixels, area: of the region; the area in mm².
        samples: that the answers are made from.
        level: probability of the intervals.
        attenuation: the region's mean, 1/mm.
        above: threshold, 1/mm; the next five are ``None`` without one.
        area_above: area of the region's pixels above the threshold, mm².
        image_area_above: the same area of the image shown.
        undecided: share of the region's pixels whose 95 % error bars hold the threshold.
        probability_above: that the region's *mean* is above the threshold.
        probability_error: Monte-Carlo standard error of that.
        notes: what a reader of the numbers should know, a sentence each.
    """

    pixels: int
    area: float
    samples: int
    level: float
    attenuation: Estimate
    above: float | None = None
    area_above: Estimate | None = None
    image_area_above: float | None = None
    undecided: float | None = None
    probability_above: float | None = None
    probability_error: float | None = None
    notes: tuple[str, ...] = ()

    @property
    def enough_samples(self) -> bool:
        """Whether a quantile of the samples is inside of their range, rather than at its end."""
        return (self.samples + 1) * (1 - self.level) / 2 >= 1

    @property
    def biased_area(self) -> bool:
        """Whether the area of the image shown is outside of the interval of the area."""
        if self.area_above is None or self.image_area_above is None:
            return False
        return not self.area_above.low <= self.image_area_above <= self.area_above.high

    def summary(self) -> dict[str, str]:
        """Return the answers in words, by name."""
        lines = {
            "region": f"{self.pixels} pixel{'s' if self.pixels != 1 else ''}, {self.area:.4g} mm²",
            "mean attenuation": _symmetric(self.attenuation, self.level),
        }
        if self.area_above is not None:
            lines[f"P(mean > {self.above:g} /mm)"] = self._probability()
            lines[f"area above {self.above:g} /mm"] = _interval(self.area_above, self.level)
            lines["area of the image shown"] = f"{self.image_area_above:.4g} mm²"
        lines["posterior samples"] = (
            f"{self.samples}; another set of samples would move the ends of the mean's interval by about "
            f"{self.attenuation.interval_sampling_error:.1g} /mm"
        )
        return lines

    def _probability(self) -> str:
        """Beyond a thousandth the number is the tail of a model, not knowledge."""
        probability, error = self.probability_above or 0.0, self.probability_error or 0.0
        if probability < 1e-3:
            return "below 0.001"
        return (
            "above 0.999"
            if probability > 0.999
            else f"{probability:.3g} (within {error:.1g}, by the samples)"
        )

    def __str__(self) -> str:
        lines = [f"{name}: {text}" for name, text in self.summary().items()]
        return "\n".join([*lines, *(f"note: {note}" for note in self.notes)])


def query(
    result: AnyResult,
    roi: Roi | None = None,
    *,
    mask: Bools | str | Path | None = None,
    above: float | None = None,
    level: float = 0.95,
) -> RegionReport:
    """Ask how sure a result is about a region: its mean attenuation, and its area above a threshold.

    Args:
        result: a `Prediction` with samples, or the path of a result file.
        roi: two opposite corners x0, y0, x1, y1 of a rectangle in mm; the origin is the rotation axis, x
            points right, y up.
        mask: the region in place of ``roi``: booleans (rows, columns), or the path of a picture.
        above: threshold in 1/mm.
        level: probability of the credible intervals.

    Raises:
        MissingPartError: the result holds no samples.
        InputError: there is no such region.
    """
    loaded = load_result(result)
    rows, columns = shape = loaded.mean.shape[0], loaded.mean.shape[1]
    if (roi is None) == (mask is None):
        given = "neither roi nor mask is" if roi is None else "both roi and mask are"
        raise InputError(
            f"{given} given; choose the region by roi (x0,y0,x1,y1 in mm) or by mask (a picture)"
        )
    if roi is not None:
        region = region_mask(shape, loaded.pixel_size, roi)
    else:
        region = np.asarray(read_mask(mask, shape) if isinstance(mask, str | Path) else mask, dtype=bool)
    if loaded.samples is None:
        name = "this result" if result is loaded else result
        raise MissingPartError(
            f"{name} (method {loaded.method}) holds no posterior samples; reconstruct the scan by a method "
            "that gives samples, such as lin-dip or tv-gauss (ct-dip methods lists them)"
        )
    report = query_region(loaded.samples, loaded.mean, region, loaded.pixel_size, above=above, level=level)
    half = columns * loaded.pixel_size / 2, rows * loaded.pixel_size / 2
    return dataclasses.replace(report, notes=tuple(_notes(report, roi, half)))


def _notes(report: RegionReport, roi: Roi | None, half: tuple[float, float]) -> Iterator[str]:
    """Say what a reader of the numbers should know; ``half`` are the image's half width and height, mm."""
    if roi is not None and any(max(map(abs, roi[axis::2])) > half[axis] * (1 + 1e-6) for axis in (0, 1)):
        # Somebody may count from a corner of the image, and would get another region than they mean.
        yield (
            f"roi {_numbers(roi)} reaches beyond the image, which ends at x ±{half[0]:.4g} and "
            f"y ±{half[1]:.4g} mm; only the part inside counts"
        )
    if report.area_above is not None and not report.enough_samples:
        yield (
            f"{report.samples} samples are few for a level of {report.level:g}: "
            "the interval of the area is their range"
        )
    if report.biased_area:
        share = 100 * (report.undecided or 0.0)
        yield (
            f"the threshold is within the error bars of {share:.0f} % of the region: this area is biased and "
            "its interval too narrow"
        )
    if report.pixels > 1:
        yield CAVEAT


def _symmetric(estimate: Estimate, level: float) -> str:
    """Describe an attenuation whose interval has its mean in the middle."""
    half = (estimate.high - estimate.low) / 2
    return (
        f"{estimate.mean:.4g} ± {half:.2g} /mm ({100 * level:.4g} %: {estimate.low:.4g} to "
        f"{estimate.high:.4g}), standard deviation {estimate.std:.2g}"
    )


def _interval(estimate: Estimate, level: float) -> str:
    """Describe an area, whose interval may be lopsided."""
    return (
        f"{estimate.mean:.4g} mm² ({100 * level:.4g} %: {estimate.low:.4g} to {estimate.high:.4g}), "
        f"standard deviation {estimate.std:.2g}"
    )


def region_mask(shape: tuple[int, int], pixel_size: float, roi: Roi) -> Bools:
    """Pixels whose centre is inside a rectangle or on its edge, (rows, columns).

    Args:
        shape: (rows, columns) of the image.
        roi: two opposite corners x0, y0, x1, y1 in mm; the origin is the rotation axis, x points right, y up.

    Raises:
        InputError: there is no such pixel.
    """
    if not all(map(math.isfinite, roi)):
        raise InputError(f"region {_numbers(roi)} must be four finite numbers x0,y0,x1,y1 in mm")
    volume = Volume(shape=shape, pixel_size=pixel_size)
    x, y = volume.pixel_centers()
    left, right = sorted(roi[::2])
    bottom, top = sorted(roi[1::2])
    slack = 1e-6 * pixel_size  # centres on the edge belong to the region, however they are rounded
    columns = (x >= left - slack) & (x <= right + slack)
    rows = (y >= bottom - slack) & (y <= top + slack)
    mask = rows[:, None] & columns
    if not mask.any():
        height, width = volume.size
        outside = left > width / 2 or right < -width / 2 or bottom > height / 2 or top < -height / 2
        raise InputError(
            f"region {_numbers(roi)} {'is outside of the image' if outside else 'holds no pixel centre'}; "
            f"choose x from {-width / 2:g} to {width / 2:g} and y from {-height / 2:g} to {height / 2:g} mm, "
            f"where pixels are {pixel_size:g} mm wide"
        )
    return mask


def query_region(
    samples: Floats,
    mean: Floats,
    mask: Bools,
    pixel_size: float,
    above: float | None = None,
    level: float = 0.95,
) -> RegionReport:
    """Posterior of the mean attenuation in a region and of its area above a threshold.

    Args:
        samples: of the posterior, (n, rows, columns), 1/mm.
        mean: of the posterior, (rows, columns), 1/mm.
        mask: the region, (rows, columns).
        pixel_size: mm.
        above: threshold, 1/mm.
        level: probability of the credible intervals.
    """
    _check(samples, mean, mask, above, level)
    inside = samples[:, mask].astype(np.float64)  # (n, pixels)
    center = float(mean[mask].mean(dtype=np.float64))
    attenuation = _gaussian(inside.mean(axis=1), center, level)
    area_above = image_area = undecided = probability = error = None
    if above is not None:
        image = mean[mask].astype(np.float64)
        image_area = float((image > above).sum()) * pixel_size**2
        spread = np.sqrt(np.mean((inside - image) ** 2, axis=0))
        undecided = float(np.mean(np.abs(image - above) <= GAUSSIAN.reach(0.95) * spread))
        area_above = _empirical((inside > above).sum(axis=1) * pixel_size**2, level)
        probability, error = _exceedance(attenuation, above, len(samples))
    return RegionReport(
        pixels=inside.shape[1],
        area=inside.shape[1] * pixel_size**2,
        samples=len(samples),
        level=level,
        attenuation=attenuation,
        above=above,
        area_above=area_above,
        image_area_above=image_area,
        undecided=undecided,
        probability_above=probability,
        probability_error=error,
    )


def _gaussian(values: Floats, center: float, level: float) -> Estimate:
    """Estimate a Gaussian number whose mean is known, and its deviation from samples."""
    n = len(values)
    std = float(np.sqrt(np.mean((values - center) ** 2)))
    width = float(stdtrit(n, (1 + level) / 2)) * std
    return Estimate(
        mean=center,
        std=std,
        low=center - width,
        high=center + width,
        mean_sampling_error=0.0,
        interval_sampling_error=width / math.sqrt(2 * n),  # of a sample standard deviation, 1/√2n of it
    )


def _exceedance(estimate: Estimate, above: float, n: int) -> tuple[float, float]:
    """Probability that a Gaussian number is above a threshold, and its Monte-Carlo standard error.

    The error is how far the probability moves when the standard deviation moves by its own error.
    """
    if estimate.std == 0:
        return float(estimate.mean > above), 0.0
    z, error = (estimate.mean - above) / estimate.std, 1 / math.sqrt(2 * n)
    narrow, probability, wide = stdtr(n, [z * (1 + error), z, z / (1 + error)]).tolist()
    return probability, abs(narrow - wide) / 2


def _empirical(values: Floats, level: float) -> Estimate:
    """Estimate a number of any distribution from its samples alone."""
    n, tail = len(values), (1 - level) / 2
    # A sample quantile is uncertain by the binomial deviation of its rank.
    rank_deviation = math.sqrt(tail * (1 - tail) / n)
    ranks = np.clip(np.add.outer([tail, 1 - tail], [-rank_deviation, 0, rank_deviation]), 0, 1)
    (low_from, low, low_to), (high_from, high, high_to) = np.quantile(
        values, ranks, method="weibull"
    ).tolist()
    std = float(values.std(ddof=1))
    return Estimate(
        mean=float(values.mean()),
        std=std,
        low=low,
        high=high,
        mean_sampling_error=std / math.sqrt(n),
        interval_sampling_error=max(low_to - low_from, high_to - high_from) / 2,
    )


def _check(samples: Floats, mean: Floats, mask: Bools, above: float | None, level: float) -> None:
    check_level(level)
    if above is not None and not math.isfinite(above):
        raise InputError(f"above: {above:g} must be a finite attenuation, in 1/mm")
    if mask.shape != mean.shape:
        raise InputError(f"mask has shape {mask.shape}, the image {mean.shape}; give one of the same shape")
    if not mask.any():
        raise InputError("the mask has no pixels; mark the region with values other than zero")
    if samples.ndim != 3 or samples.shape[1:] != mean.shape or len(samples) < 2:
        raise InputError(
            f"samples have shape {samples.shape}, expected two or more images of {mean.shape}; "
            "reconstruct again"
        )
    if not np.isfinite(samples[:, mask]).all():
        raise InputError("samples hold values that are not finite; reconstruct again")


def _numbers(values: tuple[float, ...]) -> str:
    return ",".join(f"{value:g}" for value in values)
