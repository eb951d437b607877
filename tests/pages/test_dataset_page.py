"""The page of an evaluation, as text and in a real browser: whole, half finished, or with nothing done."""

import functools
import html
import json
import math
import re
import shutil
from dataclasses import dataclass, field, replace

import numpy as np
import pytest

from ct_dip.data.method_table import Row as TableRow
from ct_dip.data.result_file import write_result
from ct_dip.data.scores import LEVELS
from ct_dip.pages.dataset_cases import EACH, THUMBNAIL, cases, chosen_labels
from ct_dip.pages.dataset_charts import BINS, calibrations, distributions
from ct_dip.pages.dataset_page import (
    MOST_ROWS,
    PAGE,
    grouped_errors,
    item_table,
    render_dataset_page,
    state_sentence,
    write_dataset_page,
)
from ct_dip.pages.evaluation_rows import EvaluationRows
from tests.predictions import prediction


@dataclass(frozen=True, kw_only=True)
class Record:
    """What the table of record has of one item and method."""

    item: int
    method: str
    label: str
    state: str = "done"
    error: str = ""
    seconds: float | None = None
    peak_memory_mb: float | None = None
    scores: dict = field(default_factory=dict)
    result: str | None = None


def record(item, method, *, folder=None, error=0.001, std=None):
    """A finished row, with its result file if there is a folder."""
    made = prediction(method, scan=chr(ord("A") + item), error=error, std=std)
    label, path = f"item {item}", None
    if folder is not None:
        path = f"items/item_{item}/{method}.h5"
        write_result(made, folder / path)
    cells = TableRow(scan_digest="", method=method, prediction=made).cells
    figures = {name: value for name, value in cells.items() if value is not None and math.isfinite(value)}
    costs = {name: figures.pop(name) for name in ("seconds", "peak_memory_mb")}
    return Record(item=item, method=method, label=label, scores=figures, result=path, **costs)


def some_rows(folder=None, items=8):
    """``tv`` gets worse from item to item, ``lin-dip`` has error bars; the last item is not finished."""
    rows = []
    for item in range(items):
        rows.append(record(item, "tv", folder=folder, error=0.001 + 0.0002 * item))
        rows.append(record(item, "lin-dip", folder=folder, error=0.002, std=0.002))
    rows[-1] = replace(
        rows[-1], state="failed", error="<script>alert(1)</script> is nan", scores={}, result=None
    )
    return [*rows, Record(item=items, method="tv", label="last", state="pending")]


ROWS = some_rows()


def test_methods_are_compared_on_what_all_have_finished():
    every = EvaluationRows(rows=ROWS)
    assert every.common == {f"item {i}" for i in range(7)}
    mean = every.table.mean("tv", "psnr")
    assert mean.count == 7
    expected = np.mean([row.scores["psnr"] for row in ROWS if row.method == "tv" and row.item < 7])
    assert mean.value == pytest.approx(expected)
    assert every.table.criterion == "psnr"


def test_methods_that_have_finished_nothing_hide_no_others():
    waiting = [Record(item=i, method="dip", label=f"item {i}", state="pending") for i in range(8)]
    every = EvaluationRows(rows=[*ROWS, *waiting])
    assert len(every.common) == 7
    assert "7 of 9 items: those" in render_dataset_page(every, title="")
    apart = EvaluationRows(rows=[*ROWS, record(20, "dip")])
    assert apart.common == set()
    assert apart.table.mean("tv", "psnr").count == 8
    assert "compared on different ones" in render_dataset_page(apart, title="")


def test_the_state_is_said_in_words():
    text = state_sentence(EvaluationRows(rows=ROWS))
    assert text.startswith("15 of 17 runs are done (2 methods on 9 items), 1 failed, 1 not begun.")
    assert "so far" in text
    finished = EvaluationRows(rows=[row for row in ROWS if row.state != "pending"])
    assert "so far" not in state_sentence(finished)
    assert state_sentence(EvaluationRows(rows=ROWS[:4])) == "All 4 runs are done: 2 methods on 2 items."


