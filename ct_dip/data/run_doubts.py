"""Doubts about a run, from its diagnostics: what it did not reach. Results keep them, pages show them."""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

_NOISE = 1.3  # misfit that is still the noise, about: the mean square of its residuals, 1 for noise alone
MORE_STEPS = (
    "Reconstruct again with --preset balanced (after fast) or thorough (after balanced), or with a larger "
    "--set dip.max_steps=N."
)
MORE_WORK = "Reconstruct again with more --budget-memory or --budget-minutes, or with --regime exact."
INACCURATE = "The computation did not reach its accuracy"  # a title
UNSEEN = "Some directions were not measured"  # a title


class Doubt(NamedTuple):
    """What a run did not reach, and what to do about it."""

    title: str
    text: str
    advice: str

    @property
    def warning(self) -> str:
        """The same in a line, for `ct_dip.data.prediction.Prediction.warnings`."""
        return f"{self.text} {self.advice}"


def run_doubts(diagnostics: Mapping[str, Any]) -> Iterator[Doubt]:
    """Yield what a user should know about a run; mostly nothing."""
    steps, misfit = diagnostics.get("steps"), diagnostics.get("misfit")
    if diagnostics.get("stopped_by") == "budget" and isinstance(misfit, float) and misfit > _NOISE:
        text = (
            f"The network was stopped by its budget of {steps} steps at a misfit of {misfit:.2g}, where 1 is "
            "the noise."
        )
        yield Doubt("The network was not finished", text, MORE_STEPS)
    gap = diagnostics.get("duality_gap")
    if diagnostics.get("converged") is False and isinstance(gap, float):
        text = (
            f"Total variation stopped after {diagnostics.get('iterations')} iterations at a relative duality "
            f"gap of {gap:.2g}, before it converged."
        )
        yield Doubt(
            "The image is not final", text, "Reconstruct again with a larger --set tv.max_iterations=N."
        )
    if end := diagnostics.get("tv_strength_at_bound"):
        text = (
            f"Cross-validation chose the {end} total variation that it tries, so one beyond it may suit the "
            "scan better."
        )
        advice = "Check the stated noise, which it is relative to, or set tv.strength or dip.strength."
        yield Doubt("Total variation is at the end of its range", text, advice)
    if diagnostics.get("misses_directions"):
        text = (
            "The views leave out more than 20° of all directions. Edges along those directions are what the "
            "prior makes of them, and no view that was held out can check their error bars."
        )
        advice = "Measure more directions, or take the error bars of such edges as a lower limit."
        yield Doubt(UNSEEN, text, advice)
    if diagnostics.get("evidence_converged") is False:
        text = "The search for the width of the error bars stopped before it was done; its best is used."
        advice = "Reconstruct again with --preset thorough or a larger --set inference.starts=N."
        yield Doubt("The error bars are not final", text, advice)
    if (diagnostics.get("certificate") or {}).get("converged") is False:
        text = f"The {diagnostics.get('regime', 'approximate')} inference did not reach its accuracy."
        yield Doubt(INACCURATE, text, MORE_WORK)
