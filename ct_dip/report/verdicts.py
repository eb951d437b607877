"""Whether a result should be believed, in words: what was checked, against which thresholds, and why."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any, Literal

import numpy as np

from ct_dip.arrays import Floats
from ct_dip.data.prediction import Prediction
from ct_dip.dip.budget import budget_warning
from ct_dip.evaluation.coverage import coverage_curve
from ct_dip.evaluation.near import near_object_of
from ct_dip.evaluation.structure import Structure, residual_structure

Level = Literal["good", "caution", "poor", "unknown"]
_ORDER: tuple[Level, ...] = ("good", "caution", "poor")

# Verdicts. A 95 % error bar may miss the truth in 5 % of the pixels.
COVERAGE_CAUTION = 0.90  # it misses twice as often as it promises
COVERAGE_POOR = 0.80  # four times as often: an error bar that is no longer one
COVERAGE_WIDE = 0.99  # of a Gaussian, error bars about 1.3 times as wide as needed: safe, said as such
# What the image leaves unexplained of the sinogram, over what noise alone would leave. With the hundreds of
# measurements of a small scan chance moves this ratio by some 5 %.
LEFTOVER_CAUTION = 1.3  # far beyond chance: something other than noise is in the data
LEFTOVER_POOR = 2.0  # as much unexplained as there is noise
LEFTOVER_LOW = 0.6  # the image follows the noise
# Fitted over stated noise. The fit finds the noise of a simulated scan within 1 to 5 %.
NOISE_CAUTION = 1.25  # whatever the model cannot explain is booked as noise: a quarter more is no chance
NOISE_POOR = 2.0  # three quarters of the variance that is called noise is something else
NOISE_LOW = 0.8  # the scan states too much noise, or the model explains some of it
# Structure of what the image leaves unexplained, see `ct_dip.evaluation.structure`. It counts where it is
# beyond chance and large enough to matter: neighbours that correlate at r make averages less certain, by
# √((1 + r)/(1 − r)), than error bars for independent noise say.
BEYOND_CHANCE = 3.0  # standard errors
CORRELATION_CAUTION = 0.2  # by a fifth
CORRELATION_POOR = 0.6  # twice
DRIFT_CAUTION = 0.25  # of the noise: what a quarter more noise would do, in every detector of a view at once
DRIFT_POOR = 1.0  # whole views are off by as much as the noise
# Error bars of different widths announce where the image is wrong. Compare the quarter of the pixels where
# they are widest with that where they are narrowest: of the announced ratio's logarithm,
FOLLOWED = 0.5  # the errors follow it (1) rather than ignore it (0)
ANNOUNCED = 1.2  # error bars that differ less announce no place

IMPLAUSIBLE = "The data look implausible"  # title of every warning that a run gave about its input
FEWEST_PIXELS = 20  # a coverage of fewer moves in steps of more than 5 %
COVERAGE_LEVELS = (0.05, *(round(0.1 * k, 1) for k in range(1, 10)), 0.95, 0.99)  # points of the curve
ERROR_BINS = 8
WIDTH_95 = NormalDist().inv_cdf(0.975)  # standard deviations to the end of a 95 % interval


@dataclass(frozen=True)
class Finding:
    """One check of the result, in words."""

    level: Level
    title: str
    text: str


@dataclass(frozen=True)
class Calibration:
    """How the error bars compare with the truth, or with a reference."""

    levels: Sequence[float]
    everywhere: Sequence[float]  # empirical coverage of each level
    near: Sequence[float]  # the same, on and near the object; empty where that has too few pixels
    near_pixels: int
    # The rest is about the pixels near the object, or all of them where those are too few.
    band: Sequence[tuple[float, float]]  # where the coverage of right error bars is, 95 times of 100
    error_bins: Sequence[tuple[float, float]]  # (std, error), root mean squares in 1/mm, by growing std
    announced: float  # error bar in the quarter with the widest over that in the quarter with the narrowest
    found: float  # the same of the errors in these quarters
    name: str = "truth"  # or reference
    noise_std: float = 0.0  # of the reference, 1/mm; it is part of the error bars here

    def at(self, level: float) -> tuple[float, float | None]:
        """Coverage everywhere and near the object."""
        index = self.levels.index(level)
        return self.everywhere[index], self.near[index] if self.near else None


def calibration(result: Prediction) -> Calibration | None:
    """Error bars against the truth or a reference, where there are both."""
    compared = result.comparison
    if compared is None or result.std is None:
        return None
    image, std = compared.image, compared.widened(result.std)
    seen = result.evaluated
    near = near_object_of(result)
    enough = int(near.sum()) >= FEWEST_PIXELS
    where = near if enough else seen
    levels = np.array(COVERAGE_LEVELS)
    samples = result.samples
    if samples is not None:
        samples = compared.in_its_place(samples)
    everywhere = coverage_curve(image, result.mean, std, levels=levels, mask=seen)
    curve = coverage_curve(image, result.mean, std, levels=levels, mask=where, samples=samples)
    error, std = (result.mean - image)[where], std[where]
    order = np.argsort(std, kind="stable")
    parts = np.array_split(order, min(ERROR_BINS, order.size))
    quarter = max(1, order.size // 4)
    narrow, wide = order[:quarter], order[-quarter:]
    return Calibration(
        levels=COVERAGE_LEVELS,
        everywhere=everywhere.empirical.tolist(),
        near=curve.empirical.tolist() if enough else [],
        near_pixels=int(near.sum()),
        band=list(zip(curve.band.lower.tolist(), curve.band.upper.tolist(), strict=True)),
        error_bins=[(_rms(std[part]), _rms(error[part])) for part in parts],
        announced=_ratio(_rms(std[wide]), _rms(std[narrow])),
        found=_ratio(_rms(error[wide]), _rms(error[narrow])),
        name=compared.name,
        noise_std=compared.noise_std,
    )


def certainty(result: Prediction) -> dict[str, float] | None:
    """Half the width of 95 % error bars on and near the object, in 1/mm, and the object's range."""
    if result.std is None:
        return None
    near, seen = near_object_of(result), result.evaluated
    half = WIDTH_95 * result.std[near if near.any() else seen]  # a constant image has no object
    return {
        "typical": float(np.median(half)),
        "wide": float(np.quantile(half, 0.95)),
        "range": float(np.ptp(result.mean[seen])),
    }


