"""The page of one result as a reader meets it, in a real browser without a window."""

from dataclasses import replace

import numpy as np
import pytest

from ct_dip.data.prediction import Prediction
from ct_dip.evaluation.region import query_region, region_mask
from ct_dip.pages.report_page import write_report
from tests.pages.test_report_page import synthetic_result

SHAPE = (20, 24)
RESULT = replace(synthetic_result(SHAPE), degrees=3.0, scores=None)
REACH = RESULT.pixel_distribution.reach(0.95)  # standard deviations, not 1.96
STEP = RESULT.pixel_size
# Cheap, and the same on every machine.
OPTIONS = {"viewport": {"width": 1200, "height": 900}}


@pytest.fixture
def open_page(visit, tmp_path):
    """Open the page of a result."""

    def open_(result=RESULT, source="a scan", **options):
        write_report(tmp_path / "report.html", result, source=source)
        page = visit(tmp_path / "report.html", **OPTIONS | options)
        page.wait_for_selector("html[data-ready=true]", state="attached")
        return page

    return open_


def text(page, selector):
    return page.locator(selector).inner_text().replace("\N{NO-BREAK SPACE}", " ").replace("−", "-")


def answers(page, output):
    """Rows of the table in an answer."""
    rows = page.locator(f"{output} tr").all()
    cells = [[cell.inner_text() for cell in row.locator("th, td").all()] for row in rows]
    return {name: value.replace("\N{NO-BREAK SPACE}", " ").replace("−", "-") for name, value in cells}


def pixels(page, canvas):
    """Colours of a canvas, (rows, columns, 3); of a copy, since browsers warn of repeated reading."""
    rows, columns, flat = page.evaluate(
        """selector => {
            const {width, height} = document.querySelector(selector);
            const copy = new OffscreenCanvas(width, height).getContext("2d");
            copy.drawImage(document.querySelector(selector), 0, 0);
            return [height, width, [...copy.getImageData(0, 0, width, height).data]];
        }""",
        canvas,
    )
    return np.array(flat).reshape(rows, columns, 4)[..., :3]


def point_at(page, row, column, picture="#viewer"):
    frame = page.locator(f"{picture} .stage").bounding_box()
    x = frame["x"] + (column + 0.5) / SHAPE[1] * frame["width"]
    y = frame["y"] + (row + 0.5) / SHAPE[0] * frame["height"]
    return x, y


def shown_pixel(page):
    row, column = answers(page, "#pixel")["row and column, from 0"].split(", ")
    return int(row), int(column)


def check_pixel(page, row, column, threshold):
    """The inspector says about a pixel what the file holds."""
    mean, std = float(RESULT.mean[row, column]), float(RESULT.std[row, column])
    value, half, unit = text(page, "#pixel .big").replace(" ± ", " ").split()
    resolution = 10.0 ** -len(half.partition(".")[2])  # what is shown is rounded to this
    assert unit == "/mm"
    assert float(value) == pytest.approx(mean, abs=0.51 * resolution)
    assert float(half) == pytest.approx(REACH * std, abs=0.51 * resolution)
    assert resolution < std  # rounding hides nothing
    found = answers(page, "#pixel")
    low, high = found["95 % interval"].removesuffix(" /mm").split(" to ")
    assert float(low) == pytest.approx(mean - REACH * std, abs=0.51 * resolution)
    assert float(high) == pytest.approx(mean + REACH * std, abs=0.51 * resolution)
    chance = 100 * RESULT.probability_above(threshold)[row, column]
    shown = found[f"chance of being above {threshold:g} /mm"]
    if chance < 0.1:
        assert shown == "under 0.1 %"
    elif chance > 99.9:
        assert shown == "over 99.9 %"
    else:
        assert float(shown.removesuffix(" %")) == pytest.approx(chance, abs=0.51)
    x, y = (column - (SHAPE[1] - 1) / 2) * STEP, ((SHAPE[0] - 1) / 2 - row) * STEP
    assert f"x {x:.2f} mm, y {y:.2f} mm" in text(page, "#pixel")


def test_the_page_opens_and_says_what_it_is(open_page):
    page = open_page(source="<b>phantom</b> & co")
    assert "a slice of 12 × 10 mm in 24 × 20 pixels of 0.5 mm" in text(page, "header").lower()
    assert "<b>phantom</b> & co" in text(page, "header")
    assert "the error bars" in text(page, "#verdict")
    assert page.locator("#calibration-section svg").count() == 2
    grey = pixels(page, "#viewer .base")[..., 0]
    truth = RESULT.comparison.image  # black is its lowest value, white its highest
    assert grey == pytest.approx(255 * np.clip(RESULT.mean / truth.max(), 0, 1), abs=1)


