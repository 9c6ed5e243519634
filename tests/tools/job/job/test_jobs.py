"""Which job `ascend-job` finds."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import signal
import sys
from pathlib import Path

import pytest

from ascend_runner.services import run_folder
from tests.helpers.program import Program
from tests.helpers.terminal import Terminal
from tests.tools.job.conftest import Start, Tool, running

PATH_IN_A_NAME = (
    '{"job_id": "x", "part": "/../../x", "host": "", "pid_namespace": "", "pid": 1, "started": 1, "runner_pid": 1,'
    ' "began": 1.0, "log_dir": "/", "run_folder": "/", "command": []}'
)
JOB = json.loads(PATH_IN_A_NAME.replace("/../../x", ""))


def test_names_that_mean_several_jobs(start: Start, tool: Tool) -> None:
    """Running jobs must be distinguished; one word may be the beginning of several names."""
    runs = [running(start, tool, "--log-dir", f"log-{name}", name=name, ranks=1) for name in ("train-a", "train-b")]
    several, beginning, one = tool(), tool("status", "train"), tool("status", "train-a")
    for run in runs:
        run.send(signal.SIGTERM)
        run.finish()

    assert [2, 2, 0] == [several[0], beginning[0], one[0]]
    assert "2 jobs are running; specify one of them: train-b" in several[1]
    assert "'train' is ambiguous: train-b (pid " in beginning[1]


def test_job_of_the_current_directory(
    run_dir: Path, tool: Tool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a name, it is a job that was started there or below, also an ended one, or else the running one."""
    (tmp_path / "locked").mkdir()
    lock = os.open(tmp_path / "locked", os.O_RDONLY)
    fcntl.flock(lock, fcntl.LOCK_EX)
    started = (("here/below", "/"), ("there", "/"), ("elsewhere", str(tmp_path / "locked")), ("there", "/"))
    for number, (place, folder) in enumerate(started):
        (run_dir / f"{number}").mkdir()
        (tmp_path / place).mkdir(parents=True, exist_ok=True)
        members = {**JOB, "job_id": f"x{number}", "began": number, "cwd": str(tmp_path / place), "run_folder": folder}
        (run_dir / f"{number}" / run_folder.JOB_FILE).write_text(json.dumps(members))
    (tmp_path / "without jobs").mkdir()
    found, listed = [], []
    for place in ("here", "there", "without jobs", "."):
        monkeypatch.chdir(tmp_path / place)
        found.append(tool()[1].partition(":")[0])
        listed.append([line.split()[0] for line in tool("list")[1].splitlines()[1:]])
    os.close(lock)
    monkeypatch.chdir(tmp_path / "without jobs")

    assert ["x0", "x3", "x2", "x2"] == found
    assert "x3" == tool()[1].partition(":")[0]
    assert ["x0", "started", "x1", "x2", "x3"] == listed[0]
    assert ["x1", "x3", "started", "x0", "x2"] == listed[1]
    assert ["x0", "x1", "x2", "x3"] == listed[2] == listed[3]


def test_list_of_some_jobs(run_dir: Path, tool: Tool) -> None:
    """Of many jobs, the newest are listed, and how many are left out; a part of a name chooses."""
    for number in range(5):
        (run_dir / f"{number}").mkdir()
        members = {**JOB, "job_id": f"{'ab'[number % 2]}{number}", "began": number}
        (run_dir / f"{number}" / run_folder.JOB_FILE).write_text(json.dumps(members))

    assert ["a2", "b3", "a4", "and"] == [line.split()[0] for line in tool("list", "-n", "3")[1].splitlines()[1:]]
    assert ["b1", "b3"] == [line.split()[0] for line in tool("list", "b")[1].splitlines()[1:]]
    assert (0, "no job with 'c' in its name\n") == tool("list", "c")
    assert ["a4", "b3"] == sorted(one["job_id"] for one in json.loads(tool("list", "-n", "2", "--json")[1]))
    assert "no job 'a44' on this machine (did you mean a4?)" in tool("status", "a44")[1]
    assert "'a44' is neither a command nor a job on this machine (did you mean a4?)" in tool("a44")[1]


