"""Gibbs sampling of fields and their precisions, against posteriors by quadrature."""

import numpy as np
import pytest
import torch
from scipy.special import gamma

from ct_dip.image_space.gibbs import GaussianField, LaplaceField, gibbs
from tests.image_space.dense import matrix, problem, rough

PROBLEM = problem(views=12)
DRAWS = 400


def by_quadrature(found, logs):
    """Mean and deviations of u, with the precisions d and l integrated on a grid of their logarithms."""
    data, B, m = found.data.double(), matrix(found), len(found.data)
    Q, gram, n = rough(found, torch.ones(2, *found.shape)), B.T @ B, found.pixels
    rows = []
    for log_d in logs:
        for log_l in logs:
            d, noise = np.exp(log_d), np.exp(log_l)
            covariance = torch.linalg.inv(noise * gram + d * Q)
            mean = noise * covariance @ (B.T @ data)
            misfit = float((B @ mean - data).square().sum())
            value = m * log_l + (n - 1) * log_d + float(torch.logdet(covariance))
            value -= noise * misfit + d * float(mean @ Q @ mean)
            hyperprior = log_d - 1e-4 * d + log_l - 1e-4 * noise  # of the logarithms
            rows.append((value / 2 + hyperprior, d, noise, mean, covariance.diagonal()))
    weights = torch.softmax(torch.tensor([row[0] for row in rows], dtype=torch.float64), dim=0)
    d, noise = (float((weights * torch.tensor([row[k] for row in rows])).sum()) for k in (1, 2))
    means, variances = (torch.stack([row[k] for row in rows]) for k in (3, 4))
    mean = weights @ means
    return d, noise, mean, (weights @ (variances + (means - mean) ** 2)).sqrt()


def test_a_gaussian_field_is_that_of_the_dense_posterior():
    chain = gibbs(PROBLEM, GaussianField(PROBLEM.pixels), draws=DRAWS, burn_in=30, seed=1)
    draws = chain.draws[0].flatten(1).double()
    d, noise, mean, std = by_quadrature(PROBLEM, np.linspace(-5, 2, 36))
    # The chain is worth about a third of its draws: four standard errors, of a mean and of a deviation.
    assert float(((draws.mean(dim=0) - mean) / std).abs().max()) < 4 / (DRAWS / 3) ** 0.5
    torch.testing.assert_close(draws.std(dim=0), std, rtol=4 / (2 * DRAWS / 3) ** 0.5, atol=0)
    assert chain.noise.mean() == pytest.approx(noise, rel=0.1)
    assert chain.precision.mean() == pytest.approx(d, rel=0.25)


def test_noise_can_be_as_stated():
    chain = gibbs(PROBLEM, GaussianField(PROBLEM.pixels), draws=5, burn_in=0, fit_noise=False)
    assert (chain.noise == 1).all()
    assert chain.draws.shape == (1, 5, *PROBLEM.shape)


@pytest.mark.parametrize("prior", [GaussianField(30), LaplaceField(30), LaplaceField(30, exact=True)])
def test_the_prior_is_normalised_for_every_precision(prior):
    """``∫ d^shape exp(−d energy(u)) du`` over 29 dimensions is the same for all d if energy scales so."""
    field = torch.randn(2, 5, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    assert prior.energy(3 * field) == pytest.approx(3 ** (29 / prior.shape) * prior.energy(field))


def test_ugla_makes_free_differences_too_small():
    """Without data ``t_{k+1} = √(|t_k|/d) ξ`` has the second moment ``d⁻² Π_k E|ξ|^{2^{1−k}}``.

    That is 1/2d², where a Laplace distribution has 2/d²: UGLA is another prior.
    """
    prior, rng, d = LaplaceField(2), np.random.default_rng(0), 2.0
    t = torch.ones(200000)
    for _ in range(30):
        normal = torch.as_tensor(rng.standard_normal(len(t))).float()
        t = normal / prior.weights(t, d, rng).sqrt()
    powers = 2.0 ** (1 - np.arange(40))
    moments = 2 ** (powers / 2) * gamma((powers + 1) / 2) / np.sqrt(np.pi)
    assert np.prod(moments) == pytest.approx(0.5)
    assert float(t.square().mean()) * d**2 == pytest.approx(0.5, rel=0.02)


def test_exact_weights_keep_the_laplace_distribution():
    """A Laplace variable, a weight given it, and a normal variable of that weight is a Laplace variable."""
    prior, rng, d = LaplaceField(2, exact=True), np.random.default_rng(0), 2.0
    t = torch.as_tensor(rng.laplace(scale=1 / d, size=200000)).float()
    t = torch.as_tensor(rng.standard_normal(len(t))).float() / prior.weights(t, d, rng).sqrt()
    size = t.abs().double()
    assert float(size.mean()) * d == pytest.approx(1, rel=0.01)
    assert float(size.square().mean()) * d**2 == pytest.approx(2, rel=0.03)
    assert prior.energy(torch.tensor([[-1.0, 2.0]])) == 3