def test_the_inspector_shows_the_numbers_of_the_file(open_page):
    page = open_page()
    page.locator("#threshold").fill("0.01")
    for picture in ("#viewer", "#map"):
        for row, column in [(0, 0), (10, 12), (4, 12), (10, 5), (19, 23)]:
            page.locator(f"{picture} .stage").scroll_into_view_if_needed()
            page.mouse.move(*point_at(page, row, column, picture))
            assert shown_pixel(page) == (row, column)
            check_pixel(page, row, column, 0.01)
    row, column = 10, 5
    page.mouse.move(*point_at(page, row, column, "#map"))
    images = RESULT.images | {"truth": RESULT.comparison.image}
    for name, title in {"fbp": "Classical (FBP)", "dip": "Network alone", "truth": "Truth"}.items():
        shown = float(answers(page, "#pixel")[title].removesuffix(" /mm"))
        assert shown == pytest.approx(images[name][row, column], abs=6e-6)


def test_the_keyboard_moves_the_inspector(open_page):
    page = open_page()
    page.mouse.move(*point_at(page, 5, 12))
    page.mouse.click(*point_at(page, 5, 12))
    page.locator("#viewer .stage").focus()
    for key, expected in [
        ("ArrowRight", (5, 13)),
        ("ArrowDown", (6, 13)),
        ("ArrowLeft", (6, 12)),
        ("ArrowUp", (5, 12)),
        ("Shift+ArrowDown", (15, 12)),
        ("Shift+ArrowDown", (19, 12)),  # stops at the edge
    ]:
        page.keyboard.press(key)
        assert shown_pixel(page) == expected
    page.keyboard.press("Tab")  # not a trap
    assert page.evaluate("document.activeElement.id") == "other"
    outline = "getComputedStyle(document.activeElement).outlineStyle"
    page.keyboard.press("Shift+Tab")
    assert page.evaluate("document.activeElement.className").startswith("stage")
    assert page.evaluate(outline) == "solid"


def test_everything_can_be_reached_by_keyboard(open_page):
    page = open_page()
    reached = set()
    for _ in range(25):
        page.keyboard.press("Tab")
        reached.add(
            page.evaluate("(e => e.id || e.value || e.className || e.tagName)(document.activeElement)")
        )
    controls = {
        "mean",
        "stage crisp",
        "other",
        "mode",
        "mix",
        "threshold",
        "threshold-slider",
        "x0",
        "x1",
        "y0",
        "y1",
    }
    assert controls <= reached
    assert "SUMMARY" in reached


def test_the_threshold_changes_the_map(open_page):
    page = open_page()
    before = pixels(page, "#map .base").sum()
    slider = page.locator("#threshold-slider")
    slider.focus()
    page.keyboard.press("Home")
    everything = pixels(page, "#map .base").sum()
    page.keyboard.press("End")
    nothing = pixels(page, "#map .base").sum()
    assert everything > before > nothing  # bright is likely
    assert float(page.locator("#threshold").input_value()) == pytest.approx(0.02)

    page.locator("#threshold").fill("0.005")
    assert float(slider.input_value()) == pytest.approx(0.005, abs=0.02 / 200)
    chance = RESULT.probability_above(0.005)
    colours = pixels(page, "#map .base")
    expected = pixels(page, "#bar-map canvas")[0, np.rint(255 * chance).astype(int)]
    assert np.abs(colours - expected).max() <= 3  # one step of the bar, where chance is at its edge
    page.locator("#threshold").fill("")  # while typing: stays as it was
    assert np.array_equal(pixels(page, "#map .base"), colours)


def check_region(page, roi, threshold):
    mask = region_mask(SHAPE, STEP, roi)
    found = query_region(RESULT.samples, RESULT.mean, mask, STEP, above=threshold)
    value, half = text(page, "#region .big").removeprefix("mean ").removesuffix(" /mm").split(" ± ")
    resolution = 10.0 ** -len(half.partition(".")[2])
    wanted = found.attenuation
    assert float(value) == pytest.approx(wanted.mean, abs=0.51 * resolution)
    assert float(half) == pytest.approx((wanted.high - wanted.low) / 2, abs=0.51 * resolution)
    rows = answers(page, "#region")
    area = float(rows[f"area above {threshold:g} /mm"].removesuffix(" mm²"))
    low, high = rows["its 95 % interval"].removesuffix(" mm²").split(" to ")
    assert [area, float(low), float(high)] == pytest.approx(
        [found.area_above.mean, found.area_above.low, found.area_above.high], abs=0.0051
    )
    shown = float(rows["area of the image shown"].removesuffix(" mm²"))
    assert shown == pytest.approx(found.image_area_above, abs=0.0051)
    assert ("this area is biased" in text(page, "#region")) == found.biased_area
    assert f"{found.pixels} pixels" in text(page, "#region")


