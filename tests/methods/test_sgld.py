"""Langevin sampling of a network's weights, from a scan to a prediction."""

import numpy as np
import pytest
import torch

import ct_dip
import tests.tiny as tiny
from ct_dip.data.simulate import NoiseLevel, simulate
from ct_dip.geometry import Volume
from ct_dip.operators import ray_transform
from ct_dip.pipeline import plan_run
from ct_dip.scanners import scanner
from ct_dip.weight_posterior.linearised_scan import linearise_scan
from ct_dip.weight_posterior.potential import Potential

QUICK = {"channels": (4, 4), "max_steps": 60, "cooldown_steps": 30, "burn_in": 30, "steps": 60, "samples": 20}


@pytest.fixture(scope="module")
def scan():
    return simulate(
        "ellipses", scanner(Volume(shape=(14, 14)), views=10), noise=NoiseLevel(relative=0.05), seed=103
    )


@pytest.fixture(scope="module")
def found(scan):
    return ct_dip.reconstruct(scan, method="sgld", **QUICK)


def test_a_short_chain_says_that_it_is_short(found):
    assert 1 <= found.diagnostics["effective_samples"] < 20
    assert any("independent samples" in warning for warning in found.warnings)
    assert found.samples.shape == (20, 14, 14)
    np.testing.assert_allclose(found.mean, found.samples.mean(axis=0), atol=3 * found.std.max() / 20**0.5)


def test_settings_repeat_a_result_and_plans_know_the_steps(scan, found):
    again = ct_dip.reconstruct(scan, **found.settings)
    np.testing.assert_array_equal(again.samples, found.samples)
    config = ct_dip.load_config(method="sgld", **QUICK).resolved((14, 14))
    plan = plan_run(scan, config, budget=2**32, measure=True)
    assert plan.stages[-1].passes == 3 * 90
    assert plan.stages[-1].seconds > 0


def potential_and_scan():
    fit, data = tiny.dip_fit(), tiny.scan()
    transform, sinogram = ray_transform(data.geometry), torch.as_tensor(data.sinogram.copy())
    variance = torch.as_tensor(data.variance_or_estimate()[0])
    parts = (fit, sinogram, variance, transform)
    return Potential(*parts), linearise_scan(*parts), fit


def test_the_potential_is_what_the_fit_minimises():
    potential, linearised, fit = potential_and_scan()
    image = torch.as_tensor(fit.image) / fit.scale
    torch.testing.assert_close(potential.image(potential.start), image)
    data = 0.5 * float(linearised.residual.square().sum())
    edges = torch.stack([image.diff(dim=0)[:, :-1], image.diff(dim=1)[:-1]]).norm(dim=0).sum()
    edges += image.diff(dim=0)[:, -1].abs().sum() + image.diff(dim=1)[-1].abs().sum()
    expected = data + fit.tv_weight * float(edges)
    assert float(potential(potential.start)) == pytest.approx(expected, rel=1e-5)


def test_weights_of_convolutions_are_found_among_all_parameters():
    potential, linearised, fit = potential_and_scan()
    blocks = [name for block in linearised.jacobian.blocks for name in block.parameters]
    assert sorted(potential.slices) == sorted(blocks)
    own = torch.cat([potential.start[potential.slices[name]] for name in blocks])
    torch.testing.assert_close(own, linearised.jacobian.weights)
    precision = potential.prior_precision()
    weight = fit.weights["downs.0.second.weight"]
    expected = 1.04 * weight[0].numel() / 2
    assert float(precision[potential.slices["downs.0.second.weight"]].mean()) == pytest.approx(expected)


def test_the_curvature_is_the_diagonal_of_the_dense_matrix():
    potential, linearised, _ = potential_and_scan()
    probes = 500
    found = potential.curvature(probes)
    design = linearised.design.dense()
    for name, index in linearised.convolutions().items():
        dense = design[:, index].square().sum(dim=0)
        z = (found[potential.slices[name]] - dense) / (dense * (2 / probes) ** 0.5 + 1e-6)
        assert z.abs().max() < 5
