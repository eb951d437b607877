"""Benchmarks print what they promise, on a size that takes no time."""

import itertools
import json
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch

import benchmarks.compressed
import benchmarks.objects
import benchmarks.operators
import benchmarks.scaling
import benchmarks.tangent_products
from benchmarks.__main__ import BENCHMARKS, main
from benchmarks.inference import Meter
from benchmarks.measure import balanced_orders
from benchmarks.object_list import Item
from ct_dip.dip.unet import UNet, UNetShape

pytestmark = pytest.mark.usefixtures("untouched_allocator")

KEYS = {"benchmark", "case", "reference", "reference_value", "value", "unit", "ratio"}


@pytest.fixture
def untouched_allocator(monkeypatch):
    """That of the tests' own process, which goes on after a benchmark."""
    monkeypatch.setattr("benchmarks.__main__.keep_freed", lambda: None)


def test_one_json_object_a_line(monkeypatch, capsys):
    monkeypatch.setattr(benchmarks.operators, "CASES", ((24, "line"),))
    monkeypatch.setattr("sys.argv", ["benchmarks", "operators", "--json"])
    main()
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert all(set(row) == KEYS for row in rows)
    compared = [row for row in rows if row["reference"]]
    assert len(compared) == 4  # forward and adjoint, one and a batch
    for row in compared:
        assert row["ratio"] == pytest.approx(row["reference_value"] / row["value"])


def test_unknown_benchmarks_are_refused(monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["benchmarks", "nothing"])
    with pytest.raises(SystemExit) as stop:
        main()
    assert stop.value.code == 2
    message = capsys.readouterr().err
    assert all(name in message for name in BENCHMARKS)


def test_products_with_j_are_compared_and_counted(monkeypatch, capsys):
    monkeypatch.setattr(benchmarks.tangent_products, "CASES", ((8, "small", 2, 1),))
    monkeypatch.setattr(benchmarks.tangent_products, "SGEMM", 64)
    monkeypatch.setattr("sys.argv", ["benchmarks", "tangent-products", "--json"])
    main()
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert (
        len([row for row in rows if row["unit"] == "ms"]) == 9
    )  # J and Jᵀ, four references each, and both together
    rates = [row for row in rows if row["unit"] == "Gflop/s"]
    assert len(rates) == 2
    assert all(row["ratio"] == pytest.approx(row["value"] / row["reference_value"]) for row in rates)


def test_operations_of_a_product_are_those_of_two_passes():
    network = UNet(UNetShape(channels=(3,), skip_channels=()))
    z = torch.zeros(1, 1, 4, 5)
    first, last = 2 * 20 * 3 * 9, 2 * 20 * 3
    assert benchmarks.tangent_products.product_operations(network, z) == first + 2 * last


NETWORK = ("--set", "dip.channels=[4, 4]")


def _rows(monkeypatch, capsys, *words):
    monkeypatch.setattr("sys.argv", ["benchmarks", *words, "--json"])
    main()
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def test_compressed_inference_is_compared_and_extrapolation_is_told(monkeypatch, capsys):
    monkeypatch.setattr(benchmarks.compressed, "LARGEST", 12)
    monkeypatch.setattr(benchmarks.compressed, "fresh", lambda function, *a: function(*a))  # which is faster
    small = "--views 8 --steps 2 --samples 20 --evaluations 2".split()
    rows = _rows(monkeypatch, capsys, "compressed", "--cases", "12", "16", *small, *NETWORK)
    regimes = {row["case"]: row for row in rows if row["reference"] is None}
    compressed = regimes["12², 8 views, compressed inference"]
    assert compressed["deviations_median_difference"] < 0.05
    assert compressed["rank"] == compressed["certificate"]["rank"] > 0
    assert compressed["passes"] >= 2 * compressed["rank"]
    whole = regimes["12², 8 views, iterative inference"]
    assert not whole["extrapolated"]
    guessed = regimes["16², 8 views, iterative inference"]
    assert guessed["extrapolated"]
    assert guessed["evaluations"] == whole["evaluations"]
    assert guessed["value"] == pytest.approx(sum(guessed["extrapolated_parts"].values()))
    assert len(guessed["measured_gradients"]) == 2
    compared = [(row["case"][:3].strip("²"), row["reference"]) for row in rows if row["reference"]]
    assert compared == [("12", "iterative"), ("12", "exact"), ("16", "iterative")]


