"""Mixtures of linearised networks: the identities of a mixture."""

import numpy as np
import pytest

import ct_dip
from ct_dip.methods import load_config
from ct_dip.pipeline import plan_run
from tests.tiny import scan

SETTINGS = {
    "dip": {"channels": (3, 2), "max_steps": 30, "cooldown_steps": 10, "strength": 0.5},
    "inference": {"starts": 1, "samples": 90, "calibrate": "none", "regime": "exact"},
}
SCAN = scan(views=6)


@pytest.fixture(scope="module")
def members():
    return [ct_dip.reconstruct(SCAN, method="lin-dip", seed=seed, **SETTINGS) for seed in (4, 5, 6)]


def test_one_member_is_lin_dip(members):
    found = ct_dip.reconstruct(SCAN, method="lin-ensemble", seed=4, members=1, **SETTINGS)
    for name in ("mean", "std", "samples"):
        np.testing.assert_allclose(getattr(found, name), getattr(members[0], name), rtol=1e-12)


def test_mean_and_covariance_are_those_of_the_mixture(members):
    """Networks that are fitted together round differently, and training lets that grow: percents."""
    found = ct_dip.reconstruct(SCAN, method="lin-ensemble", seed=4, members=3, **SETTINGS)
    means, stds = (np.array([getattr(m, name) for m in members]) for name in ("mean", "std"))
    np.testing.assert_allclose(found.mean, means.mean(axis=0), rtol=0.03)
    variance = (stds**2).mean(axis=0) + means.var(axis=0)
    np.testing.assert_allclose(found.std, np.sqrt(variance), rtol=0.05)
    assert (found.std**2 >= 0.9 * (stds**2).mean(axis=0)).all()
    assert len(found.samples) == 90
    evidences = np.array(found.diagnostics["member_evidences"])
    likelihood = np.exp(evidences - evidences.max()).mean()  # of the mixture, relative to its best member
    assert found.diagnostics["evidence"] == pytest.approx(np.log(likelihood) + evidences.max())
    spread = np.mean((found.samples - found.mean) ** 2, axis=0)
    assert np.mean(spread / found.std**2) == pytest.approx(1, abs=0.15)  # 90 samples of 30 pixels
    again = ct_dip.reconstruct(SCAN, **found.settings)
    np.testing.assert_array_equal(again.std, found.std)


def test_members_may_be_whole_lin_dips():
    settings = {"dip": SETTINGS["dip"], "inference": SETTINGS["inference"] | {"calibrate": "views"}}
    alone, found = (
        ct_dip.reconstruct(SCAN, method=method, seed=4, **settings, **more)
        for method, more in (("lin-dip", {}), ("lin-ensemble", {"members": 1}))
    )
    np.testing.assert_allclose(found.std, alone.std, rtol=1e-12)


def test_the_plan_counts_members():
    plans = [
        plan_run(
            SCAN,
            load_config(method="lin-ensemble", settings=[f"lin_ensemble.members={n}"]),
            budget=2**34,
            measure=n == 3,
        )
        for n in (1, 3)
    ]
    assert plans[1].stages[1].passes == 3 * plans[0].stages[1].passes
    assert plans[1].stages[1].bytes > plans[0].stages[1].bytes
    assert all(stage.seconds > 0 for stage in plans[1].stages)
