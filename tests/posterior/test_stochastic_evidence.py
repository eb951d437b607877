"""Evidence and gradient by probes against automatic differentiation of the dense evidence."""

import pytest
import torch

from ct_dip.evidence.fit import fit_evidence
from ct_dip.posterior import stochastic_evidence as module
from ct_dip.posterior.stochastic_evidence import StochasticEvidence, fit_stochastic
from ct_dip.solvers.lanczos import Estimate
from tests.posterior.dense import COMPLEMENTS, configured, exact_model, problem_of, random_theta

CASES = [
    *((complement, "block", "optimum") for complement in COMPLEMENTS),
    ("slope", "block", "scale"),
    ("none", "g", "optimum"),
    ("white", "isotropic", "optimum"),
]


def gradient(evidence, theta):
    leaf = theta.clone().requires_grad_()
    return torch.autograd.grad(evidence.objective(leaf), leaf)[0]


def by_probes(problem, *, probes=10, seed=0, rank=20, tolerance=1e-8):
    return StochasticEvidence(problem, probes=probes, tolerance=tolerance, rank=rank, seed=seed)


@pytest.mark.parametrize(("complement", "prior", "objective"), CASES)
def test_gradient_is_unbiased_and_its_error_honest(complement, prior, objective):
    problem = problem_of(configured(complement, prior, objective))
    model = exact_model(problem)
    theta = random_theta(model)
    expected = gradient(model.evidence, theta)
    seeds = 30
    found = [by_probes(problem, seed=seed).gradient(theta) for seed in range(seeds)]
    values = torch.stack([each.value for each in found])
    mean_error = values.std(dim=0) / seeds**0.5
    assert float(((values.mean(dim=0) - expected).abs() / mean_error).max()) < 4
    z = torch.stack([(each.value - expected) / each.standard_error for each in found])
    assert 0.6 < float(z.square().mean().sqrt()) < 1.6


@pytest.mark.parametrize(("complement", "prior", "objective"), CASES)
def test_log_evidence_is_within_its_errors(complement, prior, objective):
    problem = problem_of(configured(complement, prior, objective))
    model = exact_model(problem)
    theta = random_theta(model)
    found = by_probes(problem, rank=10).log_evidence(theta)
    error = abs(float(found.value) - float(model.evidence.log_evidence(theta)))
    assert error < 4 * float(found.standard_error) + 1e-6
    assert float(found.standard_error) < 3


def test_the_evidence_has_half_of_the_log_determinant_and_half_of_its_error(monkeypatch):
    problem = problem_of(configured())
    evidence, values = by_probes(problem), []
    for value, error in ((10.0, 0.5), (14.0, 3.0)):
        stated = Estimate(torch.tensor(value).double(), torch.tensor(error).double())
        monkeypatch.setattr(module, "log_det", lambda *_, stated=stated, **__: stated)
        found = evidence.log_evidence(evidence.model.start)
        assert float(found.standard_error) == error / 2
        values.append(float(found.value))
    assert values[1] - values[0] == pytest.approx(-2.0)


def test_a_later_theta_reuses_the_preconditioner_to_the_same_gradient():
    problem = problem_of(configured())
    model = exact_model(problem)
    first, second = random_theta(model, 0), random_theta(model, 1)
    once, twice = by_probes(problem), by_probes(problem)
    once.gradient(first)
    before = once.products
    again = once.gradient(second)
    fresh = twice.gradient(second)
    torch.testing.assert_close(again.value, fresh.value, rtol=1e-5, atol=1e-6)
    assert once.products - before < twice.products + 20  # no second preconditioner
    assert once.unconverged == 0


def test_effective_dimension_within_its_probes():
    problem = problem_of(configured())
    model = exact_model(problem)
    theta = random_theta(model)
    expected = model.evidence.effective_dimension(theta)
    found = [by_probes(problem, seed=seed).effective_dimension(theta) for seed in range(20)]
    values = torch.tensor(found, dtype=torch.float64)
    assert abs(float(values.mean()) - expected) < 4 * float(values.std()) / 20**0.5


def test_unmet_tolerances_are_counted_and_told():
    problem = problem_of(configured())
    evidence = by_probes(problem, tolerance=1e-20)
    evidence.gradient(evidence.model.start)
    assert 5 < evidence.unconverged <= 11  # of 28 numbers, a residual may round to zero
    assert evidence.worst_residual > 1e-20
    assert not fit_stochastic(evidence, steps=2).evidence.converged


@pytest.mark.parametrize("objective", ["scale", "optimum"])
def test_search_ends_where_the_exact_gradient_is_zero_within_errors(objective):
    problem = problem_of(configured("slope", objective=objective))
    model = exact_model(problem)
    found = fit_stochastic(by_probes(problem, probes=40))
    assert found.evidence.converged
    assert found.unconverged == 0
    left, error = gradient(model.evidence, found.evidence.theta), found.gradient.standard_error
    lower, upper = model.evidence.bounds
    free = (found.evidence.theta > lower + 1e-6) & (found.evidence.theta < upper - 1e-6)
    assert float((left / error)[free].abs().max()) < 4
    assert abs(found.evidence.evidence - float(model.evidence.log_evidence(found.evidence.theta))) < (
        4 * found.log_det_error + 1e-6
    )
    exact = fit_evidence(model.evidence, starts=1)
    lost = exact.objective - float(model.evidence.objective(found.evidence.theta))
    assert lost < 0.5  # nats


def test_search_is_as_near_the_optimum_as_its_errors_allow():
    problem = problem_of(configured("slope", objective="scale"))
    model = exact_model(problem)
    found = fit_stochastic(by_probes(problem, probes=40))
    exact = fit_evidence(model.evidence, starts=1)
    step = 1e-3
    units = torch.eye(len(exact.theta), dtype=torch.float64)
    hessian = torch.stack(
        [
            (
                gradient(model.evidence, exact.theta + step * u)
                - gradient(model.evidence, exact.theta - step * u)
            )
            / (2 * step)
            for u in units
        ]
    )
    response = torch.linalg.inv(hessian) * found.gradient.standard_error
    allowed = response.abs().sum(dim=1)  # however the components' errors are correlated
    assert bool(((found.evidence.theta - exact.theta).abs() < 4 * allowed).all())
    start = (model.evidence.start - exact.theta).abs()
    assert bool((start > 4 * allowed).any())  # the start would not pass
