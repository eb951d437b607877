"""The accuracy that approximate inference reached, and warnings where that is not enough."""

from abc import ABC, abstractmethod
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Certificate(ABC):
    """The accuracy of an inference that approximated something.

    Args:
        evidence_error: how far the evidence may be off, in nats.
        residual: worst true relative residual of the solves behind it.
        passes: products with J and Jᵀ.
        samples: that were drawn, of ``samples_asked``.
        closed_form: whether deviations are exact rather than made from the samples.
        converged: whether everything reached what it was asked for.
    """

    evidence_error: float
    residual: float
    passes: int
    samples: int
    samples_asked: int
    closed_form: bool
    converged: bool

    @property
    @abstractmethod
    def regime(self) -> str:
        """Which inference it certifies."""

    @abstractmethod
    def _shortfalls(self) -> list[str]:
        """List what did not reach its goal, with numbers, beyond a plain solve."""

    def warnings(self) -> list[str]:
        """List what a user should know before trusting the result, one sentence each."""
        sentences = []
        if not self.converged:
            reasons = self._shortfalls() or [f"a solve ended at a relative residual of {self.residual:.2g}"]
            sentences.append(
                f"the {self.regime} inference did NOT reach what it was asked for: {'; '.join(reasons)}"
            )
        if self.samples < self.samples_asked:
            known_to = f", so error bars are known to {(2 * self.samples) ** -0.5:.0%}"
            sentences.append(
                f"there was time for {self.samples} of {self.samples_asked} samples"
                f"{'' if self.closed_form else known_to}; raise the time budget (--budget-minutes) for more"
            )
        return sentences

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for result files."""
        return asdict(self)


@dataclass(frozen=True, kw_only=True)
class CompressionCertificate(Certificate):
    """The accuracy of compressed inference.

    Args:
        rank: of the basis.
        discarded_trace: of the signal outside of the basis, in units of the noise's, with its standard error
            and what was allowed.
        extensions: how often the basis had to grow for the hyperparameters that were found.
        hyperparameters_change: how far what the basis leaves out moves them, where that is estimated.
        evidence_change: what the whole model's evidence has beyond that of the compressed one, in nats.
        mean_error, sample_error, accurate: see `ct_dip.posterior.compression_check.CompressionCheck`.
        noise_log_det_error: standard error of log|N|.
        noise_solve_residual: worst of the solves with N, and whether all ``noise_solve_converged``.
    """

    rank: int
    discarded_trace: float
    discarded_trace_error: float
    discarded_trace_allowed: float
    extensions: int
    hyperparameters_change: list[float] | None
    evidence_change: float
    mean_error: float
    sample_error: float
    accurate: bool
    noise_log_det_error: float
    noise_solve_residual: float
    noise_solve_converged: bool

    @property
    def regime(self) -> str:
        """Name the inference that it certifies."""
        return "compressed"

    def _shortfalls(self) -> list[str]:
        parts = []
        if self.discarded_trace > self.discarded_trace_allowed:
            parts.append(
                f"a compression of rank {self.rank} leaves {self.discarded_trace:.2g} of the noise's trace "
                f"outside, above inference.compression {self.discarded_trace_allowed:g}; allow more, or give "
                "it more memory or time"
            )
        if not self.accurate:
            parts.append(
                f"compared with the full model it moves the image by {self.mean_error:.2g} and its samples "
                f"by {self.sample_error:.2g} of an error bar; try a smaller inference.compression than "
                f"{self.discarded_trace_allowed:g}"
            )
        if not self.noise_solve_converged:
            parts.append(
                f"a solve with the noise ended at a relative residual of {self.noise_solve_residual:.2g}"
            )
        return parts


@dataclass(frozen=True, kw_only=True)
class IterativeCertificate(Certificate):
    """The accuracy of iterative inference.

    Args:
        gradient: of the evidence where the search ended, with its standard error.
        tolerance: of every solve.
    """

    gradient: list[float]
    gradient_error: list[float]
    tolerance: float

    @property
    def regime(self) -> str:
        """Name the inference that it certifies."""
        return "iterative"

    def _shortfalls(self) -> list[str]:
        return []
