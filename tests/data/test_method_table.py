"""Ranks and means of a table follow from its numbers, and from which of them there are."""

import numpy as np
import pytest

from ct_dip.compare_methods import compare_results
from ct_dip.data.method_table import HELDOUT, MethodTable, Row, goal
from ct_dip.data.scores import Scores
from tests.predictions import heldout, prediction


def row(method, scan="a", **parts):
    return Row(method=method, scan_digest=scan, prediction=prediction(method, scan=scan, **parts))


def test_every_figure_is_in_the_cells_and_time_is_without_scores():
    cells = row("tv", std=0.001, seconds=3.0, heldout=heldout(1.5)).cells
    assert Scores(compared_with="truth", noise_std=0.0, value_range=1.0).row().keys() <= cells.keys()
    assert cells["heldout_log_density"] == 1.5
    assert cells["heldout_log_density_se"] == 0.01
    assert cells["seconds"] == 53.0  # with 50 s for the ray transform, without 70 s for scores
    assert cells["peak_memory_mb"] == 300.0
    assert Row(method="tv", scan_digest="", error="no memory").cells == {}


@pytest.mark.parametrize(
    ("column", "wanted"),
    [
        *[(name, "high") for name in ("psnr", "ssim_fixed", "log_likelihood_1_near", "heldout_log_density")],
        *[(name, "low") for name in ("crps", "rmse_edges", "ause", "seconds", "heldout_misfit")],
        *[("coverage_95_near", 0.95), ("heldout_coverage_50", 0.5), ("rms_z", 1.0), ("heldout_rms_z", 1.0)],
        *[("largest_z", None), ("ause_of_no_knowledge", None)],
    ],
)
def test_what_a_column_should_be(column, wanted):
    assert goal(column) == wanted


def test_two_sides_of_a_right_coverage_are_alike():
    """Error bars that are right win over those that are too wide and over those that are too narrow."""
    rows = [row("wide", std=0.003), row("right", std=0.001), row("narrow", std=0.0003)]
    table = MethodTable(rows=rows)
    for column in ("coverage_50", "coverage_95_near", "rms_z", "log_likelihood_1", "crps"):
        assert table.best(column) == ["right"], column
    assert table.best("largest_z") == []


def test_ranks_by_psnr_with_a_truth():
    table = MethodTable(rows=[row("b", error=0.002), row("a", error=0.001), row("c", error=0.004)])
    assert table.criterion == "psnr"
    assert table.ranked() == ["a", "b", "c"]
    assert table.best("psnr") == ["a"]
    assert table.best("seconds") == []  # all the same


def test_ranks_by_held_out_views_without_a_truth():
    blind = [
        row("worse", compared=None, heldout=heldout(1.0)),
        row("better", compared=None, heldout=heldout(2)),
    ]
    table = MethodTable(rows=blind)
    assert (table.criterion, table.ranked()) == (HELDOUT, ["better", "worse"])
    assert "psnr" not in table.columns
    # A reference is no truth.
    against = {"worse": heldout(1.0), "better": heldout(2.0)}
    referred = [row(name, compared="reference", heldout=scores) for name, scores in against.items()]
    assert MethodTable(rows=referred).criterion == HELDOUT
    assert MethodTable(rows=[row("a", compared="reference")]).criterion == "psnr"
    # What one method alone has ranks nothing.
    alone = [row("worse", compared="reference"), row("better", compared="reference", heldout=heldout(2.0))]
    assert MethodTable(rows=alone).criterion == "psnr"
    # One scan without a truth is enough.
    mixed = MethodTable(rows=[*blind, row("worse", "b"), row("better", "b")])
    assert mixed.criterion == HELDOUT
    nothing = MethodTable(rows=[row("b", compared=None), row("a", compared=None)])
    assert (nothing.criterion, nothing.ranked()) == (None, ["b", "a"])


def test_means_over_scans_have_standard_errors():
    errors = {"a": 1e-3, "b": 2e-3, "c": 4e-3}
    table = MethodTable(rows=[row("tv", scan, error=error) for scan, error in errors.items()])
    values = [each.cells["psnr"] for each in table.rows]
    mean = table.mean("tv", "psnr")
    assert mean.value == pytest.approx(np.mean(values))
    assert mean.standard_error == pytest.approx(np.std(values, ddof=1) / np.sqrt(3))
    assert mean.count == 3
    own = table.of_scan("a").mean("tv", "psnr")  # of one scan: what the score says
    assert own.standard_error == table.rows[0].cells["psnr_se"]
    assert table.mean("fbp", "psnr") is None
    assert table.mean("tv", "coverage_95") is None


def test_a_mean_over_fewer_scans_does_not_win():
    """Who failed on the hard scan has the better mean, and is not better."""
    rows = [row("steady", "a", error=1e-3), row("steady", "b", error=8e-3), row("lucky", "a", error=9e-4)]
    table = MethodTable(rows=[*rows, Row(method="lucky", scan_digest="b", error="no memory")])
    assert table.mean("lucky", "psnr").value > table.mean("steady", "psnr").value
    assert table.ranked() == ["steady", "lucky"]
    assert table.best("psnr") == ["steady"]
    assert table.of_scan("a").ranked() == ["lucky", "steady"]


def test_results_of_one_scan_are_recognised():
    table = compare_results(
        [prediction("tv", scan="a"), prediction("fbp", scan="b"), prediction("fbp", scan="a")]
    )
    assert table.digests == ["a" * 32, "b" * 32]
    assert table.of_scan("a" * 32).methods == ["tv", "fbp"]
    assert table.scan("b" * 32).name == "scan bbbbbbbb"
