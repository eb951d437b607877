"""TV-PredCP in closed form against a million samples."""

import math

import pytest
import torch

from ct_dip.posterior.config import InferenceConfig
from ct_dip.priors.predcp import folded_normal_mean
from tests import tiny

SAMPLES = 10**6


@pytest.mark.parametrize(("mean", "variance"), [(0.0, 1.0), (0.3, 0.04), (-1.2, 0.5), (2.0, 1e-4)])
def test_folded_normal_against_samples(mean, variance):
    """Value and derivative: ``∂/∂v E|μ + √v z| = E[sign(μ + √v z) z] / 2√v``."""
    z = torch.randn(SAMPLES, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    draws = mean + math.sqrt(variance) * z
    slopes = draws.sign() * z / (2 * math.sqrt(variance))
    v = torch.tensor(variance, dtype=torch.float64, requires_grad=True)
    value = folded_normal_mean(torch.tensor(mean, dtype=torch.float64), v)
    value.backward()
    for samples, exact in ((draws.abs(), value.detach()), (slopes, v.grad)):
        error = samples.std() / math.sqrt(SAMPLES)
        assert abs(samples.mean() - exact) < 4 * error + 1e-12


def test_no_variance_is_no_trouble():
    v = torch.zeros(3, dtype=torch.float64, requires_grad=True)
    value = folded_normal_mean(torch.tensor([0.0, -2.0, 1.0], dtype=torch.float64), v)
    value.sum().backward()
    torch.testing.assert_close(value.detach(), torch.tensor([0.0, 2.0, 1.0], dtype=torch.float64))
    assert torch.isfinite(v.grad).all()


@pytest.fixture(scope="module")
def predcp():
    config = InferenceConfig(objective="optimum", hyperprior="tv-predcp", predcp_strength=2.0)
    model, jacobian, _ = tiny.model(config)
    return model.evidence.hyperprior, jacobian


def test_expected_tv_against_images_drawn_from_the_prior(predcp):
    """κ_b and ∂κ_b/∂ℓ_b: block b drawn from its prior, the other weights at w̃."""
    hyperprior, jacobian = predcp
    prior = hyperprior.prior
    block = 1
    theta = prior.start.clone()
    where = jacobian.slices[prior.blocks[block].name]
    place = len(prior.blocks) + prior.wide.index(block)
    theta[place] = 0.0  # a length of one tap
    columns = jacobian.dense()[:, where]
    base = jacobian.image.flatten() - columns @ jacobian.weights[where]
    filters, chunk, step = (where.stop - where.start) // 9, 50_000, 1e-3
    generator = torch.Generator().manual_seed(0)
    values, slopes = [], []
    for _ in range(SAMPLES // chunk):
        draws = torch.randn(chunk, filters, 9, generator=generator, dtype=torch.float64)
        tvs = []
        for length in (1 + step, 1.0, 1 - step):  # the same draws: a derivative sample by sample
            moved = theta.clone()
            moved[place] = math.log(length)
            factor = torch.linalg.cholesky(prior.tap_covariance(moved, block))
            images = (base + (draws @ factor.T).reshape(chunk, -1) @ columns.T).reshape(-1, *tiny.IMAGE)
            tvs.append(images.diff(dim=1).abs().sum(dim=(1, 2)) + images.diff(dim=2).abs().sum(dim=(1, 2)))
        values.append(tvs[1])
        slopes.append((tvs[0] - tvs[2]) / (2 * step))
    theta.requires_grad_()
    exact = hyperprior.expected_tv(theta, block)
    (slope,) = torch.autograd.grad(exact, theta)
    for samples, expected in ((torch.cat(values), exact.detach()), (torch.cat(slopes), slope[place])):
        assert abs(samples.mean() - expected) < 4 * samples.std() / math.sqrt(SAMPLES)


def test_density_is_that_of_the_change_of_variables(predcp):
    """``log λ − λ κ + log |dκ/dℓ|``, with the derivative by differences."""
    hyperprior, _ = predcp
    prior = hyperprior.prior
    theta = torch.cat([prior.split(prior.start)[0], torch.zeros(len(prior.wide), dtype=torch.float64)])
    expected = 0.0
    for place, block in enumerate(prior.wide):
        index = len(prior.blocks) + place
        length, step = math.exp(theta[index]), 1e-4
        values = []
        for shifted in (length + step, length - step):
            moved = theta.clone()
            moved[index] = math.log(shifted)
            values.append(float(hyperprior.expected_tv(moved, block)))
        slope = (values[0] - values[1]) / (2 * step)
        kappa = float(hyperprior.expected_tv(theta, block))
        expected += math.log(2.0) - 2.0 * kappa + math.log(abs(slope))
    found = float(hyperprior.log_density(theta).detach())
    assert found == pytest.approx(expected, rel=1e-6)


def test_density_is_differentiable(predcp):
    hyperprior, _ = predcp
    theta = (hyperprior.prior.start + 0.1).requires_grad_()
    assert torch.autograd.gradcheck(hyperprior.log_density, theta)


@pytest.mark.parametrize(
    ("choice", "expected"), [("fit", 1.5), ("paper", 2 * (0.1 / tiny.SCALE) ** 2 * 1.5), (7.0, 7.0)]
)
def test_strength_by_rule_by_name_or_given(choice, expected):
    config = InferenceConfig(objective="optimum", hyperprior="tv-predcp", predcp_strength=choice)
    model, _, _ = tiny.model(config)
    assert model.evidence.hyperprior.strength == pytest.approx(expected)
