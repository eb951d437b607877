"""The page that compares methods, as text and in a real browser: on a phone, and in the dark."""

import base64
import io
import re
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image

from ct_dip.compare_methods import compare_results
from ct_dip.data.method_table import MethodTable, Row
from ct_dip.pages.choice_charts import choice_charts
from ct_dip.pages.compare_page import (
    MOST_SCANS,
    Scale,
    heading,
    pictures,
    ranking_sentences,
    render_compare_page,
    write_compare_page,
)
from tests.predictions import SHAPE, heldout, prediction

ONE = compare_results(
    [
        prediction("fbp", error=0.004),
        prediction("tv", error=0.001, heldout=heldout(2.0), seconds=180.0),
        prediction("lin-dip", error=0.002, std=0.002, warnings=("Not <b>converged</b>.",)),
    ]
)
FAILED = Row(method="dip", scan_digest="a" * 32, error="needs 3 GiB, <script>alert(1)</script>")
MANY = MethodTable(
    rows=[
        *(
            row
            for scan in "ab"
            for row in compare_results([prediction(m, scan=scan) for m in ("tv", "fbp")]).rows
        ),
        FAILED,
    ]
)


def test_the_heading_counts_methods_or_settings_of_one():
    assert heading(ONE) == "3 methods on one scan"
    assert heading(MANY) == "3 methods on 2 scans"
    settings = [
        Row(method=f"tv, strength {s}", prediction=prediction("tv"), scan_digest="a" * 32) for s in "12"
    ]
    assert heading(MethodTable(rows=settings)) == "2 settings of tv on one scan"


def test_the_page_says_what_it_ranks_by():
    assert "PSNR against the truth" in ranking_sentences(ONE)[0]
    assert "Best image: tv." in ranking_sentences(ONE)
    assert "Only lin-dip has error bars." in ranking_sentences(ONE)
    blind = [prediction(m, compared=None, heldout=heldout(d)) for m, d in {"tv": 1.0, "fbp": 2.0}.items()]
    first, second = ranking_sentences(compare_results(blind))
    assert first.startswith("No truth is known, so methods are ranked by held-out views")
    assert second == "Best prediction of held-out views: fbp."
    alike = [
        prediction(m, compared=None, heldout=heldout(d, 0.05)) for m, d in {"tv": 1.97, "fbp": 2}.items()
    ]
    told = "Best prediction of held-out views: fbp (not clearly: tv is within one standard error)."
    assert ranking_sentences(compare_results(alike))[1] == told
    referred = [replace(each, **vars_of(each.method)) for each in blind]
    assert ranking_sentences(compare_results(referred))[0].startswith("All that is known is a reference")
    plain = compare_results([prediction("tv", compared="reference")])
    assert "reference, which is no truth" in ranking_sentences(plain)[0]
    nothing = compare_results([prediction("tv", compared=None)])
    assert "nothing to rank by" in ranking_sentences(nothing)[0]


def test_methods_whose_pixels_have_other_distributions_are_named():
    bars = [prediction(m, std=0.002) for m in ("mfvi", "swag")]
    assert compare_results(bars).pixels_differ == ""
    mixed = compare_results([prediction("fbp"), *bars, prediction("lin-dip", std=0.002, degrees=3.0)])
    sentence = "Student's with 3 degrees of freedom for lin-dip"
    assert f"Gaussian for mfvi, swag; {sentence}. " in mixed.pixels_differ
    assert mixed.pixels_differ in ranking_sentences(mixed)


def vars_of(method):
    made = prediction(method, compared="reference")
    return {"comparison": made.comparison, "scores": made.scores}


def test_what_people_write_stays_text():
    page = render_compare_page(MethodTable(rows=[*ONE.rows, FAILED]), title="<i>")
    assert "<script>alert" not in page
    assert "<b>converged" not in page
    assert "<i>" not in page
    assert "needs 3 GiB" in page


def decoded(uri):
    with Image.open(io.BytesIO(base64.b64decode(uri.partition(",")[2]))) as picture:
        return np.asarray(picture.convert("RGBA")).astype(int)


def test_pictures_share_their_scales_and_leave_out_what_does_not_count():
    mask = np.ones(SHAPE, dtype=bool)
    mask[:3] = False
    masked = compare_results([replace(row.prediction, mask=mask) for row in ONE.rows])
    found = pictures(masked)
    assert [column["method"] for column in found["methods"]] == ["tv", "lin-dip", "fbp"]  # best first
    assert [column["bar"] is None for column in found["methods"]] == [True, False, True]
    compared = ONE.rows[0].prediction.comparison.image
    low, high = compared[mask].min(), compared[mask].max()
    for column in found["methods"]:
        result = next(row.prediction for row in masked.rows if row.method == column["method"])
        shown = decoded(column["image"])
        assert np.array_equal(shown[..., 3] == 255, mask)
        grey = np.clip((result.mean - low) / (high - low), 0, 1) * 255
        assert np.abs(shown[..., 0] - grey)[mask].max() <= 2  # 256 colours, rounded twice
    error = decoded(found["methods"][2]["error"])
    sign = (error[..., 0] - error[..., 2])[mask]  # red is too dense
    difference = masked.rows[0].prediction.difference(masked.rows[0].prediction.comparison)[mask]
    strong = np.abs(difference) > 0.002
    assert np.array_equal(np.sign(sign[strong]), np.sign(difference[strong]))


