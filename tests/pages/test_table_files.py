"""The files of a table say what it says."""

import csv

import pytest

from ct_dip.compare_methods import compare_results
from ct_dip.data.method_table import MethodTable, Row
from ct_dip.data.scores import Mean, Scores
from ct_dip.pages.table_files import cell_text, write_csv, write_latex
from tests.predictions import heldout, prediction

TABLE = compare_results(
    [
        prediction("tv", error=0.001, warnings=("Beware, of commas",)),
        prediction("lin-dip", error=0.002, std=0.002, heldout=heldout(-1.5)),
        prediction("dip", error=0.003, std=0.002, seconds=40.0),
    ]
)


def test_the_csv_file_has_every_number(tmp_path):
    failed = Row(method="a_b & c", scan_digest="a" * 32, error='no "memory", at all\nnone')
    table = MethodTable(rows=[*TABLE.rows, failed])
    write_csv(tmp_path / "t.csv", table)
    with (tmp_path / "t.csv").open(newline="") as file:
        reader = csv.DictReader(file)
        rows = list(reader)
    assert reader.fieldnames[:4] == ["scan", "method", "psnr", "ssim"]  # what a reader looks for
    assert set(Scores(compared_with="truth", noise_std=0.0, value_range=1.0).row()) <= rows[0].keys()
    for row, written in zip(table.rows, rows, strict=True):
        assert {k: v for k, v in row.cells.items() if v is not None} == {
            name: float(text) for name, text in written.items() if name in row.cells and text
        }
    assert rows[0]["coverage_95"] == ""
    assert rows[0]["warnings"] == "Beware, of commas"
    assert rows[0]["compared_with"] == "truth"
    assert [row["pixels"] for row in rows] == ["", "Gaussian", "Gaussian", ""]
    assert rows[3]["error"] == failed.error
    assert float(rows[1]["heldout_log_density"]) == -1.5


def test_the_latex_file_has_the_main_ones(tmp_path):
    odd = [Row(method=r"50% of a_b & \c{$x$} ~^<", scan_digest="a" * 32, error="no memory")]
    write_latex(tmp_path / "t.tex", MethodTable(rows=[*TABLE.rows, *odd]))
    text = (tmp_path / "t.tex").read_text()
    lines = [line for line in text.splitlines() if line.endswith(r"\\")]
    unescaped = [line.replace(r"\&", "").count("&") for line in lines]
    assert unescaped == [9] * 5  # the heading and four methods
    assert lines[1].startswith(r"tv & \textbf{")
    assert (
        r"50\% of a\_b \& \textbackslash{}c\{\$x\$\} \textasciitilde{}\textasciicircum{}\textless{}" in text
    )
    assert r"$-$1.500 $\pm$ 0.010" in text
    assert "1 min 30 s" in text
    assert text.isascii()
    assert text.count("{") == text.count("}")


@pytest.mark.parametrize(
    ("column", "mean", "texts"),
    [
        ("psnr", Mean(30.126, 0.05, 9), ("30.13", "0.05")),
        ("coverage_95_near", Mean(0.9512, None, 9), ("95.1 %", "")),
        ("crps", Mean(1.234e-4, 1e-5, 9), ("0.123", "0.01")),
        ("rmse_near", Mean(1.23456e-4, 1e-5, 9), ("0.0001235", "1e-05")),
        ("seconds", Mean(90.0, 3.0, 2), ("1 min 30 s", "")),
        ("psnr", None, ("–", "")),
    ],
)
def test_numbers_as_text(column, mean, texts):
    assert cell_text(column, mean) == texts
