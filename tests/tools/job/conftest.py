"""Jobs that `ascend-job` looks at: real ones, in a run directory of their own."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import attrs
import pytest

from ascend_runner.members import Members
from ascend_runner.record.job_record import JobRecord
from ascend_runner.services import run_folder
from ascend_runner.tools.job.jobs import FoundJob
from ascend_runner.tools.job.main import main
from tests.helpers.program import Program, Run
from tests.helpers.surroundings import CLEAN
from tests.helpers.waiting import wait_until

JOB: Final = FoundJob(
    job_id="job",
    part="",
    command=("true",),
    host=os.uname().nodename,
    pid_namespace=run_folder.pid_namespace(),
    pid=os.getpid(),
    started=0,
    runner_pid=0,
    began=0.0,
    log_dir="/nowhere/logs",
    run_folder="/nowhere/run",
    owner=os.getuid(),
)  # of this process, which is not its first one: it has started at another time
SLEEPS: Final = "echo ready; exec sleep 1000"
Start = Callable[..., Run]
Tool = Callable[..., tuple[int, str]]


def record_of(
    report: Mapping[str, object], logs: Mapping[int, tuple[int, float | None]] = {}, gone: Collection[int] = ()
) -> JobRecord:
    """Return what a report says, with the size and the time of logs, by rank; some ranks have ended unobserved.

    A rank may have a `last_line`, as no report has.
    """
    record = JobRecord.decode(Members(report))
    lines = {one.whole("rank_id"): one.text("last_line") for one in Members(report).children("ranks")}
    ranks = []
    for rank in record.ranks:
        size, at = logs.get(rank.rank_id, (rank.log_size, None))
        after = rank.last_output_after if at is None else at - record.started_at
        line = lines.get(rank.rank_id)
        shown = attrs.evolve(rank, log_size=size, last_output_after=after, last_lines=(line,) if line else ())
        ranks.append(shown.gone() if rank.rank_id in gone else shown)
    return attrs.evolve(record, ranks=tuple(ranks))


@pytest.fixture(name="run_dir")
def fixture_run_dir(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Return the directory that holds those of the jobs, in memory; its path is short enough for sockets."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        monkeypatch.setenv(run_folder.RUN_DIR_VARIABLE, folder)
        monkeypatch.setenv("XDG_STATE_HOME", f"{folder}/state")
        monkeypatch.setitem(CLEAN, "XDG_STATE_HOME", f"{folder}/state")
        yield Path(folder)


@pytest.fixture(name="start")
def fixture_start(program: Program, run_dir: Path) -> Start:
    """Return a function that starts ranks, as many as `ranks`, that run a shell command."""

    def start(command: str, *options: str, ranks: int = 2, name: str = "job") -> Run:
        options = ("--nproc-per-node", str(ranks), *options)
        env = {run_folder.RUN_DIR_VARIABLE: str(run_dir), "MA_VJ_NAME": name}
        return program.start(*options, "sh", "-c", command, env=env)

    return start


@pytest.fixture(name="tool")
def fixture_tool(run_dir: Path, capsys: pytest.CaptureFixture[str]) -> Tool:
    """Return a function that runs `ascend-job`, and returns its exit status and what it has shown."""
    assert os.environ[run_folder.RUN_DIR_VARIABLE] == str(run_dir)

    def run(*words: str) -> tuple[int, str]:
        status = main(words)
        shown = capsys.readouterr()
        return status, shown.out + shown.err

    return run


def running(start: Start, tool: Tool, *options: str, name: str = "job", ranks: int = 2) -> Run:
    """Start a job, and wait until all its ranks are running."""
    run = start(SLEEPS, *options, name=name, ranks=ranks)
    run.wait_for("ready", times=ranks)
    wait_until(lambda: state_of(tool, str(run.popen.pid)) == "running")
    return run


def document(tool: Tool, *words: str) -> dict[str, Any]:
    """Return what `ascend-job status --json` prints."""
    found: dict[str, Any] = json.loads(tool("status", "--json", *words)[1])
    return found


def state_of(tool: Tool, *words: str) -> str:
    """Return the state of a job."""
    state: str = document(tool, *words)["state"]
    return state
