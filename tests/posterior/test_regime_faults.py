"""A product that is wrong, or a compression that is too small, is said: on screen and in the certificate."""

import dataclasses
import math
from functools import partial

import numpy as np
import pytest
import torch

from ct_dip.data.simulate import NoiseLevel, simulate
from ct_dip.dip.fit import fit_dip
from ct_dip.errors import CtDipError
from ct_dip.geometry import Volume
from ct_dip.methods import load_config
from ct_dip.pipeline import reconstruct
from ct_dip.posterior import infer, regimes
from ct_dip.posterior.config import InferenceConfig
from ct_dip.posterior.fit import fit_posterior
from ct_dip.posterior.iterative import Iterative
from ct_dip.scanners import scanner
from ct_dip.tangent.jacobian import Jacobian
from tests import tiny
from tests.posterior.dense import FEW, MANY
from tests.test_pipeline import Notes

QUICK = ["dip.channels=[8,8]", "dip.max_steps=150", "dip.cooldown_steps=50", "inference.starts=1"]


@pytest.fixture(scope="module")
def fitted():
    geometry = scanner(Volume(shape=(16, 16)), views=12)
    scan = simulate("ellipses", geometry, noise=NoiseLevel(relative=0.05), same_grid=True, seed=2)
    return scan, fit_dip(scan, load_config(method="lin-dip", settings=QUICK).dip)


def run(fitted, *settings, **others):
    scan, fit = fitted
    progress = Notes()
    config = load_config(method="lin-dip", settings=[*QUICK, "inference.regime=compressed", *settings])
    return reconstruct(scan, config, fit=fit, progress=progress, **others), progress.notes


def test_a_sound_run_says_nothing(fitted):
    result, notes = run(fitted)
    assert result.diagnostics["certificate"]["converged"] is True
    assert result.diagnostics["certificate"]["residual"] <= 1e-3
    assert not [note for note in notes if "NOT" in note]


@pytest.mark.parametrize("direction", ["_forward", "_adjoint"])
def test_perturbed_products_are_noticed(fitted, direction, monkeypatch):
    plain = getattr(Jacobian, direction)
    generator = torch.Generator().manual_seed(0)

    def perturbed(self, x):
        y = plain(self, x)
        return y * (1 + 1e-2 * torch.randn(y.shape, generator=generator, dtype=y.dtype))

    monkeypatch.setattr(Jacobian, direction, perturbed)
    result, notes = run(fitted)
    assert result.diagnostics["certificate"]["converged"] is False
    assert [note for note in notes if "did NOT reach" in note]


@pytest.mark.parametrize("direction", ["_forward", "_adjoint"])
def test_products_that_are_not_numbers_are_an_error_that_says_so(fitted, direction, monkeypatch):
    plain = getattr(Jacobian, direction)

    def broken(self, x):
        return plain(self, x) * math.nan

    monkeypatch.setattr(Jacobian, direction, broken)
    with pytest.raises(CtDipError, match="NaN or infinity"):
        run(fitted)


def test_a_compression_that_moves_the_image_too_far_is_told(fitted):
    """It kept what it was allowed to, which was too much."""
    result, notes = run(fitted, "inference.compression=0.9")
    certificate = result.diagnostics["certificate"]
    assert certificate["discarded_trace"] <= 0.9
    assert not certificate["accurate"]
    assert certificate["converged"] is False
    (doubt,) = (note for note in notes if "did NOT reach" in note)
    assert "try a smaller inference.compression than 0.9" in doubt


def test_a_rank_that_is_too_small_is_told(fitted, monkeypatch):
    monkeypatch.setattr(regimes, "_MOST_RANK", 12)
    result, notes = run(fitted)
    certificate = result.diagnostics["certificate"]
    assert certificate["rank"] == 12
    assert certificate["converged"] is False
    assert certificate["discarded_trace"] > certificate["discarded_trace_allowed"]
    (doubt,) = [note for note in notes if "did NOT reach" in note]
    assert "inference.compression" in doubt
    assert "rank 12" in doubt


def test_little_time_gives_few_samples_and_says_so(fitted):
    result, notes = run(fitted, "inference.deviations=samples", budget_minutes=1e-9)
    certificate = result.diagnostics["certificate"]
    assert (certificate["samples"], certificate["samples_asked"]) == (20, 100)
    assert len(result.samples) == 20
    (doubt,) = [note for note in notes if "20 of 100 samples" in note]
    assert "16%" in doubt
    assert "--budget-minutes" in doubt
    assert result.settings["inference"]["samples"] == 20


def test_the_iterative_regime_tells_what_did_not_converge(fitted, monkeypatch):
    monkeypatch.setattr(infer, "fit_stochastic", partial(infer.fit_stochastic, steps=1))
    monkeypatch.setitem(Iterative.__init__.__kwdefaults__, "max_iterations", 2)
    quick = ("inference.regime=iterative", "inference.probes=2", "inference.preconditioner_rank=4")
    result, notes = run(fitted, *quick)
    assert result.diagnostics["certificate"]["converged"] is False
    (doubt,) = [note for note in notes if "did NOT reach" in note]
    assert "residual" in doubt


@pytest.mark.parametrize("views", [FEW, MANY], ids=["few", "many"])
@pytest.mark.parametrize("regime", ["compressed", "iterative"])
def test_a_network_that_is_blind_everywhere_leaves_all_to_the_complement(regime, views):
    """A saturated output: J is zero, and there is nothing to compress."""
    fit = tiny.dip_fit()
    weights = {name: w - 500 if name == "last.bias" else w for name, w in fit.weights.items()}
    blind = dataclasses.replace(fit, weights=weights)
    config = InferenceConfig(starts=1, relevance=False, samples=400)
    scan = tiny.scan(views=views)
    exact = fit_posterior(blind, scan, config.model_copy(update={"regime": "exact"}))
    found = fit_posterior(blind, scan, config.model_copy(update={"regime": regime}))
    assert found.evidence.evidence == pytest.approx(exact.evidence.evidence, abs=0.05)
    assert np.median(np.abs(found.std / exact.std - 1)) < 0.05
    assert found.certificate.converged is True
