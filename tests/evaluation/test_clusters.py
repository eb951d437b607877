"""Standard errors of clustered means: closed forms, and agreement with independent observations."""

import math

import numpy as np
import pytest

from ct_dip.evaluation.clusters import clustered_mean, root, tile_numbers


def test_clusters_of_one_give_the_usual_standard_error():
    values = np.random.default_rng(0).standard_normal(50)
    found = clustered_mean(values, np.arange(50))
    assert found.value == pytest.approx(values.mean())
    assert found.standard_error == pytest.approx(values.std(ddof=1) / math.sqrt(50))
    assert found.count == 50


def test_copies_add_no_knowledge():
    values, clusters = np.random.default_rng(1).standard_normal(20), np.arange(20)
    once, nine_times = (
        clustered_mean(values, clusters),
        clustered_mean(np.repeat(values, 9), np.repeat(clusters, 9)),
    )
    assert nine_times.standard_error == pytest.approx(once.standard_error)
    assert nine_times.count == 180


def test_sums_are_what_they_are_sums_of():
    """Totals with their counts give the mean of what was added up."""
    rng = np.random.default_rng(2)
    values, clusters = rng.standard_normal(100), rng.integers(0, 7, 100)
    totals, counts = np.bincount(clusters, values), np.bincount(clusters)
    assert clustered_mean(totals, np.arange(7), counts) == pytest.approx(clustered_mean(values, clusters))


def test_one_cluster_has_no_error_and_nothing_has_no_mean():
    assert clustered_mean(np.array([1.0, 3.0]), np.array([4, 4])) == (2.0, None, 2)
    assert clustered_mean(np.array([]), np.array([], dtype=int)) is None
    assert clustered_mean(np.array([1.0, np.inf]), np.array([0, 1])) is None


def test_tiles_are_squares():
    tiles = tile_numbers((20, 17))
    assert tiles.shape == (20, 17)
    assert len(np.unique(tiles)) == 9
    for number in np.unique(tiles):
        rows, columns = np.nonzero(tiles == number)
        assert {row // 8 for row in rows.tolist()} == {rows[0] // 8}
        assert {column // 8 for column in columns.tolist()} == {columns[0] // 8}


def test_the_error_of_a_root_is_its_derivative():
    square = clustered_mean(np.array([4.0, 4.2, 3.8, 4.0]), np.arange(4))
    found, step = root(square), 1e-6
    slope = (math.sqrt(square.value + step) - math.sqrt(square.value - step)) / (2 * step)
    assert found.standard_error == pytest.approx(slope * square.standard_error, rel=1e-6)
    assert root(clustered_mean(np.zeros(3), np.arange(3))) == (0.0, 0.0, 3)
    assert root(None) is None
