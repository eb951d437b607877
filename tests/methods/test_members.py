"""Methods whose error bars are the spread of networks, or of one network that changes."""

from functools import partial

import numpy as np
import pytest
import torch

import ct_dip
from ct_dip.data.simulate import NoiseLevel, simulate
from ct_dip.dip.config import DipConfig
from ct_dip.dip.dropout import DropoutEnsemble, dropout_images
from ct_dip.dip.fit import fit_dip, fit_many
from ct_dip.dip.schedule import Schedule
from ct_dip.dip.snapshots import CyclicSchedule, SnapshotEnsemble
from ct_dip.dip.swag import CollectingSchedule, SwagEnsemble, WeightMoments
from ct_dip.errors import InputError
from ct_dip.geometry import Volume
from ct_dip.methods import load_config
from ct_dip.pipeline import plan_run
from ct_dip.scanners import scanner
from tests.dip.test_fit import KillAt, KilledError

SCAN = simulate(
    "ellipses", scanner(Volume(shape=(16, 16)), views=10), noise=NoiseLevel(relative=0.05), seed=12
)
DIP = {"channels": (8, 8), "strength": 0.5, "warmup_steps": 10, "cooldown_steps": 20, "max_steps": 60}
QUICK = DipConfig(**DIP)
KINDS = {
    "mc-dropout": partial(DropoutEnsemble, rate=0.1),
    "snapshot": partial(SnapshotEnsemble, cycles=3),
    "swag": partial(SwagEnsemble, rate=0.5, collected=8, every=5, differences=4, batch=0.3),
}


@pytest.fixture(scope="module")
def plain():
    return fit_dip(SCAN, QUICK, seed=3)


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_an_interrupted_fit_goes_on_to_the_same_bits(tmp_path, monkeypatch, kind):
    monkeypatch.setattr("ct_dip.dip.fit._CHECKPOINT_SECONDS", 0.0)
    whole = fit_many([SCAN], QUICK, kind=kind)
    for step in (30, whole[0].steps - 5):
        with pytest.raises(KilledError):
            fit_many([SCAN], QUICK, kind=kind, run_folder=tmp_path, progress=KillAt(step))
    resumed = fit_many([SCAN], QUICK, kind=kind, run_folder=tmp_path)
    np.testing.assert_array_equal([fit.image for fit in resumed], [fit.image for fit in whole])
    with pytest.raises(InputError, match="differs in: variant"):
        fit_many([SCAN], QUICK, run_folder=tmp_path)


def test_no_dropout_is_the_plain_fit_to_the_bit(plain):
    found = ct_dip.reconstruct(SCAN, method="mc-dropout", seed=3, rate=0, passes=2, dip=DIP)
    np.testing.assert_array_equal(found.images["dip"], plain.image)
    np.testing.assert_allclose(found.std, found.diagnostics["floor_std"])


def test_dropout_leaves_out_that_share_of_channels_and_keeps_their_mean(plain):
    """One convolution and a linear output: passes have mean f and a variance that is known.

    With weight a_c on channel c, ``Var Σ_c a_c m_c = p/(1 − p) Σ_c a_c²``.
    """
    network = torch.nn.Sequential(torch.nn.Conv2d(1, 6, 3, padding=1), torch.nn.Conv2d(6, 1, 1))
    weights = network.state_dict()
    fit = ct_dip.DipFit(**(vars(plain) | {"template": network, "weights": weights, "scale": 1.0}))
    with torch.no_grad():
        channels = network[0](plain.network_input)[0] * weights["1.weight"][0]
        mean = channels.sum(dim=0) + weights["1.bias"]
    rate, count = 0.2, 4000
    images = dropout_images(fit, rate, count, 0, torch.device("cpu"))
    variance = rate / (1 - rate) * channels.square().sum(dim=0).numpy()
    np.testing.assert_allclose(images.var(axis=0), variance, rtol=6 * (2 / count) ** 0.5)
    error = np.abs(images.mean(axis=0) - mean.numpy()) / np.sqrt(variance / count)
    assert error.max() < 5


def test_members_are_fits_of_their_seeds_and_the_same_seed_has_no_spread(plain):
    found = ct_dip.reconstruct(SCAN, method="ensemble", seed=3, members=3, dip=DIP)
    assert np.linalg.norm(found.images["dip"] - plain.image) < 0.02 * np.linalg.norm(plain.image)
    members = np.stack([fit.image for fit in fit_many([SCAN] * 3, QUICK, seeds=[3, 4, 5])])
    np.testing.assert_allclose(found.mean, members.mean(axis=0), rtol=1e-5)
    variance = members.var(axis=0, ddof=1) + found.diagnostics["floor_std"] ** 2
    np.testing.assert_allclose(found.std**2, variance, rtol=1e-3)
    alike = fit_many([SCAN] * 2, QUICK, seeds=[3, 3])
    np.testing.assert_array_equal(alike[0].image, alike[1].image)


