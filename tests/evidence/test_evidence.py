"""The evidence against dense matrices, against weight space, and its search."""

import dataclasses
import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch.distributions import MultivariateNormal

from ct_dip.errors import CtDipError
from ct_dip.evidence.fit import fit_evidence
from ct_dip.evidence.laplace import hyperparameter_points
from ct_dip.evidence.marginal import CovarianceSum, factorise, packed_bytes
from ct_dip.posterior.config import InferenceConfig
from ct_dip.posterior.fit import fit_posterior
from tests import tiny
from tests.priors.test_weights import covariance

OPTIMUM = InferenceConfig(objective="optimum", complement="white")


def random_full_theta(evidence, seed=0):
    generator = torch.Generator().manual_seed(seed)
    noise = torch.randn(len(evidence.start), generator=generator, dtype=torch.float64)
    return evidence.start + 0.5 * noise


def dense_measured(model, jacobian, theta):
    """K_yy written out: B (J Σ Jᵀ + κ U) Bᵀ + s² I."""
    evidence = model.evidence
    prior, complement, noise = evidence.split(theta)
    dense = jacobian.dense()
    image = dense @ covariance(evidence.prior, prior) @ dense.T
    image = image + complement.exp() * torch.diag(evidence.complement.variance)
    b = model.whitened
    return b @ image @ b.T + noise.exp() * torch.eye(len(b), dtype=torch.float64)


def regression(model, jacobian, theta):
    """Features, prior precision and whitened design of weights and complement together: ``x = m₀ + F v``."""
    evidence = model.evidence
    prior, _, _ = evidence.split(theta)
    features = torch.cat([jacobian.dense(), torch.eye(30, dtype=torch.float64)], dim=1)
    precision = torch.block_diag(
        torch.linalg.inv(covariance(evidence.prior, prior)),
        torch.diag(1 / (evidence.complement_factor(theta) * evidence.complement.variance)),
    )
    return features, precision, model.whitened @ features


@pytest.mark.parametrize("photons", [False, True], ids=["white", "photons"])
@pytest.mark.parametrize("shape", [tiny.PLAIN, tiny.NORMALISED], ids=["plain", "normalised"])
def test_log_evidence_is_a_gaussian_density(shape, photons):
    model, jacobian, scan = tiny.model(OPTIMUM, shape=shape, photons=photons)
    theta = random_full_theta(model.evidence)
    measured = dense_measured(model, jacobian, theta)
    residual = model.evidence.residual
    expected = MultivariateNormal(torch.zeros_like(residual), measured).log_prob(residual)
    expected = expected - model.evidence.log_noise
    torch.testing.assert_close(model.evidence.log_evidence(theta), expected)
    # It is the density of the sinogram itself, in its own units.
    deviations = torch.as_tensor(scan.variance_or_estimate()[0]).sqrt().flatten()
    sinogram = torch.as_tensor(scan.sinogram.copy()).double().flatten()
    mean = deviations * (model.whitened @ model.prior_mean)
    scaled = MultivariateNormal(mean, deviations[:, None] * measured * deviations).log_prob(sinogram)
    torch.testing.assert_close(scaled, expected, rtol=1e-6, atol=1e-5)


def test_gradient_against_differences():
    model, _, _ = tiny.model(OPTIMUM)
    theta = random_full_theta(model.evidence).requires_grad_()
    assert torch.autograd.gradcheck(model.evidence.objective, theta)
    at_fit = dataclasses.replace(model.evidence, point="fit")
    assert torch.autograd.gradcheck(at_fit.objective, theta)


def test_quadratic_form_is_the_minimum_over_weights_and_complement():
    """``min_{w,u} ‖r − B (J w + u)‖²/s² + wᵀΣ⁻¹w + uᵀU⁻¹u/κ = rᵀK⁻¹r``: no inner optimisation is needed."""
    model, jacobian, _ = tiny.model(OPTIMUM)
    evidence = model.evidence
    theta = random_full_theta(evidence)
    noise = evidence.split(theta)[2]
    _, precision, design = regression(model, jacobian, theta)
    normal = design.T @ design / noise.exp() + precision
    best = torch.linalg.solve(normal, design.T @ evidence.residual / noise.exp())
    misfit = (evidence.residual - design @ best).square().sum() / noise.exp()
    quadratic, _ = evidence.matrices.terms(evidence.coefficients(theta), evidence.residual)
    torch.testing.assert_close(misfit + best @ precision @ best, quadratic)