def test_a_region_has_the_interval_of_the_samples(open_page):
    page = open_page()
    page.locator("#threshold").fill("0.012")
    for roi in [(-2.0, -1.0, 2.5, 3.0), (-6.0, -5.0, 6.0, 5.0), (0.0, 2.0, 1.0, 2.6)]:
        for name, value in zip(("x0", "y0", "x1", "y1"), roi, strict=True):
            page.locator(f"#{name}").fill(str(value))
        check_region(page, roi, 0.012)
    page.locator("#x0").fill("90")
    page.locator("#x1").fill("91")
    assert "No pixel" in text(page, "#region")


def test_a_threshold_near_a_plateau_biases_the_area(open_page):
    """Every pixel is half a standard deviation above the threshold, and independent of the others."""
    plateau, noise = np.full(SHAPE, 0.0125), np.random.default_rng(0).standard_normal((50, *SHAPE))
    samples = plateau + 0.001 * noise
    page = open_page(replace(RESULT, mean=plateau, std=np.full(SHAPE, 0.001), samples=samples))
    for name, value in {"x0": -2, "x1": 2, "y0": -2, "y1": 2, "threshold": 0.012}.items():
        page.locator(f"#{name}").fill(str(value))
    assert "within the error bars of 100 % of the region: this area is biased" in text(page, "#region")
    page.locator("#threshold").fill("0.005")
    assert "biased" not in text(page, "#region")


def test_the_interval_of_a_region_by_hand(open_page):
    """Against plain numpy: the Gaussian interval, which Student's with 50 samples exceeds by 2.5 %."""
    page = open_page()
    for name, value in {"x0": -2, "x1": 2, "y0": -2, "y1": 2}.items():
        page.locator(f"#{name}").fill(str(value))
    means = RESULT.samples[:, 6:14, 8:16].mean(axis=(1, 2), dtype=float)
    value, half = text(page, "#region .big").removeprefix("mean ").removesuffix(" /mm").split(" ± ")
    assert float(value) == pytest.approx(RESULT.mean[6:14, 8:16].mean(), rel=1e-2)
    # Deviations from the exact mean instead of the sampled one are larger by a factor of at most 1.05 here.
    assert float(half) == pytest.approx(1.96 * means.std(), rel=0.1)


def test_a_region_is_drawn_with_the_mouse(open_page):
    page = open_page()
    page.locator("#threshold").fill("0.012")
    page.mouse.move(*point_at(page, 4, 6))
    page.mouse.down()
    page.mouse.move(*point_at(page, 9, 10))
    page.mouse.move(*point_at(page, 12, 15))
    page.mouse.up()
    page.mouse.move(*point_at(page, 2, 2))  # the region stays, the inspector follows
    assert shown_pixel(page) == (2, 2)
    corners = [float(page.locator(f"#{name}").input_value()) for name in ("x0", "y0", "x1", "y1")]
    assert corners == [(6 - 12) * STEP, (10 - 13) * STEP, (16 - 12) * STEP, (10 - 4) * STEP]
    check_region(page, tuple(corners), 0.012)
    assert "90 pixels" in text(page, "#region")


def test_fingers_tap_scroll_and_draw(open_page):
    page = open_page(viewport={"width": 390, "height": 844}, has_touch=True, is_mobile=True)
    page.locator("#map .stage").scroll_into_view_if_needed()
    page.touchscreen.tap(*point_at(page, 7, 9, "#map"))
    assert shown_pixel(page) == (7, 9)
    stage = page.locator("#map .stage")
    action = "e => getComputedStyle(e).touchAction"
    assert stage.evaluate(action) == "auto"  # the page scrolls under a finger
    page.locator("#viewer .draw").tap()
    assert page.locator("#viewer .draw").get_attribute("aria-pressed") == "true"
    assert stage.evaluate(action) == "none"
    # The value stands right above the picture, and so does the button.
    picture = stage.bounding_box()
    for part in (".value", ".draw"):
        box = page.locator(f"#map {part}").bounding_box()
        assert 0 <= picture["y"] - (box["y"] + box["height"]) < 12, part
    assert text(page, "#map .value").split(" at ")[0].strip() == text(page, "#pixel .big")


