"""Answer "should I believe it?": compare the error bars with the truth, or with held-out views."""

import math
from collections.abc import Sequence

from ct_dip.data.prediction import Prediction
from ct_dip.data.run_doubts import UNSEEN
from ct_dip.data.scores import HeldoutScores, PartScores, Scores
from ct_dip.pages.finding import ORDER, Finding, level_of, percent
from ct_dip.pages.findings import CHECK_SCAN, FEW_VIEWS, IMPLAUSIBLE

# A 95 % error bar may miss the truth in 5 % of the pixels.
COVERAGE_CAUTION = 0.90  # it misses twice as often as it promises
COVERAGE_POOR = 0.80  # four times as often: an error bar that is no longer one
COVERAGE_WIDE = 0.99  # of a Gaussian, error bars about 1.3 times as wide as needed: safe, said as such
FEWEST_PIXELS = 20  # a coverage of fewer moves in steps of more than 5 %
# Root mean square of standardised residuals of held-out views. In five prototype runs it was 0.96, 1.03,
# 1.15, 1.21 and 1.44 where 95 % error bars held .97, .94, .93, .93 and .82 of the pixels near the object.
HELDOUT_CAUTION = 1.2  # until here the error bars of pixels held; of a Gaussian, 90 % of the measurements do
HELDOUT_POOR = 1.35  # a line through the last two runs has 90 % of the pixels held at 1.28, 80 % at 1.49
HELDOUT_WIDE = 0.7  # noise is a part of these residuals, so error bars must be far too wide to get here
WITHIN_CHANCE = 2.0  # standard errors: so far from HELDOUT_CAUTION, the views may be unlucky ones
# Error bars of different widths announce where the image is wrong. Compare the quarter of the pixels where
# they are widest with that where they are narrowest: of the announced ratio's logarithm,
FOLLOWED = 0.5  # the errors follow it (1) rather than ignore it (0)
ANNOUNCED = 1.2  # error bars that differ less announce no place

WIDER = (
    "Do not quote these error bars as they are. Reconstruct with --method lin-dip, which by default widens "
    "them until they explain held-out views; if it made this result, take them as a lower limit."
)


def near_part(scores: Scores) -> PartScores | None:
    """Return the figures on and near the object, where that has enough pixels."""
    near = scores.parts.get("near")
    return None if near is None or near.pixels < FEWEST_PIXELS else near


def verdict(result: Prediction, scores: Scores | None, findings: Sequence[Finding]) -> Finding:
    """Judge by the truth or a reference if there is one, else by held-out views, else by the worst check.

    Args:
        findings: of the measured data; see `ct_dip.pages.findings`.
    """
    if result.std is None:
        return Finding(
            "unknown",
            "Not known: there are no error bars",
            "This method gives an image and does not say how sure it is. Reconstruct with the method lin-dip "
            "to get error bars.",
        )
    if scores is not None and scores.coverage(0.95) is not None:
        covered = coverage_verdict(scores)
        odd = any(finding.title == IMPLAUSIBLE for finding in findings)
        if covered.level == "good" and scores.compared_with == "reference" and odd:
            return Finding("caution", f"With care: {_inside(IMPLAUSIBLE)}", covered.text, CHECK_SCAN)
        return covered
    if result.heldout is not None and result.heldout.error_bars:
        return _heldout_verdict(result.heldout, findings)
    if not findings:
        return Finding(
            "unknown", "Not known", "The result holds nothing that the error bars could be checked with."
        )
    worst = max((finding.level for finding in findings), key=ORDER.index)
    because = f"{_reasons(findings)}."
    limit = (
        "The true object is not known, so the result could be checked against the measured data only; "
        "what no view shows cannot be checked."
    )
    if worst == "good":
        return Finding("good", "Nothing speaks against it", f"{because} {limit}")
    if worst == "caution":
        return Finding("caution", "With care", f"{because} {limit}", _advice(findings))
    return Finding("poor", "No", f"{because} The error bars do not include this.", _advice(findings))


def coverage_verdict(scores: Scores) -> Finding:
    """Whether the error bars contain what is known as often as they promise; the harder place decides.

    A reference whose noise was not stated decides near the object only: in the empty background, which is
    known almost exactly, its noise is all that there is.
    """
    everywhere = scores.parts["all"].coverage[0.95].value
    where, worst = f"at {percent(everywhere)} of all pixels", everywhere
    if (part := near_part(scores)) is not None and part.coverage:
        near = part.coverage[0.95].value
        where += f", and at {percent(near)} of those on or near the object"
        unstated = scores.compared_with == "reference" and not scores.noise_std
        worst = near if unstated else min(everywhere, near)
    text = f"The true object is known here. It lies inside the 95 % error bars {where}."
    if scores.compared_with == "reference":
        text = _against_reference(scores, where)
    if worst < COVERAGE_POOR:
        return Finding("poor", "No: the error bars are much too narrow", text, WIDER)
    if worst < COVERAGE_CAUTION:
        return Finding("caution", "With care: the error bars are somewhat too narrow", text, WIDER)
    if worst > COVERAGE_WIDE:
        return Finding("good", "Yes, and on the safe side: the error bars are wider than needed", text)
    return Finding("good", "Yes: the error bars hold", text)


