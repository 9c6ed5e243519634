"""The two tiers, and fixtures of all tests: no process outlives its test, and a program to run."""

from __future__ import annotations

import gc
import os
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import hypothesis
import pytest

from ascend_runner.guardian import process_tree, sweep
from tests.helpers.program import Program
from tests.helpers.reports import check_reports
from tests.helpers.surroundings import LEANER

# No deadline for a single example: machines are busy.
hypothesis.settings.register_profile("quick", deadline=None, max_examples=25)
hypothesis.settings.register_profile("all", deadline=None, max_examples=100)
LEFT_OUT: Final = pytest.StashKey[int]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add --all."""
    parser.addoption("--all", action="store_true", help="run the deep tests, too, and more examples of hypothesis")


def pytest_configure(config: pytest.Config) -> None:
    """Choose the number of examples, unless --hypothesis-profile does, and leave pages to tests of them."""
    gc.disable()  # until all tests are collected: half of the time for that would be the collector of garbage's
    config.stash[LEFT_OUT] = 0
    if not config.getoption("hypothesis_profile"):
        hypothesis.settings.load_profile("all" if config.getoption("all") else "quick")
    if not config.getoption("all"):
        LEANER["ASCEND_RUNNER_HTML"] = "never"  # the page of a job that fails takes as long as the rest of the job


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the deep tests, unless --all, -m or a name on the command line asks for them."""
    if config.getoption("all") or config.getoption("markexpr") or any("::" in argument for argument in config.args):
        return
    rows: dict[str, list[pytest.Item]] = {}
    for item in items:
        if item.get_closest_marker("deep"):
            rows.setdefault(item.nodeid.partition("[")[0], []).append(item)
    deep = [item for test in rows.values() for item in _deep_rows(test)]
    if deep:
        config.stash[LEFT_OUT] = len(deep)
        config.hook.pytest_deselected(items=deep)
        left_out = {*deep}
        items[:] = [item for item in items if item not in left_out]


def _deep_rows(rows: list[pytest.Item]) -> list[pytest.Item]:
    """Return all rows of a test but `quick`, which are spread evenly and the same in each run."""
    marker = rows[0].get_closest_marker("deep")
    quick = marker.kwargs.get("quick", 0) if marker else 0
    chosen = {part * len(rows) // quick for part in range(quick)}
    return [row for index, row in enumerate(rows) if index not in chosen]


def pytest_collection_finish() -> None:
    """Keep the collector of garbage from examining thousands of tests each time, for a second."""
    gc.freeze()
    gc.enable()


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Tell the process that collects the results of several (pytest-xdist) how many tests were left out."""
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["left out"] = session.config.stash[LEFT_OUT]


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: object) -> None:
    """Remember how many tests one of several processes has left out; each leaves out the same."""
    output = getattr(node, "workeroutput", {})
    config: pytest.Config = getattr(node, "config")  # noqa: B009  xdist has no types
    config.stash[LEFT_OUT] = output.get("left out", 0)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Say what has been left out."""
    if config.stash[LEFT_OUT]:
        terminalreporter.write_line(f"left out: {config.stash[LEFT_OUT]} deep tests; run them with scripts/test --all")


@pytest.fixture(scope="session", autouse=True)
def _adopt_orphans() -> None:
    """Make orphans children of the test process, where the check below finds them."""
    process_tree.become_subreaper()


@pytest.fixture(scope="session", autouse=True)
def _listen() -> None:
    """Undo what shells do to background jobs, and nohup(1) to its command: the program under test would inherit it."""
    signal.signal(signal.SIGQUIT, signal.SIG_DFL)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def no_process_left_behind(_adopt_orphans: None) -> Iterator[None]:
    """Fail a test that leaves a process behind, and kill that process."""
    before = set(process_tree.children(os.getpid()))
    yield
    sweep.reap_adopted(keep=frozenset(before))
    left = [f"{found.pid} ({found.name})" for found in sweep.kill_all(keep=frozenset(before))]
    sweep.sweep(frozenset(before))

    assert [] == left


@pytest.fixture(autouse=True)
def reports_follow_the_schema(request: pytest.FixtureRequest) -> Iterator[None]:
    """Check every report that the test has left in its directory."""
    yield
    if "tmp_path" in request.node.funcargs:
        check_reports(request.node.funcargs["tmp_path"])


@pytest.fixture
def program(tmp_path: Path) -> Iterator[Program]:
    """Return a way to run the program."""
    program = Program(tmp_path)
    yield program
    program.close()


@pytest.fixture
def in_memory() -> Iterator[Path]:
    """Return a directory on a tmpfs, with a path that is short enough for sockets."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        yield Path(folder)
