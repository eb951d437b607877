"""Evidence of the scales of a Markov random field: its value, its slope, and its optimum by samples."""

import numpy as np
import pytest
import torch
from scipy.stats import multivariate_normal

from ct_dip.image_space.field_evidence import DenseField, Scales, fit_by_samples
from tests.image_space.dense import matrix, posterior, problem, rough

PROBLEM = problem(views=12)
WEIGHTS = 0.3 * torch.rand(2, *PROBLEM.shape, generator=torch.Generator().manual_seed(0)) + 0.02


@pytest.fixture(scope="module")
def dense():
    return DenseField(PROBLEM, WEIGHTS)


def test_the_evidence_is_the_density_of_the_data(dense):
    """Differences of it: those of a proper prior whose constant images have a very large variance."""

    def density(scales):
        B, Q = matrix(PROBLEM), rough(PROBLEM, WEIGHTS)
        precision = scales.prior * Q + 1e-7 * torch.ones_like(Q) / len(Q)
        covariance = B @ torch.linalg.inv(precision) @ B.T + torch.eye(len(B)) / scales.noise
        return multivariate_normal.logpdf(PROBLEM.data.numpy(), cov=covariance.numpy())

    one, other = Scales(0.4, 1.3), Scales(3.0, 0.8)
    found = dense.evidence(one)[0] - dense.evidence(other)[0]
    assert found == pytest.approx(density(one) - density(other), abs=1e-2)


def test_the_slopes_are_those_of_the_value(dense):
    def value(log_prior, log_noise):
        return dense.evidence(Scales(np.exp(log_prior), np.exp(log_noise)))[0]

    slopes, step = dense.evidence(Scales(np.exp(0.3), np.exp(-0.2)))[1], 1e-4
    assert slopes[0] == pytest.approx(
        (value(0.3 + step, -0.2) - value(0.3 - step, -0.2)) / 2 / step, rel=1e-4
    )
    assert slopes[1] == pytest.approx(
        (value(0.3, -0.2 + step) - value(0.3, -0.2 - step)) / 2 / step, rel=1e-4
    )


@pytest.mark.parametrize("fit_noise", [True, False])
def test_the_optimum_is_flat_and_samples_find_it(dense, fit_noise):
    best = dense.fit(fit_noise=fit_noise)
    slopes = dense.evidence(best)[1]
    assert abs(slopes[0]) < 0.02
    assert abs(slopes[1]) < 0.02 if fit_noise else best.noise == 1
    sampled = fit_by_samples(PROBLEM, WEIGHTS, fit_noise=fit_noise, probes=400)
    # 400 probes know the traces to a few per cent.
    assert sampled.prior == pytest.approx(best.prior, rel=0.1)
    assert sampled.noise == pytest.approx(best.noise, rel=0.05)


def test_errors_are_those_of_the_dense_posterior(dense):
    scales = Scales(0.7, 1.2)
    mean, covariance = posterior(PROBLEM, 0.7 * WEIGHTS, 1.2)
    torch.testing.assert_close(dense.posterior(scales)[0], mean, rtol=1e-4, atol=1e-4)
    std, errors = dense.std_and_errors(scales, 20000, np.random.default_rng(0))
    torch.testing.assert_close(std, covariance.diagonal().sqrt(), rtol=1e-5, atol=0)
    torch.testing.assert_close(errors.square().mean(dim=0).sqrt(), std, rtol=5 / 40000**0.5, atol=0)
