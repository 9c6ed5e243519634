"""What `ascend-job` reports of real jobs, and what it does to them."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from ascend_runner.board import reader
from ascend_runner.guardian import process_tree
from ascend_runner.services import run_folder
from ascend_runner.supervision.events import Ending
from tests.helpers.program import Program, Run
from tests.helpers.waiting import wait_until
from tests.job_tool.conftest import Start, Tool

PATH_IN_A_NAME = (
    '{"job_id": "x", "part": "/../../x", "host": "", "pid_namespace": "", "pid": 1, "started": 1, "runner_pid": 1,'
    ' "began": 1.0, "log_dir": "/", "run_folder": "/", "command": []}'
)
JOB = json.loads(PATH_IN_A_NAME.replace("/../../x", ""))
BEYOND_ALL_BOUNDS = """{
    "state": "running", "attempt": 1e300, "status": NaN, "held_until": "9999-12-31T23:59:59-12:00",
    "ended_at": "0001-01-01",
    "ranks": [
        {"rank_id": [1], "state": "running", "pid": 1},
        {"rank_id": 0, "state": "running", "pid": 1000000000000},
        {"rank_id": 1, "seconds": Infinity, "started_at": "2026-01-01T00:00:00", "ended_at": "x", "log_size": 1%s,
         "log_path": "/proc/self/stat"}
    ]
}""" % ("0" * 400)
SLEEPS = "echo ready; exec sleep 60"


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


def test_running_job(start: Start, tool: Tool, program: Program) -> None:
    """`status` shows the job and its ranks, whatever names it, and exits with 0; `list` has one line for it."""
    run = running(start, tool)
    found = document(tool)
    names = (
        "job",
        "jo",
        str(run.popen.pid),
        str(run.runner_pid),
        str(program.log_dir),
        f"{program.log_dir}/job-run.json",
    )
    pids = [str(rank["pid"]) for rank in found["ranks"]]
    status, screen = tool()
    same = [document(tool, name)["began"] for name in (*names, *pids)]
    listed = tool("list")[1].splitlines()
    run.send(signal.SIGTERM)

    assert 143 == run.finish()
    assert 0 == status
    assert screen.startswith("job: running, started ")
    assert ["running", "running"] == [rank["state"] for rank in found["ranks"]]
    assert all(pid in screen for pid in pids)
    assert {found["began"]} == set(same)
    assert ["job", "running", str(run.popen.pid)] == listed[1].split()[:3]


def test_board_of_a_running_job(start: Start, tool: Tool, run_dir: Path) -> None:
    """`status` shows what ranks print as soon as they do, without asking the runner, and also without a report."""
    run = start('printf "\\033[31mstep $RANK\\033[0m"; exec sleep 60', "--time-limit", "1h")
    wait_until(lambda: "step 1" in tool()[1] and "step 0" in tool()[1])
    for control in run_dir.glob("*/control"):
        control.unlink()
    screen = tool()[1].splitlines()
    ranks = document(tool)["ranks"]
    (program_report,) = [line.split()[-1] for line in screen if line.startswith("  report")]
    os.unlink(program_report)
    without = tool()[1].splitlines()
    os.kill(run.runner_pid, signal.SIGKILL)
    run.finish()
    afterwards = tool()

    assert ["rank", "device", "pid", "state", "output", "quiet for", "last line"] == re.split("  +", screen[-3].strip())
    assert all(line.endswith(f"  step {rank}") for rank, line in enumerate(screen[-2:]))
    assert ["15 B", "15 B"] == [re.split("  +", line.strip())[4] for line in without[-2:]]
    assert ["step 0", "step 1"] == [rank["last_line"] for rank in ranks]
    assert "\x1b" not in "".join(screen)
    assert any(line.startswith("  limit ") for line in screen)
    assert afterwards[1].startswith("job: runner killed (last state: running)")
    assert 2 == afterwards[1].count("  ended  ")
    assert 1 == len(list(run_dir.glob("*/board")))


def test_step_in_the_logs(start: Start, tool: Tool) -> None:
    """`status` shows the step of the rank that is furthest, also if other lines follow it."""
    lines = "{'loss': nan}\\n  1%%|x| $((RANK + 7))/900 [00:01<00:09, 2.00s/it]\\nsaved\\n"
    run = start(f'printf "{lines}"; exec sleep 60')
    run.wait_for("saved", times=2)
    wait_until(lambda: "  step        8 of 900, 2 s per step\n" in tool()[1])
    last = document(tool)["last_step"]
    run.send(signal.SIGTERM)
    run.finish()

    assert (8, 900, 2.0) == (last["step"], last["steps"], last["seconds"])


def test_loss_of_a_job_whose_runner_reads_the_steps(start: Start, tool: Tool) -> None:
    """It is in the logs only, and shown beside the step of the board and its age."""
    run = start('printf "  1%%|x| 7/900 [00:01<00:09, 2.00s/it, loss=2.5]\\n"; exec sleep 60', "--summary", "1h")
    wait_until(lambda: re.search("  step        7 of 900, 2 s per step, loss 2.5, [^ ]+ s ago\n", tool()[1]))
    run.send(signal.SIGTERM)

    assert 143 == run.finish()


def test_long_last_line(start: Start, tool: Tool) -> None:
    """A line that is too long for the board is read from the log, so that its beginning is shown."""
    run = start('printf "iteration      7/ 400 %0300d\\n" $RANK; exec sleep 60')
    wait_until(lambda: tool()[1].count("  iteration 7/ 400 0") == 2)
    lines = [rank["last_line"] for rank in document(tool)["ranks"]]
    run.send(signal.SIGTERM)

    assert 143 == run.finish()
    assert [f"iteration      7/ 400 {rank:0300}" for rank in range(2)] == lines


def test_board_of_an_attempt_that_has_ended(start: Start, run_dir: Path) -> None:
    """It shows how the ranks have ended until the report does, so it stays until the next attempt."""
    run = start("exit 7", "--max-restarts", "1", "--restart-delay", "600", ranks=1)
    run.wait_for("restarting in 600 s")
    (board,) = run_dir.glob("*/board")
    (rank,) = reader.decode(board.read_bytes(), time.monotonic()).ranks
    run.send(signal.SIGTERM)
    run.finish()

    assert Ending(exit_code=7) == rank.ending
    assert [] == list(run_dir.glob("*/board"))


def test_board_of_another_layout(start: Start, tool: Tool, run_dir: Path) -> None:
    """A board that cannot be decoded is as none: the report and the logs give the same facts as before."""
    run = running(start, tool)
    (board,) = run_dir.glob("*/board")
    board.rename(board.with_name("taken"))
    for content in (b"", b"ASCBOARD" * 100):
        board.write_bytes(content)
        assert ["running", "running"] == [rank["state"] for rank in document(tool)["ranks"]]
    board.unlink()
    os.mkfifo(board)
    assert ["running", "running"] == [rank["state"] for rank in document(tool)["ranks"]]
    run.send(signal.SIGTERM)

    assert 143 == run.finish()


def test_job_without_a_board(start: Start, tool: Tool, run_dir: Path, program: Program, tmp_path: Path) -> None:
    """The ends of the logs show sizes, last lines without secrets, steps, and who is behind: here or where they are."""
    secret = "hf_" + "a1B2c3D4" * 4
    lines = f"{{'loss': 2.5}}\\n step: $((RANK == 1 ? 10 : 90)), loss is 2.5\\nend {secret}\\n"
    run = start(f'printf "epoch: 1{lines}"; exec sleep 60', ranks=3)
    run.wait_for("end", times=3)
    wait_until(lambda: all(path.stat().st_size for path in program.log_dir.glob("job-proc-rank-*")))
    (board,) = run_dir.glob("*/board")
    board.unlink()
    shared = tmp_path / "shared"
    shutil.copytree(program.log_dir, shared)
    path = shared / "job-run.json"
    path.write_text(json.dumps({**json.loads(path.read_bytes()), "host": "elsewhere", "run_folder": "/nowhere"}))
    seen = [(tool(*words), document(tool, *words)) for words in ((), (str(shared),))]
    run.send(signal.SIGTERM)

    assert 143 == run.finish()
    sizes = [os.path.getsize(path) for path in sorted(shared.glob("job-proc-rank-*"))]
    for (_status, screen), found in seen:
        assert ["end ***"] * 3 == [rank["last_line"] for rank in found["ranks"]]
        assert sizes == [rank["log_size"] for rank in found["ranks"]]
        assert (90, 2.5) == (found["last_step"]["step"], found["last_step"]["loss"])
        assert "rank 1 is 80 steps behind the others" in screen
        assert secret not in screen


@pytest.mark.parametrize(
    ("script", "expected", "word"),
    [
        ("exit 0", 3, "succeeded"),
        ("exit 7", 5, "failed (exit status 7)"),
        ("kill -SEGV $$", 5, "failed (exit status 139)"),
    ],
)
def test_ended_job(start: Start, tool: Tool, script: str, expected: int, word: str) -> None:
    """The exit status distinguishes a success from a failure; the screen names the cause."""
    start(script, ranks=1).finish()
    status, screen = tool()

    assert expected == status
    assert screen.startswith(f"job: {word} after ")
    assert (expected == 5) == ("  cause " in screen)


def test_job_whose_runner_was_killed(start: Start, tool: Tool) -> None:
    """Its lock is free and its report has no end, so it is reported as dead, and its events do not wait for more."""
    run = running(start, tool)
    pids = f"pid {run.popen.pid}, child pid {run.runner_pid}"
    while_running = tool()[1]
    os.kill(run.runner_pid, signal.SIGKILL)
    run.finish()
    status, screen = tool()

    assert 5 == status
    assert screen.startswith("job: runner killed")
    assert f"  runner      {pids}\n" in while_running
    assert f"  cause       the runner ({pids}) was killed\n" in screen
    assert "runner killed" == re.split("  +", tool("list")[1].splitlines()[1])[1]
    assert "the runner was killed" in tool("events", "-f")[1].splitlines()[-1]
    assert (1, "ascend-job: job is not running\n") == tool("stop")


def test_final_report_that_could_not_be_written(start: Start, tool: Tool, program: Program, run_dir: Path) -> None:
    """A job that has ended never looks like one whose runner was killed: its final report is in the run directory."""
    report = program.log_dir / "job-report.json"
    start(f"until mkdir {report}; do rm {report}; done 2>/dev/null", ranks=1).finish()
    report.rmdir()
    report.write_text('{"job_id": "job", "state": "running"}')
    events = program.log_dir / "job-events.jsonl"
    events.write_bytes(b"".join(events.read_bytes().splitlines(keepends=True)[:-1]))
    status, screen = tool()
    (spare,) = run_dir.glob("*/job-report.json")

    assert 3 == status
    assert screen.startswith("job: succeeded after ")
    assert f"  report      {spare} (could not be written beside the logs)\n" in screen
    assert str(spare) == document(tool)["report"]
    assert "succeeded" == tool("list")[1].splitlines()[1].split()[1]
    assert "the job has ended; its last events could not be written" == tool("events", "-f")[1].splitlines()[-1]
    assert 0 == tool("report")[0]
    assert "<strong>succeeded</strong>" in (program.log_dir / "job-report.html").read_text()
    assert 0 == tool("report", str(spare))[0]
    assert "<strong>succeeded</strong>" in spare.with_suffix(".html").read_text()


def test_final_report_that_cannot_be_read(start: Start, tool: Tool, program: Program, run_dir: Path) -> None:
    """The runner has reported an end, although nobody can read it, so it was not killed."""
    report = program.log_dir / "job-report.json"
    start(f"until mkdir {report}; do rm {report}; done 2>/dev/null", ranks=1).finish()
    (spare,) = run_dir.glob("*/job-report.json")
    spare.write_text("{")
    report.rmdir()
    report.write_text('{"job_id": "job", "state": "running"}')
    events = program.log_dir / "job-events.jsonl"
    events.write_bytes(b"".join(events.read_bytes().splitlines(keepends=True)[:-1]))
    status, screen = tool()

    assert 4 == status
    assert screen.startswith("job: ended; the reason is unknown")
    assert f"  report      '{spare}' is not the JSON report of a job\n" in screen
    assert "the job has ended; its last events could not be written" == tool("events", "-f")[1].splitlines()[-1]


def test_held_job_whose_report_could_not_be_written(start: Start, tool: Tool, program: Program) -> None:
    """It is shown as held and can be released; a runner that is killed while the job is held has not ended it."""
    report = program.log_dir / "job-report.json"
    block = f"until mkdir {report}; do rm {report}; done 2>/dev/null; exit 7"
    run = start(block, "--hold", "1h", ranks=1)
    run.wait_for("  release with ")
    held, (released, _sentence) = tool(), tool("release")
    status = run.finish()
    killed = start(block, "--hold", "1h", ranks=1)
    killed.wait_for("  release with ")
    os.kill(killed.runner_pid, signal.SIGKILL)
    killed.finish()

    assert held[1].startswith("job: holding, started ")
    assert (0, 7) == (released, status)
    assert "the runner was killed; no more events" == tool("events", "-f")[1].splitlines()[-1]


def test_limit_of_a_held_job(start: Start, tool: Tool) -> None:
    """As soon as the screen says that a job is held, a time limit is refused."""
    run = start("exit 7", "--hold", "1h", ranks=1)
    run.wait_for("release with")
    refused = tool("limit", "1s")
    run.send(signal.SIGTERM)

    assert 7 == run.finish()
    assert (1, True) == (refused[0], "is held" in refused[1])
    assert "time limit" not in run.screen


def test_events_of_a_restarted_job(start: Start, tool: Tool) -> None:
    """Each change is a line, with its attempt and its cause."""
    start("exit 7", "--max-restarts", "1", ranks=1).finish()
    status, screen = tool("events")
    states = [line.split()[3] for line in screen.splitlines()]

    assert 0 == status
    assert ["preparing", "starting"] == states[:2]
    assert ["restarting", "failed"] == [state for state in states if state in {"restarting", "failed"}]
    assert screen.endswith("attempt 2: rank 0 failed: exit status 7; no restart: --max-restarts is reached\n")


def test_events_are_followed_to_the_end(start: Start, tool: Tool) -> None:
    """`-f` shows what comes later, and ends with the job."""
    run = start("sleep 1", ranks=1)
    run.wait_for("starting rank")
    status, screen = tool("events", "-f")

    assert 0 == status
    assert "succeeded" == screen.splitlines()[-1].split()[3]
    assert 0 == run.finish()


def test_stop(start: Start, tool: Tool) -> None:
    """The job ends like after SIGTERM."""
    run = running(start, tool)
    status, screen = tool("stop", "job")

    assert (0, f"job: sent SIGTERM to pid {run.popen.pid}; the ranks have their grace period to exit\n") == (
        status,
        screen,
    )
    assert 143 == run.finish()
    assert (5, True) == (tool()[0], "stopped" in tool()[1])


def test_stop_without_ranks(start: Start, tool: Tool) -> None:
    """Between two attempts there is no rank that would need time to end; a changed limit is an event all the same."""
    run = start("exit 7", "--max-restarts", "1", "--restart-delay", "600", ranks=1)
    run.wait_for("restarting in 600 s")
    wait_until(lambda: document(tool)["state"] == "restarting")
    assert 0 == tool("limit", "2h")[0]
    wait_until(lambda: "the time limit of the job is now 2 h 0 min after the start" in tool("events")[1])

    assert (0, f"job: sent SIGTERM to pid {run.popen.pid}; no rank is running\n") == tool("stop", "job")
    assert 143 == run.finish()


def test_limit(start: Start, tool: Tool) -> None:
    """The limit is set, shown and changed; a change to the past is refused, and the job goes on."""
    run = running(start, tool, ranks=1)
    unlimited, none = document(tool)["limit_at"], tool("limit", "+1h")
    first, second = tool("limit", "job", "2h"), tool("limit", "+1h")
    wait_until(lambda: (document(tool)["limit_at"] or 0.0) > document(tool)["began"] + 2.5 * 3600)
    screen, limit_at = tool()[1], document(tool)["limit_at"]
    third = tool("limit", "job", "-4h")

    state = state_of(tool)
    run.popen.terminate()

    assert 143 == run.finish()
    assert [None, 1] == [unlimited, none[0]]
    assert [0, 0, 1, "running"] == [first[0], second[0], third[0], state]
    assert "  limit " in screen
    assert 2.5 * 3600 < limit_at - document(tool)["began"] < 3.5 * 3600
    assert 2 == run.screen.count(" ascend-job: the time limit ")


def test_limit_of_a_job_that_waits(start: Start, tool: Tool) -> None:
    """Also a job that waits for its next attempt can be changed."""
    run = start("exit 7", "--max-restarts", "1", "--restart-delay", "1h", ranks=1)
    run.wait_for("starting rank")
    wait_until(lambda: state_of(tool) == "restarting")

    assert any(tool("limit", f"{2**power}s")[0] == 0 for power in range(1, 10))  # the first one that is not in the past
    wait_until(lambda: " the time limit of the job is now " in tool("events")[1])
    assert 124 == run.finish()


def test_checkpoint(start: Start, tool: Tool) -> None:
    """The ranks that handle the signal are asked, the other one is named; a job that has ended cannot be asked."""
    run = start('[ "$RANK" = 1 ] || trap "echo noted" USR1; echo ready; while :; do sleep 0.1; done')
    run.wait_for("ready", times=2)
    status, screen = tool("checkpoint", "job")
    run.wait_for("noted")
    tool("stop")
    run.finish()

    assert 0 == status
    assert screen.startswith("job: asked rank 0 for a checkpoint, but not rank 1, ")
    assert (1, "ascend-job: job is not running\n") == tool("checkpoint")


def test_checkpoint_that_no_rank_handles(start: Start, tool: Tool) -> None:
    """The command fails and says why, and so does the screen of the job, which goes on."""
    run = running(start, tool)
    status, screen = tool("checkpoint")
    run.wait_for("WARNING no rank handles SIGUSR1")
    tool("stop")
    run.finish()

    assert (1, True) == (status, "no rank handles SIGUSR1" in screen)
    assert " asked rank" not in run.screen


def test_release(start: Start, tool: Tool) -> None:
    """A job that is held says so with its cause, and ends with the exit status of its failure."""
    run = start("exit 7", "--hold", "1h", ranks=1)
    run.wait_for("  release with ")
    (status, screen), released = tool(), tool("release")

    assert 7 == run.finish()
    assert 0 == status
    assert screen.startswith("job: holding, started ")
    assert "  held " in screen
    assert "  cause       rank 0 failed: exit status 7\n" in screen
    assert (0, f"job: released (sent SIGTERM to pid {run.popen.pid})\n") == released
    assert (5, "failed") == (tool()[0], state_of(tool))


def test_release_needs_a_held_job(start: Start, tool: Tool) -> None:
    """A job that is running is not ended by mistake."""
    run = running(start, tool)
    status, _screen = tool("release")

    assert 1 == status
    assert process_tree.look(run.popen.pid)
    run.send(signal.SIGTERM)
    run.finish()


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


def test_directory_of_several_nodes(start: Start, tool: Tool, program: Program, tmp_path: Path) -> None:
    """Its status has a line for each node; other commands list the words that mean one node."""
    for node in range(2):
        place = ("--nnodes", "2", "--node-rank", str(node), "--master-addr", "127.0.0.1")
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
    for script in ("exit 0", "exit 4", "exit 0"):
        start(script, "--log-runs", "1", ranks=1).finish()

    assert [3, 3] == [tool()[0], tool("status", "job")[0]]
    assert ["succeeded", "failed", "ended"] == [line.split()[1] for line in tool("list")[1].splitlines()[1:]]


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
    shutil.rmtree(next(run_dir.iterdir()))
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


@pytest.mark.parametrize(
    "content", ["", "7", "[" * 100_000, '{"state": 7, "ranks": [1, {"rank_id": "x"}], "cause": 3}']
)
def test_reports_that_are_none(start: Start, tool: Tool, program: Program, content: str) -> None:
    """The job is shown with what else is known of it; no text of others controls the terminal."""
    start("exit 0", ranks=1).finish()
    (program.log_dir / "job-report.json").write_text(content)
    status, screen = tool("status", "job")

    assert 4 == status
    assert screen.startswith("job: ended; the reason is unknown")


def test_numbers_beyond_all_bounds(start: Start, tool: Tool, program: Program) -> None:
    """What cannot be true is not shown; the rest is."""
    start("exit 0", ranks=1).finish()
    (program.log_dir / "job-report.json").write_text(BEYOND_ALL_BOUNDS)

    assert [5, 5, 0] == [tool("status", "job")[0], tool("status", "--json", "job")[0], tool("list")[0]]
    assert tool("status", "job")[1].startswith("job: runner killed ")


@pytest.mark.parametrize("name", ["batch-7", "list2", "events-1"])
def test_job_with_a_name_like_a_command(start: Start, tool: Tool, name: str) -> None:
    """It is found by its name, whole or in part."""
    start("exit 0", name=name, ranks=1).finish()

    assert tool(name)[1].startswith(f"{name}: succeeded")
    assert tool(name[:-1] if "-" in name else name)[1].startswith(f"{name}: succeeded")


def test_nothing_controls_the_terminal(start: Start, tool: Tool, program: Program) -> None:
    """Control characters in files are escaped."""
    start("exit 0", ranks=1).finish()
    report = json.loads((program.log_dir / "job-report.json").read_bytes())
    report.update(state="\x1b[2J", cause={"sentence": "a\x1b[31m\nb"}, server_id="\x07")
    report["ranks"][0].update(state="\x1b[1m")
    (program.log_dir / "job-report.json").write_text(json.dumps(report))
    with (program.log_dir / "job-events.jsonl").open("a") as file:
        file.write('{"time": "\\u001b", "data": {"state": "\\u001b", "event": "\\u001b[31m"}}\n')

    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f]", tool()[1] + tool("list")[1] + tool("events")[1])


@pytest.mark.parametrize(
    ("words", "expected", "sentence"),
    [
        (("lsit",), 2, "unknown command 'lsit' (did you mean list?)"),
        (("status", "--jsn"), 2, "unknown option '--jsn' (did you mean --json?); see ascend-job status --help"),
        (("nothing",), 4, "'nothing' is neither a command nor a job on this machine; see ascend-job list, or specify"),
        (
            ("status", "nothing"),
            4,
            "no job 'nothing' on this machine; see ascend-job list, or specify its log directory\n",
        ),
        (("status", "/no/where"), 4, "'/no/where' is not the log directory of a job"),
        (("limit", "soon"), 2, "invalid value 'soon': expected a duration such as 72h, a change such as +12h or -90m"),
        (("limit", "job", "-1x"), 2, "invalid value '-1x': expected a duration"),
        (("--help", "console"), 2, "unknown command 'console'; the commands are status, top, list, logs"),
        (("metrics", "--listen", "99999"), 2, "invalid value '99999': expected a port from 0 to 65535"),
        (("metrics", "--listen", "x"), 2, "invalid value 'x': expected PORT or ADDRESS:PORT"),
        (("limit",), 2, "the following arguments are required: LIMIT"),
        (("status", ""), 2, "job name is empty"),
        ((), 4, "no jobs of this user on this machine; specify the log directory of the job"),
    ],
)
def test_wrong_words(tool: Tool, words: tuple[str, ...], expected: int, sentence: str) -> None:
    """One sentence says what is wrong."""
    status, screen = tool(*words)

    assert expected == status
    assert sentence in screen
    assert 1 == screen.count("\n") or screen.startswith("usage: ")  # by argparse


@pytest.mark.parametrize(
    "name", "status list logs stacks events report checkpoint limit stop release batch completion".split()
)
def test_help_has_an_example(name: str, tool: Tool) -> None:
    """The help of every command has an example."""
    status, screen = tool(name, "--help")

    assert 0 == status
    assert f"example: ascend-job {name}" in screen
    assert (status, screen) == tool("--help", name)


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion(shell: str, tool: Tool) -> None:
    """The script of each shell has the commands and options of all programs."""
    status, screen = tool("completion", shell)

    assert 0 == status
    assert all(word in screen for word in ("ascend-rank-table", "nproc-per-node", "checkpoint", "no-checks", "follow"))
