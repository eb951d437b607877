"""Products and samples of the Matérn covariance against its matrix."""

import numpy as np
import pytest
import torch
from scipy.special import gamma, kv

from ct_dip.image_space.matern import SMOOTHNESS, Matern

SHAPE = (5, 7)


def covariance(length, smoothness):
    """From its definition with a Bessel function, (35, 35)."""
    places = np.stack(np.meshgrid(np.arange(5), np.arange(7), indexing="ij"), axis=-1).reshape(-1, 2)
    t = np.sqrt(2 * smoothness) * np.linalg.norm(places[:, None] - places[None], axis=-1) / length
    with np.errstate(invalid="ignore"):
        k = 2 ** (1 - smoothness) / gamma(smoothness) * t**smoothness * kv(smoothness, t)
    return np.where(t > 0, k, 1.0)


@pytest.mark.parametrize("smoothness", SMOOTHNESS)
@pytest.mark.parametrize("length", [0.5, 3.0])
def test_products_are_those_of_the_matrix_and_of_its_derivative(smoothness, length):
    basis = torch.eye(35, dtype=torch.float64).reshape(-1, *SHAPE)
    k, slope = Matern(SHAPE, length, smoothness).products(basis)
    np.testing.assert_allclose(k.reshape(35, 35), covariance(length, smoothness), atol=1e-12)
    step = 1e-5
    difference = covariance(length * np.exp(step), smoothness) - covariance(
        length * np.exp(-step), smoothness
    )
    np.testing.assert_allclose(slope.reshape(35, 35), difference / 2 / step, atol=1e-8)


@pytest.mark.parametrize("length", [1.0, 7.0])
def test_samples_have_the_covariance(length):
    count = 4000
    drawn = Matern(SHAPE, length, 1.5).sample(count, np.random.default_rng(0)).flatten(1).numpy()
    # Five standard errors of an entry; odd counts are kept, too.
    np.testing.assert_allclose(drawn.T @ drawn / count, covariance(length, 1.5), atol=5 * (2 / count) ** 0.5)
    assert len(Matern(SHAPE, 1.0, 0.5).sample(3, np.random.default_rng(0))) == 3
