"""What draws become."""

import numpy as np
import pytest
import torch

from ct_dip.image_space.chain_prediction import FEWEST, chain_prediction


def test_independent_draws_give_their_mean_and_deviation():
    draws = torch.randn(2, 500, 4, 5, generator=torch.Generator().manual_seed(0))
    found = chain_prediction(draws, 0.1, samples=100, quantities={"weight": draws[:, :, 0, 0].numpy() + 3})
    np.testing.assert_allclose(found.mean, 0.1 * draws.mean(dim=(0, 1)), atol=1e-6)
    np.testing.assert_allclose(found.std, 0.1, rtol=0.1)
    assert found.samples.shape == (100, 4, 5)
    np.testing.assert_array_equal(found.samples[0], (0.1 * draws[0, 0]).numpy())
    np.testing.assert_array_equal(found.samples[-1], (0.1 * draws[1, -1]).numpy())
    assert found.diagnostics["effective_samples"] == pytest.approx(1000, rel=0.2)
    assert found.diagnostics["weight"] == pytest.approx(3, abs=0.1)
    assert found.warnings == ()


def test_a_chain_that_hardly_moves_is_warned_of():
    walk = torch.randn(1, 200, 3, 3, generator=torch.Generator().manual_seed(0)).cumsum(dim=1)
    found = chain_prediction(walk, 1.0, samples=500)
    assert found.diagnostics["effective_samples"] < FEWEST
    assert "effective samples" in found.warnings[0]
    assert len(found.samples) == 200
