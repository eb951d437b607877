"""`select` and ``ct-dip select``: combinations, and what evidence and held-out views choose among them."""

import datetime

import numpy as np
import pytest

import ct_dip
from ct_dip.cli import main
from ct_dip.data.method_table import EVIDENCE, HELDOUT
from ct_dip.data.scan_file import write_scan
from ct_dip.data.simulate import NoiseLevel, simulate
from ct_dip.errors import InputError
from ct_dip.geometry import Volume
from ct_dip.methods import find_method
from ct_dip.scanners import scanner
from ct_dip.select_settings import choices, grid, read_over

SCAN = simulate(
    "ellipses", scanner(Volume(shape=(16, 16)), views=12), noise=NoiseLevel(relative=0.05), seed=1
)
QUICK = ["dip.max_steps=60", "dip.cooldown_steps=20", "dip.warmup_steps=10", "inference.samples=20"]


def test_every_combination_is_tried_once():
    over = {"dip.strength": [0.1, 0.8], "dip.channels": [[8, 8], [16, 16]]}
    assert grid(over) == [
        ["dip.strength=0.1", "dip.channels=[8, 8]"],
        ["dip.strength=0.1", "dip.channels=[16, 16]"],
        ["dip.strength=0.8", "dip.channels=[8, 8]"],
        ["dip.strength=0.8", "dip.channels=[16, 16]"],
    ]
    for wrong in ({}, {"dip.strength": []}, {"dip.strength": [1, 1]}, {"dip.seed": list(range(201))}):
        with pytest.raises(InputError):
            grid(wrong)
    with pytest.raises(InputError, match=r"dip.channels has a value twice; drop one, or write \[16,16\] if"):
        grid(dict([read_over("dip.channels=16,16")]))


def test_numbers_of_numpy_are_values():
    over = {"dip.strength": np.array([0.5, 0.25], np.float32), "dip.seed": [np.int64(3)]}
    assert grid(over) == [["dip.strength=0.5", "dip.seed=3"], ["dip.strength=0.25", "dip.seed=3"]]
    assert grid({"dip.channels": np.array([[8, 8]])}) == [["dip.channels=[8, 8]"]]


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ("14", r"tv\.strength: '14' is one value, expected several; write \['14', …\]"),
        (0.3, r"tv\.strength: 0\.3 is one value"),
        ([datetime.date(2020, 1, 1)], r"tv\.strength: 2020-01-01 is a date, expected a number"),
    ],
)
def test_what_cannot_be_a_value_is_named(values, text):
    with pytest.raises(InputError, match=text):
        grid({"tv.strength": values})


def test_values_are_read_as_yaml():
    assert read_over("dip.strength=0.1,0.3") == ("dip.strength", [0.1, 0.3])
    assert read_over("dip.channels=[8,8],[16,16]") == ("dip.channels", [[8, 8], [16, 16]])
    for wrong in ("dip.strength", "strength=1,2", "dip.strength=[1,2"):
        with pytest.raises(InputError, match="--over"):
            read_over(wrong)


def test_held_out_views_choose_total_variation_that_is_not_absurd():
    table = ct_dip.select(SCAN, {"tv.strength": [0.3, 300.0]}, method="tv")
    assert choices(table) == {HELDOUT: table.methods[0]}
    assert "0.3" in table.methods[0]


def test_both_rankings_are_told_with_what_the_truth_says(tmp_path, capsys):
    write_scan(SCAN, tmp_path / "scan.h5")
    out = tmp_path / "selection"
    shared = [word for setting in QUICK for word in ("--set", setting)]
    command = ["select", str(tmp_path / "scan.h5"), "--over", "dip.channels=[8,8],[4,4]", "--out", str(out)]
    assert main([*command, *shared]) == 0
    told = capsys.readouterr().out
    assert "held-out views choose" in told
    assert "evidence chooses" in told
    header, *rows = (out / "comparison.csv").read_text().splitlines()
    assert len(rows) == 2
    assert {EVIDENCE, HELDOUT, "psnr", "log_likelihood_1"} <= set(header.split(","))
    assert "Evidence" in (out / "comparison.html").read_text()


@pytest.mark.parametrize(("method", "column"), [("dip", HELDOUT), ("lin-dip", EVIDENCE)])
def test_strengths_are_fitted_as_one_batch(method, column, tmp_path, monkeypatch):
    shared = [*QUICK[:3], "dip.channels=[4,4]", *(["inference.starts=1"] if method == "lin-dip" else [])]
    alone = ct_dip.select(SCAN, {"dip.strength": [0.8]}, method=method, settings=shared).rows[0]
    sizes, kind = [], type(find_method(method))
    run_many = kind.run_many
    monkeypatch.setattr(kind, "run_many", lambda self, jobs: sizes.append(len(jobs)) or run_many(self, jobs))
    options = {"method": method, "settings": shared, "out": tmp_path}
    table = ct_dip.select(SCAN, {"dip.strength": [0.1, 0.8]}, **options)
    assert sizes == ([2, 2] if method == "dip" else [2])  # dip is run again for held-out views
    together = table.rows[1]
    assert together.prediction.settings == alone.prediction.settings
    assert together.cells.keys() == alone.cells.keys()
    assert together.cells["psnr"] == pytest.approx(alone.cells["psnr"], abs=0.02)
    assert together.cells[column] == pytest.approx(alone.cells[column], rel=1e-3)
    assert table.rows[0].cells[column] != pytest.approx(alone.cells[column], rel=1e-3)
    again = ct_dip.select(SCAN, {"dip.strength": [0.1, 0.4, 0.8]}, **options)
    assert len(sizes) == (2 if method == "dip" else 1)  # the new one alone
    assert again.rows[2].cells == together.cells


def test_wrong_input_is_refused_before_anything_runs(tmp_path, capsys):
    write_scan(SCAN, tmp_path / "scan.h5")
    twice = ["--over", "tv.strength=1,2", "--over", "tv.strength=3"]
    for words in (
        ["--over", "tv.strength"],
        twice,
        ["--over", "tv.size=1,2"],
        ["--over", "tv.strength=2020-01-01"],
    ):
        arguments = ["select", str(tmp_path / "scan.h5"), "--method", "tv", "--out", str(tmp_path / "new")]
        assert main([*arguments, *words]) == 2
        assert len(capsys.readouterr().err.strip().splitlines()) == 1
        assert not (tmp_path / "new").exists()
