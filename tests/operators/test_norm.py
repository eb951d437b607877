import pytest
import torch

from ct_dip.operators import ray_transform
from ct_dip.operators.norm import rms_column_norm
from tests.geometries import FAN


def test_rms_column_norm_converges_to_the_frobenius_norm():
    transform = ray_transform(FAN)
    weights = torch.linspace(0.5, 2, transform.range_shape[1], dtype=torch.float64)
    weights = weights.expand(transform.range_shape)
    matrix = transform.dense() * weights.reshape(-1, 1)
    exact = float((matrix**2).sum(0).mean().sqrt())
    few = rms_column_norm(transform, weights, probes=8)
    many = rms_column_norm(transform, weights, probes=4096)
    assert few == pytest.approx(exact, rel=0.15)
    assert many == pytest.approx(exact, rel=0.01)