def coverage_verdict(checked: Calibration) -> Finding:
    """Whether the error bars contain what is known as often as they promise; the harder place decides.

    A reference whose noise was not stated decides near the object only: in the empty background, which is
    known almost exactly, its noise is all that there is.
    """
    everywhere, near = checked.at(0.95)
    where = f"at {percent(everywhere)} of all pixels"
    if near is not None:
        where += f", and at {percent(near)} of those on or near the object"
    worst = everywhere if near is None else min(everywhere, near)
    if near is not None and checked.name == "reference" and not checked.noise_std:
        worst = near
    text = f"The true object is known here. It lies inside the 95 % error bars {where}."
    if checked.name == "reference":
        text = _against_reference(checked, where)
    if worst < COVERAGE_POOR:
        return Finding("poor", "No: the error bars are much too narrow", text)
    if worst < COVERAGE_CAUTION:
        return Finding("caution", "With care: the error bars are somewhat too narrow", text)
    if worst > COVERAGE_WIDE:
        return Finding("good", "Yes, and on the safe side: the error bars are wider than needed", text)
    return Finding("good", "Yes: the error bars hold", text)


def _against_reference(checked: Calibration, where: str) -> str:
    """A reference has errors of its own, which are counted either way."""
    if checked.noise_std:
        return (
            "The true object is not known; a reference image stands in for it. It lies inside the 95 % error "
            f"bars, widened by its own noise of {checked.noise_std:.2g} /mm, {where}."
        )
    return (
        "The true object is not known; a reference image stands in for it. It lies inside the 95 % error "
        f"bars {where}. How wrong the reference is itself was not stated: its errors count as errors of this "
        "image, and in the empty background there is nothing else; so the object decides."
    )


