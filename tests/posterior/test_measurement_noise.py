"""``N = I + B D Bᵀ``: factorised, by conjugate gradients, and with a few pixels more."""

import math

import pytest
import torch

from ct_dip.posterior import measurement_noise as module
from ct_dip.posterior.compressed import basis_factor
from ct_dip.posterior.measurement_noise import FreedPixelNoise, MeasurementNoise
from ct_dip.posterior.row_blocks import RowBlocks
from tests.identities import assert_every_identity
from tests.posterior.dense import FEW, MANY, columns_of, configured, problem_of


@pytest.fixture(scope="module", params=[FEW, MANY], ids=["measurements", "pixels"])
def problem(request):
    """What is factorised has the size of whichever are fewer."""
    return problem_of(configured("slope"), views=request.param)


def matrix(problem, variance):
    b = problem.whitened.dense()
    return torch.eye(len(b), dtype=torch.float64) + (b * variance) @ b.T


def sinograms(problem, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(4, problem.measurements, generator=generator, dtype=torch.float64)


@pytest.mark.parametrize("dense", [True, False], ids=["factorised", "iterated"])
def test_it_is_its_matrix(problem, dense, monkeypatch):
    if not dense:
        monkeypatch.setattr(module, "DENSE", 0)
    variance = problem.complement.variance
    noise, expected, v = (
        MeasurementNoise(problem.whitened, variance),
        matrix(problem, variance),
        sinograms(problem),
    )
    assert noise.factorised is dense
    if dense:
        assert len(noise._lower) == min(problem.pixels, problem.measurements)
    torch.testing.assert_close(noise(v), v @ expected)
    assert_every_identity(noise)
    tolerance = 1e-10 if dense else 3e-5  # conjugate gradients to 1e-5
    torch.testing.assert_close(noise.solve(v), torch.linalg.solve(expected, v.T).T, rtol=0, atol=tolerance)
    value, error = noise.log_det
    assert (float(error) == 0) is dense
    assert abs(float(value - torch.logdet(expected))) < 4 * float(error) + 1e-5
    assert noise.converged
    assert 0 < noise.worst_residual < (1e-12 if dense else 1e-5)


def test_without_a_complement_it_is_the_identity(problem):
    noise, v = MeasurementNoise(problem.whitened, None), sinograms(problem)
    assert torch.equal(noise(v), v)
    assert torch.equal(noise.solve(v), v)
    assert float(noise.log_det.value) == 0


def test_a_solve_that_does_not_converge_is_remembered(problem, monkeypatch):
    monkeypatch.setattr(module, "DENSE", 0)
    monkeypatch.setattr(module, "_TOLERANCE", 1e-30)
    noise = MeasurementNoise(problem.whitened, problem.complement.variance)
    noise.solve(sinograms(problem))
    assert not noise.converged
    assert noise.worst_residual > 1e-30


def test_a_later_solve_does_not_make_up_for_a_worse_one(problem, monkeypatch):
    monkeypatch.setattr(module, "DENSE", 0)
    noise, v = MeasurementNoise(problem.whitened, problem.complement.variance), sinograms(problem)
    monkeypatch.setattr(module, "_TOLERANCE", 1e-1)
    noise.solve(v)
    rough = noise.worst_residual
    monkeypatch.setattr(module, "_TOLERANCE", 1e-10)
    noise.solve(v)
    assert noise.worst_residual == rough > 1e-10
    monkeypatch.setattr(module, "_TOLERANCE", 1e-30)
    noise.solve(v)
    monkeypatch.setattr(module, "_TOLERANCE", 1e-5)
    noise.solve(v)
    assert not noise.converged


@pytest.mark.parametrize("dense", [True, False], ids=["factorised", "iterated"])
@pytest.mark.parametrize("base", ["slope", "none"])
def test_spots_are_pixels_of_the_noise(problem, base, dense, monkeypatch):
    if not dense:
        monkeypatch.setattr(module, "DENSE", 0)
    index, extra = torch.tensor([3, 17, 18]), torch.tensor([0.5, 2.0, 0.1], dtype=torch.float64)
    variance = torch.zeros(problem.pixels, dtype=torch.float64)
    variance[index] = extra
    own = problem.complement.variance if base == "slope" else None
    spotted = FreedPixelNoise(MeasurementNoise(problem.whitened, own), index, extra)
    if own is not None:
        variance = variance + own
    expected, v = matrix(problem, variance), sinograms(problem)
    torch.testing.assert_close(spotted(v), v @ expected)
    torch.testing.assert_close(spotted.solve(v), torch.linalg.solve(expected, v.T).T, rtol=0, atol=5e-5)
    value, error = spotted.log_det
    assert abs(float(value - torch.logdet(expected))) < 4 * float(error) + 1e-5
    torch.testing.assert_close(spotted.variance, variance)


def basis_of(problem, dtype):
    """A few columns in the range of B."""
    images = torch.randn(5, problem.pixels, generator=torch.Generator().manual_seed(4), dtype=dtype)
    return RowBlocks((problem.project(images),))


def seen_through(basis, covariance):
    """``Qᵀ N⁻¹ Q`` of a matrix N."""
    q = columns_of(basis)
    return q.T @ torch.linalg.solve(covariance, q)


def relative(lower, expected):
    """Of L Lᵀ, in the metric of what is expected: small directions count as much as large ones."""
    root = torch.linalg.cholesky(expected)
    white = torch.linalg.solve_triangular(root, lower, upper=False)
    return float((white @ white.T - torch.eye(len(white))).abs().max())


@pytest.mark.parametrize("log_ratio", [0, 6, 12])
@pytest.mark.parametrize("dense", [True, False], ids=["factorised", "iterated"])
def test_a_basis_is_seen_through_strong_pixels(problem, dense, log_ratio, monkeypatch):
    """Where N is factorised, nothing is lost, although N has eigenvalues of a million."""
    monkeypatch.setattr(module, "DENSE", module.DENSE if dense else 0)
    variance = math.exp(log_ratio) * problem.complement.variance
    noise, basis = MeasurementNoise(problem.whitened, variance), basis_of(problem, torch.float32)
    expected = seen_through(basis, matrix(problem, variance))
    lower = basis_factor(basis, noise)
    # Conjugate gradients leave 1e-5 of Q, of which N⁻¹ Q is a small part.
    assert relative(lower, expected) < (1e-7 if dense else min(0.1, 1e-4 * math.exp(log_ratio)))
    assert noise.converged or not dense


@pytest.mark.parametrize("dense", [True, False], ids=["factorised", "iterated"])
@pytest.mark.parametrize("known", [1, 3, 5])
def test_a_factor_grows_with_its_basis(problem, known, dense, monkeypatch):
    monkeypatch.setattr(module, "DENSE", module.DENSE if dense else 0)
    solved = []
    solve = MeasurementNoise.solve
    monkeypatch.setattr(MeasurementNoise, "solve", lambda n, v: solved.append(len(v)) or solve(n, v))
    noise = MeasurementNoise(problem.whitened, problem.complement.variance)
    basis = basis_of(problem, torch.float32)
    first = RowBlocks((basis.whole()[:known],))
    whole, part = basis_factor(basis, noise), basis_factor(first, noise)
    assert sum(solved) == len(basis) + known
    grown = basis_factor(basis, noise, part)
    assert sum(solved) == 2 * len(basis)  # what was known was not solved for again
    tolerance = 1e-10 if dense else 1e-4
    torch.testing.assert_close(grown, whole, rtol=tolerance, atol=tolerance * float(whole.abs().max()))


@pytest.mark.parametrize("strength", [1.0, 1e3, 1e6])
def test_a_basis_is_seen_through_strong_spots(problem, strength):
    index, extra = torch.tensor([3, 17, 18]), strength * torch.tensor([0.5, 2.0, 0.1], dtype=torch.float64)
    base = MeasurementNoise(problem.whitened, problem.complement.variance)
    spotted, basis = FreedPixelNoise(base, index, extra), basis_of(problem, torch.float32)
    expected = seen_through(basis, matrix(problem, spotted.variance))
    assert relative(spotted.correct_factor(basis, basis_factor(basis, base)), expected) < 1e-7