@pytest.mark.parametrize("mean", ["tangent", "zero"])
@pytest.mark.parametrize("seed", range(8))
def test_evidence_is_never_below_the_one_at_the_fit(seed, mean):
    model, _, _ = tiny.model(OPTIMUM.model_copy(update={"prior_mean": mean}), seed=seed)
    theta = random_full_theta(model.evidence, seed)
    optimum, fit = (model.evidence.log_evidence(theta, point) for point in ("optimum", "fit"))
    assert float(optimum) >= float(fit) - 1e-9


def test_evidence_at_the_fit_written_out():
    model, jacobian, _ = tiny.model(OPTIMUM)
    evidence = model.evidence
    theta = random_full_theta(evidence)
    prior, _, noise = evidence.split(theta)
    w = jacobian.weights
    norm = w @ torch.linalg.solve(covariance(evidence.prior, prior), w)
    misfit = evidence.residual_at_fit.square().sum() / noise.exp()
    logdet = torch.logdet(dense_measured(model, jacobian, theta))
    expected = -0.5 * (misfit + norm + logdet + len(evidence.residual) * math.log(2 * math.pi))
    expected = expected - evidence.log_noise
    torch.testing.assert_close(evidence.log_evidence(theta, "fit"), expected)
    # Its residual is that of the network's own image.
    torch.testing.assert_close(
        evidence.residual_at_fit, evidence.residual - model.whitened @ (jacobian.dense() @ w)
    )


def test_zero_prior_mean_is_the_gaussian_process_of_the_paper():
    model, _, scan = tiny.model(InferenceConfig(prior_mean="zero"))
    deviation = math.sqrt(scan.variance_or_estimate()[0].flat[0])
    assert not model.prior_mean.any()
    expected = torch.as_tensor(scan.sinogram.copy()).double().flatten() / deviation
    torch.testing.assert_close(model.evidence.residual, expected)


def test_jitter_is_told_and_failure_is_an_error():
    vector = torch.arange(1.0, 6.0, dtype=torch.float64)
    singular = torch.outer(vector, vector)
    factor = factorise(singular)
    assert factor.jitter > 0
    torch.testing.assert_close(factor.lower @ factor.lower.T, singular, atol=1e-4, rtol=1e-4)
    assert factorise(torch.eye(3, dtype=torch.float64)).jitter == 0
    with pytest.raises(CtDipError, match="not positive definite"):
        factorise(-torch.eye(3, dtype=torch.float64))
    matrices = CovarianceSum(5, iter([singular]), 1)
    matrices.terms(torch.ones(1, dtype=torch.float64), vector)
    assert matrices.jitter == factor.jitter


def test_jitter_is_relative_to_the_matrix():
    """In other units the factor is the same one, exactly so for an even power of two."""
    vector = torch.arange(1.0, 6.0, dtype=torch.float64)
    singular = torch.outer(vector, vector)
    factor, scaled = factorise(singular), factorise(2.0**-40 * singular)
    assert scaled.jitter == 2.0**-40 * factor.jitter
    torch.testing.assert_close(scaled.lower, 2.0**-20 * factor.lower, rtol=0, atol=0)


def test_a_sum_remembers_the_largest_jitter():
    vector = torch.arange(1.0, 6.0, dtype=torch.float64)
    matrices = CovarianceSum(5, iter([torch.outer(vector, vector), torch.eye(5, dtype=torch.float64)]), 2)
    matrices.terms(torch.tensor([1.0, 0.0], dtype=torch.float64), vector)
    needed = matrices.jitter
    assert needed > 0
    matrices.terms(torch.tensor([1.0, 1.0], dtype=torch.float64), vector)  # which needs none
    assert matrices.jitter == needed


