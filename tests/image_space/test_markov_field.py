"""Products, mean and samples of a Markov random field against its matrices."""

import numpy as np
import pytest
import torch

from ct_dip.image_space.markov_field import MarkovField
from tests.image_space.dense import matrix, posterior, problem, rough

PROBLEM = problem()
WEIGHTS = torch.rand(2, *PROBLEM.shape, generator=torch.Generator().manual_seed(0)) + 0.05
NOISE = 0.7


@pytest.fixture(scope="module")
def field():
    return MarkovField(PROBLEM, WEIGHTS, NOISE, tolerance=1e-5)


def test_products_are_those_of_the_matrices(field):
    u = torch.rand(3, PROBLEM.pixels, dtype=torch.float64)
    P = NOISE * matrix(PROBLEM).T @ matrix(PROBLEM) + rough(PROBLEM, WEIGHTS)
    torch.testing.assert_close(field.precision(u), u @ P)
    torch.testing.assert_close(field.roughness(u), u @ rough(PROBLEM, WEIGHTS))


def test_the_preconditioner_has_the_weights_on_its_diagonal(field):
    expected = NOISE + rough(PROBLEM, WEIGHTS).diagonal()
    torch.testing.assert_close(field._diagonal.double(), expected, rtol=1e-5, atol=1e-6)


def test_mean_and_samples_are_those_of_the_dense_posterior(field):
    mean, covariance = posterior(PROBLEM, WEIGHTS, NOISE)
    std = covariance.diagonal().sqrt()
    assert float(((field.mean() - mean) / std).abs().max()) < 1e-3
    count = 20000
    samples = field.sample(count, np.random.default_rng(0)).double()
    # Five standard errors of a mean, and of an entry of a covariance matrix.
    assert float(((samples.mean(dim=0) - mean) / std).abs().max()) < 5 / count**0.5
    scaled = (samples - mean) / std
    found, expected = scaled.T @ scaled / count, covariance / std[:, None] / std
    assert float((found - expected).abs().max()) < 5 * (2 / count) ** 0.5


def test_where_a_solve_starts_does_not_matter(field):
    start = torch.full((PROBLEM.pixels,), 3.0)
    rng = np.random.default_rng
    torch.testing.assert_close(
        field.sample(2, rng(1), start=start), field.sample(2, rng(1)), rtol=1e-3, atol=1e-3
    )