def test_one_cycle_is_the_plain_fit_to_the_bit(plain):
    found = ct_dip.reconstruct(SCAN, method="snapshot", seed=3, cycles=1, dip=DIP)
    np.testing.assert_allclose(found.mean, plain.image, rtol=1e-6)
    np.testing.assert_allclose(found.std, found.diagnostics["floor_std"])
    again = ct_dip.reconstruct(SCAN, method="snapshot", seed=3, cycles=3, dip=DIP)
    np.testing.assert_array_equal(again.images["dip"], plain.image)
    assert again.diagnostics["steps"] == plain.steps + 2 * DIP["cooldown_steps"]
    assert len(np.unique(again.samples[:, 8, 8])) == 3


def test_rates_of_a_cyclic_schedule_fall_and_jump_back():
    plain, since = Schedule(peak=2.0, warmup=1, cooldown=10, budget=50), torch.tensor([20])
    cyclic = CyclicSchedule(**vars(plain), cycles=3)
    rates = [float(cyclic.rates(step, since)) for step in (5, 20, 25, 30, 35, 40, 45, 50)]
    assert rates == pytest.approx([2, 2, 1, 2, 1, 2, 1, 0], abs=1e-6)
    assert [bool(cyclic.done(step, since)) for step in (30, 49, 50)] == [False, False, True]
    assert not cyclic.done(10**6, torch.tensor([-1]))
    assert cyclic.longest == 70
    collecting = CollectingSchedule(**vars(plain), rate=0.3, steps=15)
    assert [float(collecting.rates(step, since)) for step in (25, 30, 40)] == pytest.approx([1, 0.3, 0.3])
    assert [bool(collecting.done(step, since)) for step in (44, 45)] == [False, True]


def test_moments_converge_to_those_of_a_known_gaussian():
    """Weights from N(μ, C): samples have mean μ and covariance ½ diag C + ½ C, for many differences."""
    generator = torch.Generator().manual_seed(0)
    root = torch.tensor([[1.0, 0, 0], [0.8, 0.5, 0], [-0.3, 0.2, 2.0]], dtype=torch.float64)
    center, count = torch.tensor([3.0, -1.0, 0.5], dtype=torch.float64), 1000
    moments = WeightMoments(center, kept=count)
    for draw in torch.randn(count, 3, generator=generator, dtype=torch.float64):
        moments.update(center + root @ draw)
    covariance, error = root @ root.T, (2 / count) ** 0.5
    torch.testing.assert_close(moments.variance, covariance.diagonal(), rtol=5 * error, atol=0)
    expected = 0.5 * (covariance + covariance.diag().diag())
    sampled = torch.cov(moments.sample(5 * count, generator).T)
    assert ((sampled - expected).abs() < 5 * error * covariance.diagonal().max()).all()
    drawn = moments.sample(5 * count, generator).mean(dim=0)
    assert ((drawn - center).abs() < 5 * (covariance.diagonal() / count).sqrt()).all()


def test_few_differences_are_those_of_the_last_weights():
    moments = WeightMoments(torch.zeros(1), kept=2)
    for value in (1.0, 2.0, 6.0):
        moments.update(torch.tensor([value]))
    assert float(moments.mean) == 3.0
    assert float(moments.variance) == pytest.approx(14 / 3)
    assert sorted(moments.differences.flatten().tolist()) == [0.5, 3.0]  # 2 − 1.5 and 6 − 3


def test_swag_draws_images_around_that_of_the_mean_weights():
    found = ct_dip.reconstruct(
        SCAN, method="swag", seed=3, collected=8, every=5, differences=4, samples=30, dip=DIP
    )
    assert found.samples.shape == (30, 16, 16)
    assert (found.std > 0).all()
    assert np.abs(found.mean - found.images["dip"]).max() < 5 * found.std.max()
    with pytest.raises(InputError, match="data_term 'poisson' is not offered with method swag"):
        ct_dip.reconstruct(SCAN, method="swag", dip={"data_term": "poisson"})


@pytest.mark.parametrize("method", ["mc-dropout", "ensemble", "snapshot", "swag"])
def test_plans_count_networks_and_steps(method):
    settings = [f"dip.{name}={list(v) if isinstance(v, tuple) else v}" for name, v in DIP.items()]
    config = load_config(method=method, settings=settings)
    plan = plan_run(SCAN, config, budget=2**34, measure=True)
    base = plan_run(SCAN, load_config(method="dip", settings=settings), budget=2**34)
    assert plan.stages[1].passes >= base.stages[1].passes
    assert plan.bytes >= base.bytes
    assert all(stage.seconds > 0 for stage in plan.stages)
