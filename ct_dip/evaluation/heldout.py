"""Views that a method did not see, as a check of its error bars that needs no truth.

With samples ``x_k`` of the prediction from the other views, and noise σ_i, a held-out line integral is

    y_i = (A x)_i + ε_i ~ N((A mean)_i, s_i²),      s_i² = 1/n Σ_k (A x_k − A mean)_i² + f σ_i²

where f is the factor that the method fitted to the noise, 1 if it fitted none. What is checked is the method
on fewer views, not the image from all of them.
"""

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.stats import t as student

from ct_dip.arrays import Bools, Floats
from ct_dip.classical.tv_strength import view_folds
from ct_dip.data.scan import Scan
from ct_dip.data.scores import LEVELS, HeldoutScores, Mean
from ct_dip.errors import InputError
from ct_dip.evaluation.clusters import clustered_mean, root
from ct_dip.evaluation.mean_scores import Deviations, sampled_deviations
from ct_dip.geometry import Geometry, ParallelBeam
from ct_dip.operators import ray_transform
from ct_dip.operators.linear_map import LinearMap

_SMOOTHING = 7  # detectors
_WEDGE = math.radians(20)  # of missing directions that counts


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


class ViewResiduals(NamedTuple):
    """What a prediction missed of views that it did not see, (views, detectors).

    Args:
        error: y − A mean.
        spread: A x_k − A mean of the samples x_k, (n, views, detectors).
        noise: variance of the measurements; with the factor that the method fitted in ``fitted_noise``.
        views: numbers of the views.
        error_bars: whether there were samples; without, ``spread`` is 0.
    """

    error: Floats
    spread: Floats
    noise: Floats
    fitted_noise: Floats
    views: NDArray[np.intp]
    error_bars: bool

    @property
    def deviations(self) -> Deviations:
        """How large the errors should be."""
        return sampled_deviations(self.spread, self.fitted_noise)

    def smoothed(self) -> tuple[Floats, Deviations]:
        """Means of the errors of neighbouring detectors, (views, windows), and how large they should be."""
        window = min(_SMOOTHING, self.error.shape[-1])
        noise = _running_mean(self.fitted_noise, window) / window
        return _running_mean(self.error, window), sampled_deviations(
            _running_mean(self.spread, window), noise
        )

    def widened(self, factor: float) -> "ViewResiduals":
        """The same for samples whose variance is ``factor`` times as large."""
        return self._replace(spread=math.sqrt(factor) * self.spread)


def score_heldout(
    scan: Scan,
    reconstruct: Callable[[Scan], PredictsViews],
    *,
    folds: int = 5,
    held: int = 1,
    transform: Callable[[Geometry], LinearMap] = ray_transform,
) -> HeldoutScores:
    """Reconstruct a scan without some of its views, and predict these.

    Which views are held out says `heldout_views`. Intervals and densities are Student's, with the degrees of
    freedom that the number of samples leaves (see `ct_dip.evaluation.mean_scores`); without samples the noise
    alone gives the deviations. Standard errors take views as independent.

    Args:
        reconstruct: the method; the scan that it is given has no ground truth.
        folds: that the views are dealt into, at least 2.
        held: how many of them are held out one after the other: so many reconstructions.
        transform: makes the ray transform of the held-out views.
    """
    if not 1 <= held <= folds:
        raise InputError(f"held {held} must be from 1 to the number of folds, {folds}")
    parts = []
    for step in range(held):
        unseen = heldout_views(scan.geometry, folds, step)
        prediction = reconstruct(dataclasses.replace(scan.select_views(~unseen), ground_truth=None))
        parts.append(predict_views(prediction, scan, unseen, transform))
    return heldout_scores(parts, folds)


