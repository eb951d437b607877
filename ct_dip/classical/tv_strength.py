"""The strength of total variation, chosen by cross-validation over views.

A strength is judged by how well it predicts the views that a reconstruction has not seen. The data decide,
not the noise that a scan states: an error of the pixel grid counts like noise.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ct_dip.arrays import Floats
from ct_dip.classical.tv import DEFAULT_STRENGTH, TvSolver
from ct_dip.geometry import Geometry, ParallelBeam
from ct_dip.operators.linear_map import LinearMap

STRENGTHS = tuple(0.025 * 2**k for k in range(9))
# A line integral averages over noise that the eye sees, so images want more TV than the prediction of rays
# does: measured on 29 scans, see experiments/README.md.
FACTOR = 2.0
_PATIENCE = 2  # strengths in a row that predict worse than the best one, after which no weaker one is tried
_WORSE = 1e-3  # by this part at least: where TV leaves a constant image, scores differ by rounding alone
_TOLERANCE = 1e-2  # relative duality gap; a tenth of it chooses the same
_ITERATIONS = 500  # per strength
FOLDS = 5  # that the views are dealt into
# Measurements to predict, after which no further fold is: one fold of 500 views, 13,700 of them, chose within
# 5 % of what all five did, see experiments/README.md.
_ENOUGH = 50_000
_FEWEST = 3  # distinct views: two to reconstruct from, one to predict


@dataclass(frozen=True, kw_only=True)
class StrengthChoice:
    """How well every strength predicts views that it has not seen, and what follows.

    Args:
        strengths: that were tried, strongest first; none if the scan has too few views.
        scores: mean squared standardised residual of the measurements, each predicted from the other folds
            than that of its view; 1 is the noise.
        errors: standard error of the score minus the lowest one, paired by view.
        picked: the strength that predicts best: the minimum of a parabola in log strength through the lowest
            score and its neighbours.
        recommended: `FACTOR` times that, for the image.
    """

    strengths: tuple[float, ...]
    scores: tuple[float, ...]
    errors: tuple[float, ...]
    picked: float
    recommended: float


def choose_tv_strength(
    transform: LinearMap,
    sinogram: Tensor,
    variance: Tensor | float,
    geometry: Geometry,
    *,
    folds: int = FOLDS,
    strengths: Sequence[float] = STRENGTHS,
    isotropic: bool = True,
    tolerance: float = _TOLERANCE,
    seed: int = 0,
) -> StrengthChoice:
    """Choose the strength of `ct_dip.classical.tv.tv` from the data alone; see `choose_tv_strengths`."""
    variance = torch.as_tensor(variance, dtype=torch.float64, device=sinogram.device).expand_as(sinogram)
    (choice,) = choose_tv_strengths(
        transform,
        sinogram[None],
        variance[None],
        geometry,
        folds=folds,
        strengths=strengths,
        isotropic=isotropic,
        tolerance=tolerance,
        seed=seed,
    )
    return choice


def choose_tv_strengths(
    transform: LinearMap,
    sinograms: Tensor,
    variances: Tensor,
    geometry: Geometry,
    *,
    folds: int = FOLDS,
    strengths: Sequence[float] = STRENGTHS,
    isotropic: bool = True,
    tolerance: float = _TOLERANCE,
    seed: int = 0,
) -> list[StrengthChoice]:
    """Choose the strengths of N scans of one geometry, all of them together, each from its own data.

    The folds are solved together with one transform: a view that is held out has an infinite variance. They
    go from strong to weak TV, each from where the one before ended, until prediction only becomes worse.
    Large scans need not predict every fold, see `folds_to_predict`.

    Args:
        sinograms: (N, views, detectors).
        variances: of the measurements, (N, views, detectors).
        geometry: of the scans; its angles tell which views are neighbours.
        folds: parts that the views are dealt to; fewer if there are fewer views.
        strengths: to choose from, in equal ratios.
        tolerance: relative duality gap of the reconstructions.
        seed: of the probes that measure column norms.

    Returns:
        The choices; with fewer than three distinct views, `ct_dip.classical.tv.DEFAULT_STRENGTH`.
    """
    fold_of_view = view_folds(geometry, folds)
    if fold_of_view is None:
        default = DEFAULT_STRENGTH
        choice = StrengthChoice(strengths=(), scores=(), errors=(), picked=default, recommended=default)
        return [choice] * len(sinograms)
    count = folds_to_predict(geometry, folds)
    held = (torch.as_tensor(fold_of_view) == torch.arange(count)[:, None])[..., None]  # (folds, views, 1)
    held, predicted = held.to(sinograms.device), held.any(dim=0).flatten()
    variances = variances.double()
    solver = TvSolver(
        transform,
        sinograms.repeat_interleave(count, dim=0),  # the folds of the first scan, then those of the next
        torch.where(held, torch.inf, variances[:, None]).flatten(0, 1),
        isotropic=isotropic,
        seed=seed,
    )
    tried = sorted(strengths, reverse=True)
    scores: list[list[Floats]] = [[] for _ in sinograms]  # (views,) of every strength, of every scan
    active = list(range(len(sinograms)))
    for strength in tried:
        solver.solve(strength, tolerance=tolerance, max_iterations=_ITERATIONS)
        projections = transform(solver.images).reshape(len(active), count, *sinograms.shape[1:])
        residuals = ((projections - sinograms[active, None]) * held).sum(dim=1).double()
        views = (residuals**2 / variances[active]).mean(dim=2)[:, predicted].cpu().numpy()  # (scans, views)
        for number, of_view in zip(active, views, strict=True):
            scores[number].append(of_view)
        left = [place for place, number in enumerate(active) if not _is_over(scores[number])]
        if not left:
            break
        if len(left) < len(active):
            solver.keep([place * count + fold for place in left for fold in range(count)])
            active = [active[place] for place in left]
    return [_choose(tried[: len(each)], np.stack(each)) for each in scores]


def strength_at_bound(strength: float) -> str | None:
    """Return ``weakest`` or ``strongest`` if a recommended strength is at that end of the range."""
    for tried, which in ((min(STRENGTHS), "weakest"), (max(STRENGTHS), "strongest")):
        if math.isclose(strength, FACTOR * tried, rel_tol=1e-6):
            return which
    return None


def _is_over(scores: Sequence[Floats]) -> bool:
    """Whether strengths that predict worse than the best one have followed it often enough."""
    means = np.mean(scores, axis=1)
    lowest = int(np.argmin(means))
    since = means[lowest + 1 :][-_PATIENCE:]
    return len(since) == _PATIENCE and bool((since > (1 + _WORSE) * means[lowest]).all())


def view_folds(geometry: Geometry, folds: int = FOLDS) -> NDArray[np.intp] | None:
    """Deal the views to folds by turns, in the order of their angles; ``None`` if there are too few.

    Views that see the same, as those of a parallel beam from opposite sides do, come into the same fold:
    one of them would predict the other whatever the image is elsewhere.

    Returns:
        (views,): numbers of folds, from 0.
    """
    period = np.pi if isinstance(geometry, ParallelBeam) else 2 * np.pi
    millionths = np.round(1e6 * geometry.angles / period).astype(int) % 10**6
    distinct, place = np.unique(millionths, return_inverse=True)
    return place % min(folds, len(distinct)) if len(distinct) >= _FEWEST else None


def folds_to_predict(geometry: Geometry, folds: int = FOLDS) -> int:
    """Count the folds that are predicted: all of `view_folds`, or as many as hold enough measurements."""
    fold_of_view = view_folds(geometry, folds)
    if fold_of_view is None:
        return 0
    measurements = np.cumsum(np.bincount(fold_of_view)) * geometry.range_shape[1]
    return min(1 + int(np.searchsorted(measurements, _ENOUGH)), len(measurements))


def _choose(strengths: Sequence[float], scores: Floats) -> StrengthChoice:
    """Find the minimum of scores (strengths, views), strongest first."""
    means = scores.mean(axis=1)
    lowest = int(np.argmin(means))
    errors = (scores - scores[lowest]).std(axis=1, ddof=1) / math.sqrt(scores.shape[1])
    picked = strengths[lowest]
    if 0 < lowest < len(means) - 1:
        stronger, middle, weaker = means[lowest - 1 : lowest + 2]
        curvature = stronger - 2 * middle + weaker
        if curvature > 0:
            steps = (weaker - stronger) / (2 * curvature)  # towards the stronger one
            picked *= (strengths[lowest - 1] / picked) ** float(steps)
    return StrengthChoice(
        strengths=tuple(strengths),
        scores=tuple(means.tolist()),
        errors=tuple(errors.tolist()),
        picked=picked,
        recommended=FACTOR * picked,
    )
