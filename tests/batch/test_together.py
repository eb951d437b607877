"""Scans as one batch: each its own result, in the order given, and one that fails takes nobody with it."""

import dataclasses

import numpy as np
import pytest

from ct_dip.batch.together import reconstruct_together
from ct_dip.data.prediction import Prediction
from ct_dip.data.simulate import NoiseLevel, simulate
from ct_dip.geometry import Volume
from ct_dip.methods import load_config
from ct_dip.methods.dip import Dip
from ct_dip.methods.lin_dip import LinDip
from ct_dip.pipeline import reconstruct
from ct_dip.run_together import batch_size
from ct_dip.scanners import scanner

BUDGET = 2**31
GEOMETRY = scanner(Volume(shape=(16, 16)), views=10)
SCANS = [simulate("ellipses", GEOMETRY, noise=NoiseLevel(relative=0.05), seed=i) for i in range(3)]
SHORT = ["dip.max_steps=60", "dip.cooldown_steps=30", "dip.warmup_steps=5", "dip.strength=0.3"]
DIP = load_config(method="dip", settings=SHORT, threads=1)


def together(scans, config=DIP):
    return reconstruct_together(scans, [None] * len(scans), config, BUDGET)


def test_a_batch_is_close_to_the_single_runs():
    other = simulate("ellipses", scanner(Volume(shape=(16, 16)), views=12), noise=NoiseLevel(relative=0.05))
    mixed = [SCANS[0], other, SCANS[1], dataclasses.replace(SCANS[2], ground_truth=None)]
    batch = together(mixed)
    assert [each.scan_digest for each in batch] == [scan.digest for scan in mixed]
    for scan, prediction in zip(mixed, batch, strict=True):
        alone = reconstruct(scan, DIP, memory_budget=BUDGET)
        # A batch starts from TV images that are solved until the last one has a gap of 1e-2.
        difference = np.sqrt(np.mean((prediction.mean - alone.mean) ** 2))
        assert difference < 0.01 * alone.mean.max()
        assert (prediction.scores is None) == (scan.ground_truth is None)
        assert prediction.settings == alone.settings
        assert prediction.diagnostics.keys() == alone.diagnostics.keys()


def test_a_batch_with_error_bars_is_close_to_the_single_runs(monkeypatch):
    small = [*SHORT, "dip.channels=[4,4]", "inference.starts=1"]
    config = load_config(method="lin-dip", settings=small, threads=1)
    alone = [reconstruct(scan, config, memory_budget=BUDGET) for scan in SCANS[:2]]
    monkeypatch.delattr(LinDip, "run")  # so that a batch that failed would be seen
    batch = together(SCANS[:2], config)
    for one, other in zip(batch, alone, strict=True):
        assert np.sqrt(np.mean((one.mean - other.mean) ** 2)) < 0.01 * other.mean.max()
        assert np.median(abs(one.std / other.std - 1)) < 0.02  # single pixels feel the start more
        assert one.diagnostics["widening"] == pytest.approx(other.diagnostics["widening"], rel=0.03)
        assert one.scores.log_likelihood.keys() == other.scores.log_likelihood.keys()
        assert one.settings == other.settings
        assert one.diagnostics.keys() == other.diagnostics.keys()
        assert one.heldout.views == other.heldout.views


def test_the_same_batch_has_the_same_bits():
    first, again = together(SCANS), together(SCANS)
    for one, other in zip(first, again, strict=True):
        np.testing.assert_array_equal(one.mean, other.mean)


def test_one_bad_scan_leaves_the_others(monkeypatch):
    empty = dataclasses.replace(SCANS[0], sinogram=np.zeros(GEOMETRY.range_shape, np.float32))
    good, bad, fine = together([SCANS[0], empty, SCANS[1]])
    assert "there is nothing to reconstruct" in str(bad)
    assert isinstance(good, Prediction)
    assert isinstance(fine, Prediction)


def test_small_images_share_a_batch_that_fits_the_budget():
    assert batch_size(SCANS[0], load_config(method="fbp"), BUDGET) == 1
    many = batch_size(SCANS[0], DIP, BUDGET)
    assert many > 16
    assert 1 <= batch_size(SCANS[0], DIP, 80 * 2**20) < many
    large = simulate("ellipses", scanner(Volume(shape=(128, 128)), views=4))
    assert batch_size(large, DIP, BUDGET) == 1


def test_a_batch_is_not_larger_than_the_method_takes(monkeypatch):
    sizes = []
    run_many = Dip.run_many
    monkeypatch.setattr(Dip, "batch_size", lambda *_: 2)
    monkeypatch.setattr(Dip, "run_many", lambda self, jobs: sizes.append(len(jobs)) or run_many(self, jobs))
    assert all(isinstance(each, Prediction) for each in together(SCANS))
    assert sizes == [2]  # and one alone


@pytest.mark.parametrize("count", [1, 3])
def test_a_reference_is_compared_with(count):
    blind = [dataclasses.replace(scan, ground_truth=None) for scan in SCANS[:count]]
    found = reconstruct_together(blind, [SCANS[0].ground_truth] * count, DIP, BUDGET)
    assert [each.scores.compared_with for each in found] == ["reference"] * count
