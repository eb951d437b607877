"""The fit's TV as pseudo-measurements: a further precision, and the evidence of the sinogram given them."""

import dataclasses
from functools import partial

import numpy as np
import pytest
import torch

from ct_dip.evidence.conditional import ConditionalEvidence
from ct_dip.evidence.fit import fit_evidence
from ct_dip.operators.differences import total_variation
from ct_dip.posterior import infer
from ct_dip.posterior.config import InferenceConfig
from ct_dip.posterior.exact import condition, prior_covariance
from ct_dip.posterior.exact_model import model_of_grams
from ct_dip.posterior.fit import fit_posterior
from ct_dip.posterior.given_tv import given_tv
from ct_dip.posterior.stochastic_evidence import (
    ConditionalStochasticEvidence,
    StochasticEvidence,
    fit_stochastic,
)
from tests import tiny
from tests.posterior.dense import configured, exact_model, problem_of, random_theta


def conditional(problem):
    """(model of the sinogram, that with TV, its evidence, ∇ᵀW∇) at a random θ."""
    plain = exact_model(problem)
    theta = random_theta(plain)
    noise = float(plain.evidence.split(theta)[2].exp())
    given = given_tv(problem, noise)
    joint, alone = (model_of_grams(part, plain.grams) for part in given)
    rows = given.alone.whitened.dense()
    evidence = ConditionalEvidence(joint=joint.evidence, alone=alone.evidence, start=theta)
    return plain, joint, evidence, rows.T @ rows / noise


@pytest.mark.parametrize("complement", ["slope", "white"])
def test_it_adds_its_precision(complement):
    """``K⁻¹ + ∇ᵀW∇ + BᵀB/s²``, and the mean solves the same equations."""
    plain, joint, evidence, tv = conditional(problem_of(configured(complement)))
    theta, b = evidence.start, plain.whitened
    noise = plain.evidence.split(theta)[2].exp()
    inverse = torch.linalg.inv(prior_covariance(plain, theta))
    precision = inverse + tv + b.T @ b / noise
    sinogram = plain.evidence.residual + b @ plain.prior_mean
    found = condition(joint, theta)
    torch.testing.assert_close(found.covariance @ precision, torch.eye(30, dtype=torch.float64))
    torch.testing.assert_close(precision @ found.mean, inverse @ plain.prior_mean + b.T @ sinogram / noise)


@pytest.mark.parametrize("complement", ["slope", "white"])
def test_its_evidence_is_the_density_of_the_sinogram_under_a_prior_that_knows_of_tv(complement):
    plain, _, evidence, tv = conditional(problem_of(configured(complement)))
    for theta in (evidence.start, evidence.start + torch.tensor([0.7] + [0.0] * (len(evidence.start) - 1))):
        noise, b = plain.evidence.split(theta)[2].exp(), plain.whitened
        covariance = torch.linalg.inv(torch.linalg.inv(prior_covariance(plain, theta)) + tv)
        shift = -b @ covariance @ tv @ plain.prior_mean
        density = torch.distributions.MultivariateNormal(
            shift, b @ covariance @ b.T + noise * torch.eye(len(b), dtype=torch.float64)
        )
        expected = density.log_prob(plain.evidence.residual) - plain.evidence.log_noise
        torch.testing.assert_close(evidence.log_evidence(theta), expected, rtol=0, atol=1e-6)


def test_no_tv_is_the_plain_evidence():
    problem = problem_of(configured())
    weak = dataclasses.replace(problem, fit=dataclasses.replace(problem.fit, tv_weight=1e-12))
    plain, _, evidence, _ = conditional(weak)
    expected = plain.evidence.objective(evidence.start)
    torch.testing.assert_close(evidence.objective(evidence.start), expected, rtol=0, atol=1e-5)


def test_noise_and_complement_stay():
    _, _, evidence, _ = conditional(problem_of(configured("white", objective="scale")))
    found = fit_evidence(evidence, starts=1)
    moved = dict(zip(found.names, (found.theta != evidence.start).tolist(), strict=True))
    assert moved == {"log_scale": True, "log_complement": False, "log_noise": False}
    assert not {"log_complement", "log_noise"} & set(found.at_bound)
    assert found.objective > float(evidence.objective(evidence.start))


