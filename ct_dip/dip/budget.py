"""Warn about a network that ran out of steps."""

from collections.abc import Mapping
from typing import Any

_NOISE = 1.3  # misfit that is still the noise, about: the mean square of its residuals, 1 for noise alone


def budget_warning(metrics: Mapping[str, Any]) -> str | None:
    """Return a sentence if a fit ran out of steps well before its image explained the data.

    Args:
        metrics: of a result; ``stopped_by``, ``steps`` and ``misfit`` are looked at.
    """
    steps, misfit = metrics.get("steps"), metrics.get("misfit")
    if metrics.get("stopped_by") != "budget" or not isinstance(misfit, float) or not misfit > _NOISE:
        return None
    return (
        f"The network was stopped by its budget of {steps} steps at a misfit of {misfit:.2g}, where 1 is the "
        "noise. Give it more: --preset balanced after fast, thorough after balanced, or a larger "
        "dip.max_steps."
    )
