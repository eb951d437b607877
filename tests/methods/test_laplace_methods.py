"""The methods of the Laplace family, from a scan to a prediction, on one fitted network."""

import numpy as np
import pytest

import ct_dip
from ct_dip.data.simulate import NoiseLevel, simulate
from ct_dip.geometry import Volume
from ct_dip.pipeline import plan_run
from ct_dip.scanners import scanner

FAMILY = ("laplace-diag", "laplace-kfac", "laplace-last-layer", "laplace-subnetwork")
QUICK = {"channels": (4, 4), "max_steps": 120, "cooldown_steps": 60}


@pytest.fixture(scope="module")
def scan():
    return simulate(
        "ellipses", scanner(Volume(shape=(14, 14)), views=10), noise=NoiseLevel(relative=0.05), seed=103
    )


@pytest.fixture(scope="module")
def found(scan):
    fit = ct_dip.fit_dip(scan, ct_dip.load_config(method="dip", **QUICK).dip)
    return {name: ct_dip.reconstruct(scan, method=name, fit=fit) for name in FAMILY} | {"fit": fit}


@pytest.mark.parametrize("name", FAMILY)
def test_error_bars_are_those_of_the_samples_around_the_fit(found, name):
    prediction, fit = found[name], found["fit"]
    np.testing.assert_allclose(prediction.mean, fit.image, rtol=1e-4, atol=1e-7)
    assert prediction.samples.shape == (200, 14, 14)
    deviations = np.sqrt(np.mean((prediction.samples - prediction.mean) ** 2, axis=0))
    np.testing.assert_allclose(prediction.std, deviations, rtol=0.25)
    assert prediction.std.min() >= prediction.diagnostics["floor_std"] > 0
    assert prediction.scores.log_likelihood[1].value > 0


def test_fewer_weights_are_less_uncertain(found):
    counts = [found[name].diagnostics["weights_in_posterior"] for name in FAMILY]
    assert counts[0] == counts[1] > counts[3] > counts[2] == 4
    widths = {name: np.mean(found[name].std) for name in FAMILY}
    assert widths["laplace-last-layer"] < widths["laplace-diag"]
    for name in FAMILY:
        diagnostics = found[name].diagnostics
        assert 0 < diagnostics["effective_weights"] < diagnostics["weights_in_posterior"]


def test_evidence_is_of_all_weights_or_has_another_name(found):
    for name in FAMILY:
        keys = {"evidence", "log_marginal_likelihood"} & found[name].diagnostics.keys()
        assert keys == {"evidence" if name in FAMILY[:2] else "log_marginal_likelihood"}


def test_settings_repeat_a_result_and_plans_know_the_passes(scan):
    first = ct_dip.reconstruct(scan, method="laplace-subnetwork", weights=20, samples=10, rows=30, **QUICK)
    again = ct_dip.reconstruct(scan, **first.settings)
    np.testing.assert_array_equal(first.samples, again.samples)
    config = ct_dip.load_config(method="laplace-subnetwork", weights=20, samples=10, rows=30, **QUICK)
    plan = plan_run(scan, config.resolved((14, 14)), budget=2**32, measure=True)
    assert plan.stages[-1].passes == 30 + 20 + 10
    assert plan.stages[-1].seconds > 0
