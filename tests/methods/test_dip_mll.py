"""One deviation for all pixels: against matrices that can be written down."""

import math

import numpy as np
import pytest
import torch

import ct_dip
from ct_dip.methods.dip_mll import isotropic_std
from ct_dip.operators import ray_transform
from ct_dip.operators.whitened import Whitened
from tests.tiny import dip_fit, scan

SCAN = scan(views=12)
SIGMA = SCAN.noise.std
WHITENED = Whitened(ray_transform(SCAN.geometry), torch.full(SCAN.sinogram.shape, 1 / SIGMA).double())
DENSE = WHITENED.dense().numpy()


def log_density(residual, std):
    covariance = std**2 * DENSE @ DENSE.T + np.eye(len(DENSE))
    return -0.5 * (residual @ np.linalg.solve(covariance, residual) + np.linalg.slogdet(covariance)[1])


def draw(std, seed):
    generator = np.random.default_rng(seed)
    return std * DENSE @ generator.standard_normal(DENSE.shape[1]) + generator.standard_normal(len(DENSE))


@pytest.mark.parametrize("std", [0.02, 0.3])
def test_the_deviation_is_that_of_dense_matrices(std):
    """Within the grid's half percent and what probes leave of the log-determinant, 1 % here."""
    residual = draw(std, seed=5)
    found = isotropic_std(WHITENED, torch.as_tensor(residual))
    tried = np.geomspace(std / 30, 30 * std, 1500)
    values = np.array([log_density(residual, s) for s in tried])
    assert found.best == pytest.approx(tried[values.argmax()], rel=0.015)
    likelihood = np.exp(values - values.max())
    mean = np.trapezoid(likelihood * tried**2, tried) / np.trapezoid(likelihood, tried)
    assert found.mean == pytest.approx(math.sqrt(mean), rel=0.02)


def test_a_known_deviation_is_found():
    """The likelihood of log s has a width of about (2 · 30 pixels)^−½."""
    found = [isotropic_std(WHITENED, torch.as_tensor(draw(0.2, seed))).best for seed in range(10)]
    assert np.mean(np.log(found)) == pytest.approx(math.log(0.2), abs=4 / math.sqrt(600))


def test_residuals_below_the_noise_leave_what_they_do_not_exclude():
    found = isotropic_std(WHITENED, torch.as_tensor(0.5 * draw(0.0, seed=1)))
    assert found.best == 0
    assert 0 < found.mean < 1 / np.linalg.svd(DENSE, compute_uv=False).min()


def test_the_method_adds_it_to_every_pixel():
    fit = dip_fit()
    found = ct_dip.reconstruct(SCAN, method="dip-mll", fit=fit, samples=400)
    std = found.diagnostics["isotropic_std"]
    residual = (SCAN.sinogram - ray_transform(SCAN.geometry)(torch.as_tensor(fit.image)).numpy()) / SIGMA
    assert std == pytest.approx(isotropic_std(WHITENED, torch.as_tensor(residual).flatten().double()).mean)
    np.testing.assert_array_equal(found.mean, fit.image)
    np.testing.assert_allclose(found.std, std)
    deviations = (found.samples - found.mean) / std
    assert np.mean(deviations**2) == pytest.approx(1, abs=5 * math.sqrt(2 / deviations.size))
