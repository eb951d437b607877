"""An uncertain detector offset: all regimes, against ``s² (I + q qᵀ)`` written down."""

import dataclasses

import numpy as np
import pytest
import torch

from ct_dip.operators import ray_transform
from ct_dip.operators.whitened import Whitened
from ct_dip.posterior.exact import condition, prior_covariance
from ct_dip.posterior.exact_model import linear_model
from ct_dip.posterior.fit import fit_posterior
from ct_dip.posterior.iterative import Iterative
from tests import tiny
from tests.posterior.dense import FEW, MANY, compressed, configured, exact_model, problem_of, random_theta

ERROR = 0.3  # mm, as much as the noise or more: bins are 1 mm, and the object has no smooth edges


def independent(problem, scan):
    """B, y and q of a scan in units of the stated noise, all from matrices of shifted detectors."""
    deviation = torch.as_tensor(scan.variance_or_estimate()[0]).sqrt().flatten()

    def dense(shift):
        moved = dataclasses.replace(scan.geometry, detector_offset=scan.geometry.detector_offset + shift)
        return tiny.SCALE * ray_transform(moved).dense() / deviation[:, None]

    slope = (dense(0.5) - dense(-0.5)) @ problem.jacobian.image.double().flatten()
    data = torch.as_tensor(scan.sinogram.copy()).double().flatten() / deviation
    return dense(0.0), data, scan.offset_error * slope, deviation


@pytest.mark.parametrize("photons", [False, True], ids=["white", "photons"])
@pytest.mark.parametrize("views", [FEW, MANY])
def test_all_regimes_are_the_dense_model(views, photons):
    problem = problem_of(configured(), views=views, photons=photons, offset_error=ERROR)
    scan = dataclasses.replace(tiny.scan(photons=photons, views=views), offset_error=ERROR)
    b, y, q, deviation = independent(problem, scan)
    assert float(q.norm()) > 1.5  # or it would not matter
    model = exact_model(problem)
    theta = random_theta(model)
    noise = float(model.evidence.split(theta)[2].exp())
    prior = prior_covariance(model, theta)
    measured = b @ prior @ b.T + noise * (torch.eye(len(b), dtype=torch.float64) + torch.outer(q, q))
    gain = torch.linalg.solve(measured, b @ prior).T
    mean = problem.prior_mean + gain @ (y - b @ problem.prior_mean)
    covariance = prior - gain @ b @ prior
    density = torch.distributions.MultivariateNormal(b @ problem.prior_mean, measured).log_prob(y)
    evidence = float(density - deviation.log().sum())

    exact = linear_model(problem)  # rotated where there are many measurements
    moments = condition(exact._replace(evidence=_with_complement(exact, model)), theta)
    close = {"rtol": 1e-4, "atol": 1e-5}  # q is a difference of projections in float32
    torch.testing.assert_close(moments.mean, mean, **close)
    torch.testing.assert_close(moments.covariance, covariance, **close)
    assert float(model.evidence.log_evidence(theta)) == pytest.approx(evidence, abs=1e-3)

    small, projected, short = compressed(problem, model, theta)
    assert float(projected.log_evidence(short)) == pytest.approx(evidence, abs=1e-3)
    tight = {"tolerance": 1e-9, "max_iterations": 500}
    cross = prior @ model.whitened.T
    for each in (small, Iterative(problem, small.covariance, small.pixel_variance, noise, **tight)):
        torch.testing.assert_close(each.mean(), mean, **close)
        torch.testing.assert_close(prior - each.solve(cross) @ cross.T, covariance, **close)


def _with_complement(exact, model):
    """The evidence of an exact model with the other one's complement, whose size is found by probes."""
    return dataclasses.replace(exact.evidence, complement=model.evidence.complement)


@pytest.mark.parametrize("regime", ["exact", "compressed"])
def test_a_repeated_measurement_has_the_error_of_the_offset(regime):
    scan = dataclasses.replace(tiny.scan(), offset_error=ERROR)
    config = configured(regime=regime, samples=2000, starts=1, relevance=False)
    found = fit_posterior(tiny.dip_fit(), scan, config)
    b, _, q, deviation = independent(found.problem, scan)
    (whole,) = found.covariance()
    noise = (found.noise_std / found.stated_noise_std) ** 2
    signal = (b @ torch.as_tensor(whole.covariance / tiny.SCALE**2) * b).sum(dim=1)
    expected = deviation * (signal + noise * (1 + q**2)).sqrt()
    np.testing.assert_allclose(found.sinogram.std.ravel(), expected, rtol=1e-4 if regime == "exact" else 0.1)
    left = torch.as_tensor((scan.sinogram - found.sinogram.mean).ravel()) / deviation
    chi2 = left @ torch.linalg.solve(torch.eye(len(q)).double() + torch.outer(q, q), left) / noise
    assert (found.sinogram.standardised**2).sum() == pytest.approx(float(chi2), rel=1e-4)


def test_an_exact_offset_changes_nothing():
    problem = problem_of(configured())
    assert type(problem.whitened) is Whitened
    values = torch.ones(1, problem.measurements)
    assert problem.whitened.whiten(values) is problem.whitened.unwhiten(values) is values
    assert problem.whitened.log_det == 0


def test_a_wider_error_moves_the_evidence_and_widens_the_error_bars():
    """Only hyperparameters are the same; an error bar grows with every doubt about the data."""
    first, second = (problem_of(configured(), offset_error=error) for error in (0.0, ERROR))
    models = [exact_model(problem) for problem in (first, second)]
    theta = random_theta(models[0])
    narrow, wide = (condition(model, theta).covariance for model in models)
    assert torch.linalg.eigvalsh(wide - narrow).min() > -1e-9
    assert float((wide.diagonal() / narrow.diagonal()).max()) > 1.05
