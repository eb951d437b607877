"""Held-out views of a linear Gaussian model have standardised residuals of size 1; wrong models do not."""

import functools
import math

import numpy as np
import pytest
import torch

from ct_dip.data.noise import WhiteNoise
from ct_dip.data.scan import Scan
from ct_dip.data.scores import LEVELS, HeldoutScores
from ct_dip.errors import InputError
from ct_dip.evaluation.heldout import deal_views, score_heldout
from ct_dip.geometry import FanBeam, ParallelBeam, Volume
from ct_dip.operators import ray_transform
from ct_dip.scanners import view_angles
from tests.evaluation.gaussian import Predicted, smooth_factor

SHAPE, NOISE = (10, 9), 0.05
PRIOR = 0.1 * smooth_factor(SHAPE, 1.5)  # the object is PRIOR @ N(0, I)
GEOMETRY = ParallelBeam(volume=Volume(shape=SHAPE), angles=view_angles(20), detectors=15)


@functools.cache
def matrix(geometry):
    units = torch.eye(SHAPE[0] * SHAPE[1]).reshape(-1, *SHAPE)
    return ray_transform(geometry)(units).reshape(len(units), -1).T.double().numpy()


def gaussian_scan(seed, noise=NOISE):
    rng = np.random.default_rng(seed)
    image = PRIOR @ rng.standard_normal(len(PRIOR))
    clean = matrix(GEOMETRY) @ image
    sinogram = (clean + noise * rng.standard_normal(len(clean))).reshape(GEOMETRY.range_shape)
    return Scan(
        sinogram=sinogram, geometry=GEOMETRY, noise=WhiteNoise(std=NOISE), ground_truth=image.reshape(SHAPE)
    )


def posterior(scan, *, k=1.0, samples=400, noise=NOISE, diagnostics=None):
    """The exact posterior, with deviations that are k times too large."""
    assert scan.ground_truth is None
    features = matrix(scan.geometry) @ PRIOR / noise
    precision = np.eye(len(PRIOR)) + features.T @ features
    weights = np.linalg.solve(precision, features.T @ scan.sinogram.ravel() / noise)
    mean = (PRIOR @ weights).reshape(SHAPE)
    root = PRIOR @ np.linalg.inv(np.linalg.cholesky(precision)).T
    draws = np.random.default_rng(len(scan.sinogram)).standard_normal((samples, len(PRIOR)))
    drawn = mean + k * (draws @ root.T).reshape(-1, *SHAPE) if samples else None
    return Predicted(mean=mean, samples=drawn, diagnostics=diagnostics or {})


@functools.cache
def repeated(repeats=40, scan_noise=NOISE, **options):
    return [
        score_heldout(gaussian_scan(seed, scan_noise), functools.partial(posterior, **options))
        for seed in range(repeats)
    ]


def mean_and_error(values):
    return np.mean(values), np.std(values, ddof=1) / math.sqrt(len(values))


def test_a_right_posterior_predicts_what_it_did_not_see():
    scores = repeated()
    for name in ("rms_z", "rms_z_smoothed"):
        squares, error = mean_and_error([getattr(each, name).value ** 2 for each in scores])
        assert squares == pytest.approx(1, abs=4 * error)
    for level in LEVELS:
        covered, error = mean_and_error([each.coverage[level].value for each in scores])
        assert covered == pytest.approx(level, abs=4 * error)
    assert all(each.error_bars for each in scores)
    misfit, error = mean_and_error([each.misfit.value for each in scores])
    assert misfit > 1 + 4 * error  # the image is uncertain: its error comes on top of the noise
    assert scores[0].views == 4
    assert scores[0].measurements == 4 * GEOMETRY.detectors == scores[0].log_density.count


def test_the_log_density_is_that_of_the_predictive_distribution():
    """In expectation it is −½ log(2π e s²) with the exact variance of a held-out line integral."""
    unseen = deal_views(GEOMETRY, 5) == 2
    seen, held = matrix(GEOMETRY.select_views(~unseen)) @ PRIOR, matrix(GEOMETRY.select_views(unseen)) @ PRIOR
    inverse = np.linalg.inv(np.eye(len(PRIOR)) + seen.T @ seen / NOISE**2)
    variance = np.einsum("ij,jk,ik->i", held, inverse, held) + NOISE**2
    expected = -0.5 * np.mean(np.log(2 * math.pi * math.e * variance))
    found, error = mean_and_error([each.log_density.value for each in repeated()])
    assert found == pytest.approx(expected, abs=4 * error)


def test_wrong_error_bars_show():
    right, narrow, wide, none = (repeated(k=k) for k in (1.0, 0.3, 4.0, 0.0))
    sizes = [np.mean([each.rms_z.value for each in scores]) for scores in (wide, right, narrow)]
    assert sizes == sorted(sizes)
    density = [np.mean([each.log_density.value for each in scores]) for scores in (wide, right, narrow)]
    assert density[1] == max(density)
    without = repeated(samples=0)
    assert not without[0].error_bars
    for bare, certain in zip(without, none, strict=True):  # samples without spread are like no samples
        assert certain.error_bars
        assert bare.rms_z == pytest.approx(certain.rms_z)
        assert bare.rms_z.value**2 == pytest.approx(bare.misfit.value)


