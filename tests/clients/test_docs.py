"""The documentation as a site in Debian's Chromium, opened as a file and from a server."""

from __future__ import annotations

import filecmp
import functools
import http.server
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from markdown_it import MarkdownIt
from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import WebDriverWait

from tests.helpers.browser import check_accessibility, fixture_browser, requests, show

__all__ = ["fixture_browser"]

ROOT: Final = Path(__file__).parents[2]
DOCS: Final = ROOT / "scripts" / "docs"
LIMIT: Final = 30.0  # seconds: the search reads its index first
PAGES: Final = (
    "index.html",
    "chinese.html",
    "options.html",
    "manifests.html",
    "report-members.html",
    "errors/index.html",
    "errors/memory/index.html",
    "errors/hccl-ei0006.html",
    "errors/npu-out-of-memory.html",
    "errors/remote-process-exited-or-there-was-a-network-error.html",  # the longest id
    "errors/gradient-of-an-integer.html",
    "errors/hccl-ei0008.html",
)
# What people type, and the page that they look for.
QUERIES: Final = {
    "--hang-timeout": "options.html",
    "EI0006": "errors/hccl-ei0006.html",
    "OSError: [Errno 98] Address already in use": "errors/address-already-in-use.html",
    "退出码": "exit-status.html",
    "建链超时": "errors/hccl-ei0006.html",
    "免密登录": "errors/ssh-refused.html",
    "Segmentation fault": "errors/sigsegv.html",
}


class Handler(http.server.SimpleHTTPRequestHandler):
    """Serves files, and writes no log."""

    def log_message(self, *_args: object) -> None:
        """Write nothing."""


@pytest.fixture(name="site", scope="module")
def fixture_site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the site."""
    site = tmp_path_factory.mktemp("docs")
    subprocess.run([DOCS, site], check=True)
    return site


@pytest.fixture(name="server", scope="module")
def fixture_server(site: Path) -> Iterator[str]:
    """Serve the site, and return its address."""
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Handler, directory=str(site))) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@pytest.fixture(name="address", params=["file", "http"])
def fixture_address(request: pytest.FixtureRequest, site: Path) -> str:
    """Return where the site is: as a file, and on a server."""
    return site.as_uri() if request.param == "file" else str(request.getfixturevalue("server"))


def first_result(browser: webdriver.Chrome, query: str) -> str:
    """Type a query, and return the address of the first result."""
    browser.find_element(By.CSS_SELECTOR, ".md-search__input").send_keys(query)
    found = WebDriverWait(browser, LIMIT).until(
        lambda _browser: browser.find_elements(By.CSS_SELECTOR, ".md-search-result__link")
    )
    return str(found[0].get_attribute("href")).partition("?")[0]


@pytest.mark.parametrize("query", QUERIES)
def test_search(query: str, address: str, browser: webdriver.Chrome) -> None:
    """The first result is the page that one looks for; everything comes from the site, and nothing is reported."""
    requests(browser)
    browser.get_log("browser")
    show(browser, 1440)
    browser.get(f"{address}/{PAGES[-1]}")

    assert f"{address}/{QUERIES[query]}" == first_result(browser, query)
    assert {address} == {url[: len(address)] for url in requests(browser) if not url.startswith("data:")}
    assert [] == browser.get_log("browser")


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 1440])
@pytest.mark.parametrize("page", PAGES)
def test_accessibility(page: str, width: int, scheme: str, site: Path, browser: webdriver.Chrome) -> None:
    """axe-core finds no violation, and no page is wider than the screen."""
    show(browser, width, scheme=scheme)
    browser.get(f"{site.as_uri()}/{page}")

    check_accessibility(browser, width)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_accessibility_of_results(scheme: str, site: Path, browser: webdriver.Chrome) -> None:
    """axe-core finds no violation in the results of a search."""
    show(browser, 1440, scheme=scheme)
    browser.get(f"{site.as_uri()}/index.html")
    first_result(browser, "显存不足")

    check_accessibility(browser, 1440)


def test_colors(site: Path, browser: webdriver.Chrome) -> None:
    """The site is light or dark as the system is."""
    shown = []
    for scheme in ("light", "dark"):
        show(browser, 1440, scheme=scheme)
        browser.get(f"{site.as_uri()}/index.html")
        shown.append(browser.execute_script("return document.body.dataset.mdColorScheme"))

    assert ["default", "slate"] == shown


def test_lists_are_those_of_the_readmes(site: Path) -> None:
    """Python-Markdown finds the items that GitHub finds, although it wants lists to be written in another way."""
    rows = (line.split("|") for line in (ROOT / "scripts/site/chapters.txt").read_text("utf-8").splitlines())
    for page, source in ((row[0].strip(), row[1].strip()) for row in rows if len(row) > 1 and row[1].strip()):
        github = MarkdownIt().render((ROOT / source).read_text("utf-8"))
        article = (
            (site / page).with_suffix(".html").read_text("utf-8").partition("<article")[2].partition("</article>")[0]
        )

        assert (page, github.count("<li>")) == (page, article.count("<li>"))


def test_equal_sources_give_an_equal_site(site: Path, tmp_path: Path) -> None:
    """A second build gives the same files."""
    subprocess.run([DOCS, tmp_path], check=True)
    names, others = ({str(path.relative_to(top)) for path in top.rglob("*.*")} for top in (site, tmp_path))

    assert names == others
    assert ([], []) == filecmp.cmpfiles(site, tmp_path, names, shallow=False)[1:]


def test_other_files_are_not_removed(tmp_path: Path) -> None:
    """A directory with files of somebody else is refused."""
    (tmp_path / "thesis.txt").write_text("a year of work")
    done = subprocess.run([DOCS, tmp_path], check=False, capture_output=True, text=True)

    assert 2 == done.returncode
    assert str(tmp_path) in done.stderr
    assert ["thesis.txt"] == [path.name for path in tmp_path.iterdir()]