def place_findings(checked: Calibration) -> list[Finding]:
    """Whether the error bars are wide where the errors are large."""
    if checked.announced < ANNOUNCED:
        return []
    place = " near the object" if checked.near else ""
    text = (
        f"Of the pixels{place}, a quarter has error bars {_times(checked.announced)} as wide as another "
        f"quarter; its errors are {_times(checked.found)} as large."
    )
    if checked.found >= checked.announced**FOLLOWED:
        return [Finding("good", "The error bars point to where the errors are", text)]
    return [Finding("caution", "The error bars do not point to where the errors are", text)]


def data_findings(result: Prediction) -> list[Finding]:
    """What the measured data say about the image, with no truth needed.

    The mean square of ``(y − A x) / noise`` is not 1 under a right model but ``1 − d/n``: fitting ``d``
    effective directions of ``n`` measurements takes that share of the noise away.
    """
    metrics = result.diagnostics
    findings = [Finding("caution", IMPLAUSIBLE, warning) for warning in result.warnings]
    leftover, fitted, stated = (_number(metrics, n) for n in ("sinogram_chi2", "sigma_y", "sigma_y_stated"))
    if leftover is not None:
        explained, structure = 0.0, None
        if result.sinogram is not None:
            residuals = result.sinogram.standardised
            explained = (_number(metrics, "effective_dimension") or 0.0) / residuals.size
            structure = residual_structure(residuals)
        findings.append(_leftover_finding(leftover / max(1 - explained, 0.05), structure))
    if fitted is not None and stated:
        ratio = fitted / stated
        noise_source = "estimated from the data" if metrics.get("noise_estimated") else "that the scan states"
        text = f"The noise found in the data is {ratio:.2f} times the noise {noise_source}."
        if ratio > NOISE_POOR:
            findings.append(Finding("poor", "There is much more in the data than image and noise", text))
        elif ratio > NOISE_CAUTION:
            findings.append(Finding("caution", "The data are noisier than they should be", text))
        elif ratio < NOISE_LOW:
            findings.append(Finding("caution", "The data are less noisy than they should be", text))
        else:
            findings.append(Finding("good", "The noise is as expected", text))
    if warning := budget_warning(metrics):
        findings.append(Finding("caution", "The network was not finished", warning))
    findings += _arithmetic_findings(metrics)
    if metrics.get("evidence_converged") is False:
        text = "The search for the width of the error bars stopped before it was done."
        findings.append(Finding("caution", "The error bars are not final", text))
    return findings


def _leftover_finding(ratio: float, structure: Structure | None) -> Finding:
    """Whether what the image leaves unexplained has the size and the structure of noise."""
    text = (
        f"Scanned again in the computer, the image differs from the measured data by {ratio:.2f} times "
        "what noise alone would cause (mean square; 1 is ideal)."
    )
    level = _level(ratio, LEFTOVER_CAUTION, LEFTOVER_POOR)
    if structure is not None:
        r, a = structure.correlation, structure.drift
        correlated = _level(r, CORRELATION_CAUTION, CORRELATION_POOR)
        drifting = _level(a, DRIFT_CAUTION, DRIFT_POOR)
        if r < BEYOND_CHANCE * structure.correlation_error:
            correlated = "good"
        if a < math.sqrt(BEYOND_CHANCE) * structure.drift_error:  # chance is Gaussian in the drift's square
            drifting = "good"
        if correlated != "good":
            text += (
                f" Neighbouring detectors differ together: they correlate at {r:.2f}, where noise alone "
                f"gives 0 ± {structure.correlation_error:.2f}; above {CORRELATION_CAUTION:g} error bars are "
                "too narrow by a fifth or more."
            )
        if drifting != "good":
            text += (
                f" Whole views differ together: their means stray by {a:.2f} of the noise more than chance "
                f"allows; up to {DRIFT_CAUTION:g} would be harmless."
            )
        if correlated == drifting == "good":
            text += " Neither neighbouring detectors nor whole views differ together."
        level = max(level, correlated, drifting, key=_ORDER.index)
    if level == "good" and ratio < LEFTOVER_LOW:
        return Finding("caution", "The image follows the noise of the measurements", text)
    titles = {"good": "explains the measurements", "caution": "explains the measurements in part"}
    return Finding(level, f"The image {titles.get(level, 'does not explain the measurements')}", text)


