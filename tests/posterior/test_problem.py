"""Products with the weights' covariance and with B J against their matrices."""

import pytest
import torch

from ct_dip.operators.basic_maps import Identity
from tests import tiny
from tests.identities import assert_every_identity
from tests.posterior.dense import PRIORS, configured, measured_jacobian, problem_of
from tests.priors.test_weights import covariance


def random_problem(prior, objective, **others):
    problem = problem_of(configured("none", prior, objective), **others)
    generator = torch.Generator().manual_seed(0)
    noise = torch.randn(len(problem.prior.start), generator=generator, dtype=torch.float64)
    theta = problem.prior.start + 0.3 * noise
    return problem, theta


def weight_covariance(problem, theta):
    """Σ(θ) by its definition."""
    weights = torch.eye(len(problem.jacobian.weights), dtype=torch.float64)
    if problem.config.prior == "g":
        return theta.exp() * torch.diag(problem.prior.base.scales.square())
    if problem.config.prior == "isotropic":
        return theta.exp() * weights
    if problem.config.objective == "scale":
        from ct_dip.posterior.choose_prior import block_prior

        blocks = block_prior(problem.jacobian)
        return theta.exp() * covariance(blocks, blocks.start)
    return covariance(problem.prior, theta)


@pytest.mark.parametrize("shape", [tiny.PLAIN, tiny.NORMALISED], ids=["plain", "normalised"])
@pytest.mark.parametrize(("prior", "objective"), PRIORS)
def test_weight_covariance_is_its_matrix(prior, objective, shape):
    problem, theta = random_problem(prior, objective, shape=shape)
    found = problem.prior.covariance(theta)
    units = torch.eye(len(problem.jacobian.weights), dtype=torch.float64)
    expected = weight_covariance(problem, theta)
    root = found.root(units).T
    torch.testing.assert_close(found(units), expected)
    torch.testing.assert_close(root @ root.T, expected)
    torch.testing.assert_close(found.root_adjoint(units), root)  # row i is Lᵀ e_i, row i of L
    torch.testing.assert_close(found.scaled(0.2)(units), 0.2 * expected)


def test_covariances_and_designs_are_linear_maps():
    problem, theta = random_problem("block", "optimum")
    covariance = problem.prior.covariance(theta)
    variance = torch.rand(problem.pixels, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    signal = problem.signal(covariance, variance)
    for each in (covariance, problem.design, signal, signal + 0.3 * Identity(problem.measurements)):
        assert_every_identity(each)
    b, j = problem.whitened.dense(), problem.jacobian.dense()
    expected = b @ (j @ weight_covariance(problem, theta) @ j.T + torch.diag(variance)) @ b.T
    torch.testing.assert_close(signal.dense(), expected)


def test_what_is_tempered_keeps_its_own_copy():
    problem, theta = random_problem("g", "optimum")
    before = problem.prior.covariance(theta)
    x = torch.ones(1, len(problem.jacobian.weights), dtype=torch.float64)
    kept = before(x)
    before.scaled(0.1)
    torch.testing.assert_close(before(x), kept, rtol=0, atol=0)


@pytest.mark.parametrize("photons", [False, True], ids=["white", "photons"])
@pytest.mark.parametrize("shape", [tiny.PLAIN, tiny.NORMALISED], ids=["plain", "normalised"])
def test_products_are_those_of_the_matrices(shape, photons):
    problem = problem_of(configured(), shape=shape, photons=photons)
    generator = torch.Generator().manual_seed(1)

    def random(*size):
        return torch.randn(*size, generator=generator, dtype=torch.float64)

    b, measured = problem.whitened.dense(), measured_jacobian(problem)
    weights, pixels = random(3, len(problem.jacobian.weights)), random(3, problem.pixels)
    sinograms = random(3, problem.measurements)
    torch.testing.assert_close(problem.design(weights), weights @ measured.T)
    torch.testing.assert_close(problem.design.T(sinograms), sinograms @ measured)
    torch.testing.assert_close(problem.project(pixels), pixels @ b.T)
    torch.testing.assert_close(problem.back_project(sinograms), sinograms @ b)
    torch.testing.assert_close(problem.images(weights), weights @ problem.jacobian.dense().T)


def test_whitened_is_the_ray_transform_in_units_of_the_noise():
    problem, scan = problem_of(configured(), photons=True), tiny.scan(photons=True)
    deviations = torch.as_tensor(scan.variance_or_estimate()[0]).sqrt().flatten()
    dense = problem.whitened.transform.dense()
    torch.testing.assert_close(problem.whitened.dense(), tiny.SCALE * dense / deviations[:, None])
    assert deviations.std() > 0  # or it would not matter


def test_adjoint_of_the_whitened_transform():
    whitened = problem_of(configured(), photons=True).whitened
    generator = torch.Generator().manual_seed(2)
    x = torch.randn(2, *tiny.IMAGE, generator=generator, dtype=torch.float64)
    y = torch.randn(2, *whitened.range_shape, generator=generator, dtype=torch.float64)
    torch.testing.assert_close((whitened(x) * y).sum(), (x * whitened.T(y)).sum())


@pytest.mark.parametrize("prior_mean", ["tangent", "zero"])
@pytest.mark.parametrize("complement", ["none", "white", "floor"])
def test_constants_are_those_of_exact_inference(complement, prior_mean):
    config = configured(complement, prior_mean=prior_mean)
    problem, (model, _, _) = problem_of(config, photons=True), tiny.model(config, photons=True)
    torch.testing.assert_close(problem.prior_mean, model.prior_mean)
    torch.testing.assert_close(problem.residual, model.evidence.residual)
    torch.testing.assert_close(problem.residual_at_fit, model.evidence.residual_at_fit)
    assert problem.log_noise == pytest.approx(model.evidence.log_noise)
    if complement != "none":
        torch.testing.assert_close(
            problem.complement.variance, model.evidence.complement.variance, rtol=1e-4, atol=0
        )


def test_the_slope_complement_is_that_of_exact_inference_up_to_its_probes():
    problem, (model, _, _) = problem_of(configured()), tiny.model(configured())
    ratio = problem.complement.variance / model.evidence.complement.variance
    assert float(ratio.std()) < 1e-12
    assert float(ratio[0]) == pytest.approx(1, abs=0.03)


def test_scales_of_the_g_prior_are_those_of_exact_inference_up_to_their_probes():
    problem = problem_of(configured(prior="g"))
    exact = measured_jacobian(problem).square().mean(dim=0).rsqrt()
    # Hutchinson's estimator of a sum of squares is wrong by at most √2 of it for one probe; 128 of them.
    relative = (problem.prior.base.scales / exact) ** -2 - 1
    assert float(relative.square().mean().sqrt()) < 1.3 * (2 / 128) ** 0.5
    assert float(relative.abs().max()) > 0  # it is an estimate
