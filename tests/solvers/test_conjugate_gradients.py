"""Conjugate gradients: what converged has a true residual below the tolerance, nothing else is said to."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ct_dip.errors import CtDipError, InputError
from ct_dip.solvers.conjugate_gradients import conjugate_gradients
from tests.solvers.matrices import Counted, decaying, rotation, sides, symmetric


def true_residuals(operator, b, x):
    return torch.linalg.vector_norm(b - operator(x), dim=1) / torch.linalg.vector_norm(b, dim=1)


def honest(operator, b, solution, tolerance):
    """The residuals are those of x, and converged means below the tolerance."""
    expected = true_residuals(operator, b, solution.x)
    # The rounding of one product; every matrix here has a norm of a few.
    size = b.abs().amax(1, keepdim=True)
    ratio = torch.linalg.vector_norm(solution.x / size, dim=1) / torch.linalg.vector_norm(b / size, dim=1)
    rounding = 10 * torch.finfo(b.dtype).eps * (1 + ratio)
    assert ((solution.residuals - expected).abs() <= rounding + 1e-6 * expected).all()
    assert (solution.residuals[solution.converged] <= tolerance).all()
    assert [r == "converged" for r in solution.reasons] == solution.converged.tolist()


@settings(max_examples=60, deadline=None)
@given(
    n=st.integers(1, 60),
    columns=st.integers(1, 6),
    power=st.floats(0, 2),
    noise=st.floats(1e-4, 1),
    size=st.floats(-12, 12),
    digits=st.floats(1, 9),
    seed=st.integers(0, 1000),
)
def test_every_system_reaches_the_tolerance(n, columns, power, noise, size, digits, seed):
    matrix = symmetric(decaying(n, power) + noise, seed)
    sizes = 10.0 ** (size * torch.linspace(-1, 1, columns, dtype=torch.float64))
    b = sides(n, columns, seed) * sizes[:, None]
    operator, tolerance = Counted(matrix), 10**-digits
    solution = conjugate_gradients(operator, b, tolerance=tolerance, max_iterations=20 * n + 20)
    assert solution.converged.all()
    assert operator.products == solution.products
    honest(lambda v: v @ matrix, b, solution, tolerance)
    # ‖x − x*‖ ≤ ‖K⁻¹‖ ‖r‖
    error = torch.linalg.vector_norm(solution.x - torch.linalg.solve(matrix, b.T).T, dim=1)
    assert (error <= 1.01 / noise * tolerance * torch.linalg.vector_norm(b, dim=1)).all()


def test_float32_reaches_what_float32_can():
    matrix = symmetric(decaying(200) + 1e-3).float()
    b = sides(200, 5, dtype=torch.float32)
    solution = conjugate_gradients(lambda v: v @ matrix, b, tolerance=1e-4)
    assert solution.converged.all()
    assert solution.x.dtype == torch.float32
    honest(lambda v: v @ matrix, b, solution, 1e-4)
    beyond = conjugate_gradients(lambda v: v @ matrix, b, tolerance=1e-9)
    assert not beyond.converged.any()
    assert set(beyond.reasons) == {"stagnated"}
    assert int(beyond.iterations.max()) < 1000
    honest(lambda v: v @ matrix, b, beyond, 1e-9)


@pytest.mark.parametrize("seed", range(5))
def test_a_tolerance_a_little_above_the_limit_is_reached(seed):
    matrix = symmetric(decaying(200) + 1e-2, seed).float()
    b = sides(200, 6, seed, dtype=torch.float32)
    limit = float(conjugate_gradients(lambda v: v @ matrix, b, tolerance=1e-12).residuals.max())
    solution = conjugate_gradients(lambda v: v @ matrix, b, tolerance=1.5 * limit)
    assert solution.converged.all()


def recomputed(solution):
    """How many residuals were recomputed, starts from an x0 included."""
    return solution.products - int(solution.iterations.sum())


def test_a_drift_of_the_recursive_residual_is_repaired():
    """From a start far away, float32 loses digits that only the true residual shows; a restart mends it."""
    matrix = symmetric(decaying(300) + 0.1).float()
    b = sides(300, 4, dtype=torch.float32)
    far = 1e5 * sides(300, 4, seed=2, dtype=torch.float32)
    solution = conjugate_gradients(lambda v: v @ matrix, b, x0=far, tolerance=1e-5)
    assert recomputed(solution) > 8, "nothing to repair"
    assert solution.converged.all()
    honest(lambda v: v @ matrix, b, solution, 1e-5)


def test_one_wrong_product_is_repaired():
    matrix, calls = symmetric(decaying(100) + 0.1), []
    b = sides(100, 3)

    def operator(v):
        calls.append(v)
        return (v @ matrix) * (1.01 if len(calls) == 4 else 1)

    solution = conjugate_gradients(operator, b, tolerance=1e-9)
    assert recomputed(solution) > 3, "nothing to repair"
    assert solution.converged.all()
    honest(lambda v: v @ matrix, b, solution, 1e-9)


def test_sizes_that_would_overflow_float32_when_squared():
    matrix = symmetric(decaying(40) + 0.1).float()
    b = sides(40, 3, dtype=torch.float32) * torch.tensor([[1e-30], [1.0], [1e30]])
    solution = conjugate_gradients(lambda v: v @ matrix, b, tolerance=1e-5)
    assert solution.converged.all()
    expected = torch.linalg.solve(matrix, b.T).T
    size = b.abs().amax(1, keepdim=True)
    torch.testing.assert_close(solution.x / size, expected / size, rtol=1e-3, atol=1e-3)


def test_zero_right_hand_side_is_zero_even_from_a_warm_start():
    b = sides(30, 3)
    b[1] = 0
    matrix = symmetric(decaying(30) + 0.1)
    solution = conjugate_gradients(lambda v: v @ matrix, b, x0=sides(30, 3, seed=5))
    assert not solution.x[1].any()
    assert solution.converged.all()
    assert solution.residuals[1] == 0
    assert solution.iterations[1] == 0
    nothing = conjugate_gradients(lambda v: v @ matrix, torch.zeros(2, 30))
    assert nothing.products == 0
    assert nothing.converged.all()


def test_warm_start_takes_fewer_iterations():
    matrix = symmetric(decaying(200) + 1e-2)
    b = sides(200, 4)
    cold = conjugate_gradients(lambda v: v @ matrix, b, tolerance=1e-8)
    near = cold.x + 1e-5 * sides(200, 4, seed=3) * cold.x.abs()
    warm = conjugate_gradients(lambda v: v @ matrix, b, x0=near, tolerance=1e-8)
    assert (warm.iterations < cold.iterations).all()
    assert warm.converged.all()
    done = conjugate_gradients(lambda v: v @ matrix, b, x0=cold.x, tolerance=1e-7)
    assert not done.iterations.any()
    torch.testing.assert_close(done.x, cold.x, rtol=0, atol=0)


def test_systems_that_ended_take_no_products_and_do_not_change_the_others():
    matrix = symmetric(decaying(150) + 1e-3)
    q = torch.linalg.eigh(matrix).eigenvectors
    b = torch.cat([q[:, -1:].T, q[:, -3:].sum(1)[None], sides(150, 2)])
    operator = Counted(matrix)
    together = conjugate_gradients(operator, b, tolerance=1e-8)
    assert together.iterations[0] <= 2
    assert together.iterations[1] <= 4
    assert operator.calls[-1] < 4
    # Every system: its iterations, and at least one recomputed residual.
    assert operator.products == together.products
    assert 4 <= recomputed(together) <= 8
    for column in range(4):
        alone = conjugate_gradients(lambda v: v @ matrix, b[[column]], tolerance=1e-8)
        torch.testing.assert_close(together.x[[column]], alone.x, rtol=1e-6, atol=1e-6)
        # rounding of a product depends on how many vectors it has
        assert abs(int(together.iterations[column] - alone.iterations[0])) <= 2


def test_exact_preconditioner_needs_one_step():
    matrix = symmetric(decaying(80) + 1e-3)
    inverse = torch.linalg.inv(matrix)
    b = sides(80, 3)
    solution = conjugate_gradients(
        lambda v: v @ matrix, b, preconditioner=lambda v: v @ inverse, tolerance=1e-8
    )
    assert solution.converged.all()
    assert (solution.iterations <= 2).all()


def test_too_few_iterations_are_not_convergence():
    matrix = symmetric(decaying(200) + 1e-3)
    b = sides(200, 3)
    for most in (0, 1, 10):
        solution = conjugate_gradients(lambda v: v @ matrix, b, tolerance=1e-10, max_iterations=most)
        assert not solution.converged.any()
        assert solution.reasons == ("at max_iterations",) * 3
        assert solution.iterations.tolist() == [most] * 3
        honest(lambda v: v @ matrix, b, solution, 1e-10)


def test_indefinite_operator_is_said_and_only_where_it_is_met():
    spectrum = decaying(60) + 0.1
    spectrum[-1] = -0.5
    matrix = symmetric(spectrum)
    q = rotation(60)
    b = torch.stack([q[:, -1] + q[:, 0], q[:, 0] + q[:, 3]])
    solution = conjugate_gradients(lambda v: v @ matrix, b)
    assert solution.reasons == ("operator not positive definite", "converged")
    assert solution.converged.tolist() == [False, True]
    honest(lambda v: v @ matrix, b, solution, 1e-6)


def test_indefinite_preconditioner_is_said():
    matrix = symmetric(decaying(60) + 0.1)
    b = sides(60, 2)
    solution = conjugate_gradients(lambda v: v @ matrix, b, preconditioner=lambda v: -v)
    assert solution.reasons == ("preconditioner not positive definite",) * 2


@pytest.mark.parametrize("skew", [0.1, 1.0, 30.0])
def test_operator_that_is_not_symmetric_is_never_wrongly_converged(skew):
    generator = torch.Generator().manual_seed(0)
    part = torch.randn(80, 80, generator=generator, dtype=torch.float64)
    matrix = symmetric(decaying(80) + 0.1) + skew * (part - part.T) / 9
    b = sides(80, 4)
    solution = conjugate_gradients(lambda v: v @ matrix.T, b, tolerance=1e-8, max_iterations=300)
    assert torch.isfinite(solution.x).all()
    assert not solution.converged.any()
    honest(lambda v: v @ matrix.T, b, solution, 1e-8)


def test_divergence_is_ended_while_the_residual_is_still_a_number():
    """A rotation that is hardly definite: steps of 1e18, which would soon be infinite."""
    pairs = torch.block_diag(*[torch.tensor([[0.0, 1.0], [-1.0, 0.0]], dtype=torch.float64)] * 10)
    matrix = pairs + 1e-18 * torch.diag(torch.linspace(1, 3, 20, dtype=torch.float64))
    b = torch.zeros(2, 20, dtype=torch.float64)
    b[0, 0] = b[1, 5] = 1
    solution = conjugate_gradients(lambda v: v @ matrix.T, b)
    assert solution.reasons == ("diverged",) * 2
    assert torch.isfinite(solution.x).all()
    honest(lambda v: v @ matrix.T, b, solution, 1e-6)


@pytest.mark.parametrize("noise", [1e-2, 1e-5])
def test_noisy_operator_is_never_wrongly_converged(noise):
    matrix = symmetric(decaying(80) + 0.01)
    generator = torch.Generator().manual_seed(0)

    def operator(v):
        error = torch.randn(v.shape, generator=generator, dtype=v.dtype)
        return v @ matrix + noise * error * torch.linalg.vector_norm(v, dim=1, keepdim=True) / 9

    b = sides(80, 4)
    solution = conjugate_gradients(operator, b, tolerance=1e-8, max_iterations=300)
    assert not solution.converged.any()
    # Honest up to the noise of one product.
    exact = true_residuals(lambda v: v @ matrix, b, solution.x)
    blur = noise * torch.linalg.vector_norm(solution.x, dim=1) / torch.linalg.vector_norm(b, dim=1)
    assert ((solution.residuals - exact).abs() <= 2 * blur).all()


@pytest.mark.parametrize("value", [torch.nan, torch.inf])
@pytest.mark.parametrize("calls", [0, 3])
def test_values_that_are_not_finite_name_the_operator(calls, value):
    matrix, counted = symmetric(decaying(50) + 0.01), []

    def operator(v):
        counted.append(v)
        result = v @ matrix
        if len(counted) > calls:
            result[0, 7] = value
        return result

    with pytest.raises(CtDipError, match=r"the operator returned NaN or infinity for 1 of 2 vectors"):
        conjugate_gradients(operator, sides(50, 2))
    counted.clear()
    with pytest.raises(CtDipError, match=r"the preconditioner returned NaN"):
        conjugate_gradients(lambda v: v @ matrix, sides(50, 2), preconditioner=operator)


def test_input_that_cannot_be_used():
    with pytest.raises(InputError, match=r"\(systems, n\)"):
        conjugate_gradients(lambda v: v, torch.ones(4))
    with pytest.raises(InputError, match="must be finite"):
        conjugate_gradients(lambda v: v, torch.full((1, 4), torch.nan))
    with pytest.raises(InputError, match="x0 must be like b"):
        conjugate_gradients(lambda v: v, torch.ones(1, 4), x0=torch.ones(4))
    with pytest.raises(InputError, match="keep shape"):
        conjugate_gradients(lambda v: v[:, :2], torch.ones(1, 4))
    with pytest.raises(InputError, match="tolerance"):
        conjugate_gradients(lambda v: v, torch.ones(1, 4), tolerance=0)


def test_report_is_called_after_every_step():
    matrix, seen = symmetric(decaying(50) + 0.01), []
    solution = conjugate_gradients(lambda v: v @ matrix, sides(50, 2), report=lambda *a: seen.append(a))
    assert [step for step, _ in seen] == list(range(1, int(solution.iterations.max()) + 1))
    assert seen[-1][1] <= 1e-6