def test_list_fits_the_terminal(run_dir: Path, tmp_path: Path) -> None:
    """The newest jobs are listed, as many as the terminal has lines for, or all that are asked for."""
    for number in range(20):
        path = run_dir / f"{number}" / run_folder.JOB_FILE
        path.parent.mkdir()
        path.write_text(json.dumps({**JOB, "job_id": f"x{number}", "began": number}))
    screens = []
    for words in ((), ("--all",)):
        command = [sys.executable, "-m", "ascend_runner.tools.job", "list", *words]
        terminal = Terminal(command, tmp_path, {run_folder.RUN_DIR_VARIABLE: str(run_dir)}, rows=8)
        terminal.finish()
        terminal.close()
        screens.append([line.split()[0] for line in terminal.screen.splitlines()])
    fitting, all_of_them = screens

    assert len(fitting) < 8  # the prompt of a shell follows
    assert ["job", "x19", "and"] == [fitting[0], fitting[-2], fitting[-1]]
    assert ["job", *(f"x{number}" for number in range(20))] == all_of_them


def test_job_after_a_reboot(start: Start, tool: Tool, run_dir: Path, program: Program) -> None:
    """Its exit status and its cause are listed although the run directory and the logs are gone."""
    start("echo 'ValueError: loss is nan'; exit 7", ranks=1).finish()
    (path,) = run_dir.glob(f"*/{run_folder.JOB_FILE}")
    shutil.rmtree(path.parent)
    shutil.rmtree(program.log_dir)
    line = tool("list")[1].splitlines()[1]
    status, screen = tool("status", "job")

    assert ["job", "failed", "(7)"] == line.split()[:3]
    assert line.endswith("rank 0 failed: ValueError: loss is nan (exit status 7)")
    assert (5, "job: failed (exit status 7) after ") == (status, screen[:34])
    assert "  cause       rank 0 failed: ValueError: loss is nan (exit status 7)\n" in screen


def test_directory_of_several_nodes(start: Start, tool: Tool, program: Program, tmp_path: Path) -> None:
    """Its status has a line for each node; other commands list the words that mean one node."""
    for node in range(2):
        place = ("--nnodes", "2", "--node-rank", str(node), "--master-addr", "127.0.0.1", "--link", "off")
        start(f"exit {node * 4}", *place, ranks=1).finish()
    copy = tmp_path / "copy"
    shutil.copytree(program.log_dir, copy)
    status, screen = tool("status", str(copy))
    one = f"{copy}/job-node-1"

    assert (5, ["job-node-0", "job-node-1"]) == (status, [line.split()[0] for line in screen.splitlines()[1:]])
    assert 2 == len(json.loads(tool("status", str(copy), "--json")[1]))
    assert (2, f"is ambiguous: {copy}/job-node-0, {one}\n") == (
        tool("events", str(copy))[0],
        tool("events", str(copy))[1].partition("' ")[2],
    )
    assert (5, "job-node-1: failed") == (tool("status", one)[0], tool("status", one)[1][:18])
    assert "job-node-1" not in tool("status", f"{copy}/job-run-node-0.json")[1]
    assert 4 == tool("status", f"{copy}/job-node-2")[0]


def test_directory_of_several_jobs(start: Start, tool: Tool, program: Program) -> None:
    """Each word that is listed means one job, although a directory for CANN's logs has its name."""
    for name in ("one", "two"):
        start("exit 3", "--job-name", name, ranks=1).finish()
    words = [f"{program.log_dir}/{name}" for name in ("one", "two")]

    assert [True, True] == [os.path.isdir(word) for word in words]
    assert tool("status", str(program.log_dir))[1].endswith(f"is ambiguous: {', '.join(words)}\n")
    assert [(5, "one: failed"), (5, "two: failed")] == [
        (status, screen[:11]) for status, screen in (tool("status", word) for word in words)
    ]


def test_several_nodes_on_one_machine(run_dir: Path, tool: Tool) -> None:
    """Without a name, the first node of the newest run is meant; the name of their job does not mean earlier runs."""
    for began, part, log_dir in ((1.0, "-node-0", "a"), (5.0, "-node-0", "b"), (6.0, "-node-1", "b")):
        path = run_dir / f"{began}" / run_folder.JOB_FILE
        path.parent.mkdir()
        path.write_text(json.dumps({**JOB, "part": part, "began": began, "log_dir": f"/nowhere/{log_dir}"}))
    listed = [line.split() for line in tool("list")[1].splitlines()[1:]]
    both = [line.split() for line in tool("status", "x")[1].splitlines()[1:]]

    assert tool()[1].startswith("x-node-0: ")
    assert [("x-node-0", "a"), ("x-node-0", "b"), ("x-node-1", "b")] == [(one[0], one[-1][-1]) for one in listed]
    assert ["/nowhere/b"] * 2 == [one[-1] for one in both]