def heldout_views(geometry: Geometry, folds: int = 5, step: int = 0) -> Bools:
    """Which views are held out, (views,).

    They go all the way round: the middle one of the folds that `deal_views` makes, then the following ones.
    Where directions are missing, views between others say nothing of what is missing; then the views at both
    ends of the arc are held out first, a ``1/folds`` of all.
    """
    if step == 0 and misses_directions(geometry):
        order = np.argsort(geometry.angles, kind="stable")
        count = max(1, round(geometry.views / folds / 2))
        unseen = np.zeros(geometry.views, dtype=bool)
        unseen[order[:count]] = unseen[order[-count:]] = True
        return unseen
    unseen = deal_views(geometry, folds) == (folds // 2 + step) % folds
    return np.asarray(unseen, dtype=bool)


def misses_directions(geometry: Geometry) -> bool:
    """Whether the views leave a wedge of more than 20° of all directions unseen."""
    angles = np.sort(np.mod(geometry.angles, math.pi))
    if not isinstance(geometry, ParallelBeam):
        return bool(np.ptp(geometry.angles) < math.pi - _WEDGE)  # a fan sees more, at most its own angle
    gaps = np.diff(angles, append=angles[0] + math.pi)
    return bool(gaps.max() > max(_WEDGE, 3 * float(np.median(gaps))))


def deal_views(geometry: Geometry, folds: int) -> NDArray[np.intp]:
    """Return the fold of every view, (views,); see `ct_dip.classical.tv_strength.view_folds`.

    Raises:
        InputError: there are too few different views.
    """
    if folds < 2:
        raise InputError(f"folds {folds} must be at least 2")
    fold = view_folds(geometry, folds)
    distinct = 0 if fold is None else int(fold.max()) + 1
    if fold is None or distinct < folds:
        raise InputError(
            "the scan has too few different views to hold some out: "
            + ("three are needed at least" if fold is None else f"choose up to {distinct} folds")
        )
    return fold


def predict_views(
    prediction: PredictsViews,
    scan: Scan,
    unseen: Bools,
    transform: Callable[[Geometry], LinearMap] = ray_transform,
) -> ViewResiduals:
    """Hold the views of a scan that a prediction did not see against what it says of them.

    Args:
        unseen: the views, (views,).
        transform: makes their ray transform.
    """
    ray = transform(scan.geometry.select_views(unseen))
    variance = scan.variance_or_estimate()[0][unseen]
    center = _project(ray, prediction.mean)
    samples = prediction.samples
    fitted, stated = (prediction.diagnostics.get(name) for name in ("sigma_y", "sigma_y_stated"))
    factor = (fitted / stated) ** 2 if fitted and stated else 1.0
    return ViewResiduals(
        error=scan.sinogram[unseen] - center,
        spread=np.zeros((1, *center.shape)) if samples is None else _project(ray, samples) - center,
        noise=variance,
        fitted_noise=factor * variance,
        views=np.flatnonzero(unseen),
        error_bars=samples is not None,
    )


def predicts_better(first: ViewResiduals, second: ViewResiduals) -> bool:
    """Whether one image predicts the same views better than another, by more than one standard error.

    Errors are weighed as the image sees them, by the ramp filter: without it errors of coarse structure
    count many times over.
    """
    noise = np.sqrt(first.noise)
    gain = [np.mean(_ramped(part.error / noise) ** 2, axis=-1) for part in (second, first)]
    difference = gain[0] - gain[1]  # (views,)
    error = difference.std(ddof=1) / math.sqrt(len(difference)) if len(difference) > 1 else math.inf
    return bool(difference.mean() > error)


def _ramped(errors: Floats) -> Floats:
    """Errors behind the square root of a ramp filter, along the detector."""
    length = 2 * errors.shape[-1]
    spectrum = np.fft.rfft(errors, length, axis=-1)
    gain = np.sqrt(np.linspace(0, 1, spectrum.shape[-1]))
    return np.fft.irfft(spectrum * gain, length, axis=-1)[..., : errors.shape[-1]]


def _project(ray: LinearMap, images: Floats) -> Floats:
    """Line integrals of images (…, rows, columns), (…, views, detectors)."""
    return ray(torch.as_tensor(np.asarray(images, dtype=np.float32))).double().numpy()


def _running_mean(values: Floats, window: int) -> Floats:
    return np.lib.stride_tricks.sliding_window_view(values, window, axis=-1).mean(axis=-1)


def heldout_scores(parts: Sequence[ViewResiduals], folds: int = 5) -> HeldoutScores:
    """Score what was missed of views that were held out, part by part."""
    views = np.concatenate([part.views for part in parts])

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

    deviations = [part.deviations for part in parts]
    errors = [part.error for part in parts]
    pairs = list(zip(errors, deviations, strict=True))
    levels = [deviation.levels(error) for error, deviation in pairs]
    return HeldoutScores(
        folds=folds,
        held=len(parts),
        views=len(views),
        measurements=sum(error.size for error in errors),
        error_bars=all(part.error_bars for part in parts),
        log_density=average([student.logpdf(e, d.degrees, scale=d.std) for e, d in pairs]),
        coverage={level: average([(part <= level).astype(float) for part in levels]) for level in LEVELS},
        rms_z=rms([d.standardised(e) for e, d in pairs]),
        rms_z_smoothed=rms([d.standardised(e) for e, d in (part.smoothed() for part in parts)]),
        misfit=average([part.error**2 / part.noise for part in parts]),
    )
