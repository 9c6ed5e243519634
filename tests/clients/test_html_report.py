"""The HTML report in Debian's Chromium: it loads nothing, and axe-core finds nothing."""

from __future__ import annotations

import json
from collections.abc import Iterator
from importlib import resources
from pathlib import Path

import pytest
from selenium import webdriver
from selenium.webdriver.chrome.service import Service

from tests.views.conftest import Write, document, fixture_write, rendered, write_table
from tests.views.test_page import HOSTILE, log

__all__ = ["fixture_write"]

LOADS = 5  # of which the fastest counts: this machine does other things as well
LOAD_LIMIT = 1000.0  # milliseconds
SCRIPT_LIMIT = 120.0  # seconds for axe-core on a busy machine
OPTIONS = ("--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars")
RUN_AXE = "const done = arguments[arguments.length - 1]; axe.run().then(done, error => done({failed: String(error)}));"


@pytest.fixture(name="browser", scope="module")
def fixture_browser() -> Iterator[webdriver.Chrome]:
    """Start Chromium."""
    options = webdriver.ChromeOptions()
    for option in OPTIONS:
        options.add_argument(option)
    options.binary_location = "/usr/bin/chromium"
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    browser = webdriver.Chrome(options=options, service=Service("/usr/bin/chromedriver"))
    browser.set_script_timeout(SCRIPT_LIMIT)
    yield browser
    browser.quit()


def page(write: Write, count: int, text: str = "") -> Path:
    """Write the page about a job of so many ranks."""
    path = write(document(count, text, job_id="job"), lambda rank_id: log(rank_id, text), ("python", f"train{text}.py"))
    write_table(path.parent, count)
    found = path.with_suffix(".html")
    found.write_text(rendered(path))
    return found


def show(browser: webdriver.Chrome, width: int, media: str = "screen", scheme: str = "light") -> None:
    """Change what the page is shown on."""
    screen = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", screen)
    features = [{"name": "prefers-color-scheme", "value": scheme}]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": media, "features": features})


def check_requests(path: Path, browser: webdriver.Chrome) -> None:
    """Check that the browser requests only this file and reports nothing."""
    browser.get_log("performance")
    browser.get_log("browser")
    browser.get(path.as_uri())
    events = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
    requests = [event["params"]["request"]["url"] for event in events if event["method"] == "Network.requestWillBeSent"]

    assert [path.as_uri()] == requests
    assert [] == browser.get_log("browser")
    assert 0 == browser.execute_script("return document.scripts.length")


def check_accessibility(path: Path, width: int, scheme: str, browser: webdriver.Chrome) -> None:
    """Check that axe-core finds no violation, and that the page is not wider than the screen."""
    browser.get(path.as_uri())
    show(browser, width, scheme=scheme)
    browser.execute_script((resources.files("axe_core_python") / "axe.min.js").read_text())
    found = browser.execute_async_script(RUN_AXE)

    assert [] == [(one["id"], one["nodes"][0]["html"]) for one in found["violations"]]
    assert len(found["passes"]) > 20  # rules that apply
    assert width == browser.execute_script("return document.documentElement.scrollWidth")


@pytest.mark.parametrize("text", ["", HOSTILE[0], HOSTILE[1], HOSTILE[-1]])
def test_one_request_and_no_message(text: str, browser: webdriver.Chrome, write: Write) -> None:
    """The browser requests the file and nothing else, and has nothing to say of it, whatever is in the report."""
    check_requests(page(write, 8, text), browser)


def test_load(browser: webdriver.Chrome, write: Write) -> None:
    """The page about 1,024 ranks has loaded within a second."""
    path = page(write, 1024)
    times = []
    for _load in range(LOADS):
        browser.get(path.as_uri())
        times.append(browser.execute_script("return performance.getEntriesByType('navigation')[0].loadEventEnd"))

    assert min(times) < LOAD_LIMIT


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 1440])
@pytest.mark.parametrize("count", [8, 64, 1024])
def test_accessibility(count: int, width: int, scheme: str, browser: webdriver.Chrome, write: Write) -> None:
    """axe-core finds no violation, and the page is not wider than the screen."""
    check_accessibility(page(write, count), width, scheme, browser)


def test_print(browser: webdriver.Chrome, write: Write) -> None:
    """What is folded on the screen is printed, and nothing is wider than the paper."""
    visible = "return [...document.querySelectorAll('details pre')].map(one => one.checkVisibility())"
    browser.get(page(write, 8).as_uri())
    show(browser, 720)
    on_screen = browser.execute_script(visible)
    show(browser, 720, media="print")
    printed = browser.execute_script(visible)

    assert {True, False} == set(on_screen)
    assert {True} == set(printed)
    assert 720 == browser.execute_script("return document.documentElement.scrollWidth")
