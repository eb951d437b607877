"""Log-determinants against dense ones, and error bars that mean what they say."""

import math

import pytest
import torch

from ct_dip.errors import CtDipError, InputError
from ct_dip.solvers.lanczos import lanczos, log_det, spectral_density
from ct_dip.solvers.nystrom import nystrom
from tests.solvers.matrices import Counted, decaying, sides, symmetric

KINDS = pytest.mark.parametrize("kind", ["rademacher", "gaussian"])


def test_lanczos_is_an_orthogonal_change_of_basis():
    """With n steps, T has the eigenvalues of the matrix and none twice."""
    spectrum = decaying(40) + 0.01
    matrix = symmetric(spectrum)
    diagonal, beside = lanczos(lambda v: v @ matrix, sides(40, 3), 40)
    for a, b in zip(diagonal, beside, strict=True):
        found = torch.linalg.eigvalsh(torch.diag(a) + torch.diag(b, 1) + torch.diag(b, -1))
        torch.testing.assert_close(found, spectrum.flip(0), atol=1e-10, rtol=0)


@KINDS
def test_quadrature_is_exact_for_polynomials(kind):
    """A Gauss rule of m nodes is exact up to degree 2 m − 1, probe by probe."""
    matrix = symmetric(decaying(80) + 0.1)
    density = spectral_density(lambda v: v @ matrix, 80, steps=4, probes=6, kind=kind, seed=3)
    torch.testing.assert_close(density.weights.sum(dim=1), torch.ones(6, dtype=torch.float64))
    full = spectral_density(lambda v: v @ matrix, 80, steps=80, probes=6, kind=kind, seed=3)
    few, every = (torch.sum(each.weights * each.nodes**7, dim=1) for each in (density, full))
    torch.testing.assert_close(few, every)
    # The identity, and its multiples, have no error at all: the length of a probe does not matter.
    identity = density.trace(torch.ones_like)
    assert float(identity.value) == pytest.approx(80)
    assert float(identity.standard_error) == pytest.approx(0, abs=1e-10)


@KINDS
@pytest.mark.parametrize("rank", [0, 30])
def test_log_determinant_and_its_error_over_seeds(kind, rank):
    spectrum, noise = decaying(200), 1e-3
    matrix = symmetric(spectrum)
    exact = float((spectrum + noise).log().sum())
    preconditioner = nystrom(lambda v: v @ matrix, 200, rank, noise=noise) if rank else None
    z = []
    for seed in range(40):
        found = log_det(
            lambda v: v @ matrix + noise * v,
            200,
            preconditioner=preconditioner,
            steps=40,
            probes=16,
            kind=kind,
            seed=seed,
        )
        z.append((float(found.value) - exact) / float(found.standard_error))
    # Student's t of 15 degrees: rms 1.07; over 40 of them its own deviation is about 0.14.
    rms = math.sqrt(sum(v**2 for v in z) / len(z))
    assert 0.6 < rms < 1.5
    assert abs(sum(z) / len(z)) < 3 * 1.07 / math.sqrt(len(z))  # no bias
    assert sum(abs(v) > 3 for v in z) <= 2
    assert abs(z[0]) < 3


def test_preconditioner_makes_the_error_smaller():
    spectrum, noise = decaying(300), 1e-4
    matrix = symmetric(spectrum)
    exact = float((spectrum + noise).log().sum())
    found = nystrom(lambda v: v @ matrix, 300, 120, noise=noise)

    def operator(v):
        return v @ matrix + noise * v

    plain = log_det(operator, 300, steps=15, probes=16)
    better = log_det(operator, 300, preconditioner=found, steps=15, probes=16)
    assert float(better.standard_error) < 0.2 * float(plain.standard_error)
    assert abs(float(better.value) - exact) < 3 * float(better.standard_error)


