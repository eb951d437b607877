"""The randomised block Krylov method: what it keeps, what it says it left out, and where it gives up."""

import time

import pytest
import torch

from ct_dip.checkpoint import load_checkpoint, save_checkpoint
from ct_dip.posterior import compression as module
from ct_dip.posterior import row_blocks
from ct_dip.posterior.compression import empty_compression, extend, from_state, to_state
from tests.posterior.dense import FEW, MANY, columns_of, configured, measured_jacobian, problem_of


@pytest.fixture(scope="module", params=[FEW, MANY], ids=["few", "many"])
def problem(request):
    """With fewer and with more measurements than pixels."""
    return problem_of(configured("none"), views=request.param)


def compress(problem, *, rank, trace=1e-20, seed=0, before=None, **others):
    covariance = problem.prior.covariance(problem.prior.start)
    start = before or empty_compression(problem)
    return extend(problem, covariance, start, trace=trace, max_rank=rank, seed=seed, **others)


def signal_outside(problem, basis, covariance=None):
    """tr (I − QQᵀ) S (I − QQᵀ)."""
    covariance = covariance or problem.prior.covariance(problem.prior.start)
    measured = measured_jacobian(problem)
    outside = measured - basis @ (basis.T @ measured)
    return float((covariance.root_adjoint(outside)).square().sum())


@pytest.mark.parametrize("rank", [1, 5, 20, 24])
def test_basis_and_features_are_what_they_are_called(problem, rank):
    found = compress(problem, rank=rank)
    assert found.rank == rank
    eye = torch.eye(rank, dtype=torch.float64)
    basis = columns_of(found.basis)
    assert found.basis.length == problem.measurements
    torch.testing.assert_close(basis.T @ basis, eye, rtol=0, atol=1e-12)
    torch.testing.assert_close(found.features.whole(), basis.T @ measured_jacobian(problem))
    assert found.passes == 32 + 32 + rank  # probes, then random elements, and those pulled back


def test_the_basis_is_a_krylov_space(problem, monkeypatch):
    """S takes all but the last batch into the basis, whose random part is no more than its first batch."""
    monkeypatch.setattr(module, "_BATCH", 4)
    basis = columns_of(compress(problem, rank=20).basis)
    root = problem.prior.covariance(problem.prior.start).root_adjoint(measured_jacobian(problem))
    image = root @ (root.T @ basis[:, :-4])  # S Q
    outside = image - basis @ (basis.T @ image)
    assert float(outside.norm(dim=0).max()) < 1e-10 * float(image.norm(dim=0).max())


def test_it_goes_on_where_an_earlier_one_ended(problem, monkeypatch):
    """With the first columns and another covariance a basis grows as if it had never stopped."""
    monkeypatch.setattr(module, "_BATCH", 4)
    half = compress(problem, rank=8)
    covariance = problem.prior.covariance(problem.prior.start).scaled(3.0)
    found = extend(problem, covariance, half, trace=1e-20, max_rank=16, seed=9)
    expected = columns_of(compress(problem, rank=16).basis)
    basis = columns_of(found.basis)
    torch.testing.assert_close(basis @ basis.T, expected @ expected.T, rtol=0, atol=1e-6)


def test_what_is_left_out_is_estimated_without_bias(problem):
    """Of one basis by many seeds: the mean is the dense trace, within 4 of its standard errors."""
    basis = compress(problem, rank=6)
    expected = signal_outside(problem, columns_of(basis.basis))
    assert expected > 0.1  # there is something to estimate
    found = [compress(problem, rank=6, before=basis, seed=seed) for seed in range(1, 101)]
    values = torch.tensor([each.discarded for each in found])
    stated = torch.tensor([each.discarded_error for each in found])
    assert abs(float(values.mean()) - expected) < 4 * float(values.std()) / 10
    assert float(stated.mean()) == pytest.approx(float(values.std()), rel=0.3)
    assert all(each.rank == 6 and not each.complete for each in found)


def test_nothing_is_outside_of_a_full_basis(problem):
    found = compress(problem, rank=30)
    assert found.complete
    assert found.discarded < 1e-20
    assert signal_outside(problem, columns_of(found.basis)) < 1e-20


