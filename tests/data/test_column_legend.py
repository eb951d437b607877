"""Every column of a table of scores is explained."""

import csv

import pytest

from ct_dip.batch.score_files import FIRST
from ct_dip.compare_methods import compare_results
from ct_dip.data.column_legend import column_meaning, legend_path
from ct_dip.pages.table_files import write_csv
from tests.predictions import heldout, prediction


def test_every_column_is_explained(tmp_path):
    write_csv(tmp_path / "t.csv", compare_results([prediction(std=0.001, heldout=heldout(1.0))]))
    with (tmp_path / "t.csv").open(newline="") as file:
        columns = next(csv.reader(file))
    with legend_path(tmp_path / "t.csv").open(newline="") as file:
        meanings = {line["column"]: line["meaning"] for line in csv.DictReader(file)}
    assert list(meanings) == columns
    assert [name for name, text in meanings.items() if not text] == []
    assert [name for name in FIRST if not column_meaning(name)] == []


@pytest.mark.parametrize(
    ("name", "meaning"),
    [
        ("coverage_95_near", "central 95 % interval; 95 % is right (pixels in the object or next to it)"),
        ("z_999_se", "standard error of z_999"),
        ("rms_z_blocks_8", "more is overconfident (means over blocks of 8×8 pixels near the object)"),
        ("log_likelihood_10", "patches of 10 × 10 pixels"),
        ("log_likelihood_1_flat", "(pixels near the object without an edge)"),
        ("heldout_coverage_50", "share of held-out measurements inside their central 50 % interval"),
    ],
)
def test_names_are_taken_apart(name, meaning):
    assert meaning in column_meaning(name)


def test_what_is_unknown_has_no_meaning():
    names = ("", "nonsense", "nonsense_5", "nonsense_near", "nonsense_se", "nonsense_near_se")
    assert [column_meaning(name) for name in names] == [""] * len(names)
