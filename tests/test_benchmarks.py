"""Benchmarks print what they promise, on a size that takes no time."""

import json

import pytest

import benchmarks.operators
from benchmarks.__main__ import BENCHMARKS, main

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
