"""`Prediction`: the image that a method reconstructs, its uncertainty, and how it was made."""

import math
from dataclasses import dataclass, field, fields
from typing import Any, NamedTuple

import numpy as np

from ct_dip.arrays import Bools, Floats
from ct_dip.checks import check_count
from ct_dip.data.comparison import Comparison
from ct_dip.data.pixel_distribution import PixelDistribution
from ct_dip.data.scores import HeldoutScores, Scores
from ct_dip.data.thumbnail import thumbnails
from ct_dip.errors import InputError, MissingPartError, ResultError
from ct_dip.progress import format_duration
from ct_dip.text import shortened

_SAMPLES_PER_PIXEL = 5  # that the covariance of a patch is estimated from, at least
# Names that a result file has for other things than images.
RESERVED = {"truth", "reference", "mask", "samples", "std_error"} | {
    f"sinogram_{name}" for name in ("mean", "std", "standardised", "measured")
}
_CERTIFIED = {  # numbers of ``diagnostics["certificate"]`` that are shown
    *("rank", "discarded_trace", "evidence_error", "mean_error", "sample_error"),
    *("residual", "samples", "passes"),
}


class Patch(NamedTuple):
    """A rectangle of pixels and the covariance of their errors."""

    rows: slice
    columns: slice
    covariance: Floats  # (pixels, pixels), 1/mm², row-major inside the patch


class SinogramPredictive(NamedTuple):
    """The predictive distribution of the sinogram, (views, detectors)."""

    mean: Floats  # of the line integrals
    std: Floats  # of a repeated measurement
    standardised: Floats  # (y − mean) / noise: what the image leaves unexplained, about 1 in size
    measured: Floats | None = None  # y


