"""What the certificate says of a truncated compression against the dense model."""

import math

import pytest
import torch

from ct_dip.posterior import compression_check as module
from ct_dip.posterior.compressed import Compressed, signal_gram
from ct_dip.posterior.compression import Compression
from ct_dip.posterior.compression_check import check_compression, log_det_beyond, truncation_correction
from ct_dip.posterior.exact import condition
from ct_dip.posterior.infer import infer_compressed
from ct_dip.posterior.measurement_noise import MeasurementNoise
from ct_dip.posterior.row_blocks import RowBlocks
from tests.posterior.dense import (
    columns_of,
    compressed,
    configured,
    exact_model,
    measured_jacobian,
    problem_of,
)


def truncated(complement, rank, objective="optimum"):
    problem = problem_of(configured(complement, objective=objective))
    model = exact_model(problem)
    theta = model.evidence.start
    posterior, evidence, inner = compressed(problem, model, theta, rank=rank)
    truth = float(model.evidence.log_evidence(theta))
    return posterior, model, theta, float(evidence.log_evidence(inner)) - truth


@pytest.mark.parametrize("rank", [4, 8, 12, 16, 20])
@pytest.mark.parametrize("objective", ["optimum", "fit"])
@pytest.mark.parametrize("complement", ["none", "white", "slope"])
def test_the_evidence_of_the_whole_model_is_told(complement, objective, rank):
    posterior, _, _, error = truncated(complement, rank, objective)
    found = check_compression(posterior, posterior)
    assert found.converged
    assert abs(error + found.evidence_change) < 3 * found.evidence_error + 1e-6
    assert found.evidence_error < (0.05 if objective == "optimum" else 0.4) * abs(error)


def test_the_evidence_is_that_of_the_search_where_pixels_were_freed_after_it():
    posterior, _, _, error = truncated("slope", 8)
    extra = torch.zeros(posterior.problem.pixels, dtype=torch.float64)
    extra[[7, 19]] = 0.3
    spotted = posterior.with_pixel_variance(extra)
    found = check_compression(spotted, spotted, of_evidence=posterior)
    assert abs(error + found.evidence_change) < 3 * found.evidence_error
    other = check_compression(spotted, spotted)
    assert abs(error + other.evidence_change) > 10 * found.evidence_error


@pytest.mark.parametrize("rank", [1, 4])
def test_a_basis_that_is_far_too_small_has_no_absurd_evidence(rank):
    """Of a signal that is strong outside of it; t − q/2 alone is off by hundreds of nats."""
    problem = problem_of(configured("none", "isotropic"))
    model = exact_model(problem)
    theta = model.evidence.start.clone()
    theta[0] += 6
    posterior, evidence, inner = compressed(problem, model, theta, rank=rank)
    truth = float(model.evidence.log_evidence(theta) - evidence.log_evidence(inner))
    found = check_compression(posterior, posterior)
    assert abs(found.evidence_change - truth) < found.evidence_error
    assert abs(found.evidence_change - truth) < 10


def test_a_result_has_the_evidence_of_the_whole_model():
    """Which is not that of the basis, of 20 columns here, that its hyperparameters were found with."""
    problem = problem_of(configured("slope", "g", compression=0.05, relevance=False, samples=0))
    found = infer_compressed(problem, max_rank=20)
    certificate = found.certificate
    truth = float(exact_model(problem).evidence.log_evidence(found.evidence.theta))
    change, error = certificate.evidence_change, certificate.evidence_error
    assert certificate.rank == 20
    assert abs(found.evidence.evidence - truth) < 3 * error + 1e-3
    assert abs(found.evidence.evidence - change - truth) > 10 * error + 1e-2


@pytest.mark.parametrize("complement", ["none", "white", "slope"])
def test_the_log_determinant_beyond_a_basis(complement, monkeypatch):
    """Against the dense one, by so many probes that they must agree."""
    monkeypatch.setattr(module, "_PROBES", 4096)
    posterior, model, theta, _ = truncated(complement, 10)
    problem = posterior.problem
    assert posterior.pixel_variance is not None or complement == "none"
    coefficients = model.evidence.coefficients(theta)
    whole = torch.linalg.slogdet(model.evidence.matrices.total(coefficients)).logabsdet
    noise = posterior.measurement_noise(torch.eye(problem.measurements, dtype=torch.float64))
    basis = columns_of(posterior.compression.basis)
    gram = signal_gram(posterior.compression.features, posterior.covariance)
    inside = posterior.noise * noise + basis @ gram @ basis.T
    expected = float(whole - torch.linalg.slogdet(inside).logabsdet)
    found, error = log_det_beyond(posterior)
    assert expected > 0.01
    assert abs(found - expected) < 4 * error
    assert error < 0.1 * expected


