"""The variational methods, from a scan to a prediction."""

import numpy as np
import pytest

import ct_dip
from ct_dip.data.simulate import NoiseLevel, simulate
from ct_dip.geometry import Volume
from ct_dip.pipeline import plan_run
from ct_dip.scanners import scanner

QUICK = {
    "channels": (4, 4),
    "max_steps": 60,
    "cooldown_steps": 30,
    "variational": {"steps": 60, "rate": 0.01, "samples": 20},
}


@pytest.fixture(scope="module")
def scan():
    return simulate(
        "ellipses", scanner(Volume(shape=(14, 14)), views=10), noise=NoiseLevel(relative=0.05), seed=103
    )


@pytest.mark.parametrize("name", ["mfvi", "sparse-vd"])
def test_a_scan_becomes_a_prediction_that_its_settings_repeat(scan, name):
    found = ct_dip.reconstruct(scan, method=name, **QUICK)
    assert found.samples.shape == (20, 14, 14)
    assert found.std.min() >= found.diagnostics["floor_std"] > 0
    assert len(found.traces["negative_bound"]) == 60
    again = ct_dip.reconstruct(scan, **found.settings)
    np.testing.assert_array_equal(found.samples, again.samples)
    if name == "mfvi":
        assert min(found.diagnostics["prior_std"].values()) > 0
    else:
        layers = found.diagnostics["sparsity_by_layer"]
        assert 0 <= min(layers.values()) <= found.diagnostics["sparsity"] <= max(layers.values()) <= 1


def test_plans_know_the_steps(scan):
    config = ct_dip.load_config(method="mfvi", **QUICK).resolved((14, 14))
    plan = plan_run(scan, config, budget=2**32, measure=True)
    assert plan.stages[-1].passes == 6 * 60 + 20
    assert plan.stages[-1].seconds > 0
