"""Curves of the page: coverage by nominal level with its band, and errors by standard deviation."""

from dataclasses import replace

import numpy as np
import pytest

from ct_dip.evaluation.score import scores_of
from ct_dip.pages.calibration_chart import calibration_chart, log_axes
from tests.pages.test_report_page import synthetic_result


def test_curves_of_right_error_bars_follow_the_diagonal():
    result = synthetic_result((64, 64))
    chart, scores = calibration_chart(result), scores_of(result)
    # 3 standard errors of a share of 4096 independent pixels
    for level, share in zip(chart.levels, chart.everywhere, strict=True):
        assert share == pytest.approx(level, abs=3 * np.sqrt(level * (1 - level) / 4096) + 1e-9)
    for std, error in chart.error_bins:
        assert error == pytest.approx(std, rel=0.25)
    for level in (0.5, 0.8, 0.9, 0.95, 0.99):  # where the table has a number, the curve goes through it
        place = chart.levels.index(level)
        assert chart.everywhere[place] == scores.coverage(level).value
        assert chart.near[place] == scores.coverage(level, "near").value


def test_there_is_no_curve_near_a_small_object_and_none_without_a_truth():
    assert calibration_chart(synthetic_result((4, 4))).near == []
    assert calibration_chart(synthetic_result(truth=False)) is None
    assert calibration_chart(replace(synthetic_result(), std=None)) is None


def test_logarithmic_axes_are_equal_and_end_at_powers_of_ten():
    axes = log_axes([(0.01, 0.1), (0.02, 0.0), (1.0, 0.5)])  # an error of 0 has no place
    assert axes["ticks"] == [(0.0, -2), (0.5, -1), (1.0, 0)]
    assert axes["points"] == [(0.0, 0.5), (1.0, pytest.approx(1 + np.log10(0.5) / 2))]
    assert log_axes([(1.0, 0.0)]) is None
