"""Studies of scans: rows and images are kept, segmentations compared, doses set in relation."""

import math

import numpy as np
import pytest

import experiments.study as study
from benchmarks.kept_rows import KeptRows
from benchmarks.measure import plain
from ct_dip.data.comparison import comparison_of_scan
from ct_dip.data.prediction import Prediction
from ct_dip.data.simulate import NoiseLevel, simulate
from ct_dip.geometry import Volume
from ct_dip.scanners import scanner
from experiments.head.__main__ import dose_table
from experiments.htc2022.segmentation import compare, matthews
from experiments.study import Case, run_study

TINY = ("dip.channels=[8,8]", "dip.max_steps=60", "dip.cooldown_steps=20")


def make():
    geometry = scanner(Volume(shape=(16, 16)), views=10)
    scan = simulate("ellipses", geometry, noise=NoiseLevel(relative=0.05), seed=0)
    return scan, comparison_of_scan(scan)


def table(monkeypatch, capsys, folder, *words):
    cases = [Case("ellipses-16", make, network=TINY, figures=lambda prediction: {"mean": 1.0})]
    monkeypatch.setattr("sys.argv", ["study", "--out", str(folder), *words])
    rows = run_study("tiny", cases, about="", columns=study.COLUMNS | {"mean": ("mean", ".1f")})
    lines = capsys.readouterr().out.splitlines()
    head, _, *found = ([cell.strip() for cell in line.strip("|").split("|")] for line in lines)
    assert len(found) == len(rows)
    return {row[1]: dict(zip(head, row, strict=True)) for row in found}


def test_a_second_run_measures_what_is_missing_and_draws_all(monkeypatch, capsys, tmp_path):
    first = table(monkeypatch, capsys, tmp_path, "--methods", "fbp", "matern-gp")
    assert first["fbp"]["95 % near"] == "–"
    assert 0 <= float(first["matern-gp"]["95 % near"]) <= 1
    assert {row["mean"] for row in first.values()} == {"1.0"}
    measured, measure = [], study.measure
    monkeypatch.setattr(study, "measure", lambda *given: measured.append(given[2]) or measure(*given))
    second = table(monkeypatch, capsys, tmp_path, "--methods", "fbp", "dip", "matern-gp", "--cases", "ell")
    assert measured == ["dip"]
    assert second["matern-gp"] == first["matern-gp"]
    assert (tmp_path / "ellipses-16.png").exists()
    figure = study.draw("ellipses-16", second, tmp_path)
    shown = [axis.get_title() for axis in figure.axes if axis.get_title()]
    assert [title.split(",")[0] for title in shown[:4]] == ["fbp", "dip", "matern-gp", "ground truth"]
    assert shown[-1] == "standard deviation"
    assert table(monkeypatch, capsys, tmp_path, "--kept").keys() == {"fbp", "dip"}  # of the usual methods
    with pytest.raises(SystemExit):
        table(monkeypatch, capsys, tmp_path, "--cases", "ell", "other")
    assert "--cases other: no case begins like this; choose from ellipses-16" in capsys.readouterr().err


def test_the_image_of_dip_is_the_one_that_lin_dip_starts_from(monkeypatch, capsys, tmp_path):
    both = table(monkeypatch, capsys, tmp_path / "both", "--methods", "dip", "lin-dip")
    assert list(both) == ["dip", "lin-dip"]
    alone = table(monkeypatch, capsys, tmp_path / "alone", "--methods", "dip")
    assert both["dip"] | {"CPU s": "", "MB": ""} == alone["dip"] | {"CPU s": "", "MB": ""}


def test_a_run_that_failed_is_measured_again(tmp_path):
    for error, kept in (("no memory", "no memory"), (None, None), ("late", None)):
        figures = {} if error is None else {"error": error}
        rows = KeptRows(tmp_path / "rows.jsonl", lambda row: row.case)
        row = rows.get("a", lambda figures=figures: plain("tiny", "a", 1.0, "dB", **figures))
        assert row.details.get("error") == kept


def test_matthews_coefficient_of_counts():
    """(TP TN − FP FN)/√((TP + FP)(TP + FN)(TN + FP)(TN + FN)) with TP 4, FN 1, FP 2, TN 5."""
    found, true = (np.array(list(text)) == "1" for text in ("111111000000", "111100100000"))
    assert matthews(found, true) == pytest.approx((4 * 5 - 2 * 1) / math.sqrt(6 * 5 * 7 * 6))
    assert matthews(true, true) == pytest.approx(1)
    assert matthews(~true, true) == pytest.approx(-1)
    assert matthews(np.ones(12, dtype=bool), true) == 0


def test_probabilities_segment_as_a_threshold_does_and_say_how_sure():
    generator = np.random.default_rng(0)
    true = np.zeros((40, 40), dtype=bool)
    true[10:30, 10:30] = True
    noisy = (true + 0.3 * generator.standard_normal(true.shape)).astype(np.float32)
    plainly = compare(Prediction(mean=noisy), true)
    tiny, right, huge = (
        compare(Prediction(mean=noisy, std=np.full(true.shape, std)), true) for std in (1e-9, 0.3, 1e3)
    )
    for found in (tiny, right, huge):
        assert {name: found[name] for name in plainly} == plainly
    assert tiny["sure"] == 1
    assert tiny["wrong_where_sure"] == tiny["wrong"]
    assert huge["sure"] == 0
    assert huge["expected_wrong"] == pytest.approx(0.5, abs=1e-3)
    assert right["wrong_where_sure"] < 0.1 * right["wrong"]
    # A flat prior knows less than we do: a pixel is 0 or 1, and not anything.
    assert right["wrong"] < right["expected_wrong"] < 3 * right["wrong"]


def test_errors_and_deviations_relative_to_the_largest_dose():
    def row(photons, **figures):
        return plain("head", "", 0.0, "dB", label=f"2-{photons}ph", method="lin-dip", **figures)

    rows = [row(1000, rmse_near=3.0, mean_std_near=4.0), row(4096, rmse_near=2.0, mean_std_near=1.0)]
    assert dose_table(rows).splitlines()[2:] == ["| 2 | lin-dip | 1000 | 2.02 | 1.50 | 4.00 |"]
    assert len(dose_table(rows[:1]).splitlines()) == 2
