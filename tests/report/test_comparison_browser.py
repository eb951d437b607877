"""The page that compares methods, in a real browser: on a phone, and in the dark."""

import io
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image

from ct_dip.data.simulate import NoiseLevel, simulate
from ct_dip.geometry import Volume
from ct_dip.methods import method_names
from ct_dip.report.page import write_comparison
from ct_dip.scanners import scanner
from tests.report.test_report_browser import browser, pytestmark  # noqa: F401
from tests.report.test_report_page import synthetic_result


@pytest.fixture(scope="module")
def comparison(tmp_path_factory):
    path = tmp_path_factory.mktemp("page") / "comparison.html"
    scan = simulate("ellipses", scanner(Volume(shape=(24, 24)), views=9), noise=NoiseLevel(relative=0.05))
    results = [
        replace(synthetic_result(), method=method, seconds={"all": 230.0}) for method in method_names()
    ]
    write_comparison(path, scan, results)
    return path.as_uri()


@pytest.mark.parametrize("width", [320, 390, 1280])
def test_every_description_can_be_read(browser, comparison, width):  # noqa: F811
    page = browser.new_page(viewport={"width": width, "height": 800})
    page.goto(comparison)
    for about in page.locator("td.about, td:last-child").all():
        frame = about.bounding_box()
        assert frame["width"] > 200
        assert frame["x"] >= 0
        assert frame["x"] + frame["width"] <= width
    assert "3 min 50 s" in page.locator("table").inner_text()
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    page.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_figure_is_dark_in_the_dark(browser, comparison, scheme):  # noqa: F811
    page = browser.new_page(color_scheme=scheme)
    page.goto(comparison)
    with Image.open(io.BytesIO(page.locator("img").screenshot())) as picture:
        grey = np.asarray(picture.convert("L"))
    assert np.median(grey[:5, 20:-20]) > 200 if scheme == "light" else np.median(grey[:5, 20:-20]) < 50
    page.close()
