"""Scores as tables that a person reads."""

import re
from dataclasses import replace

from ct_dip.data.scores import LEVELS
from ct_dip.pages.report_page import render_report
from ct_dip.pages.score_tables import coverage_columns, readable, score_rows
from tests.data.test_scores import HELDOUT, SCORES
from tests.pages.test_report_page import synthetic_result


def test_every_figure_has_a_name_of_its_own_without_code_in_it():
    names = [*SCORES.row(), *HELDOUT.row()]
    shown = [readable(name) for name in names]
    assert len(set(shown)) == len(names)
    assert not [text for text in shown if "_" in text]
    assert readable("coverage_95_blocks_4") == "coverage of 95 %, means of 4×4"
    assert readable("ause_of_no_knowledge_near") == "AUSE of no knowledge, near the object"


def test_what_is_absent_is_not_shown_and_errors_are():
    rows = dict(score_rows(SCORES))
    assert len(rows) == sum(value is not None for value in SCORES.row().values())
    assert rows["PSNR, dB"] == "30.5 ± 0.25"
    assert rows["largest error over its deviation, near the object"] == "7.5"
    assert len(score_rows(HELDOUT)) == len(HELDOUT.row())
    assert score_rows(replace(HELDOUT, error_bars=False)) == [("misfit, held-out views", "1.3 ± 0.2")]


def test_the_page_shows_the_stored_scores_and_counts_blocks():
    """Scores of the file are shown, not computed again; those of an older file are computed."""
    result = synthetic_result()
    text = render_report(replace(result, scores=SCORES, heldout=HELDOUT))
    assert "30.5 ± 0.25" in text
    assert "1.3 ± 0.2" in text
    assert "None" not in re.sub(r"<script.*?</script>|<style>.*?</style>", "", text, flags=re.S)
    old = render_report(result)
    assert re.search(r"PSNR, dB</th><td>[0-9.]+ ± ", old)
    headings = list(coverage_columns(SCORES))
    assert headings[1:] == ["on or near the object (900 pixels)", "means of 4×4 pixels there (30 blocks)"]
    for column in list(coverage_columns(SCORES).values())[1:]:
        assert list(column) == list(LEVELS)
    one = replace(SCORES.means["blocks_4"], count=1)
    assert "(1 block)" in list(coverage_columns(replace(SCORES, means={"blocks_4": one})))[2]
    assert re.search(r"means of 4×4 pixels there \(\d+ blocks?\)", old)