def test_images_are_chosen_wiped_and_blended(open_page):
    page = open_page()
    shown = pixels(page, "#viewer .base")
    for name in ("dip", "fbp", "truth", "std", "error", "mean"):
        page.locator(f"#shown input[value={name}]").check(force=True)
        assert np.array_equal(pixels(page, "#viewer .base"), shown) == (name == "mean")
    page.locator("#mix").fill("40")
    style = "e => [getComputedStyle(e).clipPath, getComputedStyle(e).opacity]"
    assert page.locator("#viewer .overlay").evaluate(style) == ["inset(0px 0px 0px 60%)", "1"]
    assert not page.locator("#bar-overlay").is_visible()  # both are attenuations
    page.locator("#other").select_option("std")
    assert "half of the 95 % interval, /mm" in text(page, "#bar-overlay")
    page.locator("#mode").select_option("blend")
    assert page.locator("#viewer .overlay").evaluate(style) == ["none", "0.4"]


def test_error_bars_are_of_95_percent_everywhere(open_page):
    page = open_page()
    page.locator("#shown input[value=std]").check(force=True)
    assert "Error bar (95 %)" in text(page, "#shown")
    ticks = [float(tick) for tick in page.locator("#bar-base .ticks span").all_inner_texts()]
    assert 0.7 < max(ticks) / (REACH * RESULT.std.max()) <= 1  # the last round number of the bar
    # The brightest pixel is the widest; its half of the interval is at the end of the bar.
    widest = np.unravel_index(RESULT.std.argmax(), SHAPE)
    end = pixels(page, "#bar-base canvas")[0, -1]
    assert np.abs(pixels(page, "#viewer .base")[widest] - end).max() <= 3
    assert "σ" not in text(page, "body")


@pytest.mark.parametrize("step", [0.5, 12.3456789])
@pytest.mark.parametrize("width", [320, 390, 1280])
def test_number_boxes_show_all_of_their_numbers(open_page, width, step):
    page = open_page(replace(RESULT, pixel_size=step / 3), viewport={"width": width, "height": 800})
    page.locator("#threshold").fill("-0.012346")
    for box in page.locator("input[type=number]").all():
        assert box.evaluate("e => e.scrollWidth <= e.clientWidth"), box.input_value()


def test_the_residuals_are_drawn(open_page):
    shown = pixels(open_page(), "#residuals")
    z = RESULT.sinogram.standardised
    assert shown.shape == (*z.shape, 3)
    redness = shown[..., 0] - shown[..., 2]
    assert np.all(redness[z > 0.5] > 0)
    assert np.all(redness[z < -0.5] < 0)


def test_the_sinogram_of_the_image_is_drawn(open_page):
    y = np.linspace(0, 3, 96, dtype=np.float32).reshape(8, 12)
    page = open_page(replace(RESULT, sinogram=RESULT.sinogram._replace(mean=y, measured=y[::-1])))
    assert pixels(page, "#sinogram")[..., 0] == pytest.approx(255 * y / 3, abs=2)
    assert pixels(page, "#measured")[..., 0] == pytest.approx(255 * y[::-1] / 3, abs=2)


def test_reduced_pages(open_page):
    page = open_page(replace(RESULT, comparison=None, samples=None))
    assert page.locator("#calibration-section").count() == 0
    assert "no posterior samples" in text(page, "#region-note")
    assert "±" not in text(page, "#region")
    assert "±" in text(page, "#pixel")

    page = open_page(Prediction(method="tv", mean=RESULT.mean, pixel_size=STEP))
    assert "no error bars" in text(page, "header")
    assert page.locator("#map").count() == 0
    page.mouse.move(*point_at(page, 3, 4))
    assert shown_pixel(page) == (3, 4)
    assert float(text(page, "#pixel .big").split()[0]) == pytest.approx(RESULT.mean[3, 4], abs=6e-6)


@pytest.mark.parametrize("width", [320, 390, 800, 1400])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_nothing_sticks_out_of_the_page(open_page, width, scheme):
    page = open_page(viewport={"width": width, "height": 800}, color_scheme=scheme)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    dark = page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(20, 23, 27)"
    assert dark == (scheme == "dark")
    page.emulate_media(media="print")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert not page.locator("#mix").is_visible()
    assert page.evaluate("document.documentElement.scrollWidth") <= width or width < 700  # paper is wider
