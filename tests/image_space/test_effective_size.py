"""Effective sample sizes of chains whose autocorrelation is known."""

import numpy as np
import pytest
from scipy.signal import lfilter

from ct_dip.image_space.effective_size import effective_size


@pytest.mark.parametrize("memory", [0.0, 0.5, 0.9])
def test_an_autoregressive_chain_is_worth_what_its_memory_leaves(memory):
    """``x_{t+1} = φ x_t + ε`` has N (1 − φ)/(1 + φ) effective samples."""
    noise = np.random.default_rng(0).standard_normal((4, 4000, 20))
    chains = lfilter([1], [1, -memory], noise, axis=1)[:, 1000:]
    expected = 4 * 3000 * (1 - memory) / (1 + memory)
    # Single estimates scatter by about a tenth, and noise that looks like memory makes them low.
    assert effective_size(chains).mean() == pytest.approx(expected, rel=0.1)


def test_chains_that_disagree_are_worth_little():
    chains = np.random.default_rng(0).standard_normal((4, 500)) + 10 * np.arange(4)[:, None]
    assert effective_size(chains) < 10
    assert effective_size(np.ones((2, 50))) == 1
