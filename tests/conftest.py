"""What all tests share: no process outlives its test, and a way to run the program and wait for facts."""

from __future__ import annotations

import json
import os
import queue
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import hypothesis
import pytest

from ascend_runner.linux import descendants
from ascend_runner.platforms.variables import HCCL_BASE_PORT, HCCL_PORTS

if TYPE_CHECKING:
    from collections.abc import Iterator

# How long an example takes is none of a test's business: machines are busy.
hypothesis.settings.register_profile("unhurried", deadline=None)
hypothesis.settings.load_profile("unhurried")

WORKERS = Path(__file__).parent / "workers"
ACTOR = [sys.executable, "-S", str(WORKERS / "actor.py")]
LIMIT = 20.0  # seconds that any fact may take to come true on a busy machine

# Variables of the machine that the tests run on must not steer what is tested.
CLEAN = {
    name: value
    for name, value in os.environ.items()
    if name in {"PATH", "HOME", "LANG", "TMPDIR", "VIRTUAL_ENV", "PYTHONDONTWRITEBYTECODE", "COVERAGE_PROCESS_START"}
}


@pytest.fixture(scope="session", autouse=True)
def _orphans_come_home() -> None:
    """Make orphans children of the test process, where the check below sees them."""
    descendants.become_subreaper()


@pytest.fixture(autouse=True)
def no_process_left_behind(_orphans_come_home: None) -> Iterator[None]:
    """Fail a test that leaves a process behind, and end that process."""
    before = set(descendants.children(os.getpid()))
    yield
    descendants.reap_adopted(keep=frozenset(before))
    left = [f"{found.pid} ({found.name})" for found in descendants.kill_all(keep=frozenset(before))]
    while set(descendants.children(os.getpid())) - before:
        descendants.kill_all(keep=frozenset(before))
        descendants.reap_adopted(keep=frozenset(before))

    assert [] == left


def run_to_end(
    *args: str | bytes, env: dict[str, str] | None = None, cwd: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """Run the program to its end, with its two outputs apart."""
    return subprocess.run(
        [sys.executable, "-m", "ascend_runner", *args],
        env={**CLEAN, **(env or {})},
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        encoding="utf-8",
        timeout=LIMIT,
        check=False,
    )


def sentence(line: str) -> str:
    """Give a line of the runner's own without its time: "ERROR there is no command to run"."""
    return " ".join(line.split(" ")[2:])


class Run:
    """One run of the program, with its screen read line by line as it comes."""

    def __init__(self, command: list[str], env: dict[str, str], cwd: Path) -> None:
        self.popen = subprocess.Popen(
            command,
            env={**CLEAN, **env},
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        self.lines: list[str] = []
        self._queue: queue.Queue[str] = queue.Queue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @property
    def screen(self) -> str:
        """All that was shown so far, as far as it was waited for."""
        return "".join(self.lines)

    @property
    def runner_pid(self) -> int:
        """The pid of the runner, the guardian's only child while ranks are its."""
        return descendants.children(self.popen.pid)[0]

    def wait_for(self, text: str, times: int = 1) -> None:
        """Wait until lines with this text were shown so many times in all."""
        deadline = time.monotonic() + LIMIT
        while sum(text in line for line in self.lines) < times:
            try:
                self.lines.append(self._queue.get(timeout=max(0.0, deadline - time.monotonic())))
            except queue.Empty:
                pytest.fail(f"not seen {times} times in {LIMIT:g} s: {text!r}; the screen:\n{self.screen}")

    def send(self, signum: int) -> None:
        """Signal the program as a user or a platform would."""
        self.popen.send_signal(signum)

    def finish(self) -> int:
        """Wait for the end; the exit status. The screen is complete then."""
        try:
            status = self.popen.wait(LIMIT)
        except subprocess.TimeoutExpired:
            pytest.fail(f"still running after {LIMIT:g} s; the screen:\n{self.screen}")
        self._reader.join(LIMIT)
        while not self._queue.empty():
            self.lines.append(self._queue.get())
        return status

    def close(self) -> None:
        """End it, if a test did not."""
        if self.popen.poll() is None:
            self.popen.kill()
            self.popen.wait()
        self._reader.join()
        assert self.popen.stdout
        self.popen.stdout.close()

    def _read(self) -> None:
        assert self.popen.stdout
        for line in self.popen.stdout:
            self._queue.put(line.decode(errors="replace"))


class Program:
    """Starts runs of the program in an empty folder of their own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.log_dir = folder / "log"
        self._runs: list[Run] = []

    def start(self, *args: str, env: dict[str, str] | None = None, under: tuple[str, ...] = ()) -> Run:
        """Start `UNDER ascend-runner --log-dir ... ARGS`; `under` is a program that starts others, as unshare(1)."""
        command = [*under, sys.executable, "-m", "ascend_runner", "--log-dir", str(self.log_dir), *args]
        run = Run(command, {"MA_VJ_NAME": "job", **(env or {})}, self.folder)
        self._runs.append(run)
        return run

    def act(self, ranks: int, *steps: str, options: tuple[str, ...] = (), under: tuple[str, ...] = ()) -> Run:
        """Start so many ranks that do what tests/workers/actor.py understands."""
        return self.start("--nproc-per-node", str(ranks), *options, *ACTOR, *steps, under=under)

    python = sys.executable

    def shell(self, command: str) -> subprocess.CompletedProcess[bytes]:
        """Run a shell command in the folder, with its screen in `stdout`."""
        return subprocess.run(
            ["/bin/sh", "-c", command],
            cwd=self.folder,
            env=CLEAN,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            check=False,
            timeout=LIMIT,
        )

    def report(self) -> dict[str, Any]:
        """Read the report of the job."""
        document: dict[str, Any] = json.loads((self.log_dir / "job-report.json").read_bytes())
        return document

    def log(self, rank_id: int, local_rank: int | None = None) -> bytes:
        """Read what a rank's log file holds."""
        device = rank_id if local_rank is None else local_rank
        return (self.log_dir / f"job-proc-rank-{rank_id}-device-{device}.txt").read_bytes()

    def close(self) -> None:
        """End every run that is left."""
        for run in self._runs:
            run.close()


@pytest.fixture
def program(tmp_path: Path) -> Iterator[Program]:
    """Give a way to run the program."""
    program = Program(tmp_path)
    yield program
    program.close()


def wait_until(is_true: object, *, limit: float = LIMIT) -> None:
    """Wait until a condition (a function) holds; for facts that nobody announces."""
    deadline = time.monotonic() + limit
    while not is_true():  # type: ignore[operator]  # any callable
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.002)


def is_gone(pid: int) -> bool:
    """Whether a process has ended (it may still wait to be reaped)."""
    found = descendants.look(pid)
    return found is None or found.is_zombie


def bound_to_free_port() -> socket.socket:
    """Bind a port on which nobody listens; none of HCCL's, which are among those that the kernel deals out."""
    while True:
        bound = socket.socket()
        bound.bind(("127.0.0.1", 0))
        if bound.getsockname()[1] not in range(HCCL_BASE_PORT, HCCL_BASE_PORT + HCCL_PORTS):
            return bound
        bound.close()


def permitted(*words: str) -> tuple[str, ...]:
    """Give the words of a program that starts others, or skip the test, with the reason, where it may not do so."""
    try:
        tried = subprocess.run([*words, "true"], capture_output=True, text=True, timeout=LIMIT, check=False)
    except FileNotFoundError:
        pytest.skip(f"{words[0]} is not installed")
    if tried.returncode:
        pytest.skip(f"{' '.join(words)} is not permitted here: {tried.stderr.strip()}")
    return words