def test_name_of_a_job_that_is_the_id_of_others(start: Start, tool: Tool, run_dir: Path) -> None:
    """The exact name wins."""
    run = running(start, tool, ranks=1)
    (path,) = run_dir.glob(f"*/{run_folder.JOB_FILE}")
    other = run_dir / "other" / run_folder.JOB_FILE
    other.parent.mkdir()
    other.write_text(json.dumps({**json.loads(path.read_bytes()), "part": "-node-1"}))
    status, screen = tool("status", "job")
    other.unlink()
    other.parent.rmdir()
    run.send(signal.SIGTERM)
    run.finish()

    assert (0, "job: running") == (status, screen[:12])


def test_last_of_several_runs(start: Start, tool: Tool) -> None:
    """Without a word, and by its id, a job that has ended is the newest."""
    for script in ("exit 5", "exit 4", "exit 0"):
        start(script, "--log-runs", "1", ranks=1).finish()

    assert [3, 3] == [tool()[0], tool("status", "job")[0]]
    assert ["failed", "failed", "succeeded"] == [line.split()[1] for line in tool("list")[1].splitlines()[1:]]


def test_logs_that_were_moved(start: Start, tool: Tool, program: Program, tmp_path: Path) -> None:
    """A directory with logs says all, also without the machine; also the directory of an earlier run."""
    for script in ("exit 4", "exit 0"):
        start(script, ranks=1).finish()
    copy = tmp_path / "copy"
    shutil.copytree(program.log_dir, copy)

    assert 3 == tool("status", str(copy))[0]
    assert 5 == tool("status", str(copy / "run-1"))[0]


def test_newest_logs_in_the_working_directory(
    start: Start, tool: Tool, program: Program, run_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If this machine knows no job, all commands find the one whose logs are there."""
    start("exit 4", ranks=1).finish()
    for kept in run_dir.iterdir():
        shutil.rmtree(kept)
    monkeypatch.chdir(program.folder)
    unknown = tool("list"), tool()
    os.mkdir("logs")
    program.log_dir.rename("logs/job-1")
    os.symlink("job-1", "logs/latest")

    assert [(0, "no jobs\n"), 4] == [unknown[0], unknown[1][0]]
    assert ["job", "failed"] == tool("list")[1].splitlines()[1].split()[:2]
    assert [5, 5] == [tool()[0], tool("status", "job")[0]]


def test_job_of_another_machine(start: Start, tool: Tool, program: Program) -> None:
    """Its state cannot be determined from here, and it cannot be stopped."""
    run = running(start, tool)
    path = program.log_dir / "job-run.json"
    record = json.loads(path.read_bytes())
    path.write_text(json.dumps({**record, "host": "elsewhere", "run_folder": "/nowhere"}))
    status, screen = tool("status", str(program.log_dir))
    refused = tool("stop", str(program.log_dir))
    run.send(signal.SIGTERM)

    assert 143 == run.finish()
    assert (4, "job: cannot tell") == (status, screen[:16])
    assert (1, True) == (refused[0], "runs on host elsewhere" in refused[1])


@pytest.mark.parametrize(
    "content",
    [
        "",
        "[]",
        "{}",
        "[" * 100_000,
        '{"job_id": 7}',
        PATH_IN_A_NAME,
        *(json.dumps({**JOB, "began": began}) for began in (float("nan"), float("inf"), 1e300, -1.0, True, "")),
        json.dumps({**JOB, "pid": 1 << 40}),
        json.dumps({**JOB, "run_folder": "\ud800"}),
    ],
)
def test_files_that_are_no_run_files(tool: Tool, run_dir: Path, tmp_path: Path, content: str) -> None:
    """They are no jobs."""
    (run_dir / "run-x").mkdir()
    (run_dir / "run-x" / "job.json").write_text(content)
    (tmp_path / "job-run.json").write_text(content)

    assert (0, "no jobs\n") == tool("list")
    assert 4 == tool("status", str(tmp_path))[0]
    assert 4 == tool()[0]
