"""Views that a method did not see, as a check of its error bars that needs no truth.

With samples ``x_k`` of the prediction from the other views, and noise σ_i, a held-out line integral is

    y_i = (A x)_i + ε_i ~ N((A mean)_i, s_i²),      s_i² = 1/n Σ_k (A x_k − A mean)_i² + f σ_i²

where f is the factor that the method fitted to the noise, 1 if it fitted none. What is checked is the method
on fewer views, not the image from all of them.
"""

import dataclasses
import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.stats import t as student

from ct_dip.arrays import Floats
from ct_dip.data.scan import Scan
from ct_dip.data.scores import LEVELS, HeldoutScores, Mean
from ct_dip.errors import InputError
from ct_dip.evaluation.clusters import clustered_mean, root
from ct_dip.evaluation.mean_scores import Deviations, sampled_deviations
from ct_dip.geometry import Geometry, ParallelBeam
from ct_dip.operators import ray_transform
from ct_dip.operators.linear_map import LinearMap

_SMOOTHING = 7  # detectors
_SAME_ANGLE = 1e-6  # rad


class PredictsViews(Protocol):
    """What held-out views need of a prediction."""

    @property
    def mean(self) -> Floats:
        """The image in 1/mm, (rows, columns)."""

    @property
    def samples(self) -> Floats | None:
        """Images that are as likely as the true one, (n, rows, columns)."""

    @property
    def diagnostics(self) -> Mapping[str, Any]:
        """Numbers that came out; ``sigma_y`` and ``sigma_y_stated`` of a method that fits the noise."""


class _Residuals(NamedTuple):
    """What was not predicted of the views of one fold, (views, detectors)."""

    error: Floats  # y − A mean
    deviations: Deviations
    smoothed: Floats  # mean of the errors of neighbouring detectors, (views, windows)
    smoothed_deviations: Deviations
    noise: Floats  # stated variance


def score_heldout(
    scan: Scan,
    reconstruct: Callable[[Scan], PredictsViews],
    *,
    folds: int = 5,
    held: int = 1,
    transform: Callable[[Geometry], LinearMap] = ray_transform,
) -> HeldoutScores:
    """Reconstruct a scan without some of its views, and predict these.

    The views are dealt into folds by the order of their angles, so that every fold goes all the way round.
    The middle fold, which keeps the ends of an arc, is held out first, then the following ones. Intervals
    and densities are Student's, with the degrees of freedom that the number of samples leaves (see
    `ct_dip.evaluation.mean_scores`); without samples the noise alone gives the deviations. Standard errors
    take views as independent.

    Args:
        reconstruct: the method; the scan that it is given has no ground truth.
        folds: that the views are dealt into, at least 2.
        held: how many of them are held out one after the other: so many reconstructions.
        transform: makes the ray transform of the held-out views.
    """
    fold_of_view = deal_views(scan.geometry, folds)
    if not 1 <= held <= folds:
        raise InputError(f"held {held} must be from 1 to the number of folds, {folds}")
    variance, _ = scan.variance_or_estimate()
    parts, views, error_bars = [], [], True
    for step in range(held):
        unseen = fold_of_view == (folds // 2 + step) % folds
        training = dataclasses.replace(scan.select_views(~unseen), ground_truth=None)
        prediction = reconstruct(training)
        ray = transform(scan.geometry.select_views(unseen))
        parts.append(_predict(prediction, ray, scan.sinogram[unseen], variance[unseen]))
        views.append(np.flatnonzero(unseen))
        error_bars = error_bars and prediction.samples is not None
    return _scores(parts, np.concatenate(views), folds=folds, held=held, error_bars=error_bars)


def deal_views(geometry: Geometry, folds: int) -> NDArray[np.intp]:
    """Return the fold of every view, (views,): the rank of its angle modulo ``folds``.

    Views that see the same rays stay together: equal angles, and opposite ones of a parallel beam.

    Raises:
        InputError: there are too few different angles.
    """
    if folds < 2:
        raise InputError(f"folds {folds} must be at least 2")
    turn = math.pi if isinstance(geometry, ParallelBeam) else 2 * math.pi
    angles = np.mod(geometry.angles, turn)
    order = np.argsort(angles, kind="stable")
    rank = np.concatenate([[0], np.cumsum(np.diff(angles[order]) > _SAME_ANGLE)])
    if angles.min() + turn - angles.max() <= _SAME_ANGLE:
        rank[rank == rank[-1]] = 0
    distinct = int(rank.max()) + 1
    if distinct < max(folds, 3):
        raise InputError(
            f"the scan has {distinct} different views, too few to hold out one of {folds} folds; "
            + ("three are needed at least" if distinct < 3 else f"choose up to {distinct} folds")
        )
    fold = np.empty(len(angles), dtype=np.intp)
    fold[order] = rank % folds
    return fold


def _predict(prediction: PredictsViews, ray: LinearMap, measured: Floats, variance: Floats) -> _Residuals:
    """Return how far held-out views are from the prediction, and how far they should be."""
    center = _project(ray, prediction.mean)
    samples = prediction.samples
    spread = np.zeros((1, *center.shape)) if samples is None else _project(ray, samples) - center
    fitted, stated = (prediction.diagnostics.get(name) for name in ("sigma_y", "sigma_y_stated"))
    factor = (fitted / stated) ** 2 if fitted and stated else 1.0
    error = measured - center
    window = min(_SMOOTHING, error.shape[-1])
    return _Residuals(
        error=error,
        deviations=sampled_deviations(spread, factor * variance),
        smoothed=_running_mean(error, window),
        smoothed_deviations=sampled_deviations(
            _running_mean(spread, window), factor * _running_mean(variance, window) / window
        ),
        noise=variance,
    )


def _project(ray: LinearMap, images: Floats) -> Floats:
    """Line integrals of images (…, rows, columns), (…, views, detectors)."""
    return ray(torch.as_tensor(np.asarray(images, dtype=np.float32))).double().numpy()


def _running_mean(values: Floats, window: int) -> Floats:
    return np.lib.stride_tricks.sliding_window_view(values, window, axis=-1).mean(axis=-1)


def _scores(
    parts: list[_Residuals], views: NDArray[np.intp], *, folds: int, held: int, error_bars: bool
) -> HeldoutScores:
    def average(values: list[Floats]) -> Mean:
        stacked = np.concatenate(values)
        mean = clustered_mean(stacked.ravel(), np.repeat(views, stacked.shape[1]))
        if mean is None:
            raise InputError("the reconstruction does not predict finite line integrals of held-out views")
        return mean

    def rms(values: list[Floats]) -> Mean:
        found = root(average([part**2 for part in values]))
        assert found is not None
        return found

    levels = [part.deviations.levels(part.error) for part in parts]
    return HeldoutScores(
        folds=folds,
        held=held,
        views=len(views),
        measurements=sum(part.error.size for part in parts),
        error_bars=error_bars,
        log_density=average(
            [student.logpdf(part.error, part.deviations.degrees, scale=part.deviations.std) for part in parts]
        ),
        coverage={level: average([(part <= level).astype(float) for part in levels]) for level in LEVELS},
        rms_z=rms([part.deviations.standardised(part.error) for part in parts]),
        rms_z_smoothed=rms([part.smoothed_deviations.standardised(part.smoothed) for part in parts]),
        misfit=average([part.error**2 / part.noise for part in parts]),
    )