def _level(value: float, caution: float, poor: float) -> Level:
    return "poor" if value > poor else "caution" if value > caution else "good"


def _arithmetic_findings(metrics: Mapping[str, Any]) -> list[Finding]:
    """How exact the computation was, where something was approximated."""
    certificate = metrics.get("certificate") or {}
    if not certificate:
        return []
    how = "Directions of the data that the image can hardly move were left out"
    if metrics.get("regime") == "iterative":
        how = "Equations were solved step by step"
    text = f"{how}. "
    if "mean_error" in certificate:
        text += (
            f"Held against the full computation, that moves the image by {certificate['mean_error']:.2g} and "
            f"its samples by {certificate['sample_error']:.2g} of an error bar. "
        )
    if not certificate.get("closed_form", True):
        count = certificate["samples"]
        text += (
            f"The error bars come from {count} random samples, which makes each uncertain by "
            f"{percent(1 / math.sqrt(2 * count))} of itself."
        )
    if certificate.get("converged"):
        return [Finding("good", "The computation was accurate", text.strip())]
    return [Finding("poor", "The computation did not reach its accuracy", text.strip())]


def verdict(result: Prediction, checked: Calibration | None, findings: Sequence[Finding]) -> Finding:
    """Should I believe it? By the truth or a reference if there is one, otherwise by the worst check."""
    if result.std is None:
        return Finding(
            "unknown",
            "Not known: there are no error bars",
            "This method gives an image and does not say how sure it is. Reconstruct with the method lin-dip "
            "to get error bars.",
        )
    if checked is not None:
        covered = coverage_verdict(checked)
        if covered.level == "good" and checked.name == "reference" and result.warnings:
            return Finding("caution", f"With care: {IMPLAUSIBLE[0].lower()}{IMPLAUSIBLE[1:]}", covered.text)
        return covered
    if not findings:
        return Finding(
            "unknown", "Not known", "The result holds nothing that the error bars could be checked with."
        )
    worst = max((finding.level for finding in findings), key=_ORDER.index)
    reasons = list(dict.fromkeys(finding.title for finding in findings if finding.level == worst))
    because = "; ".join([reasons[0], *(reason[0].lower() + reason[1:] for reason in reasons[1:])]) + "."
    limit = (
        "The true object is not known, so the result could be checked against the measured data only; "
        "what no view shows cannot be checked."
    )
    if worst == "good":
        return Finding("good", "Nothing speaks against it", f"{because} {limit}")
    if worst == "caution":
        return Finding("caution", "With care", f"{because} {limit}")
    return Finding("poor", "No", f"{because} The error bars do not include this.")


def percent(share: float) -> str:
    """``0.957`` as ``95.7 %``; never rounded to all or nothing unless it is."""
    digits = 1 if share not in (0.0, 1.0) else 0
    text = f"{100 * share:.{digits}f}"
    if digits and text in ("0.0", "100.0"):
        text = "under 0.1" if share < 0.5 else "over 99.9"
    return f"{text}\N{NO-BREAK SPACE}%"


def _number(metrics: Mapping[str, Any], name: str) -> float | None:
    value = metrics.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return float(value)


def _ratio(large: float, small: float) -> float:
    if small > 0:
        return large / small
    return math.inf if large > 0 else 1.0


def _times(ratio: float) -> str:
    return "more than 100 times" if ratio > 100 else f"{ratio:.2g} times"


def _rms(values: Floats) -> float:
    return math.sqrt(float(np.mean(np.square(values, dtype=np.float64))))