def test_it_ends_as_soon_as_little_enough_is_outside(problem, monkeypatch):
    monkeypatch.setattr(module, "_BATCH", 4)
    whole = signal_outside(problem, torch.zeros(problem.measurements, 1, dtype=torch.float64))
    found = compress(problem, rank=28, trace=1e-2 * whole)
    assert found.complete
    assert 4 <= found.rank < 28
    basis = columns_of(found.basis)
    assert signal_outside(problem, basis) < 3e-2 * whole
    assert signal_outside(problem, basis[:, :-4]) > 1e-2 * whole  # the last batch was needed


def test_giving_up_is_said(problem, monkeypatch):
    monkeypatch.setattr(module, "_BATCH", 4)
    assert not compress(problem, rank=7).complete
    late = compress(problem, rank=28, deadline=time.monotonic() - 1)
    assert not late.complete
    assert late.rank == 4  # something is there to go on with


def test_a_signal_far_below_the_noise_has_a_basis_all_the_same(problem):
    found = compress(problem, rank=28, trace=1e6)
    assert found.complete
    assert found.rank > 0


def test_extending_keeps_the_old_columns_bit_for_bit(problem):
    first = compress(problem, rank=9)
    second = compress(problem, rank=20, before=first, seed=1)
    assert second.rank == 20
    assert torch.equal(second.basis.whole()[:9], first.basis.whole())
    assert torch.equal(second.features.whole()[:9], first.features.whole())
    eye, basis = torch.eye(20, dtype=torch.float64), columns_of(second.basis)
    torch.testing.assert_close(basis.T @ basis, eye, rtol=0, atol=1e-12)
    assert second.passes > first.passes


def test_the_trace_belongs_to_the_covariance_that_is_asked_for(problem):
    found = compress(problem, rank=6)
    larger = problem.prior.covariance(problem.prior.start).scaled(9.0)
    again = extend(problem, larger, found, trace=1e-20, max_rank=6, seed=3)
    expected = signal_outside(problem, columns_of(found.basis), larger)
    assert abs(again.discarded - expected) < 5 * again.discarded_error
    assert expected == pytest.approx(9 * signal_outside(problem, columns_of(found.basis)))


@pytest.mark.parametrize("double", [True, False], ids=["float64", "float32"])
@pytest.mark.parametrize("batch", [2, 7, 32])
@pytest.mark.parametrize("weak", [1.0, 1e-7, 0.0], ids=["strong", "weak", "absent"])
@pytest.mark.parametrize("views", [FEW, MANY], ids=["few", "many"])
def test_a_basis_ends_where_the_signal_does(views, weak, batch, double, monkeypatch):
    """What is then left of random elements is rounding, of which no direction must be made."""
    monkeypatch.setattr(module, "_BATCH", batch)
    problem = problem_of(configured("none"), double=double, views=views)
    covariance = problem.prior.covariance(problem.prior.start)
    *others, _ = covariance.factors
    for _, factor in others:
        factor.mul_(weak)
    found = extend(problem, covariance, empty_compression(problem), trace=1e-60, max_rank=30)
    if weak == 0:
        assert found.rank == 3  # weights of the last block
    basis = columns_of(found.basis)
    eye, tolerance = torch.eye(found.rank, dtype=torch.float64), 1e-12 if double else 1e-5
    torch.testing.assert_close(basis.T @ basis, eye, rtol=0, atol=tolerance)
    # In float32 what is below a hundred times the rounding of the strongest column is dropped.
    assert signal_outside(problem, basis, covariance) < (1e-24 if double else 1e-7)


def test_it_comes_back_from_files_as_it_was(problem, monkeypatch, tmp_path):
    """Every time that it grew; in the same blocks, so that sums over them have the same rounding."""
    monkeypatch.setattr(row_blocks, "BLOCK", 4)
    monkeypatch.setattr(module, "_BATCH", 3)
    covariance = problem.prior.covariance(problem.prior.start)
    start = again = empty_compression(problem)
    for rank in (5, 11):
        found = extend(problem, covariance, start, trace=1e-20, max_rank=rank, seed=rank)
        save_checkpoint(tmp_path / "state.npz", "digest", to_state(found, start))
        state = load_checkpoint(tmp_path / "state.npz", "digest")
        again, start = from_state(state, again), found
        assert again[2:] == found[2:]
        for one, other in ((again.basis, found.basis), (again.features, found.features)):
            assert [len(block) for block in one.blocks] == [len(block) for block in other.blocks]
            assert torch.equal(one.whole(), other.whole())
    assert "features-00000" not in state  # which had not changed