def test_equal_errors_are_one():
    failed = [
        Record(item=i, method="tv", label=f"item {i}", state="failed", error=f"item {i}: nan")
        for i in range(9)
    ]
    (names, error), other = grouped_errors(EvaluationRows(rows=[*failed, ROWS[15]]))
    assert names == "item 0 (tv), item 1 (tv), item 2 (tv), item 3 (tv) and 5 more"
    assert error == "item 0: nan"
    assert other[0] == "item 7 (lin-dip)"


def test_histograms_count_every_item_on_one_axis():
    found = {each.title: each for each in distributions(EvaluationRows(rows=ROWS))}
    assert set(found) == {"PSNR, dB", "Log-likelihood, nats", "Error over error bar"}
    both = found["PSNR, dB"]
    counts = {"tv": 8, "lin-dip": 7}
    for each in both.histograms:
        # Heights are counts over the tallest: sums are to each other as the numbers of items.
        assert sum(each.bars) / sum(both.histograms[0].bars) == pytest.approx(counts[each.method] / 8)
        assert len(each.bars) == BINS
        place = np.interp(each.median, *zip(*[(p, float(t)) for p, t in both.ticks], strict=True))
        values = [row.scores["psnr"] for row in ROWS if row.method == each.method and "psnr" in row.scores]
        assert place == pytest.approx(np.median(values), abs=1e-4)
    assert [each.method for each in found["Log-likelihood, nats"].histograms] == ["lin-dip"]


def test_calibration_is_pooled_and_has_a_spread_over_items():
    (chart,) = calibrations(EvaluationRows(rows=ROWS))
    assert (chart.method, chart.items) == ("lin-dip", 7)
    # Error bars of 0.002 for Gaussian errors of 0.002 are right: 7 × 576 pixels.
    for level, everywhere, near, (low, high) in zip(
        LEVELS, chart.everywhere, chart.near, chart.spread, strict=True
    ):
        assert everywhere == pytest.approx(level, abs=4 * math.sqrt(level * (1 - level) / (7 * 576)))
        assert low <= near <= high


def test_worst_and_best_are_those_of_the_best_method(tmp_path):
    rows = EvaluationRows(rows=some_rows(tmp_path))
    method, figure, chosen = chosen_labels(rows)
    assert (method, figure) == ("tv", "psnr")
    assert [label for label, kind in chosen.items() if kind == "worst"] == ["item 7", "item 6", "item 5"]
    assert [label for label, kind in chosen.items() if kind == "best"] == ["item 0", "item 1", "item 2"]
    found = cases(tmp_path, rows, chosen)
    assert len(found) == 2 * EACH
    assert found[0].pages == [("tv", "items/item_7/tv.html")]  # lin-dip failed
    assert [method for method, _ in found[1].pages] == ["tv", "lin-dip"]
    assert (tmp_path / "items/item_6/lin-dip.html").exists()
    assert found[1].pictures["known"]["name"] == "truth"


def test_few_items_are_not_worst_and_best_at_once():
    assert len(chosen_labels(EvaluationRows(rows=ROWS[:6]))[2]) == 2
    assert chosen_labels(EvaluationRows(rows=ROWS[:1]))[2] == {}


def test_a_page_is_not_older_than_its_result(tmp_path):
    rows = EvaluationRows(rows=some_rows(tmp_path))
    page = tmp_path / "items/item_7/tv.html"
    page.write_text("old")
    cases(tmp_path, rows, {"item 7": "worst"})
    assert page.read_text() == "old"
    write_result(prediction("tv", scan="Z"), tmp_path / "items/item_7/tv.h5")
    cases(tmp_path, rows, {"item 7": "worst"})
    assert page.read_text() != "old"


def test_results_that_are_gone_leave_their_figures(tmp_path):
    rows = EvaluationRows(rows=some_rows(tmp_path))
    shutil.rmtree(tmp_path / "items")
    (found,) = cases(tmp_path, rows, {"item 0": "best"})
    assert found.pictures is None
    assert found.pages == []
    assert [row["method"] for row in found.table["rows"]] == ["tv", "lin-dip"]


