"""Fixtures and helpers of the tests with real frameworks and schedulers; a skipped test is a failure here.

scripts/test-clients installs what they need and runs them, as root: two nodes are two network namespaces.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import attrs
import pytest

from tests.helpers.surroundings import CLEAN, bound_to_free_port

PROGRAMS = Path(__file__).parent / "programs"
LIMIT = 240.0  # seconds: several Pythons that import a framework on a busy machine of two cores
RUNNER = (sys.executable, "-m", "ascend_runner")
# The programs of the environment that the tests run in (torchrun, msrun), and those of Debian.
PATH = f"{os.path.dirname(sys.executable)}:{os.environ['PATH']}:/usr/sbin:/sbin"


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Fail if a test was skipped: a framework that is not installed proves nothing."""
    terminal = session.config.pluginmanager.get_plugin("terminalreporter")
    if terminal and terminal.stats.get("skipped"):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


@attrs.frozen
class Ended:
    """How a program ended, with stdout and stderr in `screen`."""

    status: int
    screen: str

    @property
    def lines(self) -> list[str]:
        """The lines of the ranks without their prefixes, sorted."""
        return sorted(line.partition("] ")[2] for line in self.screen.splitlines() if line.startswith("[rank "))

    @property
    def losses(self) -> list[float]:
        """The losses that programs/ddp.py printed, step by step."""
        return [float(line.rpartition(" ")[2]) for line in self.screen.splitlines() if " loss " in line]


class Started:
    """A running program."""

    def __init__(self, argv: tuple[str, ...], env: Mapping[str, str], cwd: Path) -> None:
        self._popen = subprocess.Popen(
            argv,
            env={**CLEAN, "PATH": PATH, **env},
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        )

    def send(self, signum: int) -> None:
        """Send a signal to the program."""
        self._popen.send_signal(signum)

    def finish(self) -> Ended:
        """Wait for the end of the program."""
        try:
            screen, _ = self._popen.communicate(timeout=LIMIT)
        except subprocess.TimeoutExpired:
            self._popen.terminate()
            screen, _ = self._popen.communicate(timeout=LIMIT)
            pytest.fail(f"still running after {LIMIT:g} s; the screen:\n{screen}")
        return Ended(self._popen.returncode, screen)


def run(*argv: str, env: Mapping[str, str] | None = None, cwd: Path) -> Ended:
    """Run a program to its end."""
    return Started(argv, env or {}, cwd).finish()


def failed_ranks(folder: Path) -> set[tuple[int, int | None, int | None]]:
    """Return rank, exit status and signal of the causes in the reports of the nodes below a directory."""
    reports = [json.loads(path.read_bytes()) for path in folder.rglob("*-report*.json")]
    return {
        (rank["rank_id"], rank["exit_code"], rank["signal"])
        for report in reports
        for rank in report["ranks"]
        if report["cause"] and rank["rank_id"] == report["cause"]["rank_id"]
    }


def free_port() -> str:
    """Return a free port."""
    with bound_to_free_port() as bound:
        return str(bound.getsockname()[1])


class TwoNodes:
    """Two connected network namespaces: node 0 is 10.77.0.1, node 1 is 10.77.0.2."""

    def __init__(self) -> None:
        self.addresses = ("10.77.0.1", "10.77.0.2")
        self.devices = tuple(f"ar{os.getpid()}v{index}" for index in range(2))
        self.names = tuple(f"ascend-runner-{os.getpid()}-{index}" for index in range(2))

    def __enter__(self) -> TwoNodes:
        for name in self.names:
            _ip("netns", "add", name)
            _ip("-n", name, "link", "set", "lo", "up")
        _ip("link", "add", self.devices[0], "type", "veth", "peer", "name", self.devices[1])
        for name, device, address in zip(self.names, self.devices, self.addresses):
            _ip("link", "set", device, "netns", name)
            _ip("-n", name, "addr", "add", f"{address}/24", "dev", device)
            _ip("-n", name, "link", "set", device, "up")
        return self

    def __exit__(self, *_: object) -> None:
        for name in self.names:
            _ip("netns", "del", name)

    def on(self, index: int) -> tuple[str, ...]:
        """Return the command line that runs a command on a node, with a host name of its own."""
        rename = f'hostname node-{index}; exec "$@"'
        return ("ip", "netns", "exec", self.names[index], "unshare", "--uts", "sh", "-c", rename, "sh")


def _ip(*words: str) -> None:
    subprocess.run(["/usr/bin/env", "ip", *words], env={"PATH": PATH}, check=True)


@pytest.fixture
def nodes() -> Iterator[TwoNodes]:
    """Return two nodes."""
    with TwoNodes() as nodes:
        yield nodes