@pytest.mark.parametrize("complement", ["none", "slope"])
def test_the_moments_beyond_a_basis_are_unbiased(complement, monkeypatch):
    """tr X and tr X² written out, against the mean of many estimates by a few probes each."""
    monkeypatch.setattr(module, "_PROBES", 8)
    posterior, _, _, _ = truncated(complement, 10)
    problem, seeds = posterior.problem, 100
    noise = posterior.measurement_noise(torch.eye(problem.measurements, dtype=torch.float64))
    features = posterior.covariance.root_adjoint(measured_jacobian(problem))  # B J Σ^½
    basis = columns_of(posterior.compression.basis)
    whole, inside = (
        f.T @ torch.linalg.solve(noise, f) / posterior.noise for f in (features, basis @ (basis.T @ features))
    )
    x = torch.linalg.solve(torch.eye(len(whole), dtype=torch.float64) + inside, whole - inside)
    found = torch.tensor([module._moments_beyond(posterior, seed)[:2] for seed in range(seeds)])
    expected = torch.stack([torch.trace(x), torch.trace(x @ x)])
    error = found.std(dim=0) / seeds**0.5
    assert bool(((found.mean(dim=0) - expected).abs() < 4 * error).all())
    assert bool((error < 0.2 * expected).all())


@pytest.mark.parametrize("strength", [1.0, 10.0])
def test_the_tail_of_one_direction_is_exact(strength, monkeypatch):
    """A basis of all eigenvectors of the signal but one, of any strength against the noise."""
    monkeypatch.setattr(module, "_PROBES", 512)
    monkeypatch.setattr(module, "_TOGETHER", 512)
    problem = problem_of(configured("none", "isotropic"))
    measured = measured_jacobian(problem)
    values, vectors = torch.linalg.eigh(measured @ measured.T)
    left_out = len(values) - 3
    scale = strength / float(values[left_out])
    basis = torch.cat([vectors[:, :left_out], vectors[:, left_out + 1 :]], dim=1)
    compression = Compression(
        RowBlocks((basis.T.contiguous(),)), RowBlocks((basis.T @ measured,)), 0.0, 0.0, 0, True
    )
    noise, covariance = (
        MeasurementNoise(problem.whitened, None),
        problem.prior.covariance(torch.zeros(1).double()),
    )
    covariance = covariance.scaled(scale)
    lower = torch.eye(compression.rank, dtype=torch.float64)
    correction = truncation_correction(
        Compressed(problem, compression, noise, lower, covariance, None, 1.0), scale
    )
    seen = float(vectors[:, left_out] @ problem.residual) ** 2
    error = 4 * math.sqrt(2 / 512)  # of the mean of so many squares of normal numbers
    assert correction.trace == pytest.approx(strength, rel=error)
    assert correction.typical == pytest.approx(strength, rel=error)
    # Without the direction its part of the residual is divided by 1, with it by 1 + x.
    assert correction.quadratic == pytest.approx(seen - seen / (1 + strength), rel=error)


@pytest.mark.parametrize("rank", [4, 12])
@pytest.mark.parametrize("complement", ["none", "slope"])
def test_the_mean_is_off_by_what_is_stated(complement, rank, monkeypatch):
    monkeypatch.setattr(module, "_TOLERANCE", 1e-8)
    posterior, model, theta, _ = truncated(complement, rank)
    exact = condition(model, theta)
    found = check_compression(posterior, posterior)
    deviation = exact.covariance.diagonal().mean().sqrt()
    expected = float((posterior.mean() - exact.mean).square().mean().sqrt() / deviation)
    assert expected > 1e-3
    # The deviation that it is in units of comes from four samples of 30 pixels.
    assert found.mean_error == pytest.approx(expected, rel=0.5)
    assert found.sample_error > 0.01


def test_a_full_compression_is_off_by_nothing():
    posterior, _, _, error = truncated("slope", 28)
    found = check_compression(posterior, posterior)
    assert abs(error) < 1e-5
    assert found.evidence_error < 1e-4
    assert max(found.mean_error, found.sample_error) < 1e-3
    assert found.converged
    assert found.residual < 1e-3


def test_a_check_that_cannot_solve_says_so(monkeypatch):
    monkeypatch.setattr(module, "_MAX_ITERATIONS", 1)
    posterior, _, _, _ = truncated("none", 2)
    found = check_compression(posterior, posterior)
    assert not found.converged
    assert found.residual > 1e-3
