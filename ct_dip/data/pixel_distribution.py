"""The distribution of a single pixel: Student's, scaled to a standard deviation; Gaussian as its limit.

Most pixels are better known than their standard deviation says, and a few are far off: errors of a
reconstruction have heavier tails than a Gaussian with the same variance. With ν degrees of freedom

    x = mean + std z,      z = t √((ν − 2)/ν),      t ~ Student(ν),

so that std is the standard deviation of x whatever ν is; ν = ∞ is the Gaussian.
"""

import math
from dataclasses import dataclass

import numpy as np
from scipy.special import beta, betaln, gammaln, ndtr, ndtri, stdtr, stdtrit

from ct_dip.arrays import Floats
from ct_dip.checks import check_level
from ct_dip.errors import InputError


@dataclass(frozen=True)
class PixelDistribution:
    """Student's distribution with unit variance. z is an error over its standard deviation.

    Args:
        degrees: of freedom, above 2; infinite for a Gaussian.
    """

    degrees: float = math.inf

    def __post_init__(self) -> None:
        if not self.degrees > 2:
            raise InputError(f"degrees {self.degrees:g} of freedom must be above 2, or .inf for a Gaussian")

    @property
    def gaussian(self) -> bool:
        """Whether it is the limit of infinitely many degrees of freedom."""
        return math.isinf(self.degrees)

    @property
    def name(self) -> str:
        """What a reader calls it."""
        return "Gaussian" if self.gaussian else f"Student's with {self.degrees:g} degrees of freedom"

    @property
    def _scale(self) -> float:
        """z over Student's t."""
        return 1.0 if self.gaussian else math.sqrt((self.degrees - 2) / self.degrees)

    @property
    def mean_absolute(self) -> float:
        """``E|z|``."""
        v = self.degrees
        if self.gaussian:
            return math.sqrt(2 / math.pi)
        return self._scale * 2 * math.sqrt(v) / (v - 1) * math.exp(-betaln(v / 2, 0.5))

    def reach(self, level: float) -> float:
        """Return how many standard deviations it is from the mean to the end of a central interval.

        Raises:
            InputError: the level is not between 0 and 1.
        """
        check_level(level)
        p = (1 + level) / 2
        return float(ndtri(p) if self.gaussian else self._scale * stdtrit(self.degrees, p))

    def upper_tail(self, z: Floats) -> Floats:
        """Return the probability of more than z."""
        z = np.asarray(z, dtype=np.float64)
        return ndtr(-z) if self.gaussian else stdtr(self.degrees, -z / self._scale)

    def normal_scores(self, z: Floats) -> Floats:
        """Return the standard normal number of the same rank: ``Φ⁻¹(F(z))``, N(0, 1) if z is from here."""
        z = np.asarray(z, dtype=np.float64)
        return z if self.gaussian else np.copysign(ndtri(self.upper_tail(np.abs(z))), z)

    def log_density(self, error: Floats, std: Floats) -> Floats:
        """Return that of an error; NaN where a deviation of 0 leaves no density."""
        std = np.where(np.asarray(std) > 0, np.asarray(std, dtype=np.float64), np.nan)
        z, v = np.asarray(error, dtype=np.float64) / std, self.degrees
        if self.gaussian:
            return -0.5 * (z**2 + math.log(2 * math.pi)) - np.log(std)
        constant = float(gammaln((v + 1) / 2) - gammaln(v / 2)) - 0.5 * math.log(math.pi * (v - 2))
        return constant - (v + 1) / 2 * np.log1p(z**2 / (v - 2)) - np.log(std)

    def crps(self, error: Floats, std: Floats) -> Floats:
        """Return the continuous ranked probability score, in the unit of the error; lower is better.

        For a Gaussian ``σ (z (2Φ(z) − 1) + 2φ(z) − 1/√π)`` (Gneiting et al. 2005), for Student's
        distribution as in Jordan, Krüger and Lerch, 2019; ``|error|`` where σ is 0.
        """
        error, std = np.asarray(error, dtype=np.float64), np.asarray(std, dtype=np.float64)
        z, v = np.divide(error, std, out=np.zeros_like(error), where=std > 0), self.degrees
        inside = 1 - 2 * self.upper_tail(z)
        density = np.exp(self.log_density(z, np.ones_like(z)))
        if self.gaussian:
            score = z * inside + 2 * density - 1 / math.sqrt(math.pi)
        else:
            own = 2 * math.sqrt(v) / (v - 1) * beta(0.5, v - 0.5) / beta(0.5, v / 2) ** 2
            score = z * inside + 2 * density * (v - 2 + z**2) / (v - 1) - self._scale * own
        return np.where(std > 0, std * score, np.abs(error))


GAUSSIAN = PixelDistribution()
