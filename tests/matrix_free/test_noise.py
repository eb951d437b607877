"""``N = I + B D Bᵀ``: factorised, by conjugate gradients, and with a few pixels more."""

import pytest
import torch

from ct_dip.matrix_free import noise as module
from ct_dip.matrix_free.noise import MeasurementNoise, SpottedNoise
from tests.matrix_free.dense import FEW, MANY, configured, problem_of


@pytest.fixture(scope="module", params=[FEW, MANY], ids=["measurements", "pixels"])
def problem(request):
    """What is factorised has the size of whichever are fewer."""
    return problem_of(configured("slope"), views=request.param)


def matrix(problem, variance):
    b = problem.whitened.dense()
    return torch.eye(len(b), dtype=torch.float64) + (b * variance) @ b.T


def columns(problem, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(problem.measurements, 4, generator=generator, dtype=torch.float64)


@pytest.mark.parametrize("dense", [True, False], ids=["factorised", "iterated"])
def test_it_is_its_matrix(problem, dense, monkeypatch):
    if not dense:
        monkeypatch.setattr(module, "DENSE", 0)
    variance = problem.complement.variance
    noise, expected, v = (
        MeasurementNoise(problem.whitened, variance),
        matrix(problem, variance),
        columns(problem),
    )
    assert noise.dense is dense
    if dense:
        assert len(noise._lower) == min(problem.pixels, problem.measurements)
    torch.testing.assert_close(noise(v), expected @ v)
    tolerance = 1e-6 if dense else 3e-5  # N in float32 products; conjugate gradients to 1e-5
    torch.testing.assert_close(noise.solve(v), torch.linalg.solve(expected, v), rtol=0, atol=tolerance)
    value, error = noise.log_det
    assert (float(error) == 0) is dense
    assert abs(float(value - torch.logdet(expected))) < 4 * float(error) + 1e-5
    assert noise.converged
    assert (noise.worst_residual > 0) is not dense


def test_without_a_complement_it_is_the_identity(problem):
    noise, v = MeasurementNoise(problem.whitened, None), columns(problem)
    assert torch.equal(noise(v), v)
    assert torch.equal(noise.solve(v), v)
    assert float(noise.log_det.value) == 0


def test_a_solve_that_does_not_converge_is_remembered(problem, monkeypatch):
    monkeypatch.setattr(module, "DENSE", 0)
    monkeypatch.setattr(module, "_TOLERANCE", 1e-30)
    noise = MeasurementNoise(problem.whitened, problem.complement.variance)
    noise.solve(columns(problem))
    assert not noise.converged
    assert noise.worst_residual > 1e-30


@pytest.mark.parametrize("dense", [True, False], ids=["factorised", "iterated"])
@pytest.mark.parametrize("base", ["slope", "none"])
def test_spots_are_pixels_of_the_noise(problem, base, dense, monkeypatch):
    if not dense:
        monkeypatch.setattr(module, "DENSE", 0)
    index, extra = torch.tensor([3, 17, 18]), torch.tensor([0.5, 2.0, 0.1], dtype=torch.float64)
    variance = torch.zeros(problem.pixels, dtype=torch.float64)
    variance[index] = extra
    own = problem.complement.variance if base == "slope" else None
    spotted = SpottedNoise(MeasurementNoise(problem.whitened, own), index, extra)
    if own is not None:
        variance = variance + own
    expected, v = matrix(problem, variance), columns(problem)
    torch.testing.assert_close(spotted(v), expected @ v)
    torch.testing.assert_close(spotted.solve(v), torch.linalg.solve(expected, v), rtol=0, atol=5e-5)
    value, error = spotted.log_det
    assert abs(float(value - torch.logdet(expected))) < 4 * float(error) + 1e-5
    torch.testing.assert_close(spotted.variance, variance)