def test_a_constant_image_can_be_shown():
    scale = Scale(title="", colours="gray", low=1.0, high=1.0)
    assert decoded(scale.picture(np.ones(SHAPE))).shape == (*SHAPE, 4)


def test_a_page_of_many_scans_stays_small():
    scans = [chr(ord("A") + number) for number in range(MOST_SCANS + 2)]
    page = render_compare_page(compare_results([prediction("tv", scan=scan) for scan in scans]))
    assert len(re.findall('alt="truth of', page)) == MOST_SCANS
    assert page.count(f"Pictures of the first {MOST_SCANS} scans") == 2


@pytest.mark.parametrize("rows", [[FAILED], [FAILED, *ONE.rows[:1]]])
def test_pages_of_little(rows):
    assert "needs 3 GiB" in render_compare_page(MethodTable(rows=rows))


def test_charts_show_whether_the_data_choose_as_the_truth_would():
    bars = {"tv": (0.001, 3.0), "dip": (0.002, 4.0), "fbp": (0.004, 1.0)}  # error, held-out views
    made = [
        prediction(m, error=error, std=error, heldout=heldout(density))
        for m, (error, density) in bars.items()
    ]
    image, error_bars = choice_charts(compare_results(made))
    assert (image.across.title, image.up.title) == ("Held-out views", "PSNR, dB")
    assert [point.x for point in image.points] == [pytest.approx(2 / 3), 1, 0]
    assert image.points[0].y == error_bars.points[0].y == 1
    assert [point.chosen for point in image.points] == [False, True, False]
    assert image.text.startswith("Rank correlation 0.50; chosen: dip, 6")
    assert "dB below the best" in image.text
    assert "nats below the best" in error_bars.text
    assert "Can the data choose?" in render_compare_page(compare_results(made))
    assert choice_charts(compare_results(made[:2])) == []
    assert choice_charts(ONE) == choice_charts(MANY) == []


def test_the_evidence_is_compared_among_settings_of_one_method():
    rows = [
        replace(row, method=f"tv {number}")
        for number in range(3)
        for row in compare_results(
            [prediction("tv", error=0.001 * (1 + number), diagnostics={"evidence": -number})]
        ).rows
    ]
    (chart,) = choice_charts(MethodTable(rows=rows))
    assert (chart.across.title, chart.up.title) == ("Evidence", "PSNR, dB")
    assert chart.text == "Rank correlation 1.00; chosen: tv 0, the best."
    other = [replace(rows[2], prediction=replace(rows[2].prediction, method="dip"))]
    assert choice_charts(MethodTable(rows=[*rows[:2], *other])) == []


# In a browser


@pytest.fixture
def open_page(visit, tmp_path):
    """Open the page of a table."""

    def open_(table, **options):
        write_compare_page(tmp_path / "page.html", table)
        return visit(tmp_path / "page.html", **options)

    return open_


@pytest.mark.parametrize("table", [ONE, MANY])
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [320, 390, 1280])
def test_nothing_sticks_out_and_all_methods_can_be_read(open_page, table, scheme, width):
    page = open_page(table, viewport={"width": width, "height": 800}, color_scheme=scheme)
    page.evaluate("document.querySelectorAll('details').forEach(each => each.open = true)")
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    for cell in page.locator("section:first-child .methods tbody :is(th, td):visible").all():
        frame = cell.bounding_box()
        assert 0 <= frame["x"] < frame["x"] + frame["width"] <= width
    ground = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (ground == "rgb(20, 23, 27)") == (scheme == "dark")


def test_the_best_is_marked_by_a_sign(open_page):
    page = open_page(ONE)
    best = page.locator(".methods .best").first
    assert "(best)" in best.inner_text()
    assert "★" in best.evaluate("each => getComputedStyle(each, '::before').content")
    assert "3 min 50 s" in page.locator(".methods").inner_text()


def test_columns_are_sorted_by_mouse_and_keyboard(open_page):
    page = open_page(MethodTable(rows=[*ONE.rows, FAILED]), viewport={"width": 1280, "height": 800})
    names = page.locator(".methods tbody th")
    assert names.all_inner_texts()[:3] == ["tv", "lin-dip", "fbp"]
    page.get_by_role("button", name="PSNR").click()
    page.get_by_role("button", name="PSNR").click()
    assert [name.split()[0] for name in names.all_inner_texts()] == ["fbp", "lin-dip", "tv", "dip"]
    page.get_by_role("button", name="Held-out").press("Enter")
    assert names.all_inner_texts()[0] == "tv"  # the only one that has a number
    page.get_by_role("button", name="method").press("Enter")
    assert names.all_inner_texts()[0] == "tv"  # z to a


@pytest.mark.parametrize(("width", "beside"), [(1280, True), (390, False)])
def test_methods_are_beside_each_other_on_a_screen_and_below_on_a_phone(open_page, width, beside):
    page = open_page(ONE, viewport={"width": width, "height": 800})
    place = {
        name: page.get_by_alt_text(name, exact=True).bounding_box()
        for name in ("scan aaaaaaaa by tv", "error of tv", "scan aaaaaaaa by lin-dip", "error of lin-dip")
    }
    image, error, other, its_error = place.values()
    assert (image["y"] == other["y"]) == beside
    assert (image["x"] == error["x"]) == beside
    assert (error["y"] == its_error["y"]) == beside