def test_its_gradient_by_probes_is_within_its_errors():
    problem = problem_of(configured())
    plain, _, evidence, _ = conditional(problem)
    theta = evidence.start
    noise = float(plain.evidence.split(theta)[2].exp())
    leaf = theta.clone().requires_grad_()
    (expected,) = torch.autograd.grad(evidence.objective(leaf), leaf)
    parts = (
        StochasticEvidence(part, probes=100, tolerance=1e-8, rank=20) for part in given_tv(problem, noise)
    )
    found = ConditionalStochasticEvidence(*parts, theta)
    gradient, value = found.gradient(theta), found.log_evidence(theta)
    assert float(((gradient.value - expected) / gradient.standard_error)[:-1].abs().max()) < 4
    error = abs(float(value.value - evidence.log_evidence(theta)))
    assert error < 4 * float(value.standard_error)
    assert found.unconverged == 0


def test_freed_pixels_are_not_tied():
    problem = problem_of(configured())
    freed = torch.zeros(30, dtype=torch.float64)
    freed[7] = 0.1
    rows = given_tv(problem, 1.0, freed).alone.whitened.dense()
    assert not rows[:, 7].any()
    assert rows[:, 8].any()


@pytest.fixture(scope="module")
def posteriors():
    return {
        tv: fit_posterior(tiny.dip_fit(), tiny.scan(), InferenceConfig(starts=1, tv=tv))
        for tv in ("none", "majorant")
    }


def test_the_posterior_mean_has_less_tv(posteriors):
    variation = {tv: float(total_variation(torch.tensor(p.linear))) for tv, p in posteriors.items()}
    assert variation["majorant"] < 0.9 * variation["none"]
    assert posteriors["majorant"].noise_std == posteriors["none"].noise_std


@pytest.mark.parametrize("objective", ["scale", "optimum"])
def test_compressed_inference_finds_the_same(objective):
    settings = {"starts": 1, "tv": "majorant", "compression": 1e-6, "objective": objective}
    exact, found = (
        fit_posterior(tiny.dip_fit(), tiny.scan(), InferenceConfig(regime=regime, **settings))
        for regime in ("exact", "compressed")
    )
    assert found.certificate.converged
    np.testing.assert_allclose(found.linear, exact.linear, rtol=0, atol=1e-2 * exact.std.mean())
    np.testing.assert_allclose(found.std, exact.std, rtol=1e-2)
    np.testing.assert_allclose(found.evidence.evidence, exact.evidence.evidence, atol=1e-2)


def test_iterative_inference_finds_the_same_at_its_hyperparameters(monkeypatch):
    """Which are those of its probes; here of a search that was cut short."""
    monkeypatch.setattr(infer, "fit_stochastic", partial(fit_stochastic, steps=2))
    settings = {"samples": 0, "probes": 2, "preconditioner_rank": 30, "tolerance": 1e-8, "relevance": False}
    problem = problem_of(configured(tv="majorant", **settings))
    found = infer.infer_iterative(problem)
    joint = model_of_grams(given_tv(problem, found.noise).joint, exact_model(problem).grams)
    assert found.certificate.converged
    expected = condition(joint, found.evidence.theta).mean
    torch.testing.assert_close(found.mean, expected, rtol=0, atol=1e-5)


def test_a_truncated_basis_tells_the_evidence_of_the_whole_model():
    problem = problem_of(
        configured("slope", "g", compression=0.05, relevance=False, samples=0, tv="majorant")
    )
    found = infer.infer_compressed(problem, max_rank=20)
    plain = exact_model(problem)
    joint, alone = (model_of_grams(part, plain.grams).evidence for part in given_tv(problem, found.noise))
    evidence = ConditionalEvidence(joint=joint, alone=alone, start=found.evidence.theta)
    certificate, truth = found.certificate, float(evidence.log_evidence(found.evidence.theta))
    assert certificate.rank == 20
    assert abs(found.evidence.evidence - truth) < 3 * certificate.evidence_error + 1e-3
    assert abs(found.evidence.evidence - certificate.evidence_change - truth) > 1e-2


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"hyperprior": "tv-predcp"}, "choose one"),
        ({"objective": "fit"}, "not offered"),
        ({"integrate": "laplace"}, "not offered"),
    ],
)
def test_what_it_is_not_offered_with_is_refused(settings, words):
    with pytest.raises(ValueError, match=words):
        InferenceConfig(tv="majorant", **settings)