def _against_reference(scores: Scores, where: str) -> str:
    """Describe a coverage against a reference, whose own errors count as well."""
    if scores.noise_std:
        return (
            "The true object is not known; a reference image stands in for it. It lies inside the 95 % error "
            f"bars, widened by its own noise of {scores.noise_std:.2g} /mm, {where}."
        )
    return (
        "The true object is not known; a reference image stands in for it. It lies inside the 95 % error "
        f"bars {where}. How wrong the reference is itself was not stated: its errors count as errors of this "
        "image, and in the empty background there is nothing else; so the object decides."
    )


def heldout_finding(heldout: HeldoutScores) -> Finding:
    """Whether views that the method never saw lie inside the error bars that it gives them.

    Chance forgives one level: a few views may all be harder than others.
    """
    views = "one view" if heldout.views == 1 else f"{heldout.views} views"
    kept = f"{heldout.measurements} measurements from {views} were held out of a second reconstruction"
    if not heldout.error_bars:
        ratio = _with_error(heldout.misfit.value, heldout.misfit.standard_error)
        text = (
            f"{kept}. Scanned again in the computer, an image from the other views differs from them by "
            f"{ratio} times what noise alone would cause (mean square; an image without errors has 1)."
        )
        return Finding("unknown", "How well held-out views are predicted", text)
    size, error, _ = heldout.rms_z
    share, share_error, _ = heldout.coverage[0.95]
    chance = "" if share_error is None else f" (± {percent(share_error)})"
    level = level_of(size, HELDOUT_CAUTION, HELDOUT_POOR)
    if level != "good" and size - WITHIN_CHANCE * (error or 0.0) <= HELDOUT_CAUTION:
        level = ORDER[ORDER.index(level) - 1]
    text = (
        f"{kept}; {percent(share)}{chance} of them lie inside their 95 % intervals. Their distances from "
        f"what the other views predict are {_with_error(size, error)} times what the error bars and "
        "the noise predict (root mean square; 1 is ideal)."
    )
    titles = {"good": "hold", "caution": "are somewhat too narrow", "poor": "are too narrow"}
    title = "are wider than needed" if size < HELDOUT_WIDE else titles[level]
    advice = "" if level == "good" else WIDER
    return Finding(level, f"The error bars {title} for held-out views", text, advice)


def _heldout_verdict(heldout: HeldoutScores, findings: Sequence[Finding]) -> Finding:
    """Judge by held-out views; what they cannot see turns a good verdict into a careful one.

    That is a failed check, implausible data, or directions that no view has. What is only somewhat odd about
    the data, such as more noise than stated, views that were held out have felt as well, and so have the
    error bars that explain them: they held on all full scans of `benchmarks objects` that had such a finding.
    It is said, and changes nothing.
    """
    held = heldout_finding(heldout)
    text = f"The true object is not known. {held.text} What no view shows cannot be checked."
    doubts = [f for f in findings if f.level == "poor" or f.title in (IMPLAUSIBLE, UNSEEN)]
    odd = [f for f in findings if f.level == "caution" and f not in doubts]
    if odd:
        text += (
            f" Also noticed: {_inside(_reasons(odd))}. That affects the held-out views as well, so this "
            "check includes it."
        )
    if held.level == "good" and doubts:
        text = f"{_reasons(doubts)}. But {_inside(held.title)}. {text}"
        return Finding("caution", "With care", text, _advice(doubts))
    answer = {"good": "Yes", "caution": "With care", "poor": "No"}[held.level]
    return Finding(held.level, f"{answer}: {_inside(held.title)}", text, held.advice)


def place_findings(scores: Scores) -> list[Finding]:
    """Whether the error bars are wide where the errors are large."""
    near = near_part(scores)
    part = scores.parts["all"] if near is None else near
    if part.narrowest is None or part.widest is None:
        return []
    announced = _ratio(part.widest.std, part.narrowest.std)
    found = _ratio(part.widest.error, part.narrowest.error)
    if announced < ANNOUNCED:
        return []
    place = "" if near is None else " near the object"
    text = (
        f"Of the pixels{place}, a quarter has error bars {_times(announced)} as wide as another quarter; its "
        f"errors are {_times(found)} as large."
    )
    if found >= announced**FOLLOWED:
        return [Finding("good", "The error bars point to where the errors are", text)]
    return [Finding("caution", "The error bars do not point to where the errors are", text, FEW_VIEWS)]


def _reasons(findings: Sequence[Finding]) -> str:
    """Join the titles of the gravest findings into one sentence."""
    worst = max((finding.level for finding in findings), key=ORDER.index)
    first, *others = dict.fromkeys(finding.title for finding in findings if finding.level == worst)
    return "; ".join([first, *map(_inside, others)])


def _advice(findings: Sequence[Finding]) -> str:
    """Return the advice of the first of the gravest findings."""
    return max(findings, key=lambda finding: ORDER.index(finding.level)).advice


def _inside(title: str) -> str:
    """Write a title as part of a sentence."""
    return title[0].lower() + title[1:]


def _with_error(value: float, error: float | None) -> str:
    return f"{value:.2f}" if error is None else f"{value:.2f} ± {error:.2f}"


def _ratio(large: float, small: float) -> float:
    if small > 0:
        return large / small
    return math.inf if large > 0 else 1.0


def _times(ratio: float) -> str:
    return "more than 100 times" if ratio > 100 else f"{ratio:.2g} times"