def test_few_samples_give_honest_intervals():
    for level in (0.5, 0.9):
        covered, error = mean_and_error([each.coverage[level].value for each in repeated(samples=4)])
        assert covered == pytest.approx(level, abs=4 * error + 0.01)  # Satterthwaite's is an approximation


def test_fitted_noise_is_used():
    """The scan states half of its noise; the method finds out."""
    fitted = {"sigma_y": 2 * NOISE, "sigma_y_stated": NOISE}
    known = [
        score_heldout(
            gaussian_scan(seed, 2 * NOISE), functools.partial(posterior, noise=2 * NOISE, diagnostics=fitted)
        )
        for seed in range(40)
    ]
    squares, error = mean_and_error([each.rms_z.value**2 for each in known])
    assert squares == pytest.approx(1, abs=4 * error)
    assert np.mean([each.rms_z.value for each in repeated(scan_noise=2 * NOISE, noise=2 * NOISE)]) > 1.3


def test_standard_errors_are_the_spread_over_scans():
    """Residuals of a view are correlated, and views little."""
    scores = [score_heldout(gaussian_scan(seed), posterior, held=5) for seed in range(30)]
    for name in ("log_density", "misfit"):
        means = [getattr(each, name) for each in scores]
        spread = np.std([mean.value for mean in means], ddof=1)
        stated = math.sqrt(np.mean([mean.standard_error**2 for mean in means]))
        assert 0.6 < stated / spread < 1.5  # a spread of 30 is known to 13 %


def test_a_standard_error_is_that_of_the_mean_over_views():
    scan, unseen = gaussian_scan(0), deal_views(GEOMETRY, 5) == 2
    found = score_heldout(scan, posterior).misfit
    training = Scan(
        sinogram=scan.sinogram[~unseen], geometry=GEOMETRY.select_views(~unseen), noise=scan.noise
    )
    predicted = matrix(GEOMETRY.select_views(unseen)) @ posterior(training).mean.ravel()
    squares = ((scan.sinogram[unseen].ravel() - predicted) / NOISE) ** 2
    views = squares.reshape(4, -1).mean(axis=1)
    assert found.value == pytest.approx(views.mean(), rel=1e-4)  # projections are float32
    assert found.standard_error == pytest.approx(views.std(ddof=1) / 2, rel=1e-4)


def test_every_view_is_held_out_once():
    calls = []

    def reconstruct(scan):
        calls.append(scan.geometry.angles)
        return posterior(scan)

    scores = score_heldout(gaussian_scan(0), reconstruct, folds=4, held=4)
    assert scores.views == 20
    assert scores.held == len(calls) == 4
    unseen = [set(GEOMETRY.angles) - set(seen) for seen in calls]
    assert set.union(*unseen) == set(GEOMETRY.angles)
    assert sum(map(len, unseen)) == 20
    assert min(GEOMETRY.angles) not in unseen[0]
    assert HeldoutScores.from_dict(scores.to_dict()) == scores


def test_views_of_the_same_rays_stay_together():
    volume = Volume(shape=SHAPE)
    angles = np.array([0.0, 0.5, 1.0, 0.5, 2.0, 2.5, math.pi, 0.5 + math.pi, 2 * math.pi - 1e-9])
    folds = deal_views(ParallelBeam(volume=volume, angles=angles, detectors=15), 3)
    assert folds.tolist() == [0, 1, 2, 1, 0, 1, 0, 1, 0]
    fan = FanBeam(volume=volume, angles=angles, detectors=15, source_origin=50, origin_detector=50)
    assert deal_views(fan, 3).tolist() == [0, 1, 2, 1, 0, 1, 2, 0, 0]
    shuffled = np.random.default_rng(0).permutation(20)
    scrambled = deal_views(GEOMETRY.select_views(shuffled), 5)
    np.testing.assert_array_equal(scrambled, deal_views(GEOMETRY, 5)[shuffled])


@pytest.mark.parametrize(
    ("views", "options", "message"),
    [
        ([0, 10], {}, "too few different views.*three are needed"),
        ([0, 1], {"folds": 2}, "three are needed"),
        ([0, 5, 10], {}, "choose up to 3 folds"),
        (range(20), {"folds": 1}, "folds 1 must be at least 2"),
        (range(20), {"held": 0}, "held 0 must be from 1"),
        (range(20), {"held": 6}, "held 6 must be from 1 to the number of folds, 5"),
    ],
)
def test_scans_that_cannot_be_split_are_refused(views, options, message):
    with pytest.raises(InputError, match=message):
        score_heldout(gaussian_scan(0).select_views(list(views)), posterior, **options)