@dataclass(frozen=True, kw_only=True, eq=False)
class Prediction:
    """An image and, where the method has them, its error bars and samples. Images in 1/mm, (rows, columns).

    A method gives the first group of fields, of which only ``mean`` is needed; `ct_dip.reconstruct` adds the
    second one. What a method does not have is left out.

    Args:
        mean: the image.
        std: standard deviation of every pixel; ``std_error`` its Monte-Carlo standard error, if it has one.
        degrees: of freedom of a single pixel's Student distribution; infinite if that is Gaussian.
        samples: images that are as likely as the true one, (n, rows, columns).
        images: others that are shown beside the mean, by name: ``fbp``, ``tv``, ``dip``, ``linear``, …
        sinogram: the predictive of the sinogram.
        patches: covariances of some patches.
        diagnostics: numbers that came out, ready for JSON: iterations, evidence, certificate, …
        warnings: what a user should know before the image is believed, a sentence each.
        traces: curves, by name.
        method: name of the method that made the image.
        pixel_size: mm.
        scan_digest: of the scan that was reconstructed.
        detector_row, row_spacing: of that scan, see `ct_dip.data.scan.Scan`.
        settings: everything that the method was told, resolved; ``given`` names objects of Python that it was
            given, which no settings can repeat. A method says what it chose itself, by section, or ``None``
            for a section that had no part in it.
        seconds: wall time by stage, in the order of execution.
        versions: of the libraries.
        comparison: the truth, or a reference, that the image is compared with.
        mask: the pixels that count in a comparison; all if ``None``.
        scores: how the prediction compares; ``heldout`` how the method predicts views that it did not see.
    """

    mean: Floats
    std: Floats | None = None
    std_error: Floats | None = None
    degrees: float = math.inf
    samples: Floats | None = None
    images: dict[str, Floats] = field(default_factory=dict)
    sinogram: SinogramPredictive | None = None
    patches: tuple[Patch, ...] = ()
    diagnostics: dict[str, Any] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    traces: dict[str, Floats] = field(default_factory=dict)

    method: str = ""
    pixel_size: float = 1.0
    scan_digest: str = ""
    detector_row: int | None = None
    row_spacing: float | None = None
    settings: dict[str, Any] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    comparison: Comparison | None = None
    mask: Bools | None = None
    scores: Scores | None = None
    heldout: HeldoutScores | None = None

    def __post_init__(self) -> None:
        if self.mean.ndim != 2 or self.mean.dtype.kind != "f":
            raise ResultError(
                f"mean has shape {self.mean.shape} and type {self.mean.dtype}, expected an image"
            )
        taken = {n for n in self.images if n in RESERVED or n.startswith("patch_")}
        if taken:
            raise ResultError(f"images named {', '.join(sorted(taken))} would hide others; rename them")
        shape = self.mean.shape
        images: dict[str, Floats | Bools | None] = {"std": self.std, "std_error": self.std_error}
        images |= {"mask": self.mask, **self.images}
        if self.comparison is not None:
            images[self.comparison.name] = self.comparison.image
        for name, image in images.items():
            if image is not None and image.shape != shape:
                raise ResultError(f"{name} has shape {image.shape}, the image {shape}; reconstruct again")
        if self.samples is not None and (self.samples.ndim != 3 or self.samples.shape[1:] != shape):
            raise ResultError(
                f"samples have shape {self.samples.shape}, expected (n, {shape[0]}, {shape[1]}); "
                "reconstruct again"
            )
        if self.mask is not None and not (self.mask.dtype == bool and self.mask.any()):
            raise ResultError("mask must be boolean, and true for at least one pixel; reconstruct again")
        PixelDistribution(self.degrees)  # refuses what is none
        _check_certificate(self.diagnostics.get("certificate") or {})

    def __repr__(self) -> str:
        rows, columns = self.mean.shape
        parts = [f"{rows} × {columns} pixels of {self.pixel_size:.4g} mm"]
        parts.append("no error bars" if self.std is None else "error bars")
        parts += [f"{len(self.samples)} samples"] if self.samples is not None else []
        if self.scores is not None and self.scores.psnr is not None:
            parts.append(f"{self.scores.psnr.value:.2f} dB")
        parts += [format_duration(sum(self.seconds.values()))] if self.seconds else []
        return f"<Prediction{f' by {self.method}' if self.method else ''}: {', '.join(parts)}>"

    def _repr_html_(self) -> str:
        pictures = {"mean": self.mean, "standard deviation": self.std}
        if self.comparison is not None:
            pictures[self.comparison.name] = self.comparison.image
        return thumbnails(repr(self), pictures)

    @property
    def pixel_distribution(self) -> PixelDistribution:
        """The distribution of (truth − mean)/std of a single pixel."""
        return PixelDistribution(self.degrees)

    def interval(self, level: float = 0.95) -> tuple[Floats, Floats]:
        """Lower and upper ends of the central interval of every pixel, 1/mm, (rows, columns)."""
        half = self.pixel_distribution.reach(level) * self._deviations()
        return self.mean - half, self.mean + half

    def probability_above(self, threshold: float) -> Floats:
        """Return the probability that each pixel is above a threshold in 1/mm, (rows, columns)."""
        std, excess = self._deviations(), threshold - self.mean
        certain = np.where(excess < 0, -np.inf, np.inf)
        return self.pixel_distribution.upper_tail(np.divide(excess, std, out=certain, where=std > 0))

    def _deviations(self) -> Floats:
        if self.std is None:
            raise MissingPartError(f"this {self.method} result has no error bars; reconstruct with lin-dip")
        return self.std

    @property
    def evaluated(self) -> Bools:
        """The pixels that count in a comparison, (rows, columns); see `ct_dip.data.scan.Scan.evaluated`."""
        return np.ones(self.mean.shape, dtype=bool) if self.mask is None else self.mask

    @property
    def shows_total_variation(self) -> bool:
        """Whether the image shown is the total-variation one, not the method's own (`inference.image`)."""
        return (self.settings.get("inference") or {}).get("image") == "tv"

    def difference(self, comparison: Comparison) -> Floats:
        """Subtract what the image is compared with, (rows, columns); NaN where nothing is compared."""
        return np.where(self.evaluated, self.mean - comparison.image, np.nan)

    def plain(self) -> "Prediction":
        """Return a copy without what is only in memory, as its file would be read."""
        return Prediction(**{part.name: getattr(self, part.name) for part in fields(Prediction)})

    def sample(self, count: int, seed: int = 0) -> Floats:
        """Return images that are as likely as the true one, (count, rows, columns).

        Raises:
            MissingPartError: the prediction holds fewer.
        """
        count = check_count(count, "count", InputError)
        held = 0 if self.samples is None else len(self.samples)
        if self.samples is None or held < count:
            raise MissingPartError(f"this {self.method} result holds {held} samples, not {count}")
        return self.samples[:count]

    def _more_samples(self, width: int) -> str:
        """Say which settings of the method give covariances of patches."""
        needed = _SAMPLES_PER_PIXEL * width**2
        has = [name for name, each in self.settings.items() if isinstance(each, dict) and "samples" in each]
        if not has:
            return ""
        words = f"; reconstruct with {has[0]}.samples={needed}"
        if "patch" in self.settings[has[0]]:
            words += f", or with {has[0]}.patch={width}, which stores them as patches of the result"
        return words

    def covariances(self, width: int) -> list[Patch]:
        """Estimate covariances of the patches of ``width`` pixels that tile the image, from the samples.

        Raises:
            MissingPartError: there are fewer than five samples for every pixel of a patch.
        """
        held = 0 if self.samples is None else len(self.samples)
        if self.samples is None or held < _SAMPLES_PER_PIXEL * width**2:
            raise MissingPartError(
                f"this {self.method} result holds {held} samples; covariances of patches of {width}² pixels "
                f"need {_SAMPLES_PER_PIXEL * width**2}{self._more_samples(width)}"
            )
        deviations = self.samples.astype(np.float64) - self.mean
        return [
            Patch(rows, columns, (part := deviations[:, rows, columns].reshape(held, -1)).T @ part / held)
            for rows, columns in tiles(self.mean.shape, width)
        ]


def tiles(shape: tuple[int, ...], width: int) -> list[tuple[slice, slice]]:
    """Rows and columns of the squares that tile an image; narrower ones at its right and lower edge."""
    if width < 1:
        raise InputError(f"patch {width} must be at least 1 pixel wide")
    rows, columns = shape
    return [
        (slice(top, min(top + width, rows)), slice(left, min(left + width, columns)))
        for top in range(0, rows, width)
        for left in range(0, columns, width)
    ]


def _check_certificate(certificate: Any) -> None:
    """Refuse a certificate without the numbers that pages and summaries show of it."""
    if not isinstance(certificate, dict):
        raise ResultError(
            f"metrics.certificate must be a mapping, got {shortened(repr(certificate))}; reconstruct again"
        )
    needed = {"sample_error"} if "mean_error" in certificate else set()
    if not certificate.get("closed_form", True):
        needed.add("samples")
    for name in sorted(needed | (_CERTIFIED & certificate.keys())):
        value = certificate.get(name)
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if value is None or not number or (name == "samples" and value <= 0):
            raise ResultError(
                f"metrics.certificate.{name} is {shortened(repr(value))}, not a number of its kind; "
                "reconstruct again"
            )
