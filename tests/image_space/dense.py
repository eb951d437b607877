"""A problem of 30 pixels whose posterior can be written down."""

import torch

from ct_dip.image_space.markov_field import MarkovField
from ct_dip.image_space.problem import pixel_problem
from ct_dip.operators import ray_transform
from tests import tiny


def problem(views=4, seed=2):
    """A `PixelProblem` in float32."""
    scan = tiny.scan(seed=seed, views=views)
    sinogram = torch.as_tensor(scan.sinogram.copy()).float()
    return pixel_problem(ray_transform(scan.geometry), sinogram, scan.noise.std**2)


def matrix(found):
    """B, (measurements, pixels), float64."""
    return found.whitened.dense()


def rough(found, weights):
    """``Dᵀ diag(w) D``, (pixels, pixels), float64."""
    differences = MarkovField(found, weights).differences.dense()
    return differences.T @ (weights.double().flatten()[:, None] * differences)


def posterior(found, weights, noise=1.0):
    """Mean and covariance of the Gaussian posterior of a Markov random field."""
    B = matrix(found)
    covariance = torch.linalg.inv(noise * B.T @ B + rough(found, weights))
    return noise * covariance @ (B.T @ found.data.double()), covariance
