"""The program as a process: run it to its end, or start it, read its screen and wait for facts."""

from __future__ import annotations

import functools
import json
import os
import queue
import shutil
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import pytest

from ascend_runner import cli
from ascend_runner.guardian import process_tree
from ascend_runner.link.meeting import SECRET
from ascend_runner.ranks.console import Console
from ascend_runner.ranks.messages import Messages
from ascend_runner.ranks.signals import Signals
from tests.helpers.reports import read_report
from tests.helpers.surroundings import CLEAN, LEANER
from tests.helpers.waiting import LIMIT

WORKERS: Final = Path(__file__).parents[1] / "workers"
ACTOR: Final = [sys.executable, "-S", str(WORKERS / "actor.py")]
PATIENT: Final = WORKERS / "patient.py"
# The script of two ranks: the first fails when the second ignores SIGTERM, so that the teardown takes the whole grace.
FAIL_BESIDE_A_DEAF_RANK: Final = (
    "[ $RANK = 0 ] || { trap '' TERM; touch up; sleep 1000; }; while ! [ -e up ]; do :; done; exit 7"
)


def run_to_end(
    *args: str | bytes, env: dict[str, str] | None = None, cwd: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """Run the program to its end, with stdout and stderr separate."""
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


def run_here(
    *args: str | bytes, env: dict[str, str] | None = None, cwd: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """Do in this process what `run_to_end` does in another one, for a command line that starts no rank.

    That is a dry run, a check, or what is refused.
    """
    written = {1: bytearray(), 2: bytearray()}

    def write(fd: int, data: memoryview) -> int:
        written[fd].extend(data)
        return len(data)

    environ = {**CLEAN, **(env or {})}
    words = tuple(map(os.fsdecode, args))
    before = os.getcwd()
    os.chdir(cwd or before)
    try:
        with Signals() as signals:
            console = Console(lambda _lines: b"", lambda _error: b"", write=write)
            console.start()
            ended, text = cli.Program(environ, signals, console, Messages(console.show_message)).run(words)
            console.close()
    finally:
        os.chdir(before)
    stdout, stderr = written[1].decode() + text, written[2].decode()
    return subprocess.CompletedProcess(words, ended.exit_status if ended else 0, stdout, stderr)


def sentence(line: str) -> str:
    """Return one of the runner's own lines without prefix and time: "ERROR command not found: 'x'"."""
    return " ".join(line.split(" ")[2:])


@functools.cache
def ending_with_this_process() -> tuple[str, ...]:
    """Return words before a command that let it be killed if this process is; none where setpriv(1) cannot do that."""
    words = (shutil.which("setpriv") or "false", "--pdeathsig", "KILL")
    return words if subprocess.run([*words, "true"], stderr=subprocess.DEVNULL, check=False).returncode == 0 else ()


class Run:
    """One run of the program, with its screen read line by line as it comes."""

    def __init__(self, command: list[str], env: dict[str, str], cwd: Path) -> None:
        self.popen = subprocess.Popen(
            [*ending_with_this_process(), *command],
            env={**CLEAN, **LEANER, **env},
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
        """The lines that have been waited for so far."""
        return "".join(self.lines)

    @property
    def runner_pid(self) -> int:
        """The pid of the runner: the guardian's only child while it runs."""
        return process_tree.children(self.popen.pid)[0]

    def wait_for(self, text: str, times: int = 1) -> None:
        """Wait until this text has been shown in the given number of lines."""
        deadline = time.monotonic() + LIMIT
        while sum(text in line for line in self.lines) < times:
            try:
                self.lines.append(self._queue.get(timeout=max(0.0, deadline - time.monotonic())))
            except queue.Empty:
                pytest.fail(f"not seen {times} times in {LIMIT:g} s: {text!r}; the screen:\n{self.screen}")

    def send(self, signum: int) -> None:
        """Send a signal to the first process of the program."""
        self.popen.send_signal(signum)

    def finish(self) -> int:
        """Wait for the end and return the exit status; `screen` is complete then."""
        try:
            status = self.popen.wait(LIMIT)
        except subprocess.TimeoutExpired:
            pytest.fail(f"still running after {LIMIT:g} s; the screen:\n{self.screen}")
        self._reader.join(LIMIT)
        while not self._queue.empty():
            self.lines.append(self._queue.get())
        return status

    def close(self) -> None:
        """Kill the program if it is still running, with the runner, which would wait for the grace period."""
        if self.popen.poll() is None:
            below = [found.pid for found in process_tree.descendants(self.popen.pid)]
            for pid in (self.popen.pid, *below):
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            self.popen.wait()
        self._reader.join()
        assert self.popen.stdout
        self.popen.stdout.close()

    def _read(self) -> None:
        assert self.popen.stdout
        for line in self.popen.stdout:
            self._queue.put(line.decode(errors="replace"))


class Program:
    """Starts runs of the program in one directory."""

    python = sys.executable

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.log_dir = folder / "log"
        self._runs: list[Run] = []
        self._job = {"MA_VJ_NAME": "job", SECRET: f"of the test in {folder}"}

    def start(self, *args: str, env: dict[str, str] | None = None, under: tuple[str, ...] = ()) -> Run:
        """Start `UNDER ascend-runner --log-dir ... ARGS`; `under` is the command line of, for example, unshare(1).

        All jobs of tests have the same name; by their secrets they are not runners of one job to each other.
        """
        command = [*under, sys.executable, "-m", "ascend_runner", "--log-dir", str(self.log_dir), *args]
        return self.run(command, {**self._job, **(env or {})})

    def here(self, *args: str, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
        """Do in this process what `start` starts; see `run_here`."""
        return run_here("--log-dir", str(self.log_dir), *args, env={**self._job, **(env or {})}, cwd=self.folder)

    def start_patient(self, *args: str) -> Run:
        """Start the program where equal stop signals are copies of one however late they come (workers/patient.py)."""
        command = [sys.executable, str(PATIENT), "--log-dir", str(self.log_dir), *args]
        return self.run(command, {"MA_VJ_NAME": "job"})

    def start_plain(self, *args: str, env: dict[str, str] | None = None) -> Run:
        """Start `ascend-runner ARGS` off the platforms, without a log directory."""
        return self.run([sys.executable, "-m", "ascend_runner", *args], env or {})

    def run(self, command: list[str], env: dict[str, str]) -> Run:
        """Start a run of the program that is killed at the end of the test."""
        run = Run(command, env, self.folder)
        self._runs.append(run)
        return run

    def act(self, ranks: int, *steps: str, options: tuple[str, ...] = (), under: tuple[str, ...] = ()) -> Run:
        """Start ranks that perform the steps; see tests/workers/actor.py."""
        return self.start("--nproc-per-node", str(ranks), *options, *ACTOR, *steps, under=under)

    def shell(self, command: str, *, limit: float = LIMIT) -> subprocess.CompletedProcess[bytes]:
        """Run a shell command in the directory, with both outputs in `stdout`; it may take `limit` seconds."""
        return subprocess.run(
            ["/bin/sh", "-c", command],
            cwd=self.folder,
            env=CLEAN,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            check=False,
            timeout=limit,
        )

    def report(self, part: str = "") -> dict[str, Any]:
        """Read the report of the job; of one of several nodes, by the part of its file name."""
        return read_report(self.log_dir / f"job-report{part}.json")

    def events(self, part: str = "") -> list[dict[str, Any]]:
        """Read the data of the job's events, in their order; of one of several nodes, by the part of its file name."""
        lines = (self.log_dir / f"job-events{part}.jsonl").read_bytes().splitlines()
        return [json.loads(line)["data"] for line in lines]

    def states(self, part: str = "") -> list[str]:
        """Return the states that the events report, except those of the pre-check, which runs beside the ranks."""
        return [event["state"] for event in self.events(part) if not event["event"].startswith("precheck")]

    def log(self, rank_id: int, local_rank: int | None = None) -> bytes:
        """Read the log file of a rank."""
        device = rank_id if local_rank is None else local_rank
        return (self.log_dir / f"job-proc-rank-{rank_id}-device-{device}.txt").read_bytes()

    def close(self) -> None:
        """Kill every run that is still running."""
        for run in self._runs:
            run.close()
