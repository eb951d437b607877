"""The posterior against Bayesian linear regression in weight space, and its calibration by simulation."""

import copy
import dataclasses

import pytest
import torch
from scipy import stats

from ct_dip.data.simulate import NoiseLevel, simulate
from ct_dip.evidence.fit import fit_evidence
from ct_dip.geometry import ParallelBeam, Volume
from ct_dip.operators import ray_transform
from ct_dip.posterior.config import InferenceConfig
from ct_dip.posterior.exact import condition, condition_over, prior_covariance
from ct_dip.posterior.exact_model import linear_model
from ct_dip.posterior.problem import linear_problem
from ct_dip.scanners import view_angles
from ct_dip.tangent.linearise import linearise
from tests import tiny
from tests.evidence.test_evidence import OPTIMUM, random_full_theta, regression


@pytest.mark.parametrize("photons", [False, True], ids=["white", "photons"])
def test_equals_regression_in_weight_space(photons):
    """Woodbury: (Σ⁻¹ + JᵀBᵀBJ/s²)⁻¹ over weights and complement, pushed to the image."""
    model, jacobian, _ = tiny.model(OPTIMUM, photons=photons)
    evidence = model.evidence
    theta = random_full_theta(evidence)
    noise = evidence.split(theta)[2]
    features, precision, design = regression(model, jacobian, theta)
    weights = torch.linalg.inv(precision + design.T @ design / noise.exp())
    mean = weights @ (design.T @ evidence.residual) / noise.exp()
    found = condition(model, theta)
    torch.testing.assert_close(found.mean, model.prior_mean + features @ mean)
    torch.testing.assert_close(found.covariance, features @ weights @ features.T)
    assert found.jitter == 0


def test_freed_pixels_are_further_coefficients_of_the_regression():
    """A freed pixel is one more column of the design, with a prior variance of its own."""
    model, jacobian, _ = tiny.model(OPTIMUM)
    theta = random_full_theta(model.evidence)
    noise = model.evidence.split(theta)[2].exp()
    freed = torch.tensor([8, 13, 14])
    variances = torch.tensor([0.5, 2.0, 4.0], dtype=torch.float64)
    relevance = torch.zeros(30, dtype=torch.float64).scatter(0, freed, variances)
    features, precision, _ = regression(model, jacobian, theta)
    features = torch.cat([features, torch.eye(30, dtype=torch.float64)[:, freed]], dim=1)
    design = model.whitened @ features
    coefficients = torch.linalg.inv(
        torch.block_diag(precision, torch.diag(1 / variances)) + design.T @ design / noise
    )
    mean = coefficients @ (design.T @ model.evidence.residual) / noise
    found = condition(model._replace(relevance=relevance), theta)
    torch.testing.assert_close(found.mean, model.prior_mean + features @ mean)
    torch.testing.assert_close(found.covariance, features @ coefficients @ features.T)


def test_temper_shrinks_the_weights_part_only():
    model, _, _ = tiny.model(OPTIMUM)
    theta = random_full_theta(model.evidence)
    whole, half = prior_covariance(model, theta), prior_covariance(model, theta, 0.5)
    extra = torch.diag(model.evidence.complement_factor(theta) * model.evidence.complement.variance)
    torch.testing.assert_close(half - extra, 0.5 * (whole - extra))


def test_mixture_has_the_moments_of_its_parts():
    model, _, _ = tiny.model(OPTIMUM)
    thetas = torch.stack([random_full_theta(model.evidence, seed) for seed in range(3)])
    parts = [condition(model, theta) for theta in thetas]
    found = condition_over(model, thetas)
    second = sum(part.covariance + torch.outer(part.mean, part.mean) for part in parts) / 3
    torch.testing.assert_close(found.mean, sum(part.mean for part in parts) / 3)
    torch.testing.assert_close(found.covariance, second - torch.outer(found.mean, found.mean))
    alone = condition_over(model, thetas[:1])
    torch.testing.assert_close(alone.covariance, parts[0].covariance)


def test_a_mixture_tells_the_largest_jitter_of_its_parts():
    """A prior of rank one is singular where there is next to no noise, and nowhere else."""
    model, _, _ = tiny.model(InferenceConfig(complement="none"))
    model = model._replace(grams=torch.ones_like(model.grams))
    noisy, noiseless = model.evidence.start.clone(), model.evidence.start.clone()
    noiseless[-1] = -80.0
    needed = condition(model, noiseless).jitter
    assert needed > 0
    assert condition(model, noisy).jitter == 0
    for thetas in ([noisy, noiseless], [noiseless, noisy]):
        assert condition_over(model, torch.stack(thetas)).jitter == needed


