"""A real browser without a window, for tests of pages as a reader meets them."""

import shutil

import pytest


@pytest.fixture(scope="module")
def browser():
    playwright = pytest.importorskip("playwright.sync_api", reason="the package playwright is not installed")
    programs = map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))
    chromium = next(filter(None, programs), None)
    if chromium is None:
        pytest.skip("no Chromium or Chrome is installed")
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=chromium)
        yield browser
        browser.close()


@pytest.fixture
def visit(browser):
    """Open the page in a file; complaints of the browser and requests to the network are errors."""
    pages, troubles, requests = [], [], []

    def visit_(path, **options):
        page = browser.new_page(**options)
        pages.append(page)
        page.on("console", lambda message: troubles.append(message.text))
        page.on("pageerror", lambda error: troubles.append(str(error)))
        page.on("request", lambda request: requests.append(request.url))
        page.goto(path.as_uri())
        return page

    yield visit_
    for page in pages:
        page.close()
    assert troubles == []
    assert [url for url in requests if not url.startswith(("file:", "data:"))] == []
