"""The smoothed posterior of total variation: its gradient, and the constant that steps rely on."""

import numpy as np
import pytest
import torch

from ct_dip.image_space.skrock import SkRock
from ct_dip.image_space.smoothed_tv import SmoothedTv, squared_norm
from tests.image_space.dense import matrix, posterior, problem

PROBLEM = problem(views=12)


def test_the_norm_is_that_of_the_matrix():
    exact = float(torch.linalg.matrix_norm(matrix(PROBLEM), 2)) ** 2
    assert exact <= squared_norm(PROBLEM) <= 1.02 * exact


@pytest.mark.parametrize("isotropic", [True, False])
def test_the_gradient_is_that_of_the_potential(isotropic):
    density = SmoothedTv(PROBLEM, 0.8, isotropic=isotropic)
    u = torch.randn(3, *PROBLEM.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    u.requires_grad_()
    (expected,) = torch.autograd.grad(density.potential(u).sum(), u)
    torch.testing.assert_close(density.gradient(u.detach()), expected)


def test_the_gradient_never_changes_faster_than_the_lipschitz_constant():
    density, generator = SmoothedTv(PROBLEM, 0.8), torch.Generator().manual_seed(0)
    for size in (1e-3, 0.1, 10.0):
        u = size * torch.randn(50, *PROBLEM.shape, dtype=torch.float64, generator=generator)
        v = u + 1e-3 * torch.randn(50, *PROBLEM.shape, dtype=torch.float64, generator=generator)
        change = (density.gradient(u) - density.gradient(v)).flatten(1).norm(dim=1)
        assert float((change / (u - v).flatten(1).norm(dim=1)).max()) <= density.lipschitz


def test_where_all_differences_are_small_the_chain_samples_the_dense_gaussian():
    """Huber's function is λ t²/2δ there, so its posterior is that of a Markov field of weights λ/δ.

    The mean is exact. The discretisation narrows stiff directions (see `SkRock.variance`), which in this
    problem are the larger part of the deviations of pixels: they are low by up to a fifth.
    """
    density = SmoothedTv(PROBLEM, 1e3, nonnegative=False)
    weights = torch.full((2, *PROBLEM.shape), density.strength / density.smoothing)
    mean, covariance = posterior(PROBLEM, weights)
    method, rng = SkRock(density.lipschitz, 15), np.random.default_rng(0)
    u, draws = mean.float().reshape(1, *PROBLEM.shape).repeat(300, 1, 1), []
    for step in range(80):  # what was forgotten after one step is 0.05 at least, of the stiffest direction
        u = method(u, density.gradient, rng)
        if step >= 50:
            draws.append(u.flatten(1))
    samples = torch.cat(draws).double()
    std = covariance.diagonal().sqrt()
    # 300 chains that are worth more than one sample each: five standard errors of a mean and of a variance.
    assert float(((samples.mean(dim=0) - mean) / std).abs().max()) < 5 / 300**0.5
    values, vectors = torch.linalg.eigh(covariance)
    expected = torch.as_tensor(method.variance((1 / values).numpy()))
    found = ((samples - mean) @ vectors).square().mean(dim=0)
    torch.testing.assert_close(found, expected, rtol=5 * (2 / 300) ** 0.5, atol=0)
