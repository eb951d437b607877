"""The choice of TV's strength: its folds, its scores against separate scans, what it must not depend on."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from ct_dip.classical.tv import DEFAULT_STRENGTH, tv
from ct_dip.classical.tv_strength import (
    FACTOR,
    STRENGTHS,
    _choose,
    choose_tv_strength,
    folds_to_predict,
    strength_at_bound,
    view_folds,
)
from ct_dip.data.noise import WhiteNoise
from ct_dip.data.simulate import NoiseLevel, simulate
from ct_dip.geometry import Volume
from ct_dip.operators import ray_transform
from ct_dip.pipeline import reconstruct
from ct_dip.scanners import scanner, view_angles

VOLUME = Volume(shape=(20, 20))
GEOMETRY = scanner(VOLUME, views=12)
FAN = scanner(VOLUME, views=12, source_origin=60.0, origin_detector=40.0)
FEW = (0.1, 0.2, 0.4, 0.8, 1.6)  # strengths, to be quick


@pytest.fixture(scope="module")
def rectangles():
    scan = simulate("rectangles", GEOMETRY, noise=NoiseLevel(relative=0.05), seed=11)
    return scan, ray_transform(GEOMETRY), torch.as_tensor(scan.sinogram.copy())


def test_strengths_that_all_leave_a_constant_image_do_not_end_the_search(rectangles):
    """Where the stated noise is far too large, strong TV leaves nothing, and scores differ by rounding."""
    scan, transform, sinogram = rectangles
    overstated = choose_tv_strength(transform, sinogram, (1000 * scan.noise.std) ** 2, GEOMETRY)
    assert overstated.strengths[-1] == min(STRENGTHS)


def test_the_score_is_that_of_scans_of_the_other_views(rectangles):
    """Infinite variances do what leaving views out does; warm starts end where cold ones do."""
    scan, transform, sinogram = rectangles
    strengths = (1.0, 0.5)
    choice = choose_tv_strength(
        transform, sinogram, scan.noise.std**2, GEOMETRY, folds=4, strengths=strengths, tolerance=1e-4
    )
    for strength, score in zip(strengths, choice.scores, strict=True):
        by_view = []
        for fold in range(4):
            held = np.arange(12) % 4 == fold
            seen, unseen = scan.select_views(~held), scan.select_views(held)
            image = tv(
                ray_transform(seen.geometry),
                torch.as_tensor(seen.sinogram.copy()),
                variance=scan.noise.std**2,
                strength=strength,
                tolerance=1e-4,
            ).image
            residual = ray_transform(unseen.geometry)(image) - torch.as_tensor(unseen.sinogram.copy())
            by_view.append((residual / scan.noise.std) ** 2)
        # The images agree to the root of the gap, the scores to a good part of that.
        assert score == pytest.approx(float(torch.cat(by_view).mean()), rel=1e-2)


def test_large_scans_predict_fewer_folds(rectangles, monkeypatch):
    """Folds are predicted until they hold enough measurements, and only their views are scored."""
    scan, transform, sinogram = rectangles
    detectors = GEOMETRY.range_shape[1]  # 12 views in five folds of 3, 3, 2, 2 and 2
    assert folds_to_predict(GEOMETRY) == 5
    counts = []
    for views in (2, 3, 4, 12):
        monkeypatch.setattr("ct_dip.classical.tv_strength._ENOUGH", views * detectors)
        counts.append(folds_to_predict(GEOMETRY))
    assert counts == [1, 1, 2, 5]

    variance, strengths = scan.noise.std**2, (1.0, 0.5)
    monkeypatch.setattr("ct_dip.classical.tv_strength._ENOUGH", 3 * detectors)
    first = choose_tv_strength(transform, sinogram, variance, GEOMETRY, strengths=strengths, tolerance=1e-4)
    seen = np.arange(12) % 5 != 0
    image = tv(
        ray_transform(scan.select_views(seen).geometry),
        torch.as_tensor(scan.select_views(seen).sinogram.copy()),
        variance=variance,
        strength=1.0,
        tolerance=1e-4,
    ).image
    residual = (transform(image) - sinogram)[torch.as_tensor(~seen)] / scan.noise.std
    assert first.scores[0] == pytest.approx(float((residual**2).mean()), rel=1e-2)


def test_the_stated_noise_only_changes_the_unit(rectangles):
    """The same problem with deviations stated c times as large is that of a strength c times as large."""
    scan, transform, sinogram = rectangles
    variance = scan.noise.std**2
    plain = choose_tv_strength(transform, sinogram, variance, GEOMETRY, strengths=FEW)
    louder = choose_tv_strength(
        transform, sinogram, 4 * variance, GEOMETRY, strengths=[strength / 2 for strength in FEW]
    )
    assert louder.recommended == pytest.approx(plain.recommended / 2, rel=1e-2)
    np.testing.assert_allclose(4 * np.array(louder.scores), plain.scores, rtol=1e-2)


@pytest.mark.parametrize("factor", [1e-3, 50.0])
def test_the_choice_does_not_depend_on_units(rectangles, factor):
    scan, transform, sinogram = rectangles
    variance = scan.noise.std**2
    plain = choose_tv_strength(transform, sinogram, variance, GEOMETRY, strengths=FEW)
    louder = choose_tv_strength(transform, factor * sinogram, factor**2 * variance, GEOMETRY, strengths=FEW)
    assert louder.recommended == pytest.approx(plain.recommended, rel=1e-2)
    np.testing.assert_allclose(louder.scores, plain.scores, rtol=1e-3)


def test_less_noise_than_stated_asks_for_weak_tv_and_more_for_strong():
    """With enough views that weak TV has what it needs, and without an error of the pixel grid."""
    geometry = scanner(VOLUME, views=40)
    transform = ray_transform(geometry)
    scan = simulate("walnut", geometry, noise=NoiseLevel(relative=0.02), same_grid=True, seed=11)
    ideal = transform(torch.as_tensor(scan.ground_truth.copy()))
    noise = torch.as_tensor(scan.sinogram.copy()) - ideal
    weak, strong = (
        choose_tv_strength(
            transform, ideal + part * noise, scan.noise.std**2, geometry, strengths=(0.03, 0.1, 0.3, 1, 3)
        ).recommended
        for part in (0.1, 10.0)
    )
    assert 4 * weak < strong


def test_the_choice_is_the_minimum_of_a_parabola():
    """In log₂ strength: scores that are a parabola around 0.3, and paired errors by hand."""
    strengths = [1.6, 0.8, 0.4, 0.2, 0.1]
    curve = 1 + (np.log2(strengths) - np.log2(0.3)) ** 2
    swing = np.array([0.0, 0.5, 0.0, 1.0, 2.0])  # of two views, around their mean
    choice = _choose(strengths, np.stack([curve - swing, curve + swing], axis=1))
    assert choice.scores == pytest.approx(curve)
    assert choice.errors == pytest.approx(swing)  # deviation √2 · swing, over √2
    assert choice.picked == pytest.approx(0.3)
    assert choice.recommended == pytest.approx(FACTOR * 0.3)


@pytest.mark.parametrize("scores", [[1.0, 2.0, 3.0], [3.0, 2.0, 1.0], [2.0, 2.0, 2.0]])
def test_without_a_minimum_inside_the_end_is_taken(scores):
    choice = _choose([0.4, 0.2, 0.1], np.array(scores)[:, None] * [1.0, 1.1])
    assert choice.picked == [0.4, 0.2, 0.1][int(np.argmin(scores))]


def test_an_end_of_the_range_is_told(rectangles):
    """Strengths are relative to the noise: one that is stated far too large asks for a weak one."""
    scan, _, _ = rectangles
    wrong = replace(scan, noise=WhiteNoise(std=100 * scan.noise.std))
    result = reconstruct(wrong, method="tv")
    assert strength_at_bound(result.settings["tv"]["strength"]) == "weakest"
    assert "chose the weakest total variation" in result.warnings[-1]
    strengths = (FACTOR * each for each in (max(STRENGTHS), 0.3))
    assert [strength_at_bound(each) for each in strengths] == ["strongest", None]


@pytest.mark.parametrize("views", [3, 4, 5, 7, 12, 31])
@pytest.mark.parametrize("geometry", [GEOMETRY, FAN], ids=["parallel", "fan"])
def test_every_fold_holds_views_and_leaves_two_at_least(geometry, views):
    folds = view_folds(replace(geometry, angles=view_angles(views)))
    counts = np.bincount(folds)
    assert len(counts) == min(5, views)
    assert counts.min() >= 1
    assert counts.max() <= min(views - 2, counts.min() + 1)


def test_neighbours_are_in_different_folds_in_whatever_order_they_were_measured():
    order = np.random.default_rng(0).permutation(12)
    folds = view_folds(replace(GEOMETRY, angles=GEOMETRY.angles[order]))
    np.testing.assert_array_equal(folds[np.argsort(order)], np.arange(12) % 5)


def test_views_that_see_the_same_stay_together():
    angles = view_angles(7)
    again = np.concatenate([angles, angles + np.pi, angles])
    parallel = view_folds(replace(GEOMETRY, angles=again)).reshape(3, 7)
    assert (parallel == parallel[0]).all()
    fan = view_folds(replace(FAN, angles=again)).reshape(3, 7)
    np.testing.assert_array_equal(fan[2], fan[0])
    assert (fan[1] != fan[0]).any()


def test_two_views_are_too_few_to_choose_by():
    geometry = replace(GEOMETRY, angles=np.array([0.0, 1.0, np.pi]))
    choice = choose_tv_strength(ray_transform(geometry), torch.ones(geometry.range_shape), 1.0, geometry)
    assert choice.scores == ()
    assert choice.recommended == DEFAULT_STRENGTH
