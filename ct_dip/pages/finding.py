"""`Finding`: one check of a result, in words."""

from dataclasses import dataclass
from typing import Literal

Level = Literal["good", "caution", "poor", "unknown"]
ORDER: tuple[Level, ...] = ("good", "caution", "poor")  # from harmless to grave


@dataclass(frozen=True)
class Finding:
    """One check of the result, in words.

    Args:
        advice: what a reader should do next, where the level is caution or poor.
    """

    level: Level
    title: str
    text: str
    advice: str = ""


def level_of(value: float, caution: float, poor: float) -> Level:
    """Judge a value that is better the smaller it is."""
    return "poor" if value > poor else "caution" if value > caution else "good"


def percent(share: float) -> str:
    """Write ``0.957`` as ``95.7 %``; never round to 0 or 100 % what is not."""
    digits = 1 if share not in (0.0, 1.0) else 0
    text = f"{100 * share:.{digits}f}"
    if digits and text in ("0.0", "100.0"):
        text = "under 0.1" if share < 0.5 else "over 99.9"
    return f"{text}\N{NO-BREAK SPACE}%"
