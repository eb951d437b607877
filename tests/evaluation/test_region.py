"""Answers about a region are those of the Gaussian that the samples come from, where it was asked."""

import dataclasses

import numpy as np
import pytest
from scipy.stats import norm

from ct_dip.errors import InputError
from ct_dip.evaluation.region import query_region, region_mask

SHAPE, PIXEL = (6, 9), 0.7


def correlated(count, seed=0):
    """Samples of a Gaussian image; its mean; the standard deviation of the mean over ``region``."""
    rng = np.random.default_rng(seed)
    pixels = SHAPE[0] * SHAPE[1]
    factor = 0.1 * rng.standard_normal((pixels, pixels)) + 0.3 * rng.standard_normal((pixels, 1))
    mean = rng.random(SHAPE)
    samples = mean + (rng.standard_normal((count, pixels)) @ factor.T).reshape(count, *SHAPE)
    weights = region().ravel() / region().sum()
    return samples, mean, float(np.linalg.norm(factor.T @ weights))


def region():
    mask = np.zeros(SHAPE, dtype=bool)
    mask[1:4, 2:6] = True
    return mask


@pytest.mark.parametrize("level", [0.5, 0.95, 0.99])
@pytest.mark.parametrize("count", [100, 4000])
def test_the_interval_of_the_mean_is_the_analytic_one(level, count):
    samples, mean, std = correlated(count)
    found = query_region(samples, mean, region(), PIXEL, level=level).attenuation
    center, width = mean[region()].mean(), norm.ppf((1 + level) / 2) * std
    assert found.mean == pytest.approx(center, rel=1e-12)
    assert found.mean_sampling_error == 0
    # A standard deviation from n samples is known to 1/√2n of itself; four of these.
    assert found.interval_sampling_error == pytest.approx(
        width / np.sqrt(2 * count), rel=4 / np.sqrt(2 * count) + 0.03
    )
    assert found.low == pytest.approx(center - width, abs=4 * found.interval_sampling_error)
    assert found.high == pytest.approx(center + width, abs=4 * found.interval_sampling_error)
    assert found.std == pytest.approx(std, rel=4 / np.sqrt(2 * count))


@pytest.mark.parametrize("count", [2, 5, 50])
def test_intervals_have_their_probability_however_few_samples(count):
    """Over many repetitions a further draw falls inside as often as the level says."""
    rng = np.random.default_rng(1)
    level, repeats = 0.8 if count > 8 else 0.3, 2000
    pixels = np.ones((1, 1000), dtype=bool)
    ramp = np.linspace(-4, 4, 1000)[None]  # the area above zero follows one common Gaussian shift
    hits = np.zeros(2)
    for _ in range(repeats):
        *shifts, truth = rng.standard_normal(count + 1)
        samples = ramp + np.reshape(shifts, (count, 1, 1))
        report = query_region(samples, ramp, pixels, 1.0, above=0.0, level=level)
        assert report.area_above is not None
        area = float((ramp + truth > 0).sum())
        hits += (
            report.attenuation.low <= truth <= report.attenuation.high,
            report.area_above.low <= area <= report.area_above.high,
        )
    error = 4 * np.sqrt(level * (1 - level) / repeats)
    assert hits[0] / repeats == pytest.approx(level, abs=error)
    if (count + 1) * (1 - level) / 2 >= 1:  # fewer samples than this have no such quantile
        assert hits[1] / repeats == pytest.approx(level, abs=error + 0.01)  # steps of a pixel


def test_two_samples_give_honest_intervals_and_variances():
    """Student's tails are heavy there: a wrong number of degrees of freedom shows."""
    rng, repeats, level = np.random.default_rng(2), 3000, 0.9
    pixel, mean = np.ones((1, 1), dtype=bool), np.zeros((1, 1))
    hits, variances = 0, []
    for _ in range(repeats):
        *drawn, truth = rng.standard_normal(3)
        report = query_region(np.reshape(drawn, (2, 1, 1)), mean, pixel, PIXEL, above=0.0, level=level)
        hits += report.attenuation.low <= truth <= report.attenuation.high
        variances.append(report.area_above.std**2 / PIXEL**4)
    assert hits / repeats == pytest.approx(level, abs=4 * np.sqrt(level * (1 - level) / repeats))
    # The area is that of a pixel or nothing, with equal probability: its variance is a quarter.
    assert np.mean(variances) == pytest.approx(0.25, abs=4 * np.std(variances) / np.sqrt(repeats))


def test_the_probability_of_exceeding_is_the_analytic_one():
    samples, mean, std = correlated(3000)
    for deviations in (-2.0, -0.5, 0.0, 1.0):
        threshold = mean[region()].mean() + deviations * std
        report = query_region(samples, mean, region(), PIXEL, above=threshold)
        expected = norm.sf(deviations)
        assert report.probability_above == pytest.approx(expected, abs=4 * report.probability_error + 1e-3)


def test_monte_carlo_errors_are_the_spread_over_repetitions():
    reports = []
    samples, mean, std = correlated(60 * 200)
    for part in samples.reshape(60, 200, *SHAPE):
        reports.append(
            query_region(part, mean, region(), PIXEL, above=mean[region()].mean() + std, level=0.8)
        )
    spread = {
        "interval": (
            np.std([r.attenuation.high for r in reports]),
            reports[0].attenuation.interval_sampling_error,
        ),
        "probability": (np.std([r.probability_above for r in reports]), reports[0].probability_error),
        "area": (np.std([r.area_above.mean for r in reports]), reports[0].area_above.mean_sampling_error),
        "area interval": (
            max(np.std([r.area_above.low for r in reports]), np.std([r.area_above.high for r in reports])),
            np.mean([r.area_above.interval_sampling_error for r in reports]),
        ),
    }
    # 60 repetitions know a spread to 9 %, and each of the reports its own to some percent.
    for name, (observed, stated) in spread.items():
        assert stated == pytest.approx(observed, rel=0.45), name


