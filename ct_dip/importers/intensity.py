"""From detector readings to line integrals, and what the air says about the noise.

A detector does not count photons: its readings are photons times an unknown gain, and light that spreads in
the scintillator ties neighbours together. What matters is the number of photons that would be as noisy,
``N = 1 / Var(I/I₀)``, and readings in air give it. On the walnut and the tooth the variance behind the object
grows as ``1 / (N exp(−y))`` to within 30 %, which is `PhotonNoise`; N must be measured on the bins that are
used, since bins of eight walnut detectors are worth four detectors, not eight.
"""

import numpy as np

from ct_dip.arrays import Floats
from ct_dip.data.noise import PhotonNoise
from ct_dip.errors import ScanError

# Air that reads the same, largest value in more than this share of its readings was clipped.
_CLIPPED = 0.05
# Rays without any light: this share is forgiven.
_STARVED = 0.01
_PILE = 10  # readings with the largest value that may be chance


def check_readings(values: Floats, name: str) -> Floats:
    """Readings as float64: finite and not negative.

    Raises:
        ScanError: with the place of the first wrong one.
    """
    if np.asarray(values).dtype.kind not in "fiu":
        raise ScanError(f"{name} has type {np.asarray(values).dtype}, expected real numbers")
    values = np.asarray(values, dtype=np.float64)
    for wrong, words, fix in (
        (~np.isfinite(values), "not finite", "interpolate dead detectors first"),
        (
            values < 0,
            "negative, an intensity cannot be",
            "where the dark current was subtracted already, set them to 0 first; line integrals are imported "
            "without --counts",
        ),
    ):
        if wrong.any():
            place = tuple(int(i) for i in np.argwhere(wrong)[0])
            raise ScanError(
                f"{name}{list(place)} is {values[place]:g}: {words} ({wrong.sum()} such readings); {fix}"
            )
    return values


def check_air(air: Floats, name: str) -> Floats:
    """Readings in air: not clipped at the detector's largest value, whose air would be too dark."""
    most = air.max()
    share = float(np.mean(air == most))
    if share > _CLIPPED:
        raise ScanError(
            f"{name} is saturated: {100 * share:.0f} % of the readings in air are {most:g}, the largest "
            "value; a clipped air value makes every line integral wrong: measure with less exposure"
        )
    return air


def count_saturated(values: Floats) -> int:
    """How many readings are clipped at the largest one; 0 if it is the end of a tail.

    Of a distribution that is not clipped, the largest value is rarer than the one before it.
    """
    most = values.max()
    clipped = int(np.count_nonzero(values == most))
    if clipped < _PILE:
        return 0
    below = values[values < most]
    return clipped if not below.size or clipped > 3 * np.count_nonzero(below == below.max()) else 0


def line_integrals(intensity: Floats, air: Floats) -> tuple[Floats, int]:
    """``−log(intensity / air)``, and how many rays have no light: these are as dark as the darkest other ray.

    Args:
        intensity: readings without the dark current, (views, detectors).
        air: the same without an object, of a shape that broadcasts.

    Raises:
        ScanError: more than 1 % of the rays have no light.
    """
    share = intensity / air
    starved = share <= 0
    if starved.mean() > _STARVED:
        view, column = (int(i) for i in np.argwhere(starved)[0])
        raise ScanError(
            f"{starved.sum()} of {starved.size} rays have no light above the dark current, the first in view "
            f"{view}, column {column}; the object is opaque there, or the darks are those of another exposure"
        )
    lit = np.maximum(share, share[~starved].min()) if starved.any() else share
    return -np.log(lit), int(starved.sum())


def flat_noise(flats: Floats) -> PhotonNoise | None:
    """`photon_noise` of flat frames, (repetitions, bins), whose flux changes from one to the next.

    Each frame is taken relative to its own mean, which takes 1/bins of the variance with it.
    """
    noise, bins = photon_noise(flats / flats.mean(axis=1, keepdims=True)), flats.shape[1]
    return None if noise is None or bins < 2 else PhotonNoise(photons=noise.photons * (1 - 1 / bins))


def photon_noise(air: Floats) -> PhotonNoise | None:
    """Photons per bin that are as noisy as readings in air; ``None`` if these do not vary.

    Args:
        air: readings in air relative to their mean, (repetitions, bins). Only the spread over repetitions
            counts: differences between bins are the detector's pattern, no noise.
    """
    if len(air) < 2:
        return None
    variance = float((air / air.mean(axis=0)).var(axis=0, ddof=1).mean())
    return PhotonNoise(photons=1 / variance) if variance > 1e-15 else None
