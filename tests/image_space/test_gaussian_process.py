"""The Gaussian process against its dense formulas."""

import numpy as np
import pytest
import torch
from scipy.optimize import approx_fprime
from scipy.stats import multivariate_normal

from ct_dip.image_space.gaussian_process import GaussianProcess, GpHyperparameters
from ct_dip.image_space.matern import Matern
from tests.image_space.dense import matrix, problem

PROBLEM = problem(views=12)
DATA = PROBLEM.data.double()


def prior(length, smoothness=0.5):
    """``K``, (pixels, pixels)."""
    basis = torch.eye(PROBLEM.pixels, dtype=torch.float64).reshape(-1, *PROBLEM.shape)
    return Matern(PROBLEM.shape, length, smoothness)(basis).flatten(1)


def log_evidence(logs):
    """Of log ℓ, log a and log s."""
    length, amplitude, noise = np.exp(logs)
    B = matrix(PROBLEM)
    covariance = amplitude**2 * B @ prior(length) @ B.T + noise**2 * torch.eye(len(B))
    return multivariate_normal.logpdf(DATA.numpy(), cov=covariance.numpy())


def test_the_profile_is_the_evidence_at_the_best_amplitude():
    process = GaussianProcess(PROBLEM, 0.5)
    value, slopes, variance = process.profile(2.0, 0.3)
    assert value == pytest.approx(
        log_evidence(np.log([2.0, variance**0.5, (0.3 * variance) ** 0.5])), abs=1e-6
    )
    assert value > log_evidence(np.log([2.0, 1.1 * variance**0.5, 1.1 * (0.3 * variance) ** 0.5]))
    step = 1e-4
    for place, slope in enumerate(slopes):
        ends = []
        for sign in (1, -1):
            logs = np.log([2.0, 0.3])
            logs[place] += sign * step
            ends.append(process.profile(*np.exp(logs))[0])
        assert slope == pytest.approx((ends[0] - ends[1]) / 2 / step, rel=1e-4, abs=1e-6)


def test_the_fit_ends_where_the_evidence_is_flat():
    found = GaussianProcess(PROBLEM, 0.5).fit()
    logs = np.log([found.length, found.amplitude, found.noise])
    assert not found.at_bound
    assert found.evidence == pytest.approx(log_evidence(logs), abs=1e-6)
    # A hundredth of a nat per e-fold is where the search ends.
    assert np.abs(approx_fprime(logs, log_evidence, 1e-5)).max() < 0.02


def test_the_posterior_is_that_of_the_dense_formulas():
    chosen = GpHyperparameters(
        length=2.5, amplitude=4.0, noise=1.2, evidence=0.0, evaluations=0, at_bound=False
    )
    B, K = matrix(PROBLEM), 16 * prior(2.5)
    gain = torch.linalg.solve(B @ K @ B.T + 1.44 * torch.eye(len(B)), B @ K).T
    mean, covariance = gain @ DATA, K - gain @ B @ K
    count = 20000
    found, std, samples = GaussianProcess(PROBLEM, 0.5).posterior(chosen, count, np.random.default_rng(0))
    torch.testing.assert_close(found.flatten(), mean, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(std.flatten(), covariance.diagonal().sqrt(), rtol=1e-5, atol=1e-6)
    errors = (samples.flatten(1) - mean) / std.flatten()
    expected = covariance / std.flatten() / std.flatten()[:, None]
    assert float((errors.T @ errors / count - expected).abs().max()) < 5 * (2 / count) ** 0.5