def test_packed_bytes_is_what_is_held():
    matrices = CovarianceSum(300, (torch.eye(300, dtype=torch.float64) for _ in range(3)), 3)
    matrix = 8 * 300**2
    assert matrices.packed.nbytes <= packed_bytes(300, 3) <= matrices.packed.nbytes + 10 * matrix


@pytest.mark.parametrize("size", [1, 5, 63, 64, 65, 200])
def test_a_sum_is_that_of_its_matrices(size):
    """Whatever the tiles are: total, values and gradients are those of the written matrices."""
    generator = torch.Generator().manual_seed(size)
    made = [torch.randn(size, size, generator=generator, dtype=torch.float64) for _ in range(3)]
    written = [root @ root.T + torch.eye(size, dtype=torch.float64) for root in made]
    matrices, r = CovarianceSum(size, iter(written), 3), made[0][0]
    c = torch.tensor([0.5, 1.0, 2.0], dtype=torch.float64, requires_grad=True)
    k = sum(a * y for a, y in zip(c, written, strict=True))
    torch.testing.assert_close(matrices.total(c), k.detach())
    for found, expected in zip(
        matrices.terms(c, r), (r @ torch.linalg.solve(k, r), torch.logdet(k)), strict=True
    ):
        torch.testing.assert_close(found, expected)
        ours, theirs = (torch.autograd.grad(each, c, retain_graph=True)[0] for each in (found, expected))
        torch.testing.assert_close(ours, theirs)


def test_search_finds_a_maximum_and_says_how():
    model, _, _ = tiny.model(OPTIMUM)
    found = fit_evidence(model.evidence, starts=3)
    assert found.converged
    assert len(found.found) == 3
    assert found.objective == max(found.found)
    assert found.evaluations == len(found.trace)
    assert (torch.as_tensor(found.trace).diff() >= 0).all()
    assert found.names == model.evidence.names
    for seed in range(20):  # nothing nearby is better
        step = 0.05 * torch.randn(
            len(found.theta), generator=torch.Generator().manual_seed(seed), dtype=torch.float64
        )
        lower, upper = model.evidence.bounds
        near = (found.theta + step).clamp(lower, upper)
        assert float(model.evidence.objective(near)) <= found.objective + 1e-4
    again = fit_evidence(model.evidence, starts=3)
    torch.testing.assert_close(again.theta, found.theta, rtol=0, atol=0)


@pytest.mark.parametrize("side", ["lower", "upper"])
def test_parameters_at_either_end_of_their_range_are_told(side, monkeypatch):
    """A range that ends before the noise's optimum is reached, from below or from above."""
    model, _, _ = tiny.model(OPTIMUM)
    free = fit_evidence(model.evidence, starts=1)
    assert "log_noise" not in free.at_bound
    lower, upper = (bound.clone() for bound in model.evidence.bounds)
    (lower if side == "lower" else upper)[-1] = free.theta[-1] + (0.5 if side == "lower" else -0.5)
    monkeypatch.setattr(type(model.evidence), "bounds", property(lambda _: (lower, upper)))
    held = fit_evidence(model.evidence, first=free.theta, starts=1)
    assert "log_noise" in held.at_bound
    assert held.objective < free.objective


def test_a_start_that_fails_does_not_end_the_search(monkeypatch):
    model, _, _ = tiny.model(OPTIMUM)
    plain = type(model.evidence).objective
    first = float(plain(model.evidence, model.evidence.start))

    def fragile(self, theta):
        value = plain(self, theta)
        return value * torch.nan if abs(float(value.detach()) - first) < 1e-9 else value

    monkeypatch.setattr(type(model.evidence), "objective", fragile)
    found = fit_evidence(model.evidence, starts=3)
    assert found.found[0] == -math.inf
    assert math.isfinite(found.objective)
    with pytest.raises(CtDipError, match="the evidence is nan"):
        fit_evidence(model.evidence, starts=1)


