"""The units of the noise."""

import pytest
import torch

from ct_dip.classical.tv import tv
from ct_dip.image_space.problem import unit_vectors
from ct_dip.image_space.smoothed_tv import SmoothedTv
from ct_dip.operators import ray_transform
from tests import tiny
from tests.image_space.dense import matrix, problem


def test_columns_have_norm_one_and_the_noise_is_standard():
    found, scan = problem(), tiny.scan()
    # Eight probes know the norm to a few per cent.
    assert float(matrix(found).square().sum(dim=0).mean().sqrt()) == pytest.approx(1, rel=0.15)
    image = torch.rand(scan.geometry.domain_shape)
    expected = ray_transform(scan.geometry)(image) / scan.noise.std
    torch.testing.assert_close(found.whitened(image / found.unit), expected.flatten(), rtol=1e-4, atol=1e-4)


def test_the_strength_of_tv_is_its_weight():
    """The minimum that `tv` finds is that of the potential whose weight of TV is the strength."""
    scan, found = tiny.scan(views=12), problem(views=12)
    image = tv(
        ray_transform(scan.geometry),
        torch.as_tensor(scan.sinogram.copy()).float(),
        variance=scan.noise.std**2,
        strength=0.7,
        tolerance=1e-4,
        max_iterations=2000,
    )
    density = SmoothedTv(found, 0.7)
    density.smoothing = 1e-6
    best = float(density.potential(image.image[None] / found.unit))
    assert best == pytest.approx(image.objective, rel=1e-4)
    for factor in (0.98, 1.02):
        assert float(density.potential(factor * image.image[None] / found.unit)) > best


def test_unit_vectors_are_the_identity():
    rows = torch.cat(list(unit_vectors(7, 3, torch.device("cpu"))))
    torch.testing.assert_close(rows, torch.eye(7, dtype=torch.float64))
