"""Benchmarks print what they promise, on a size that takes no time."""

import json

import pytest
import torch

import benchmarks.operators
import benchmarks.tangent_products
from benchmarks.__main__ import BENCHMARKS, main
from ct_dip.dip.unet import UNet, UNetShape

KEYS = {"benchmark", "case", "reference", "reference_value", "value", "unit", "ratio"}


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
    monkeypatch.setattr(benchmarks.tangent_products, "CASES", ((8, "small", 2),))
    monkeypatch.setattr(benchmarks.tangent_products, "SGEMM", 64)
    monkeypatch.setattr(benchmarks.tangent_products, "ROUNDS", 1)
    monkeypatch.setattr("sys.argv", ["benchmarks", "tangent-products", "--json"])
    main()
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert len([row for row in rows if row["unit"] == "ms"]) == 8  # J and Jᵀ, four references
    rates = [row for row in rows if row["unit"] == "Gflop/s"]
    assert len(rates) == 2
    assert all(row["ratio"] == pytest.approx(row["value"] / row["reference_value"]) for row in rates)


def test_operations_of_a_product_are_those_of_two_passes():
    network = UNet(UNetShape(channels=(3,), skip_channels=()))
    z = torch.zeros(1, 1, 4, 5)
    first, last = 2 * 20 * 3 * 9, 2 * 20 * 3
    assert benchmarks.tangent_products.product_operations(network, z) == first + 2 * last
