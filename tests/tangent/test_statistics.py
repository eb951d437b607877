"""Exact feature statistics against sums over all pairs of taps."""

import pytest
import torch

from ct_dip.operators import ray_transform
from ct_dip.operators.differences import FiniteDifferences
from ct_dip.tangent import grams as module
from ct_dip.tangent.grams import scaled_gram
from ct_dip.tangent.linearise import linearise
from ct_dip.tangent.statistics import difference_variances, feature_statistics, image_differences
from ct_dip.tangent.taps import tap_pairs
from tests import tiny


@pytest.fixture(scope="module")
def jacobian():
    return linearise(tiny.network().double(), tiny.network_input().double())


@pytest.mark.parametrize("kernel", [1, 2, 3, 5, 7])
def test_vectors_span_the_pairs_of_every_distance(kernel):
    taps = tap_pairs(kernel)
    rebuilt = torch.einsum("dv,vp,vq->dpq", taps.coefficients, taps.vectors, taps.vectors)
    torch.testing.assert_close(rebuilt, taps.pairs)
    assert taps.pairs.sum() == kernel**4  # every pair once


def test_distances_of_a_three_by_three_stencil():
    expected = torch.tensor([0, 1, 2, 4, 5, 8], dtype=torch.float64).sqrt()
    torch.testing.assert_close(tap_pairs(3).distances, expected)


def test_grams_are_sums_over_pairs(jacobian):
    found = feature_statistics(jacobian)
    dense = jacobian.dense()
    for block in jacobian.blocks:
        features = dense[:, jacobian.slices[block.name]].reshape(30, -1, block.kernel**2)
        pairs = tap_pairs(block.kernel).pairs
        expected = torch.einsum("ifp,dpq,jfq->dij", features, pairs, features)
        torch.testing.assert_close(found.grams[found.terms[block.name]], expected)


def test_streaming_in_small_groups_and_tiles_changes_nothing(jacobian, monkeypatch):
    whole = feature_statistics(jacobian).grams
    monkeypatch.setattr(module, "_GROUP_BYTES", 1)
    monkeypatch.setattr(module, "_TILE", 7)
    torch.testing.assert_close(feature_statistics(jacobian).grams, whole)


def test_difference_variances_are_the_diagonal_of_d_g_dt(jacobian):
    found = feature_statistics(jacobian)
    expected = []
    d = FiniteDifferences(tiny.IMAGE)
    for gram in found.grams:
        half = d(gram.reshape(30, *tiny.IMAGE)).reshape(30, -1)
        full = d(half.T.reshape(-1, *tiny.IMAGE)).reshape(60, -1)
        rows, columns = full.diagonal().reshape(2, *tiny.IMAGE)
        expected.append(torch.cat([rows[:-1].flatten(), columns[:, :-1].flatten()]))
    torch.testing.assert_close(difference_variances(found.grams, tiny.IMAGE), torch.stack(expected))


def test_image_differences_are_those_of_total_variation():
    image = torch.rand(tiny.IMAGE, dtype=torch.float64)
    d = FiniteDifferences(tiny.IMAGE)(image)
    torch.testing.assert_close(image_differences(image).abs().sum(), d.abs().sum())


def test_g_prior_does_not_see_the_scale_of_a_weight(jacobian):
    """Multiply columns of J as rescaled weights would; the scaled gram stays."""
    transform = ray_transform(tiny.scan().geometry)
    weights = torch.rand(transform.range_shape, dtype=torch.float64) + 0.5
    gram, scales = scaled_gram(jacobian, transform, weights)
    dense = jacobian.dense()
    factors = torch.rand(dense.shape[1], dtype=torch.float64) + 0.1
    measured = transform((dense * factors).T.reshape(-1, *tiny.IMAGE)) * weights
    again = measured.flatten(1).square().mean(dim=1).rsqrt()
    torch.testing.assert_close(again * factors, scales)
    rescaled = dense * factors * again
    torch.testing.assert_close(rescaled @ rescaled.T, gram)