def test_one_density_for_every_shift_and_scale():
    spectrum = decaying(200)
    operator = Counted(symmetric(spectrum))
    density = spectral_density(operator, 200, steps=50, probes=20, kind="gaussian")
    assert operator.products == 50 * 20
    for shift in (1e-3, 1.0, 1e3):
        for scale in (1e-2, 1.0, 40.0):
            exact = float((shift + scale * spectrum).log().sum())
            value, error = density.log_det(shift, scale)
            assert abs(float(value) - exact) < 3 * float(error) + 1e-9
    assert operator.products == 50 * 20
    flat = density.log_det(2.0, 0.0)
    assert float(flat.value) == pytest.approx(200 * math.log(2))
    # The averaged density has the moments of the spectrum.
    assert abs(float(density.trace(lambda t: t).value - spectrum.sum())) < 3 * float(
        density.trace(lambda t: t).standard_error
    )


def test_derivative_in_shift_and_scale():
    density = spectral_density(lambda v: v @ symmetric(decaying(50)), 50, steps=20)
    point = [torch.tensor(v, dtype=torch.float64, requires_grad=True) for v in (0.3, 2.0)]
    assert torch.autograd.gradcheck(lambda shift, scale: density.log_det(shift, scale).value, point)
    assert not density.log_det(*point).standard_error.requires_grad


def test_an_exhausted_krylov_space_leaves_nothing_behind():
    """Three different eigenvalues: three nodes, whatever the number of steps, and no 0 · ∞."""
    spectrum = torch.tensor([1.0, 2.0, 5.0], dtype=torch.float64).repeat_interleave(20)
    matrix = symmetric(spectrum)
    exact = float(spectrum.log().sum())
    short = spectral_density(lambda v: v @ matrix, 60, steps=3, probes=8)
    for steps in (4, 30, 100):
        density = spectral_density(lambda v: v @ matrix, 60, steps=steps, probes=8)
        value, error = density.log_det(0.0)
        torch.testing.assert_close(value, short.log_det(0.0).value)
        assert abs(float(value) - exact) < 3 * float(error)
    one = log_det(lambda v: 3 * v, 60, steps=10)
    assert float(one.value) == pytest.approx(60 * math.log(3))
    assert float(one.standard_error) == pytest.approx(0, abs=1e-9)
    nothing = spectral_density(lambda v: 0 * v, 60, steps=5)
    assert float(nothing.log_det(2.0, 7.0).value) == pytest.approx(60 * math.log(2))


def test_float32_products():
    spectrum, noise = decaying(200), 1e-2
    matrix = symmetric(spectrum).float()
    found = nystrom(lambda v: v @ matrix, 200, 40, noise=noise, dtype=torch.float32)
    value, error = log_det(
        lambda v: v @ matrix + noise * v, 200, preconditioner=found, dtype=torch.float32, probes=30
    )
    assert value.dtype == torch.float64
    assert abs(float(value) - float((spectrum + noise).log().sum())) < 3 * float(error)


def test_same_seed_same_answer():
    matrix = symmetric(decaying(50) + 0.1)
    first, again, other = (log_det(lambda v: v @ matrix, 50, seed=seed) for seed in (4, 4, 5))
    assert first == again
    assert first.value != other.value


def test_what_cannot_be():
    indefinite = symmetric(torch.linspace(-0.5, 1, 50))
    with pytest.raises(CtDipError, match="not positive semidefinite"):
        log_det(lambda v: v @ indefinite, 50)
    with pytest.raises(CtDipError, match="the operator returned NaN"):
        log_det(lambda v: v * torch.nan, 50)
    found = nystrom(lambda v: v, 50, 5, noise=1.0)
    with pytest.raises(CtDipError, match="the operator returned NaN"):
        log_det(lambda v: v * torch.nan, 50, preconditioner=found)
    with pytest.raises(InputError, match="at least 2"):
        log_det(lambda v: v, 50, probes=1)
    with pytest.raises(InputError, match="'uniform'"):
        log_det(lambda v: v, 50, kind="uniform")
    singular = symmetric(torch.cat([torch.ones(5), torch.zeros(5)]))
    nodes = spectral_density(lambda v: v @ singular, 10).nodes
    assert ((nodes == 0) | (nodes > 1e-3)).all()  # no rounding that passes for an eigenvalue
    with pytest.raises(CtDipError, match="zero up to rounding"):
        log_det(lambda v: v @ singular, 10)
    with pytest.raises(InputError, match="not negative"):
        spectral_density(lambda v: v, 50).log_det(-1.0)
