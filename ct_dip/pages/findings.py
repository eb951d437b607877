"""What the measured data, the noise and the arithmetic say about an image, in words; no truth is needed."""

import math
from collections.abc import Mapping
from typing import Any

from ct_dip.data.prediction import Prediction
from ct_dip.data.run_doubts import INACCURATE, MORE_WORK, run_doubts
from ct_dip.evaluation.structure import Structure, residual_structure
from ct_dip.pages.finding import ORDER, Finding, level_of, percent

# What the image leaves unexplained of the sinogram, over what noise alone would leave. With the hundreds of
# measurements of a small scan chance moves this ratio by some 5 %.
LEFTOVER_CAUTION = 1.3  # far beyond chance: something other than noise is in the data
LEFTOVER_POOR = 2.0  # as much unexplained as there is noise
LEFTOVER_LOW = 0.6  # the image follows the noise
# Fitted over stated noise. The fit finds the noise of a simulated scan within 1 to 5 %.
NOISE_CAUTION = 1.25  # whatever the model cannot explain is booked as noise: a quarter more is no chance
NOISE_POOR = 2.0  # three quarters of the variance that is called noise is something else
NOISE_LOW = 0.8  # the scan states too much noise, or the model explains some of it
# Factor on the error bars that held-out views ask for.
WIDENED = 2.0  # a model that is so wrong about views may be wrong about its shape, too, not only its width
# Structure of what the image leaves unexplained, see `ct_dip.evaluation.structure`. It counts where it is
# beyond chance and large enough to matter: neighbours that correlate at r make averages less certain, by
# √((1 + r)/(1 − r)), than error bars for independent noise say.
BEYOND_CHANCE = 3.0  # standard errors
CORRELATION_CAUTION = 0.2  # by a fifth
CORRELATION_POOR = 0.6  # twice
DRIFT_CAUTION = 0.25  # of the noise: what a quarter more noise would do, in every detector of a view at once
DRIFT_POOR = 1.0  # whole views are off by as much as the noise
# A detector that is off in every view, by its mean: an edge that the grid cannot show, or a bad detector.
STRIPE_CAUTION = (
    0.25  # of the noise, as for drifts; a stripe is the same in all views, so their number does not help
)
STRIPE_POOR = 3.0  # a detector that measures something else
IMPLAUSIBLE = "The data look implausible"  # title of every warning that a run gave about its input

CHECK_SCAN = (
    "Check the scan: units in mm, rotation axis, dark and flat fields, stated noise; ct-dip info shows them. "
    "Correct it and reconstruct again."
)
CHECK_RESIDUALS = (
    "Look at the unexplained part of the sinogram below. Outlines point to a wrong geometry or rotation "
    "axis, stripes to bad detectors, too (ct-dip import --remove-stripes); correct the scan and reconstruct "
    "again."
)
CHECK_NOISE = "Check the noise that the scan states (ct-dip info shows it), correct it and reconstruct again."
FEW_VIEWS = "Trust the typical width of the error bars more than their pattern; more views would help."


def data_findings(result: Prediction) -> list[Finding]:
    """Judge the image by the measured data; no truth is needed.

    The mean square of ``(y − A x) / noise`` is not 1 under a right model but ``1 − d/n``: fitting ``d``
    effective directions of ``n`` measurements takes that share of the noise away.
    """
    metrics = result.diagnostics
    doubts = list(run_doubts(metrics))
    about_data = [each for each in result.warnings if each not in {doubt.warning for doubt in doubts}]
    findings = [Finding("caution", IMPLAUSIBLE, warning, CHECK_SCAN) for warning in about_data]
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
        if metrics.get("noise_constant"):
            noise_source += " with the constant that its data show in addition to photons"
        text = f"The noise found in the data is {ratio:.2f} times the noise {noise_source}."
        if ratio > NOISE_POOR:
            title = "There is much more in the data than image and noise"
            findings.append(Finding("poor", title, text, CHECK_RESIDUALS))
        elif ratio > NOISE_CAUTION:
            findings.append(Finding("caution", "The data are noisier than they should be", text, CHECK_NOISE))
        elif ratio < NOISE_LOW:
            findings.append(
                Finding("caution", "The data are less noisy than they should be", text, CHECK_NOISE)
            )
        else:
            findings.append(Finding("good", "The noise is as expected", text))
    widening = _number(metrics, "widening")
    if widening is not None:
        findings.append(_widening_finding(math.sqrt(widening)))
    findings += [Finding("caution", *doubt) for doubt in doubts if doubt.title != INACCURATE]
    return findings + _arithmetic_findings(metrics)


def _leftover_finding(ratio: float, structure: Structure | None) -> Finding:
    """Whether what the image leaves unexplained has the size and the structure of noise."""
    text = (
        f"Scanned again in the computer, the image differs from the measured data by {ratio:.2f} times "
        "what noise alone would cause (mean square; 1 is ideal)."
    )
    level = level_of(ratio, LEFTOVER_CAUTION, LEFTOVER_POOR)
    if structure is not None:
        r, a = structure.correlation, structure.drift
        correlated = level_of(r, CORRELATION_CAUTION, CORRELATION_POOR)
        drifting = level_of(a, DRIFT_CAUTION, DRIFT_POOR)
        if r < BEYOND_CHANCE * structure.correlation_error:
            correlated = "good"
        if a < math.sqrt(BEYOND_CHANCE) * structure.drift_error:  # chance is Gaussian in the drift's square
            drifting = "good"
        striped = level_of(structure.stripe, STRIPE_CAUTION, STRIPE_POOR)
        if structure.stripe < structure.stripe_chance:
            striped = "good"
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
        if striped != "good":
            text += (
                f" Detector {structure.stripe_detector}, counted from 0, is off by {structure.stripe:.2g} "
                "noise standard deviations on average over all views, where chance allows "
                f"{structure.stripe_chance:.2g}: either a detector that is off, which draws a ring (see "
                "--remove-stripes), or the rim of a round object on too coarse a grid (try a larger --size)."
            )
        if correlated == drifting == striped == "good":
            text += (
                " Neither neighbouring detectors, whole views, nor a detector in all views differ together."
            )
        level = max(level, correlated, drifting, striped, key=ORDER.index)
    if level == "good" and ratio < LEFTOVER_LOW:
        return Finding("caution", "The image follows the noise of the measurements", text, CHECK_NOISE)
    titles = {"good": "explains the measurements", "caution": "explains the measurements only partly"}
    title = f"The image {titles.get(level, 'does not explain the measurements')}"
    return Finding(level, title, text, "" if level == "good" else CHECK_RESIDUALS)


def _widening_finding(factor: float) -> Finding:
    """Judge how much held-out views changed the error bars."""
    text = (
        f"Views that a first fit had not seen asked for error bars {factor:.2f} times as wide as the model's "
        "own; that is how wide they are here."
    )
    if factor > WIDENED:
        return Finding("caution", "The model alone was much too sure of itself", text, FEW_VIEWS)
    return Finding("good", "The error bars were set by held-out views", text)


def _arithmetic_findings(metrics: Mapping[str, Any]) -> list[Finding]:
    """Judge how exact the computation was, where something was approximated."""
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
    return [Finding("poor", INACCURATE, text.strip(), MORE_WORK)]


def _number(metrics: Mapping[str, Any], name: str) -> float | None:
    value = metrics.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return float(value)
