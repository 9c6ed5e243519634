"""The HTML report in Debian's Chromium: it loads nothing, and axe-core finds nothing."""

from __future__ import annotations

from pathlib import Path

import pytest
from selenium import webdriver

from tests.helpers.browser import check_accessibility, fixture_browser, requests, show
from tests.views.conftest import Write, document, fixture_write, rendered, write_table
from tests.views.test_page import HOSTILE, log

__all__ = ["fixture_browser", "fixture_write"]

LOADS = 5  # of which the fastest counts: this machine does other things as well
LOAD_LIMIT = 1000.0  # milliseconds


def page(write: Write, count: int, text: str = "") -> Path:
    """Write the page about a job of so many ranks."""
    path = write(document(count, text, job_id="job"), lambda rank_id: log(rank_id, text), ("python", f"train{text}.py"))
    write_table(path.parent, count)
    found = path.with_suffix(".html")
    found.write_text(rendered(path))
    return found


def check_requests(path: Path, browser: webdriver.Chrome) -> None:
    """Check that the browser requests only this file and reports nothing."""
    requests(browser)
    browser.get_log("browser")
    browser.get(path.as_uri())

    assert [path.as_uri()] == requests(browser)
    assert [] == browser.get_log("browser")
    assert 0 == browser.execute_script("return document.scripts.length")


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
    browser.get(page(write, count).as_uri())
    show(browser, width, scheme=scheme)

    check_accessibility(browser, width)


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


# Where a page may not end: within the strips, unless they are too many for one page, and not between them and the axis.
UNCUT = """
return [[".note", "after"], [".strips", "inside"], [".strips li", "inside"], [".axis", "before"]].map(
    ([one, where]) => getComputedStyle(document.querySelector(`#timeline ${one}`)).getPropertyValue(`break-${where}`)
);
"""


@pytest.mark.parametrize(("count", "strips"), [(16, "avoid"), (17, "auto")])
def test_printed_timeline(count: int, strips: str, browser: webdriver.Chrome, write: Write) -> None:
    """A page of paper cuts no strip, and not the timeline either if it fits."""
    browser.get(page(write, count).as_uri())
    show(browser, 720, media="print")

    assert ["avoid", strips, "avoid", "avoid"] == browser.execute_script(UNCUT)