@pytest.mark.parametrize("complement", ["slope", "white"])
def test_a_wrong_statement_of_the_noise_is_mended(complement):
    """The fitted noise, the evidence and the error bars do not depend on the level that the scan states."""
    # There are several optima, and rounding decides which one a single start finds.
    config = InferenceConfig(objective="optimum", complement=complement, starts=6, hyperprior="none")
    fit, scan = tiny.dip_fit(), tiny.scan()
    wrong = dataclasses.replace(scan, noise=dataclasses.replace(scan.noise, std=0.4))
    first, second = fit_posterior(fit, scan, config), fit_posterior(fit, wrong, config)
    assert second.noise_std == pytest.approx(first.noise_std, rel=1e-2)
    assert second.evidence.evidence == pytest.approx(first.evidence.evidence, abs=1e-2)
    np.testing.assert_allclose(second.std, first.std, rtol=2e-2)


def test_noise_can_be_fixed():
    model, _, _ = tiny.model(InferenceConfig(noise="fixed"))
    assert "log_noise" not in model.evidence.names
    assert float(model.evidence.coefficients(model.evidence.start)[-1]) == 1.0


def test_effective_dimension_written_out():
    model, jacobian, _ = tiny.model(OPTIMUM)
    theta = random_full_theta(model.evidence)
    prior, _, _ = model.evidence.split(theta)
    dense = model.whitened @ jacobian.dense()
    signal = dense @ covariance(model.evidence.prior, prior) @ dense.T
    expected = torch.trace(torch.linalg.solve(dense_measured(model, jacobian, theta), signal))
    assert model.evidence.effective_dimension(theta) == pytest.approx(float(expected))


def test_laplace_points_have_the_moments_of_the_approximation():
    model, _, _ = tiny.model(InferenceConfig(objective="scale"))
    found = fit_evidence(model.evidence, starts=1)
    points = hyperparameter_points(model.evidence, found)
    assert points.shape == (2 * len(found.theta), len(found.theta))
    torch.testing.assert_close(points.mean(dim=0), found.theta)
    hessian = torch.autograd.functional.hessian(_smooth(model.evidence), found.theta)
    expected = torch.linalg.inv(-hessian)
    centred = points - found.theta
    spread = centred.T @ centred / len(points)
    assert expected.diagonal().max() < 1.5**2  # so nothing is clipped
    torch.testing.assert_close(spread, expected, rtol=1e-2, atol=1e-4)


def test_directions_that_the_data_do_not_see_stay_near_the_optimum():
    """A quadratic objective, steep along one oblique direction and flat across it; no bound is near."""
    steep, flat = torch.tensor([[0.6, 0.8], [0.8, -0.6]], dtype=torch.float64)
    optimum = torch.tensor([1.0, -2.0], dtype=torch.float64)
    wide = torch.full((2,), 9.0, dtype=torch.float64)
    model = SimpleNamespace(
        bounds=(optimum - wide, optimum + wide),
        objective=lambda theta: -0.5 * 4.0 * (steep @ (theta - optimum)) ** 2,
    )
    centred = hyperparameter_points(model, SimpleNamespace(theta=optimum)) - optimum
    spread = centred.T @ centred / len(centred)
    assert float(steep @ spread @ steep) == pytest.approx(1 / 4)
    assert float(flat @ spread @ flat) == pytest.approx(1.5**2)
    assert float(steep @ spread @ flat) == pytest.approx(0, abs=1e-9)


def _smooth(evidence):
    """The objective with plain autograd, for a second derivative."""

    def value(theta):
        coefficients = evidence.coefficients(theta)
        size = evidence.matrices.size
        full = torch.zeros(size, size, dtype=torch.float64)
        for c, unit in zip(coefficients, torch.eye(len(coefficients), dtype=torch.float64), strict=True):
            full = full + c * evidence.matrices.total(unit)
        normal = MultivariateNormal(torch.zeros(size, dtype=torch.float64), full)
        return normal.log_prob(evidence.residual) + evidence.log_hyperprior(theta)

    return value
