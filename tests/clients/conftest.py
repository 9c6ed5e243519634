"""What the tests with real clients share: no skipping, ways to run programs to their end, and two nodes on one machine.

They are called by scripts/test-clients, which installs what they need, as root: two nodes are two network namespaces.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest

from tests.conftest import CLEAN, bound_to_free_port

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

PROGRAMS = Path(__file__).parent / "programs"
LIMIT = 240.0  # seconds: several Pythons that import a framework on a busy machine of two cores
RUNNER = (sys.executable, "-m", "ascend_runner")
# The programs of the environment that the tests run in (torchrun, msrun), and those of Debian.
PATH = f"{os.path.dirname(sys.executable)}:{os.environ['PATH']}:/usr/sbin:/sbin"


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Fail where a test was skipped: a client that is not there proves nothing."""
    terminal = session.config.pluginmanager.get_plugin("terminalreporter")
    if terminal and terminal.stats.get("skipped"):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


class Ended(NamedTuple):
    """How a program ended, and all it wrote, both outputs in one."""

    status: int
    screen: str

    @property
    def lines(self) -> list[str]:
        """What the ranks have said, without their prefixes, in no order."""
        return sorted(line.partition("] ")[2] for line in self.screen.splitlines() if line.startswith("[rank "))

    @property
    def losses(self) -> list[float]:
        """The losses that programs/ddp.py has printed, step by step."""
        return [float(line.rpartition(" ")[2]) for line in self.screen.splitlines() if " loss " in line]


class Started:
    """A program that runs."""

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

    def finish(self) -> Ended:
        """Wait for its end."""
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


def free_port() -> str:
    """Give a port that nobody listens on."""
    with bound_to_free_port() as bound:
        return str(bound.getsockname()[1])


class TwoNodes:
    """Two network namespaces, joined by a cable: node 0 is 10.77.0.1, node 1 is 10.77.0.2."""

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
        """Give the words that put a command on a node, under a host name of its own."""
        rename = f'hostname node-{index}; exec "$@"'
        return ("ip", "netns", "exec", self.names[index], "unshare", "--uts", "sh", "-c", rename, "sh")


def _ip(*words: str) -> None:
    subprocess.run(["/usr/bin/env", "ip", *words], env={"PATH": PATH}, check=True)


@pytest.fixture
def nodes() -> Iterator[TwoNodes]:
    """Give two nodes."""
    with TwoNodes() as nodes:
        yield nodes
