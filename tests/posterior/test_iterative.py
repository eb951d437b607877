"""Conjugate gradients with products alone: the same posterior, and unmet tolerances are counted."""

import pytest
import torch

from ct_dip.posterior.exact import condition, prior_covariance
from ct_dip.posterior.iterative import Iterative, nystrom_preconditioner
from tests.posterior.dense import (
    compressed,
    configured,
    exact_model,
    measured_covariance,
    problem_of,
    random_theta,
)


def solver(complement="slope", **options):
    problem = problem_of(configured(complement))
    model = exact_model(problem)
    theta = random_theta(model)
    full, _, _ = compressed(problem, model, theta)
    settings = {"tolerance": 1e-10, "max_iterations": 500} | options
    found = Iterative(problem, full.covariance, full.pixel_variance, full.noise, **settings)
    return found, full, model, theta


@pytest.mark.parametrize("complement", ["none", "white", "slope"])
def test_its_operator_is_the_matrix(complement):
    found, _, model, theta = solver(complement)
    whole = measured_covariance(model, prior_covariance(model, theta), theta)
    torch.testing.assert_close(found.operator(torch.eye(28, dtype=torch.float64)), whole)


@pytest.mark.parametrize("complement", ["none", "white", "slope"])
def test_mean_and_samples_are_those_of_a_full_compression(complement):
    found, full, model, theta = solver(complement)
    torch.testing.assert_close(found.mean(), condition(model, theta).mean, rtol=0, atol=1e-7)
    ours, theirs = (each.deviations(5, torch.Generator().manual_seed(4)) for each in (found, full))
    torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-6)
    assert found.unconverged == 0
    assert 0 < found.worst_residual <= 1e-10
    assert found.products > 6


def test_unmet_tolerances_are_counted():
    found, _, _, _ = solver(max_iterations=2)
    found.deviations(3, torch.Generator().manual_seed(4))
    assert found.unconverged == 3
    assert found.worst_residual > 1e-10
    found.mean()
    assert found.unconverged == 4


def test_a_preconditioner_saves_products():
    plain, full, _, _ = solver()
    made = nystrom_preconditioner(full.problem, full.covariance, full.pixel_variance, full.noise, 20)
    helped, _, _, _ = solver(preconditioner=made)
    means = [each.mean() for each in (plain, helped)]
    torch.testing.assert_close(*means, rtol=0, atol=1e-7)
    assert helped.products < 0.8 * plain.products
