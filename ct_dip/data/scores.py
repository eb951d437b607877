"""`Scores`: how a prediction compares with the truth or a reference; `HeldoutScores`: with held-out views.

Every number that is a mean has its standard error (`Mean`). What a prediction does not allow, such as
coverage without error bars, is absent: ``None`` or no entry. `ct_dip.evaluation` computes them, pages and
tables read them.
"""

from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, get_args

from ct_dip.data.plain_json import from_plain, to_plain
from ct_dip.errors import ResultError

LEVELS = (0.5, 0.8, 0.9, 0.95, 0.99)  # nominal coverage
PATCHES = (1, 2, 3, 5, 10)  # widths of patches whose log-likelihood is taken, pixels
WHOLE = 0  # stands for the width of the whole image among them
BLOCKS = (4, 8)  # widths of the blocks whose means are looked at, pixels

# Parts of an image; see `ct_dip.evaluation.image_parts`. "all": every evaluated pixel.
Part = Literal["all", "near", "flat", "edges", "background"]
PARTS: tuple[Part, ...] = get_args(Part)
MeanKind = Literal["blocks_4", "blocks_8", "regions"]
MEAN_KINDS: tuple[MeanKind, ...] = get_args(MeanKind)


class Mean(NamedTuple):
    """A mean over ``count`` things, or a smooth function of one; the error is unknown from one cluster."""

    value: float
    standard_error: float | None
    count: int  # type: ignore[assignment]  # a tuple has a method of this name, which nobody calls


class WidthScore(NamedTuple):
    """Root mean squares over pixels of similar standard deviation, 1/mm."""

    std: float
    error: float


@dataclass(frozen=True, kw_only=True)
class PartScores:
    """Figures of the pixels in one part of the image. z is (truth − mean)/std.

    Args:
        mae, rmse: mean absolute error and root mean squared error, 1/mm.
        coverage: share of pixels inside the central interval, by nominal level.
        log_likelihood: mean log-density of single pixels, in (1/mm)⁻¹, nats.
        crps: continuous ranked probability score of single pixels, 1/mm; lower is better.
        rms_z: root mean square of z; 1 for right error bars.
        largest_z, z_999: the largest size of z, and the quantile that one pixel in a thousand exceeds.
        ence: expected normalised calibration error, mean over bins of ``|rmse − rms std|/rms std``.
        ause: area between sparsification curve and oracle; ``ause_of_no_knowledge`` that of a random order.
        narrowest, widest: the quarter of the pixels with the smallest std, and that with the largest.
    """

    pixels: int
    mae: Mean
    rmse: Mean
    coverage: dict[float, Mean] = field(default_factory=dict)
    log_likelihood: Mean | None = None
    crps: Mean | None = None
    rms_z: Mean | None = None
    largest_z: float | None = None
    z_999: float | None = None
    ence: float | None = None
    ause: float | None = None
    ause_of_no_knowledge: float | None = None
    narrowest: WidthScore | None = None
    widest: WidthScore | None = None


class RegionScore(NamedTuple):
    """How the mean over one region of the user compares, 1/mm."""

    pixels: int
    error: float  # truth − mean
    std: float | None = None
    level: float | None = None  # of the narrowest central interval that holds the truth


@dataclass(frozen=True, kw_only=True)
class MeanScores:
    """Figures of means over ``count`` blocks or regions."""

    count: int
    coverage: dict[float, Mean] = field(default_factory=dict)
    rms_z: Mean | None = None


