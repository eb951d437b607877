"""The search for hyperparameters in the compressed regime ends where exact inference does."""

import dataclasses
import math

import pytest
import torch

from ct_dip.data.simulate import NoiseLevel, simulate
from ct_dip.dip.fit import fit_dip
from ct_dip.evidence.fit import fit_evidence
from ct_dip.geometry import Volume
from ct_dip.methods import load_config
from ct_dip.posterior import compressed_fit as module
from ct_dip.posterior import compression
from ct_dip.posterior.compressed_fit import fit_compressed
from ct_dip.posterior.exact import condition
from ct_dip.posterior.fit import fit_posterior
from ct_dip.scanners import scanner
from ct_dip.tangent.statistics import (
    difference_variances,
    feature_statistics,
    streamed_difference_variances,
)
from tests import tiny
from tests.posterior.dense import configured, exact_model, problem_of

CASES = [
    ("none", "block", "optimum"),
    ("slope", "block", "optimum"),
    ("slope", "block", "scale"),
    ("floor", "isotropic", "optimum"),
    ("slope", "g", "optimum"),
    ("slope", "block", "fit"),
]


@pytest.mark.parametrize(("complement", "prior", "objective"), CASES)
def test_full_rank_finds_the_same_hyperparameters(complement, prior, objective):
    problem = problem_of(configured(complement, prior, objective))
    found = fit_compressed(problem, tolerance=1e-9, max_rank=28, starts=1)
    expected = fit_evidence(exact_model(problem).evidence, starts=1)
    assert found.compression.complete
    assert found.evidence.names == expected.names
    assert found.evidence.objective == pytest.approx(expected.objective, abs=1e-3)
    torch.testing.assert_close(found.evidence.theta, expected.theta, rtol=0, atol=0.02)


def test_signals_outside_of_the_basis_do_not_move_the_hyperparameters(monkeypatch):
    """Without what is known of them, a loose compression has them elsewhere."""
    monkeypatch.setattr(compression, "_BATCH", 8)
    geometry = scanner(Volume(shape=(16, 16)), views=12)
    scan = simulate("ellipses", geometry, noise=NoiseLevel(relative=0.05), same_grid=True, seed=2)

    def configured(*settings):
        quick = ["dip.channels=[8,8]", "dip.max_steps=150", "dip.cooldown_steps=50", "inference.samples=20"]
        return load_config(method="lin-dip", settings=[*quick, "inference.starts=1", *settings])

    loose = configured("inference.regime=compressed", "inference.compression=0.04").inference
    fit = fit_dip(scan, configured().dip)
    expected = fit_posterior(fit, scan, configured("inference.regime=exact").inference).evidence.theta
    found = fit_posterior(fit, scan, loose)
    assert found.certificate.rank < 130
    torch.testing.assert_close(found.evidence.theta, expected, rtol=0, atol=0.05)
    monkeypatch.setattr(module, "truncation_correction", lambda *_: None)
    without = fit_posterior(fit, scan, loose).evidence.theta
    assert float((without - expected).abs().min()) > 0.1


def test_where_signals_outside_are_strong_first_order_is_not_believed():
    """Believed, they would pass for all of the noise, to a hundredth of which it could fall."""
    problem = problem_of(configured("slope", "g"), views=9)
    found = fit_compressed(problem, tolerance=1e-9, max_rank=24, starts=1)
    assert not found.compression.complete
    assert abs(float(found.evidence.theta[-1])) < 2


def test_a_complement_of_free_size_is_searched_for():
    problem = problem_of(configured("white", objective="scale"))
    found = fit_compressed(problem, tolerance=1e-9, max_rank=28, starts=1)
    evidence = exact_model(problem).evidence
    expected = fit_evidence(evidence, starts=1)
    prior, _, noise = found.model.split(found.evidence.theta)
    theta = torch.cat([prior, torch.tensor([math.log(found.ratio) + float(noise)]), noise[None]])
    assert float(evidence.objective(theta)) > expected.objective - 0.02  # nats


def test_the_basis_grows_for_the_hyperparameters_that_were_found(monkeypatch):
    """A loose tolerance and small batches: the start needs few directions, the optimum more."""
    monkeypatch.setattr(compression, "_BATCH", 2)
    problem = problem_of(configured("none", objective="scale"))
    found = fit_compressed(problem, tolerance=1e-3, max_rank=28, starts=1)
    expected = fit_evidence(exact_model(problem).evidence, starts=1)
    assert found.compression.complete
    assert found.compression.rank < 28
    assert abs(found.evidence.evidence - expected.evidence) < 0.1


@pytest.mark.parametrize("rounds", [1, 5])
def test_rounds_that_are_used_up_are_not_complete(rounds, monkeypatch):
    """Data of which the weights must explain more than their start says: the first basis does not hold."""
    monkeypatch.setattr(compression, "_BATCH", 2)
    monkeypatch.setattr(module, "_ROUNDS", rounds)
    problem = problem_of(configured("none", objective="scale", noise="fixed"))
    problem = dataclasses.replace(problem, residual=20 * problem.residual)
    found = fit_compressed(problem, tolerance=0.05, max_rank=28, starts=1)
    assert found.compression.rank == len(found.lower)
    assert found.compression.complete is (rounds == 5)
    assert (found.compression.discarded > 0.05 * 28) is (rounds == 1)


@pytest.mark.parametrize("shape", [tiny.PLAIN, tiny.NORMALISED], ids=["plain", "normalised"])
def test_streamed_difference_variances(shape):
    jacobian = problem_of(configured(), shape=shape).jacobian
    expected = difference_variances(feature_statistics(jacobian).grams, tiny.IMAGE)
    torch.testing.assert_close(streamed_difference_variances(jacobian), expected)


def test_tv_predcp_agrees_with_exact_inference():
    """In float32, as a run has it, and by both searches."""
    found, expected = (
        fit_posterior(
            tiny.dip_fit(),
            tiny.scan(),
            configured("none", hyperprior="tv-predcp", regime=regime, compression=1e-6, starts=1),
        )
        for regime in ("compressed", "exact")
    )
    assert found.regime == "compressed"
    assert found.evidence.objective == pytest.approx(expected.evidence.objective, abs=0.05)
    assert abs(found.std / expected.std - 1).max() < 0.02
    assert abs(found.linear - expected.linear).max() < 0.05 * expected.std.mean()


@pytest.mark.parametrize(
    ("complement", "temper"), [("none", 1.0), ("none", 0.2), ("slope", 1.0), ("slope", 0.2), ("floor", 1.0)]
)
def test_posterior_of_the_regime_is_that_of_exact_inference(complement, temper):
    problem = problem_of(configured(complement, objective="scale"))
    settings = {"objective": "scale", "temper": temper, "relevance": False}
    found = fit_posterior(
        tiny.dip_fit(),
        tiny.scan(),
        configured(complement, regime="compressed", compression=1e-6, **settings),
    )
    model = exact_model(problem)
    theta = fit_evidence(model.evidence).theta
    expected = condition(model, theta, temper)
    std = tiny.SCALE * expected.covariance.diagonal().sqrt().reshape(tiny.IMAGE).numpy()
    assert abs(found.std / std - 1).max() < 0.01
    mean = tiny.SCALE * condition(model, theta).mean.reshape(tiny.IMAGE).numpy()
    assert abs(found.linear - mean).max() < 0.01 * std.mean()
    assert found.std_error is None
    assert found.certificate.closed_form
    assert found.certificate.converged
