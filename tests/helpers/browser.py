"""Debian's Chromium, headless, and axe-core in it. Only scripts/test-clients has them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from importlib import resources
from typing import Final

import pytest
from selenium import webdriver
from selenium.webdriver.chrome.service import Service

SCRIPT_LIMIT: Final = 120.0  # seconds for axe-core on a busy machine
OPTIONS: Final = ("--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars")
RUN_AXE: Final = (
    "const done = arguments[arguments.length - 1];"
    # What fades in has other colors meanwhile.
    "Promise.allSettled(document.getAnimations().map(animation => animation.finished))"
    ".then(() => axe.run()).then(done, error => done({failed: String(error)}));"
)


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


def show(browser: webdriver.Chrome, width: int, media: str = "screen", scheme: str = "light") -> None:
    """Change what a page is shown on."""
    screen = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", screen)
    features = [{"name": "prefers-color-scheme", "value": scheme}]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": media, "features": features})


def requests(browser: webdriver.Chrome) -> list[str]:
    """Return what the browser has requested since the last call."""
    events = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
    return [event["params"]["request"]["url"] for event in events if event["method"] == "Network.requestWillBeSent"]


def check_accessibility(browser: webdriver.Chrome, width: int) -> None:
    """Check that axe-core finds no violation on the page that is shown, and that it is not wider than the screen."""
    browser.execute_script((resources.files("axe_core_python") / "axe.min.js").read_text())
    found = browser.execute_async_script(RUN_AXE)

    assert [] == [(one["id"], one["nodes"][0]["html"]) for one in found["violations"]]
    assert len(found["passes"]) > 20  # rules that apply
    assert width == browser.execute_script("return document.documentElement.scrollWidth")
