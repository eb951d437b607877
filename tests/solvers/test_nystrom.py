"""The Nyström preconditioner against dense matrices, and what it is for: fewer iterations."""

import pytest
import torch

from ct_dip.errors import CtDipError, InputError
from ct_dip.solvers.conjugate_gradients import conjugate_gradients
from ct_dip.solvers.nystrom import nystrom
from tests.solvers.matrices import Counted, decaying, sides, symmetric


def dense_preconditioner(found):
    """P written out."""
    u, d = found.basis.T, found.damped
    return (u * (d / d[-1])) @ u.T + torch.eye(len(u), dtype=u.dtype) - u @ u.T


def test_a_matrix_of_the_rank_is_found():
    spectrum = torch.cat([torch.linspace(1, 5, 20), torch.zeros(80)]).double()
    matrix = symmetric(spectrum)
    operator = Counted(matrix)
    found = nystrom(operator, 100, 30, noise=0.1)
    assert operator.products == 30
    torch.testing.assert_close((found.basis.T * found.eigenvalues) @ found.basis, matrix, rtol=0, atol=1e-12)
    torch.testing.assert_close(
        found.eigenvalues, spectrum.sort(descending=True).values[:30], atol=1e-12, rtol=0
    )
    torch.testing.assert_close(found.basis @ found.basis.T, torch.eye(30, dtype=torch.float64))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_never_above_the_matrix(dtype):
    """``0 ≤ U Λ Uᵀ ≤ S``, up to rounding; the eigenvalues are those of S from below."""
    spectrum = decaying(120)
    matrix = symmetric(spectrum).to(dtype)
    found = nystrom(lambda v: v @ matrix, 120, 40, noise=1e-3, dtype=dtype)
    rest = matrix.double() - (found.basis.T * found.eigenvalues) @ found.basis
    slack = 50 * torch.finfo(dtype).eps
    assert torch.linalg.eigvalsh(rest).min() >= -slack
    assert (found.eigenvalues <= spectrum[:40] + slack).all()
    assert found.eigenvalues[0] == pytest.approx(1, rel=1e-3)


def test_shift_is_taken_off_again():
    """Products of a multiple of the identity are exact in float32, so its eigenvalues are, too."""
    found = nystrom(lambda v: v / 2, 60, 20, noise=0.0, dtype=torch.float32)
    torch.testing.assert_close(
        found.eigenvalues, torch.full((20,), 0.5, dtype=torch.float64), atol=1e-8, rtol=0
    )


@pytest.mark.parametrize("noise", [1e-3, 0.5, 2.0])
def test_the_formulas_written_out(noise):
    matrix, operator = symmetric(decaying(60)), Counted(symmetric(decaying(60)))
    found = nystrom(operator, 60, 15, noise=1.0).with_noise(noise)
    assert operator.products == 15  # none for another noise
    p, v = dense_preconditioner(found), sides(60, 4)
    torch.testing.assert_close(found(v), torch.linalg.solve(p, v.T).T)
    torch.testing.assert_close(found.inverse_root(found.inverse_root(v)), found(v))
    assert found.log_det() == pytest.approx(float(torch.logdet(p)))
    # It is the one that would be made for this matrix.
    direct = nystrom(lambda v: v @ matrix, 60, 15, noise=noise)
    torch.testing.assert_close(direct(v), found(v), rtol=1e-6, atol=1e-8)


def iterations(matrix, noise, preconditioner=None, tolerance=1e-8):
    def operator(v):
        return v @ matrix + noise * v

    b = sides(len(matrix), 3, dtype=matrix.dtype)
    solution = conjugate_gradients(
        operator, b, preconditioner=preconditioner, tolerance=tolerance, max_iterations=5000
    )
    assert solution.converged.all()
    return int(solution.iterations.max())


@pytest.mark.parametrize("noise", [1e-2, 1e-4, 1e-5])
def test_fewer_than_a_third_of_the_iterations(noise):
    matrix = symmetric(decaying(400))
    found = nystrom(lambda v: v @ matrix, 400, 100, noise=noise)
    plain, preconditioned = iterations(matrix, noise), iterations(matrix, noise, found)
    assert preconditioned < plain / 3
    # A noise that came later.
    other = nystrom(lambda v: v @ matrix, 400, 100, noise=1.0)
    assert iterations(matrix, noise, other.with_noise(noise)) == preconditioned


def test_condition_number_is_bounded_where_the_rank_reaches_the_noise():
    """Theorem 5.1 of the paper: below 28 on average with r of twice the effective dimension and a bit."""
    spectrum, noise = decaying(400), 1e-3
    matrix = symmetric(spectrum)
    effective = float((spectrum / (spectrum + noise)).sum())
    found = nystrom(lambda v: v @ matrix, 400, int(2 * effective) + 2, noise=noise)
    k = matrix + noise * torch.eye(400, dtype=torch.float64)
    values = torch.linalg.eigvalsh(found.inverse_root(found.inverse_root(k).T))
    assert values.max() / values.min() < 28


def test_float32_with_eigenvalues_below_its_rounding():
    """P⁻¹ has eigenvalues from 1e-9 to 1: it must stay positive definite in float32."""
    matrix = (1e6 * symmetric(decaying(200, 4.0))).float()
    found = nystrom(lambda v: v @ matrix, 200, 100, noise=1e-3, dtype=torch.float32)
    v = torch.cat([found.basis.float(), sides(200, 50, dtype=torch.float32)])
    image = found(v)
    assert image.dtype == torch.float32
    forms = torch.sum(v.double() * image.double(), dim=1)
    exact = torch.sum(v.double() * found(v.double()), dim=1)
    torch.testing.assert_close(forms, exact, rtol=1e-4, atol=0)
    assert 0 < float(exact.min()) < 2e-9
    # A residual of float32 is not below eps ‖K‖ ‖x‖ / ‖b‖ = 1e-4 here, with any preconditioner.
    assert iterations(matrix, 1e3, found.with_noise(1e3), tolerance=1e-3) < 10


def test_zero_operator_and_full_rank():
    nothing = nystrom(lambda v: 0 * v, 10, 4, noise=2.0)
    v = sides(10, 2)
    torch.testing.assert_close(nothing(v), v)
    assert nothing.log_det() == 0
    matrix = symmetric(decaying(10) + 0.1)
    full = nystrom(lambda v: v @ matrix, 10, 10, noise=0.0)
    torch.testing.assert_close(full(v), full.damped[-1] * torch.linalg.solve(matrix, v.T).T)


def test_what_cannot_be():
    matrix = symmetric(torch.linspace(-1, 1, 50))
    with pytest.raises(CtDipError, match="positive semidefinite"):
        nystrom(lambda v: v @ matrix, 50, 10, noise=0.1)
    with pytest.raises(CtDipError, match="the operator returned NaN"):
        nystrom(lambda v: v * torch.nan, 50, 10, noise=0.1)
    with pytest.raises(InputError, match=r"1\.\.50"):
        nystrom(lambda v: v, 50, 51, noise=0.1)
    with pytest.raises(InputError, match="mu > 0"):
        nystrom(lambda v: 0 * v, 50, 5, noise=0.0)
    good = nystrom(lambda v: v, 50, 5, noise=1.0)
    with pytest.raises(InputError, match="mu >= 0"):
        good.with_noise(-0.5)
