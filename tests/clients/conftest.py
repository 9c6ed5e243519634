"""Fixtures and helpers of the tests with real frameworks and schedulers; a skipped test is a failure here.

scripts/test-clients installs what they need and runs them, as root: nodes are network namespaces.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import attrs
import pytest

from ascend_runner.node.namespaces import INTERFACE
from tests.clients import tested
from tests.helpers.reports import read_report
from tests.helpers.surroundings import CLEAN, bound_to_free_port

PROGRAMS = Path(__file__).parent / "programs"
LIMIT = 240.0  # seconds: several Pythons that import a framework on a busy machine of two cores
RUNNER = (sys.executable, "-m", "ascend_runner")
DDP = (sys.executable, str(PROGRAMS / "ddp.py"))
RESTARTING = ("--max-restarts", "1", "--checkpoint-dir", "checkpoints")
VENV = Path(__file__).parents[2] / "scripts" / "venv"
DYING = (*DDP, "--die", "3", "checkpoints")  # rank 3, on the last node, unless it has resumed
# The programs of the environment that the tests run in (torchrun, msrun), and those of Debian.
PATH = f"{os.path.dirname(sys.executable)}:{os.environ['PATH']}:/usr/sbin:/sbin"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add --record."""
    parser.addoption("--record", type=Path, help="write here which versions the tests have run with")


def pytest_configure(config: pytest.Config) -> None:
    """Record the versions, with --record."""
    if config.getoption("record"):
        config.pluginmanager.register(tested.Recorder(config.getoption("record")))


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
        return [loss for _step, loss in self.steps]

    @property
    def steps(self) -> list[tuple[int, float]]:
        """The steps of programs/ddp.py, and their losses."""
        return [(int(step), float(loss)) for step, loss in re.findall(r"step (\d+) loss (\S+)\n", self.screen)]


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
    reports = map(read_report, folder.rglob("*-report*.json"))
    return {
        (rank["rank_id"], rank["exit_code"], rank["signal"])
        for report in reports
        for rank in report["ranks"]
        if report["cause"] and rank["rank_id"] == report["cause"]["rank_id"]
    }


def check_resumed(ended: Ended, alone: list[float]) -> None:
    """Check that DYING was killed half-way, and went on at its last checkpoint, with the losses of a single process."""
    steps = [step for step, _loss in ended.steps]
    half, first = len(alone) // 2, steps[len(alone) // 2 + 1 :][:1]

    assert 0 == ended.status, ended.screen
    assert [[half], [half + 1]].count(first), ended.screen  # rank 0 may be stopped while it saves the last step
    assert [*range(half + 1), *range(first[0], len(alone))] == steps
    assert pytest.approx([alone[step] for step in steps], abs=1e-9) == ended.losses


def free_port() -> str:
    """Return a free port."""
    with bound_to_free_port() as bound:
        return str(bound.getsockname()[1])


class Nodes:
    """Connected network namespaces: node 0 is 10.77.0.1, node 1 is 10.77.0.2, and so on."""

    def __init__(self, number: int) -> None:
        self.addresses = tuple(f"10.77.0.{node + 1}" for node in range(number))
        self._names = tuple(f"ascend-runner-{os.getpid()}-{node}" for node in range(number))
        self._bridge = f"ascend-runner-{os.getpid()}-bridge"

    def __enter__(self) -> Nodes:
        for name in (self._bridge, *self._names):
            _ip("netns", "add", name)
            _ip("-n", name, "link", "set", "lo", "up")
        _ip("-n", self._bridge, "link", "add", "bridge", "up", "type", "bridge")
        for name, address in zip(self._names, self.addresses):
            port = f"port{address.rpartition('.')[2]}"
            _ip("-n", self._bridge, "link", "add", port, "type", "veth", "peer", "name", INTERFACE, "netns", name)
            _ip("-n", self._bridge, "link", "set", port, "master", "bridge", "up")
            _ip("-n", name, "addr", "add", f"{address}/24", "dev", INTERFACE)
            _ip("-n", name, "link", "set", INTERFACE, "up")
        return self

    def __exit__(self, *_: object) -> None:
        for name in (self._bridge, *self._names):
            _ip("netns", "del", name)

    def on(self, index: int) -> tuple[str, ...]:
        """Return the command line that runs a command on a node, with a host name of its own."""
        rename = f'hostname node-{index}; exec "$@"'
        return ("ip", "netns", "exec", self._names[index], "unshare", "--uts", "sh", "-c", rename, "sh")


def _ip(*words: str) -> None:
    subprocess.run(["/usr/bin/env", "ip", *words], env={"PATH": PATH}, check=True)


@pytest.fixture
def nodes(request: pytest.FixtureRequest) -> Iterator[Nodes]:
    """Return two nodes, or as many as the test says."""
    with Nodes(getattr(request, "param", 2)) as nodes:
        yield nodes


@pytest.fixture(scope="session")
def numpy_1() -> str:
    """Return the Python of a second environment, for frameworks that need NumPy 1, created if missing."""
    created = subprocess.run([VENV, "--clients-numpy1"], stdout=subprocess.PIPE, text=True, check=True)
    return f"{created.stdout.strip()}/bin/python"


@pytest.fixture(scope="session")
def alone(tmp_path_factory: pytest.TempPathFactory) -> list[float]:
    """Return the losses of a single process without the runner."""
    env = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": free_port()}
    ended = run(*DDP, env=env, cwd=tmp_path_factory.mktemp("alone"))
    assert (0, 12) == (ended.status, len(ended.losses)), ended.screen
    return ended.losses
