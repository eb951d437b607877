"""Pixels that contradict the model are the same whether found with matrices or with products."""

import dataclasses

import pytest
import torch

from ct_dip.posterior.exact import Exact
from ct_dip.posterior.relevance import freed_pixel_variance
from tests.posterior.dense import compressed, configured, exact_model, problem_of


def with_a_bright_pixel(complement, pixel, height):
    problem = problem_of(configured(complement))
    image = torch.zeros(1, 30, dtype=torch.float64)
    image[0, pixel] = height
    problem = dataclasses.replace(problem, residual=problem.project(image)[0])
    model = exact_model(problem)
    return problem, model, model.evidence.start


@pytest.mark.parametrize("complement", ["none", "slope"])
def test_one_bright_pixel(complement):
    problem, model, theta = with_a_bright_pixel(complement, 14, 8.0)
    expected = freed_pixel_variance(Exact(problem, model, theta))
    assert expected[14] > 0  # there is something to find
    posterior, _, _ = compressed(problem, model, theta)
    found = freed_pixel_variance(posterior)
    assert torch.equal(found > 0, expected > 0)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=0)


def test_nothing_is_found_where_nothing_is():
    problem, model, theta = with_a_bright_pixel("slope", 14, 0.0)
    posterior, _, _ = compressed(problem, model, theta)
    assert not freed_pixel_variance(Exact(problem, model, theta)).any()
    assert not freed_pixel_variance(posterior).any()