@dataclass(frozen=True, kw_only=True)
class Scores:
    """How a prediction compares with the truth, or with a reference.

    Args:
        compared_with: what it is compared with; ``noise_std`` the noise of a reference, 1/mm, by which
            deviations were widened.
        value_range: of that image inside the evaluated pixels, 1/mm: the range of ``psnr`` (dB) and ``ssim``,
            as in dival.
        fixed_range: another one that was asked for: that of ``psnr_fixed`` and ``ssim_fixed``.
        parts: figures of single pixels.
        log_likelihood: of patches, per pixel, by their width; `WHOLE` for the whole image.
        means: figures of the means over blocks that lie near the object, and over the user's ``regions``.
    """

    compared_with: Literal["truth", "reference"]
    noise_std: float
    value_range: float
    psnr: Mean | None = None
    ssim: Mean | None = None
    fixed_range: float | None = None
    psnr_fixed: Mean | None = None
    ssim_fixed: Mean | None = None
    parts: dict[Part, PartScores] = field(default_factory=dict)
    log_likelihood: dict[int, Mean] = field(default_factory=dict)
    means: dict[MeanKind, MeanScores] = field(default_factory=dict)
    regions: dict[str, RegionScore] = field(default_factory=dict)

    def coverage(self, level: float, of: Part | MeanKind = "all") -> Mean | None:
        """Return the coverage at a nominal level, of the pixels of a part or of the means of a kind."""
        tables: list[tuple[str, PartScores | MeanScores]] = [*self.parts.items(), *self.means.items()]
        return next((scores.coverage.get(level) for name, scores in tables if name == of), None)

    def row(self, *, standard_errors: bool = False) -> dict[str, float | None]:
        """Return every figure by a flat name: ``psnr``, ``coverage_95_near``, ``crps_edges``, …

        The names are always the same; what is absent is ``None``. Names of all pixels have no ending. Single
        regions and quarters of the pixels are left out.

        Args:
            standard_errors: add those of means, as ``psnr_se``, ….
        """
        cells: dict[str, Mean | float | None] = {
            name: getattr(self, name) for name in ("psnr", "ssim", "psnr_fixed", "ssim_fixed")
        }
        for width in (*PATCHES, WHOLE):
            cells[f"log_likelihood_{width or 'image'}"] = self.log_likelihood.get(width)
        for part in PARTS:
            ending, found = "" if part == "all" else f"_{part}", self.parts.get(part)
            cells |= _coverage_cells(found, ending)
            if part != "all":
                cells[f"log_likelihood_1{ending}"] = None if found is None else found.log_likelihood
            for name in _PART_FIGURES:
                cells[f"{name}{ending}"] = getattr(found, name, None)
        for kind in MEAN_KINDS:
            means = self.means.get(kind)
            cells |= _coverage_cells(means, f"_{kind}")
            cells[f"rms_z_{kind}"] = None if means is None else means.rms_z
        return _flat(cells, standard_errors)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON, without what is absent; `from_dict` reads them back."""
        return dict(to_plain(self))

    @staticmethod
    def from_dict(plain: Any) -> "Scores":
        """Read back what `to_dict` gave.

        Raises:
            ResultError: a value is missing, unknown or impossible.
        """
        scores: Scores = from_plain(Scores, plain, "scores")
        if "all" not in scores.parts:
            raise ResultError("scores.parts has no figures of all pixels; reconstruct again")
        tables: list[tuple[str, PartScores | MeanScores]] = [*scores.parts.items(), *scores.means.items()]
        for name, table in tables:
            if table.coverage:
                _check_levels(table.coverage, f"scores of {name}")
        return scores


@dataclass(frozen=True, kw_only=True)
class HeldoutScores:
    """How a method predicts views that it did not see; see `ct_dip.evaluation.heldout`. Needs no truth.

    Args:
        folds: that the views were dealt into, of which ``held`` were held out one after the other.
        views: held out in all; ``measurements`` of them.
        error_bars: whether the prediction had samples; without, the noise alone makes the deviations.
        log_density: log predictive density per measurement, nats.
        coverage: share of held-out line integrals inside the central interval, by nominal level.
        rms_z: root mean square of the standardised residuals; 1 for right error bars.
        rms_z_smoothed: of residuals averaged over 7 neighbouring detectors, or all if there are fewer.
        misfit: mean squared residual relative to the noise alone, as the scan has it: how good the image is.
    """

    folds: int
    held: int
    views: int
    measurements: int
    error_bars: bool
    log_density: Mean
    coverage: dict[float, Mean]
    rms_z: Mean
    rms_z_smoothed: Mean
    misfit: Mean

    def row(self, *, standard_errors: bool = False) -> dict[str, float | None]:
        """Return every figure by a flat name, as ``heldout_coverage_95``; see `Scores.row`."""
        cells: dict[str, Mean | float | None] = {
            f"heldout_{name}": getattr(self, name)
            for name in ("log_density", "rms_z", "rms_z_smoothed", "misfit")
        }
        cells |= {f"heldout_{name}": cell for name, cell in _coverage_cells(self, "").items()}
        return _flat(cells, standard_errors)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON, without what is absent; `from_dict` reads them back."""
        return dict(to_plain(self))

    @staticmethod
    def from_dict(plain: Any) -> "HeldoutScores":
        """Read back what `to_dict` gave.

        Raises:
            ResultError: a value is missing, unknown or impossible.
        """
        scores: HeldoutScores = from_plain(HeldoutScores, plain, "heldout")
        _check_levels(scores.coverage, "heldout")
        return scores


_PART_FIGURES = (
    *("mae", "rmse", "crps", "rms_z", "largest_z", "z_999"),
    *("ence", "ause", "ause_of_no_knowledge"),
)


def _check_levels(coverage: dict[float, Mean], where: str) -> None:
    if missing := [level for level in LEVELS if level not in coverage]:
        raise ResultError(f"{where} has no coverage at the level {missing[0]}; reconstruct again")


def _coverage_cells(
    scores: PartScores | MeanScores | HeldoutScores | None, ending: str
) -> dict[str, Mean | float | None]:
    return {
        f"coverage_{round(100 * level)}{ending}": None if scores is None else scores.coverage.get(level)
        for level in LEVELS
    }


def _flat(cells: dict[str, Mean | float | None], standard_errors: bool) -> dict[str, float | None]:
    row: dict[str, float | None] = {}
    for name, cell in cells.items():
        row[name] = cell.value if isinstance(cell, Mean) else cell
        if standard_errors and isinstance(cell, Mean):
            row[f"{name}_se"] = cell.standard_error
    return row