@pytest.mark.parametrize(
    "rows",
    [
        [],
        [Record(item=0, method="tv", label="a", state="pending")],
        [Record(item=0, method="tv", label="a", state="failed", error="no")],
        [Record(item=0, method="tv", label="a", seconds=1.0)],  # a challenge: nothing to compare with
        ROWS,
    ],
)
def test_pages_of_little(rows, tmp_path):
    write_dataset_page(tmp_path / "report.html", rows, title="some", about="scores.csv")
    assert "scores.csv" in (tmp_path / "report.html").read_text()


def test_what_people_write_stays_text():
    page = render_dataset_page(EvaluationRows(rows=ROWS), title="<i>", about="<b>")
    assert "<script>alert" not in page
    assert "<i>" not in page
    assert "<b>" not in page
    data = re.search(r'id="data">(.*?)</script>', page, re.DOTALL)[1]
    assert json.loads(data)["rows"][15]["error"] == "<script>alert(1)</script> is nan"
    assert html.escape("<script>alert(1)</script> is nan") in page


def test_a_large_table_is_cut(monkeypatch):
    monkeypatch.setattr("ct_dip.pages.dataset_page.MOST_ROWS", 5)
    found = item_table(EvaluationRows(rows=ROWS), {})
    assert (len(found["rows"]), found["left_out"]) == (5, len(ROWS) - 5)
    assert MOST_ROWS > 3 * 3553  # three methods on LoDoPaB's test part


def test_thumbnails_are_small():
    from ct_dip.pages.compare_page import _reduced

    image = np.arange(16.0).reshape(4, 4)
    np.testing.assert_array_equal(_reduced(image, 2), [[2.5, 4.5], [10.5, 12.5]])
    assert _reduced(np.zeros((362, 362)), math.ceil(362 / THUMBNAIL)).shape == (120, 120)


# In a browser


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")
    more = [Record(item=9 + i, method="tv", label=f"more {i}", state="pending") for i in range(48)]
    write_dataset_page(folder / "report.html", [*some_rows(folder), *more], title="a dataset")
    return folder


@pytest.fixture
def open_page(visit, folder):
    return functools.partial(visit, folder / "report.html")


@pytest.mark.parametrize(("width", "scheme"), [(320, "light"), (390, "dark"), (1280, "light")])
def test_nothing_sticks_out(open_page, width, scheme):
    page = open_page(viewport={"width": width, "height": 800}, color_scheme=scheme)
    page.evaluate("document.querySelectorAll('details').forEach(each => each.open = true)")
    assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_rows_are_sorted_filtered_and_turned_over(open_page):
    page = open_page(viewport={"width": 1280, "height": 800})
    rows = page.locator("#item-table tbody tr")
    total = len(ROWS) + 48
    assert rows.count() == PAGE
    assert page.locator("#place").inner_text() == f"1 to 50 of {total}"
    page.get_by_role("button", name="next").click()
    assert rows.count() == total - PAGE
    assert page.get_by_role("button", name="next").is_disabled()
    heading = page.locator("#item-table").get_by_role("button", name="PSNR")
    heading.click()
    heading.click()  # ascending
    page.locator("#filter").fill("lin-dip done")
    assert rows.count() == 7
    values = [float(text) for text in page.locator("#item-table td[data-title^=PSNR]").all_inner_texts()]
    assert values == sorted(values)
    page.locator("#filter").fill("nan")
    assert rows.locator("td.failed").get_attribute("title") == "<script>alert(1)</script> is nan"
    page.locator("#filter").fill("nothing like it")
    assert page.locator("#place").inner_text() == "none"


def test_a_phone_sorts_by_a_list(open_page):
    page = open_page(viewport={"width": 390, "height": 800})
    page.locator("#order").select_option(label="PSNR, dB ▼")
    first, second = page.locator("#item-table td[data-title^=PSNR]").all_inner_texts()[:2]
    assert float(first) >= float(second)
    assert page.locator("#item-table tbody tr").count() == 10


def test_links_lead_to_pages(open_page):
    page = open_page()
    page.locator("details.case a").first.click()
    page.wait_for_url("**/items/**.html")