def _without_eps(network):
    """Proposition 3 is about normalisation itself, not about the constant that guards its division."""
    for module in network.modules():
        if isinstance(module, torch.nn.GroupNorm):
            module.eps = 1e-12
    return network


def _refitted(network, config):
    fit, scan = tiny.dip_fit(tiny.NORMALISED), tiny.scan()
    jacobian = linearise(network, tiny.network_input().double())
    model = linear_model(linear_problem(fit, scan, jacobian, config, ray_transform(scan.geometry)))
    return condition(model, fit_evidence(model.evidence, starts=1).theta)


@pytest.mark.parametrize("factor", [0.1, 10.0])
@pytest.mark.parametrize(
    ("prior", "objective"),
    [("block", "optimum"), ("block", "scale"), ("g", "optimum"), ("isotropic", "optimum")],
)
def test_predictions_do_not_depend_on_the_scale_of_normalised_weights(factor, prior, objective):
    """Proposition 3 of Antorán et al. (2022): holds with a variance per layer, fails with one for all."""
    config = InferenceConfig(prior=prior, objective=objective, complement="white")
    network = _without_eps(tiny.network(tiny.NORMALISED).double())
    rescaled = copy.deepcopy(network)
    with torch.no_grad():
        rescaled.downs[0].first.weight *= factor
        rescaled.downs[0].first.bias *= factor
    z = tiny.network_input().double()
    torch.testing.assert_close(network(z), rescaled(z))
    first, second = _refitted(network, config), _refitted(rescaled, config)
    size = first.covariance.diagonal().sqrt().mean()
    mean = float((first.mean - second.mean).abs().max() / size)
    std = float((first.covariance.diagonal().sqrt() / second.covariance.diagonal().sqrt() - 1).abs().max())
    if prior == "isotropic":
        assert max(mean, std) > 0.02
    else:
        assert max(mean, std) < 1e-3


def test_simulation_based_calibration():
    """Draw an image from the prior, measure it, infer: ranks are uniform, 95 % intervals cover 95 %."""
    model, _, _ = tiny.model(OPTIMUM)
    theta = model.evidence.start
    prior = prior_covariance(model, theta)
    factor = torch.linalg.cholesky(prior)
    generator = torch.Generator().manual_seed(0)
    draws, levels = 200, 19
    pixels = [3, 12, 14, 27]
    ranks, inside = [], []
    for _ in range(draws):
        x = model.prior_mean + factor @ torch.randn(30, generator=generator, dtype=torch.float64)
        noise = torch.randn(len(model.whitened), generator=generator, dtype=torch.float64)
        residual = model.whitened @ (x - model.prior_mean) + noise
        observed = model._replace(evidence=dataclasses.replace(model.evidence, residual=residual))
        found = condition(observed, theta)
        std = found.covariance.diagonal().sqrt()
        inside.append(((x - found.mean).abs() < 1.96 * std).double().mean())
        root = torch.linalg.cholesky(found.covariance)
        samples = found.mean + torch.randn(levels, 30, generator=generator, dtype=torch.float64) @ root.T
        ranks.append((samples[:, pixels] < x[pixels]).sum(dim=0))
    assert float(torch.stack(inside).mean()) == pytest.approx(0.95, abs=0.02)
    for pixel in torch.stack(ranks).T:
        counts = torch.bincount(pixel, minlength=levels + 1).numpy()
        assert stats.chisquare(counts).pvalue > 1e-3


@pytest.mark.parametrize("objective", ["optimum", "fit"])
def test_many_measurements_are_rotated_to_as_many_as_pixels(objective, monkeypatch):
    """With B = Q R evidence and posterior are those of B, from matrices of the pixels."""
    config = InferenceConfig(objective=objective).resolved()
    fit = tiny.dip_fit()
    geometry = ParallelBeam(volume=Volume(shape=tiny.IMAGE), angles=view_angles(9), detectors=7)
    scan = simulate("ellipses", geometry, noise=NoiseLevel(relative=0.05), seed=1)
    jacobian = linearise(fit.network().double(), fit.network_input.double())

    def model():
        return linear_model(linear_problem(fit, scan, jacobian, config, ray_transform(geometry)))

    rotated = model()
    monkeypatch.setattr("ct_dip.posterior.exact_model._many_measurements", lambda *_: False)
    whole = model()
    assert rotated.whitened.shape == (30, 30)
    assert whole.whitened.shape == (63, 30)
    torch.testing.assert_close(rotated.design, whole.design)
    theta = whole.evidence.start + 0.3
    assert float(rotated.evidence.log_evidence(theta)) == pytest.approx(
        float(whole.evidence.log_evidence(theta)), abs=1e-7
    )
    for found, expected in zip(condition(rotated, theta)[:2], condition(whole, theta)[:2], strict=True):
        torch.testing.assert_close(found, expected)
