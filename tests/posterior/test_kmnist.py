"""Where two regimes run, they agree: on the scans of the papers, 20 views of 28² pixels with 5 % noise.

Their networks are fitted for a moment only, which makes their features strong and is no easier.
"""

import math
from typing import NamedTuple

import pytest
import torch

from benchmarks.kmnist import kmnist_scans
from ct_dip.dip.config import DipConfig
from ct_dip.dip.fit import fit_dip
from ct_dip.evidence.fit import fit_evidence
from ct_dip.operators import ray_transform
from ct_dip.posterior.compressed import Compressed, basis_factor
from ct_dip.posterior.compressed_fit import fit_compressed
from ct_dip.posterior.compression import empty_compression, extend
from ct_dip.posterior.config import InferenceConfig
from ct_dip.posterior.exact import condition
from ct_dip.posterior.exact_model import linear_model
from ct_dip.posterior.iterative import Iterative
from ct_dip.posterior.measurement_noise import MeasurementNoise
from ct_dip.posterior.problem import linear_problem
from ct_dip.posterior.stochastic_evidence import StochasticEvidence
from ct_dip.tangent.linearise import linearise

IMAGE = 50
NETWORK = DipConfig(max_steps=300, cooldown_steps=200, strength=0.1)
TOLERANCE = 6e-4  # of the compression, as by default; here without what results add for what is left out


class Both(NamedTuple):
    """Exact inference and the problem by its products, of one scan."""

    model: object
    exact: object  # its EvidenceFit
    problem: object


@pytest.fixture(scope="module")
def fitted(real_data):
    (scan,) = kmnist_scans([IMAGE], views=20, noise=0.05)
    return scan, fit_dip(scan, NETWORK)


@pytest.fixture(scope="module")
def scaled(fitted):
    return both(*fitted, "scale")


def both(scan, fit, objective):
    config = InferenceConfig(objective=objective).resolved()
    transform = ray_transform(scan.geometry)
    jacobian = linearise(fit.network(), fit.network_input)
    model = linear_model(linear_problem(fit, scan, jacobian, config, transform))
    problem = linear_problem(fit, scan, jacobian, config, transform)
    return Both(model, fit_evidence(model.evidence, starts=1), problem)


def compressed_at(problem, theta, trace):
    prior, log_noise = theta[:-1], float(theta[-1])
    noise, variance = MeasurementNoise(problem.whitened, problem.complement.variance), math.exp(log_noise)
    covariance = problem.prior.covariance(prior)
    basis = extend(
        problem, covariance, empty_compression(problem), trace=trace * problem.measurements, max_rank=784
    )
    pixels = variance * problem.complement.variance
    return Compressed(problem, basis, noise, basis_factor(basis.basis, noise), covariance, pixels, variance)


@pytest.mark.parametrize("objective", ["scale", "optimum"])
def test_compressed_evidence_and_hyperparameters_are_the_exact_ones(fitted, scaled, objective):
    _, exact, problem = scaled if objective == "scale" else both(*fitted, objective)
    found = fit_compressed(problem, tolerance=TOLERANCE, max_rank=784, starts=1)
    assert found.compression.complete
    assert found.compression.rank < 500
    assert abs(found.evidence.evidence - exact.evidence) < 0.5  # nats
    wide = 0.1 if objective == "scale" else 0.2  # the data hardly see some of the 14 at the optimum
    torch.testing.assert_close(found.evidence.theta, exact.theta, rtol=0, atol=wide)


def test_compressed_deviations_are_the_exact_ones(scaled):
    model, exact, problem = scaled
    posterior = compressed_at(problem, exact.theta, TOLERANCE)
    expected = condition(model, exact.theta)
    deviation = expected.covariance.diagonal().sqrt()
    found = posterior.pixel_covariance(torch.arange(problem.pixels)).diagonal().sqrt()
    assert float((found / deviation - 1).abs().median()) < 0.02
    off = (posterior.mean() - expected.mean) / deviation
    assert float(off.square().mean().sqrt()) < 0.05


def test_iterative_gradient_and_deviations_are_the_exact_ones(fitted, scaled):
    scan, fit = fitted
    exact = scaled.exact
    jacobian = linearise(fit.network().double(), fit.network_input.double())
    problem = linear_problem(fit, scan, jacobian, scaled.problem.config, ray_transform(scan.geometry))
    evidence = StochasticEvidence(problem, probes=8, tolerance=1e-3, rank=200)
    gradient = evidence.gradient(exact.theta)
    assert evidence.unconverged == 0
    assert float((gradient.value / gradient.standard_error).abs().max()) < 3
    curvature = problem.measurements / 2  # of the noise's logarithm, about
    assert float(gradient.standard_error.max()) < 0.05 * curvature  # so that it says something
    compressed = compressed_at(problem, exact.theta, TOLERANCE)
    iterative = Iterative(
        problem,
        compressed.covariance,
        compressed.pixel_variance,
        compressed.noise,
        preconditioner=evidence.solver(exact.theta).preconditioner,
    )
    ours, theirs = (p.deviations(20, torch.Generator().manual_seed(1)) for p in (iterative, compressed))
    assert iterative.unconverged == 0
    ratio = (ours.square().mean(dim=0) / theirs.square().mean(dim=0)).sqrt()
    assert float((ratio - 1).abs().median()) < 0.05
    assert float((ours - theirs).square().mean() / theirs.square().mean()) < 0.05**2
