"""Which regime is planned, and what for: before any work, and without a matrix of the sinogram's size."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from ct_dip.data.noise import WhiteNoise
from ct_dip.data.scan import Scan
from ct_dip.dip.presets import resolve, unet_shape
from ct_dip.dip.unet import UNet
from ct_dip.errors import InputError
from ct_dip.geometry import ParallelBeam, Volume
from ct_dip.methods import load_config
from ct_dip.operators import ray_transform
from ct_dip.pipeline import plan_run
from ct_dip.posterior.config import InferenceConfig
from ct_dip.posterior.fit import fit_posterior
from ct_dip.posterior.regimes import plan_regime
from ct_dip.scanners import view_angles
from ct_dip.tangent.footprint import footprint
from tests import tiny

GIGABYTE = 2**30


def scan(side, views, detectors):
    geometry = ParallelBeam(volume=Volume(shape=(side, side)), angles=view_angles(views), detectors=detectors)
    return Scan(
        sinogram=np.ones((views, detectors), dtype=np.float32), geometry=geometry, noise=WhiteNoise(std=0.1)
    )


def plan(side, views, detectors, budget=16 * GIGABYTE, **settings):
    network = UNet(unet_shape(resolve(load_config(method="lin-dip").dip, (side, side))))
    return plan_regime(
        footprint(network, (side, side)), scan(side, views, detectors), InferenceConfig(**settings), budget
    )


def test_small_problems_are_exact():
    assert plan(28, 20, 41).regime == "exact"


def test_what_does_not_fit_is_compressed():
    small = plan(28, 20, 41)
    assert plan(28, 20, 41, budget=max(small.bytes.values()) - 1).regime == "compressed"
    assert plan(128, 120, 183).regime == "compressed"


@pytest.mark.parametrize("regime", ["exact", "compressed", "iterative"])
@pytest.mark.parametrize("size", [(28, 20, 41), (128, 60, 183)])
def test_an_explicit_regime_is_kept_and_has_its_costs(regime, size):
    found = plan(*size, regime=regime)
    assert found.regime == regime
    assert all(value > 0 for value in found.bytes.values())
    assert sum(found.passes.values()) > 0
    assert all(value >= 0 for value in found.passes.values())
    assert set(found.passes) <= set(found.bytes)
    assert (found.max_rank > 0) is (regime == "compressed")


def test_a_larger_budget_allows_a_larger_rank():
    ranks = [plan(128, 60, 183, budget=b * GIGABYTE, regime="compressed").max_rank for b in (1, 2, 64)]
    assert ranks == sorted(set(ranks))
    assert ranks[-1] <= 4000
    assert plan(28, 20, 41, regime="compressed").max_rank == 28**2


def test_a_full_sinogram_needs_no_matrix_of_its_size():
    """LoDoPaB: 1000 views of 513 bins, 362² pixels. A matrix of its sinogram would be 2 TB."""
    measurements = 1000 * 513
    found = plan(362, 1000, 513)
    assert found.regime == "compressed"
    assert max(found.bytes.values()) < 16 * GIGABYTE < 8 * measurements**2
    assert 100 < found.max_rank < measurements
    assert plan(362, 1000, 513, regime="iterative").bytes["hyperparameters"] < 64 * GIGABYTE
    whole = plan_run(scan(362, 1000, 513), load_config(method="lin-dip"), budget=16 * GIGABYTE)
    assert whole.facts["regime"] == "compressed"


def test_predcp_needs_passes_for_every_difference():
    with_it = plan(28, 20, 41, regime="compressed", hyperprior="tv-predcp")
    assert with_it.passes["variances of differences"] == 2 * 28**2


@pytest.mark.parametrize("regime", ["exact", "compressed"])
def test_tv_needs_more_memory(regime):
    without, with_it = (plan(40, 20, 58, regime=regime, tv=tv) for tv in ("none", "majorant"))
    assert max(with_it.bytes.values()) > max(without.bytes.values())


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"regime": "iterative", "hyperprior": "tv-predcp"}, "use regime 'compressed'"),
        ({"regime": "iterative", "objective": "fit"}, "use regime 'compressed'"),
        ({"regime": "compressed", "integrate": "laplace"}, "needs inference.regime 'exact'"),
    ],
)
def test_what_a_regime_cannot_do_is_refused_by_its_plan(settings, words):
    with pytest.raises(InputError, match=words):
        plan(28, 20, 41, **settings)


def test_integration_asks_for_exact_inference_where_it_fits():
    assert plan(64, 10, 91, integrate="laplace").regime == "exact"
    with pytest.raises(InputError, match="exact"):
        plan(128, 120, 183, budget=GIGABYTE, integrate="laplace")


@pytest.mark.parametrize("regime", ["exact", "compressed", "iterative"])
def test_two_threads_may_share_a_ray_transform(regime):
    """They find what one finds after the other."""
    scans = [tiny.scan(seed=seed) for seed in (2, 3)]
    transform = ray_transform(scans[0].geometry, backend="sparse")
    config = InferenceConfig(regime=regime, starts=1, samples=20)

    def infer(scan):
        return fit_posterior(tiny.dip_fit(), scan, config, transform=transform)

    alone = [infer(scan) for scan in scans]
    with ThreadPoolExecutor(2) as pool:
        together = list(pool.map(infer, scans))
    for one, other in zip(alone, together, strict=True):
        assert other.evidence.evidence == pytest.approx(one.evidence.evidence, rel=1e-9)
        np.testing.assert_allclose(other.mean, one.mean, rtol=1e-6)
        np.testing.assert_allclose(other.std, one.std, rtol=1e-6)
