import numpy as np
import pytest

from ct_dip.evaluation.effective_samples import effective_sample_size


def autoregressive(rho, count, chains):
    generator = np.random.default_rng(0)
    x = np.empty((count, chains))
    x[0] = generator.standard_normal(chains)
    for t in range(1, count):
        x[t] = rho * x[t - 1] + np.sqrt(1 - rho**2) * generator.standard_normal(chains)
    return x


@pytest.mark.parametrize("rho", [0.0, 0.5, 0.9])
def test_an_autoregressive_chain_is_worth_what_theory_says(rho):
    """Its integrated autocorrelation time is (1 + ρ)/(1 − ρ)."""
    found = effective_sample_size(autoregressive(rho, 4000, 40))
    assert found.mean() == pytest.approx(4000 * (1 - rho) / (1 + rho), rel=0.08)


def test_shapes_and_what_never_changes():
    chain = np.zeros((50, 2, 3))
    chain[:, 0, 0] = np.arange(50)
    found = effective_sample_size(chain)
    assert found.shape == (2, 3)
    assert found[1, 1] == 1
    assert 1 <= found[0, 0] < 5