def test_scaling_is_measured_in_fresh_processes_and_extrapolated(monkeypatch, capsys):
    words = "scaling --sizes 12 16 --views 8 --samples 20 --set dip.max_steps=2 --set dip.cooldown_steps=1"
    rows = _rows(monkeypatch, capsys, *words.split(), *NETWORK)
    jobs = [row for row in rows if row["case"].endswith("the whole job, s")]
    assert [job["pixels"] for job in jobs] == [144, 256]
    for job in jobs:
        assert job["passes"] == sum(stage["passes"] for stage in job["stages"].values()) + 1  # J w̃
        assert job["held_MiB"]["features"] == pytest.approx(4 * job["rank"] * job["weights"] / 2**20)
        assert 0 < job["seconds_J"] < job["value"]
        assert job["peak_stage"] in job["stages"]
        assert job["libraries_MiB"] > 50
    (beyond,) = [row for row in rows if row.get("extrapolated")]
    assert beyond["value"] == pytest.approx(sum(beyond["stages"].values()))


def test_objects_are_measured_once_and_kept(monkeypatch, capsys, tmp_path):
    """The best TV of a sweep is no worse than one of it; a second run reads the file."""
    items = (Item("grains", 16, 8, "5%", seed=1), Item("cracks", 16, 8, "1000ph", seed=1, quick=True))
    monkeypatch.setitem(benchmarks.objects.LISTS, "choose", items)
    monkeypatch.setattr(benchmarks.objects, "STRENGTHS", (0.4, 0.8))
    words = "objects --set dip.max_steps=2 --set dip.cooldown_steps=1 --set inference.samples=20".split()
    words += [*NETWORK, "--set", "tv.strength=0.8", "--out", str(tmp_path / "rows.jsonl")]
    (first,) = _rows(monkeypatch, capsys, *words, "--quick")
    assert first["case"] == "cracks1-16-8v-1000ph"
    assert first["psnr_best_tv"] >= first["psnr_tv"] > first["psnr_dip"]  # of two steps
    assert 0 <= first["coverage_50"] <= first["coverage_90"] <= first["coverage_95"] <= 1
    (other,) = _rows(monkeypatch, capsys, *words, "--cases", "grains")
    monkeypatch.setattr(benchmarks.objects, "measure", lambda *_: pytest.fail("measured again"))
    assert _rows(monkeypatch, capsys, *words) == [other, first]
    monkeypatch.setattr("sys.argv", ["benchmarks", *words])
    main()
    header, *lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == [other["case"], first["case"]]
    assert {len(line) for line in lines} == {len(header)}


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="only Linux says what a process holds now")
def test_every_stage_has_its_own_peak():
    meter = Meter()
    with meter.counting():
        with meter.stage("large"):
            array = np.ones(2**25)  # 256 MiB: smaller ones may come from the heap, see `memory.keep_freed`
        del array
        with meter.stage("small"):
            np.ones(2**10).sum()
    assert meter.peaks["small"] + 200 < meter.peaks["large"] <= meter.peak


def test_a_power_law_is_found():
    assert benchmarks.scaling.power_law([1, 2, 4], [3, 12, 48]) == pytest.approx((2, 3))


@pytest.mark.parametrize("count", range(1, 8))
def test_every_job_follows_every_other_one_equally_often(count):
    orders = balanced_orders(count)
    assert all(sorted(order) == list(range(count)) for order in orders)
    follows = Counter(pair for order in orders for pair in itertools.pairwise(order))
    assert len(follows) == count * (count - 1)
    assert len(set(follows.values())) <= 1
