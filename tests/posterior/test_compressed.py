"""With a full basis a compression is exact inference: posterior, evidence, samples."""

import dataclasses

import pytest
import torch

from ct_dip.posterior.compressed import Compressed, basis_factor, feature_signals, projected_evidence
from ct_dip.posterior.compression import empty_compression, extend
from ct_dip.posterior.exact import condition, prior_covariance
from ct_dip.posterior.measurement_noise import MeasurementNoise
from tests import tiny
from tests.posterior.dense import (
    COMPLEMENTS,
    FEW,
    MANY,
    PRIORS,
    columns_of,
    compressed,
    configured,
    exact_model,
    measured_covariance,
    problem_of,
    random_theta,
)

CASES = [
    *((complement, "block", "optimum") for complement in COMPLEMENTS),
    *(("slope", *prior) for prior in PRIORS[1:]),
    ("none", "block", "fit"),
    ("slope", "block", "fit"),
]


@pytest.fixture(params=[FEW, MANY], ids=["few", "many"])
def full(request):
    """Of a configuration: problem, exact model, θ, and the same compressed."""

    def make(complement="slope", prior="block", objective="optimum", *, seed=0, **others):
        problem = problem_of(configured(complement, prior, objective), views=request.param, **others)
        model = exact_model(problem)
        theta = random_theta(model, seed)
        return problem, model, theta, *compressed(problem, model, theta)

    return make


def close(found, expected, tolerance=1e-6):
    scale = float(expected.abs().max())
    torch.testing.assert_close(found.double(), expected, rtol=0, atol=tolerance * scale)


def without_floor(model, moments, theta):
    """What the published floor adds afterwards."""
    extra = model.evidence.complement
    if extra is None or extra.in_model:
        return moments.covariance
    return moments.covariance - torch.diag(model.evidence.complement_factor(theta) * extra.variance)


@pytest.mark.parametrize(("complement", "prior", "objective"), CASES)
def test_posterior_is_that_of_exact_inference(full, complement, prior, objective):
    problem, model, theta, posterior, _, _ = full(complement, prior, objective)
    expected = condition(model, theta)
    close(posterior.mean(), expected.mean)
    every = torch.arange(problem.pixels)
    close(posterior.pixel_covariance(every), without_floor(model, expected, theta))
    few = torch.tensor([4, 0, 21])
    close(posterior.pixel_covariance(few), without_floor(model, expected, theta)[few[:, None], few])


@pytest.mark.parametrize("photons", [False, True], ids=["white", "photons"])
def test_posterior_of_a_normalised_network(full, photons):
    problem, model, theta, posterior, _, _ = full(shape=tiny.NORMALISED, photons=photons)
    expected = condition(model, theta)
    close(posterior.mean(), expected.mean)
    close(posterior.pixel_covariance(torch.arange(problem.pixels)), expected.covariance)


