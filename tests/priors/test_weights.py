"""Weight priors against their covariance, written out."""

import dataclasses
import math

import numpy as np
import pytest
import torch

from ct_dip.errors import CtDipError
from ct_dip.posterior.config import InferenceConfig
from ct_dip.posterior.fit import fit_posterior
from ct_dip.priors.weights import _fit_taps
from ct_dip.tangent.taps import tap_pairs
from tests import tiny


def covariance(prior, theta):
    """Σ(θ), (P, P), filter by filter."""
    parts = []
    variances, lengths = prior.split(theta)
    lengths = dict(zip(prior.wide, lengths, strict=True))
    steps = torch.arange(3, dtype=torch.float64)
    grid = torch.cartesian_prod(steps, steps)
    for i, block in enumerate(prior.blocks):
        taps = torch.ones(1, 1, dtype=torch.float64)
        if i in lengths:
            taps = torch.exp(-torch.cdist(grid, grid) / lengths[i].exp())
        where = prior.slices[block.name]
        parts += [variances[i].exp() * taps] * ((where.stop - where.start) // len(taps))
    return torch.block_diag(*parts)


def random_theta(prior, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return prior.start + 0.5 * torch.randn(len(prior.start), generator=generator, dtype=torch.float64)


@pytest.mark.parametrize("shape", [tiny.PLAIN, tiny.NORMALISED], ids=["plain", "normalised"])
def test_image_covariance_is_j_sigma_jt(shape):
    model, jacobian, _ = tiny.model(InferenceConfig(objective="optimum"), shape=shape)
    prior = model.evidence.prior
    theta = random_theta(prior)
    dense, sigma = jacobian.dense(), covariance(prior, theta)
    found = torch.tensordot(prior.coefficients(theta), model.grams, 1)
    torch.testing.assert_close(found, dense @ sigma @ dense.T)
    w = jacobian.weights
    torch.testing.assert_close(prior.weight_norm(theta), w @ torch.linalg.solve(sigma, w))


def test_every_normalised_convolution_has_its_own_variance():
    blocks = tiny.network(tiny.NORMALISED).weight_blocks()
    assert all(len(block.parameters) == 1 for block in blocks if block.normalised)
    assert {b.name for b in blocks} >= {"in", "down0.first", "down0.second", "up0.first", "up0.second"}
    assert {b.name for b in tiny.network().weight_blocks()} == {"in", "down0", "up0", "skip0", "out"}


def test_one_scale_moves_the_block_prior_of_the_fitted_weights():
    full, jacobian, _ = tiny.model(InferenceConfig(objective="optimum"))
    scaled, _, _ = tiny.model(InferenceConfig(objective="scale"))
    block, one = full.evidence.prior, scaled.evidence.prior
    theta = torch.tensor([math.log(3.0)], dtype=torch.float64)
    sigma, dense = covariance(block, block.start), jacobian.dense()
    found = torch.tensordot(one.coefficients(theta), scaled.grams, 1)
    torch.testing.assert_close(found, 3 * dense @ sigma @ dense.T)
    w = jacobian.weights
    torch.testing.assert_close(one.weight_norm(theta), w @ torch.linalg.solve(sigma, w) / 3)
    assert float(one.start) == pytest.approx(0.0, abs=1e-6)  # the weights are most likely as they are


def test_isotropic_prior_is_one_variance():
    model, jacobian, _ = tiny.model(InferenceConfig(prior="isotropic", objective="optimum"))
    prior = model.evidence.prior
    dense = jacobian.dense()
    theta = torch.tensor([math.log(0.7)], dtype=torch.float64)
    found = torch.tensordot(prior.coefficients(theta), model.grams, 1)
    torch.testing.assert_close(found, 0.7 * dense @ dense.T)
    torch.testing.assert_close(prior.weight_norm(theta), jacobian.weights @ jacobian.weights / 0.7)


@pytest.mark.parametrize("length", [0.3, 1.0, 4.0])
def test_taps_are_fitted_by_maximum_likelihood(length):
    taps = tap_pairs(3)
    correlation = torch.tensordot(torch.exp(-taps.distances / length), taps.pairs, 1)
    generator = torch.Generator().manual_seed(0)
    draws = torch.randn(4000, 9, generator=generator, dtype=torch.float64)
    filters = math.sqrt(0.02) * draws @ torch.linalg.cholesky(correlation).T
    block = tiny.network().weight_blocks()[0]
    variance, found = _fit_taps(block, filters.T @ filters, len(filters))
    assert variance == pytest.approx(0.02, rel=0.1)
    assert found == pytest.approx(length, rel=0.15)


def silenced(*blocks):
    """A fit in which the weights of these blocks, or of all, are zero."""
    fit = tiny.dip_fit()
    names = {
        name for b in fit.network().weight_blocks() if b.name in blocks or not blocks for name in b.parameters
    }
    weights = {name: 0 * w if name in names else w for name, w in fit.weights.items()}
    return dataclasses.replace(fit, weights=weights)


REGIMES = pytest.mark.parametrize("regime", ["exact", "compressed", "iterative"])


@REGIMES
@pytest.mark.parametrize("objective", ["scale", "optimum"])
@pytest.mark.parametrize("block", ["skip0", "down0"])  # of 1×1 and of 3×3 filters
def test_a_block_without_weights_is_named(regime, objective, block):
    config = InferenceConfig(regime=regime, objective=objective)
    with pytest.raises(CtDipError, match=rf"block '{block}' are all zero.*inference\.prior=isotropic"):
        fit_posterior(silenced(block), tiny.scan(), config)


@REGIMES
def test_the_isotropic_prior_needs_no_weights_in_every_block(regime):
    config = InferenceConfig(regime=regime, prior="isotropic", starts=1, samples=30)
    found = fit_posterior(silenced("skip0"), tiny.scan(), config)
    assert np.isfinite(found.mean).all()
    assert (found.std > 0).all()


@pytest.mark.parametrize("prior", ["isotropic", "g"])
def test_no_prior_starts_from_nothing(prior):
    with pytest.raises(CtDipError, match="all zero"):
        fit_posterior(silenced(), tiny.scan(), InferenceConfig(prior=prior))