def test_the_area_of_samples_without_noise_is_exact():
    image = np.zeros(SHAPE)
    image[2, 3:5] = 0.04
    image[0, 0] = 0.04  # bright, but not in the region
    report = query_region(np.stack([image] * 7), image, region(), PIXEL, above=0.02)
    area = 2 * PIXEL**2
    assert report.area_above is not None
    found = dataclasses.astuple(report.area_above)
    np.testing.assert_allclose(found, [area, 0, area, area, 0, 0], rtol=1e-12, atol=1e-15)
    assert report.area == pytest.approx(12 * PIXEL**2)
    assert (report.pixels, report.samples, report.probability_above) == (12, 7, 0.0)
    assert query_region(np.stack([image] * 7), image, region(), PIXEL, above=-1).probability_above == 1.0
    at = query_region(np.stack([image] * 7), image, region(), PIXEL, above=0.04)
    assert at.area_above.high == 0  # what is at the threshold is not above it


def test_a_threshold_within_the_error_bars_of_a_plateau_is_noticed():
    """Independent pixels a deviation above the threshold: every sample loses a sixth of them."""
    rng, shape = np.random.default_rng(0), (20, 20)
    plateau = np.full(shape, 0.05)
    samples = plateau + 0.005 * rng.standard_normal((400, *shape))
    everywhere = np.ones(shape, dtype=bool)
    report = query_region(samples, plateau, everywhere, PIXEL, above=0.045)
    assert report.image_area_above == pytest.approx(report.area)
    assert report.area_above.high < 0.95 * report.area
    assert report.biased_area
    assert report.undecided == 1.0
    shown = f"{report.area:.4g} mm²"
    assert report.summary()["area of the image shown"] == shown
    clear = query_region(samples, plateau, everywhere, PIXEL, above=0.02)
    assert not clear.biased_area
    assert clear.undecided == 0.0


def test_without_a_threshold_there_is_no_area():
    samples, mean, _ = correlated(10)
    report = query_region(samples, mean, region(), PIXEL)
    assert report.area_above is report.probability_above is report.above is None
    assert report.image_area_above is report.undecided is None
    assert not report.biased_area


def test_the_top_left_corner_is_at_negative_x_and_positive_y():
    corner = region_mask(SHAPE, PIXEL, (-10, 1.4, -2.5, 10))
    assert np.argwhere(corner).tolist() == [[0, 0]]
    bright = np.zeros(SHAPE)
    bright[0, 0] = 0.5
    assert query_region(np.stack([bright] * 2), bright, corner, PIXEL).attenuation.mean == 0.5


def test_a_pixel_belongs_if_its_center_does():
    # Centres at x −0.7 0 0.7 and y 0.35 −0.35; corners in any order.
    shape = (2, 3)
    assert region_mask(shape, PIXEL, (-0.69, -9, 9, 9)).tolist() == [[False, True, True]] * 2
    assert region_mask(shape, PIXEL, (9, 9, -0.7, 0.35)).tolist() == [[True] * 3, [False] * 3]
    assert region_mask(shape, PIXEL, (0, -0.35, 0, -0.35)).tolist() == [[False] * 3, [False, True, False]]
    assert region_mask(shape, PIXEL, (-9, -9, 9, 9)).all()


@pytest.mark.parametrize("index", range(9))
def test_centers_on_the_edge_belong_however_they_are_rounded(index):
    x = float(f"{(index - 4) * 0.7:.1f}")
    assert np.flatnonzero(region_mask(SHAPE, PIXEL, (x, 0, x, 9))[0]).tolist() == [index]


@pytest.mark.parametrize(
    ("roi", "words"),
    [
        ((10, 0, 20, 1), "outside of the image"),
        ((-1, -9, 1, -8), "outside of the image"),
        ((0.1, 0.1, 0.2, 0.2), "holds no pixel centre"),
        ((0, 0, float("nan"), 1), "finite"),
        ((0, 0, float("inf"), 1), "finite"),
    ],
)
def test_regions_without_pixels(roi, words):
    with pytest.raises(InputError, match=words):
        region_mask(SHAPE, PIXEL, roi)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"level": 0.0}, "level 0 must be between 0 and 1"),
        ({"level": 1.0}, "between"),
        ({"level": 95}, "level 95 must be between 0 and 1, for example 0.95"),
        ({"level": "95"}, "level '95' must"),
        ({"level": float("nan")}, "between"),
        ({"above": float("nan")}, "above: nan"),
        ({"mask": np.ones((3, 3), dtype=bool)}, "same shape"),
        ({"mask": np.zeros(SHAPE, dtype=bool)}, "no pixels"),
        ({"samples": np.zeros((1, *SHAPE))}, "two or more"),
        ({"samples": np.zeros((4, 3, 3))}, "shape"),
        ({"samples": np.full((4, *SHAPE), np.nan)}, "not finite"),
    ],
)
def test_questions_that_make_no_sense(changes, words):
    samples, mean, _ = correlated(4)
    given = {"samples": samples, "mean": mean, "mask": region(), "pixel_size": PIXEL} | changes
    with pytest.raises(InputError, match=words):
        query_region(**given)