@pytest.mark.parametrize("complement", ["none", "white", "slope"])
def test_solves_and_updates_are_those_of_the_matrix(full, complement):
    problem, model, theta, posterior, _, _ = full(complement)
    whole = measured_covariance(model, prior_covariance(model, theta), theta)
    r = torch.randn(3, problem.measurements, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    alpha = torch.linalg.solve(whole, r.T).T
    close(posterior.solve(r), alpha)
    weights, pixels = posterior.update(r)
    covariance = problem.prior.covariance(model.evidence.split(theta)[0])
    close(weights, covariance(problem.design.T(alpha)))
    if complement == "none":
        assert pixels is None
    else:
        variance = model.evidence.complement_factor(theta) * problem.complement.variance
        close(pixels, variance * (alpha @ model.whitened))


@pytest.mark.parametrize(("complement", "prior", "objective"), CASES)
def test_evidence_is_that_of_exact_inference(full, complement, prior, objective):
    _, model, theta, _, evidence, inner = full(complement, prior, objective)
    expected = float(model.evidence.log_evidence(theta))
    assert float(evidence.log_evidence(inner)) == pytest.approx(expected, abs=1e-5)
    assert evidence.effective_dimension(inner) == pytest.approx(
        model.evidence.effective_dimension(theta), rel=1e-6
    )


@pytest.mark.parametrize("views", [FEW, MANY], ids=["few", "many"])
def test_rest_of_a_strong_signal_in_float32(views):
    """It is a millionth of the sinogram: a difference of squares would not have a digit left."""
    problem = problem_of(configured("slope"), views=views, double=False)
    covariance, whitened = problem.prior.covariance(problem.prior.start), problem.whitened.dense()
    kept = extend(problem, covariance, empty_compression(problem), trace=1e-20, max_rank=10)
    q = columns_of(kept.basis)
    r = problem.residual + 1e4 * q @ torch.randn(10, generator=torch.Generator().manual_seed(0)).double()
    problem = dataclasses.replace(problem, residual=r)
    noise = MeasurementNoise(problem.whitened, problem.complement.variance)
    signals = feature_signals(problem, kept)
    found = projected_evidence(
        problem, kept, noise, basis_factor(kept.basis, noise), signals
    ).noise_only.misfit

    matrix = torch.eye(len(r), dtype=torch.float64) + (whitened * problem.complement.variance) @ whitened.T
    v = torch.linalg.solve(matrix, q)
    rest = r - q @ torch.linalg.solve(q.T @ v, v.T @ r)
    expected = float(rest @ torch.linalg.solve(matrix, rest))
    assert float(r @ torch.linalg.solve(matrix, r)) > 1e6 * expected
    assert found == pytest.approx(expected, rel=1e-3)


def test_gradient_of_the_evidence_at_a_fixed_ratio(full):
    """The slope complement follows the noise, so that its evidence is the same function of the same θ."""
    _, model, theta, _, evidence, inner = full("slope")
    slopes = []
    for each, at in ((model.evidence, theta), (evidence, inner)):
        leaf = at.clone().requires_grad_()
        slopes.append(torch.autograd.grad(each.objective(leaf), leaf)[0])
    close(slopes[1], slopes[0])


def test_noise_can_be_fixed():
    problem = problem_of(configured(noise="fixed"))
    model = exact_model(problem)
    theta = random_theta(model)
    _, evidence, inner = compressed(problem, model, theta)
    assert len(inner) == len(theta)
    assert float(evidence.log_evidence(inner)) == pytest.approx(
        float(model.evidence.log_evidence(theta)), abs=1e-5
    )


@pytest.mark.parametrize("complement", ["none", "slope"])
def test_tempered(full, complement):
    problem, model, theta, posterior, _, _ = full(complement)
    expected = condition(model, theta, 0.2)
    found = posterior.tempered(0.2)
    close(found.pixel_covariance(torch.arange(problem.pixels)), expected.covariance)
    close(found.mean(), expected.mean)


@pytest.mark.parametrize("temper", [1.0, 0.2])
@pytest.mark.parametrize("complement", ["none", "slope"])
def test_freed_pixels(full, complement, temper):
    problem, model, theta, posterior, _, _ = full(complement)
    extra = torch.zeros(problem.pixels, dtype=torch.float64)
    extra[torch.tensor([7, 8, 12])] = torch.tensor([0.3, 0.1, 0.02], dtype=torch.float64)
    expected = condition(model._replace(relevance=extra), theta, temper)
    found = posterior.with_pixel_variance(extra).tempered(temper)
    close(found.mean(), expected.mean, 3e-6)
    close(found.pixel_covariance(torch.arange(problem.pixels)), expected.covariance, 3e-6)
    before = condition(model, theta, temper)
    assert (before.mean - expected.mean).abs().max() > 1e-3  # it makes a difference


@pytest.mark.parametrize("freed", [False, True], ids=["plain", "freed"])
@pytest.mark.parametrize("complement", ["none", "slope"])
def test_samples_have_the_covariance_of_the_closed_form(full, complement, freed):
    """Whitened by it, n samples are standard normal: their squares sum to a χ² of n · rank."""
    problem, _, _, posterior, _, _ = full(complement)
    if freed:
        extra = torch.zeros(problem.pixels, dtype=torch.float64)
        extra[7] = 0.3
        posterior = posterior.with_pixel_variance(extra)
    count = 4000
    samples = posterior.deviations(count, torch.Generator().manual_seed(3))
    expected = posterior.pixel_covariance(torch.arange(problem.pixels))
    values, vectors = torch.linalg.eigh(expected)
    seen = values > 1e-9 * values[-1]
    white = samples @ vectors[:, seen] / values[seen].sqrt()
    size = int(seen.sum())
    assert size >= 25
    total = float(white.square().sum())
    assert abs(total - count * size) < 4 * (2 * count * size) ** 0.5
    # No direction is off either: every variance within 5 of its standard errors, every correlation too.
    covariance = white.T @ white / count
    assert float((covariance.diagonal() - 1).abs().max()) < 5 * (2 / count) ** 0.5
    assert float((covariance - torch.diag(covariance.diagonal())).abs().max()) < 5 / count**0.5
    assert float(white.mean(dim=0).abs().max()) < 4.5 / count**0.5
    nothing = samples @ vectors[:, ~seen]
    assert float(nothing.square().sum()) <= 1e-6 * float(samples.square().sum())


def test_sinograms_are_as_the_model_expects_them(full):
    problem, model, theta, posterior, _, _ = full()
    size = problem.measurements
    whole = measured_covariance(model, prior_covariance(model, theta), theta)
    count = 4000
    drawn = posterior.sinograms(count, torch.Generator().manual_seed(0)).T
    white = torch.linalg.solve_triangular(torch.linalg.cholesky(whole), drawn, upper=False)
    assert abs(float(white.square().sum()) - size * count) < 4 * (2 * size * count) ** 0.5
    assert float((white @ white.T / count - torch.eye(size)).abs().max()) < 5 * (2 / count) ** 0.5


def test_a_jitter_is_not_passed_on_as_signal(full):
    """A singular matrix needs the same jitter again when a posterior is made from another's factor."""
    problem, _, _, posterior, _, _ = full("none")
    singular = torch.ones(posterior.compression.rank, posterior.compression.rank, dtype=torch.float64)
    first = Compressed(
        problem,
        posterior.compression,
        posterior.measurement_noise,
        posterior.lower,
        posterior.covariance,
        None,
        1e-30,
        singular,
    )
    assert first.jitter > 0
    again = first.tempered(1.0)
    assert again.jitter == pytest.approx(first.jitter)
    torch.testing.assert_close(again.factor @ again.factor.T, first.factor @ first.factor.T)
