"""What `ascend-job status` reports of real jobs."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import threading
from pathlib import Path

import pytest

from ascend_runner.services import control
from ascend_runner.supervision.causes import Ending
from tests.helpers.program import Program
from tests.helpers.waiting import wait_until
from tests.tools.job.conftest import Start, Tool, document, running

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


def test_records_of_a_running_job(start: Start, tool: Tool) -> None:
    """`status` shows what ranks print as soon as they do, also without a report; a killed runner leaves its report."""
    run = start('printf "\\033[31mstep $RANK\\033[0m"; exec sleep 1000', "--time-limit", "1h")
    wait_until(lambda: "step 1" in tool()[1] and "step 0" in tool()[1] and document(tool)["state"] == "running")
    screen = tool()[1].splitlines()
    ranks = document(tool)["ranks"]
    (report,) = [line.split()[-1] for line in screen if line.startswith("  report")]
    content = Path(report).read_bytes()
    os.unlink(report)
    without = tool()[1].splitlines()
    Path(report).write_bytes(content)
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


def test_frozen_runner(start: Start, tool: Tool) -> None:
    """A runner that does not answer is waited for only shortly: `status` shows its report, and says so."""
    run = running(start, tool)
    os.kill(run.runner_pid, signal.SIGSTOP)
    status, screen = tool()
    os.kill(run.runner_pid, signal.SIGCONT)
    run.send(signal.SIGTERM)

    assert 143 == run.finish()
    assert 0 == status
    assert "the runner did not respond within 1 s" in " ".join(screen.split())
    assert 2 == screen.count("  running  ")


def test_step_in_the_logs(start: Start, tool: Tool) -> None:
    """`status` shows the step of the rank that is furthest, also if other lines follow it."""
    lines = "{'loss': nan}\\n  1%%|x| $((RANK + 7))/900 [00:01<00:09, 2.00s/it]\\nsaved\\n"
    run = start(f'printf "{lines}"; exec sleep 1000')
    run.wait_for("saved", times=2)
    wait_until(lambda: "  step        8 of 900, 2 s per step\n" in tool()[1])
    last = document(tool)["last_step"]
    run.send(signal.SIGTERM)
    run.finish()

    assert (8, 900, 2.0) == (last["step"], last["steps"], last["seconds"])


def test_loss_of_a_job_whose_runner_reads_the_steps(start: Start, tool: Tool) -> None:
    """It is in the logs only, and shown beside the step that the runner knows and its age."""
    run = start('printf "  1%%|x| 7/900 [00:01<00:09, 2.00s/it, loss=2.5]\\n"; exec sleep 1000', "--summary", "1h")
    wait_until(lambda: re.search("  step        7 of 900, 2 s per step, loss 2.5, [^ ]+ s ago\n", tool()[1]))
    run.send(signal.SIGTERM)

    assert 143 == run.finish()


def test_long_last_line(start: Start, tool: Tool) -> None:
    """A line that is too long for the runner to keep is read from the log, so that its beginning is shown."""
    run = start('printf "iteration      7/ 400 %0300d\\n" $RANK; exec sleep 1000')
    wait_until(lambda: tool()[1].count("  iteration 7/ 400 0") == 2)
    lines = [rank["last_line"] for rank in document(tool)["ranks"]]
    run.send(signal.SIGTERM)

    assert 143 == run.finish()
    assert [f"iteration      7/ 400 {rank:0300}" for rank in range(2)] == lines


def test_records_of_an_attempt_that_has_ended(start: Start, run_dir: Path) -> None:
    """The runner shows how the ranks have ended until the next attempt, as the report is written later."""
    run = start("exit 7", "--max-restarts", "1", "--restart-delay", "600", ranks=1)
    run.wait_for("restarting in 10 min 0 s")
    (path,) = run_dir.glob("*/control")
    view, _answer = control.view(str(path.parent))
    run.send(signal.SIGTERM)
    run.finish()

    assert view
    assert [Ending(exit_code=7)] == [rank.ending for rank in view.ranks]


def test_answer_that_is_none(start: Start, tool: Tool, run_dir: Path) -> None:
    """What answers instead of the runner is ignored: the report and the logs give the same facts as before."""
    run = running(start, tool)
    (path,) = run_dir.glob("*/control")
    path.rename(path.with_name("taken"))
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(str(path))
        listener.listen()

        def respond(answer: bytes) -> None:
            connection, _address = listener.accept()
            with connection:
                connection.send(answer)

        for answer in (b"", b"7", b'{"answer": ""}', b"[" * 4000):
            answering = threading.Thread(target=respond, args=(answer,), daemon=True)
            answering.start()
            assert ["running", "running"] == [rank["state"] for rank in document(tool)["ranks"]]
            answering.join()
    run.send(signal.SIGTERM)

    assert 143 == run.finish()


def test_job_that_does_not_answer(start: Start, tool: Tool, run_dir: Path, program: Program, tmp_path: Path) -> None:
    """The ends of the logs show sizes, last lines without secrets, steps, and who is behind: here or where they are."""
    secret = "hf_" + "a1B2c3D4" * 4
    lines = f"{{'loss': 2.5}}\\n step: $((RANK == 1 ? 10 : 90)), loss is 2.5\\nend {secret}\\n"
    run = start(f'printf "epoch: 1{lines}"; exec sleep 1000', ranks=3)
    run.wait_for("end", times=3)
    wait_until(lambda: all(path.stat().st_size for path in program.log_dir.glob("job-proc-rank-*")))
    wait_until(lambda: program.report()["state"] == "running")
    (path,) = run_dir.glob("*/control")
    path.unlink()
    shared = tmp_path / "shared"
    shutil.copytree(program.log_dir, shared, ignore=shutil.ignore_patterns(".*"))  # files that are being replaced
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


@pytest.mark.deep(quick=1)
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
    """The runner has reported an end, although nobody can read it, so it was not killed: the history knows it."""
    report = program.log_dir / "job-report.json"
    start(f"until mkdir {report}; do rm {report}; done 2>/dev/null", ranks=1).finish()
    (spare,) = run_dir.glob("*/job-report.json")
    spare.write_text("{")
    report.rmdir()
    report.write_text('{"job_id": "job", "state": "running"}')
    events = program.log_dir / "job-events.jsonl"
    events.write_bytes(b"".join(events.read_bytes().splitlines(keepends=True)[:-1]))
    status, screen = tool()

    assert 3 == status
    assert screen.startswith("job: succeeded after ")
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


@pytest.mark.deep(quick=1)
@pytest.mark.parametrize(
    "content", ["", "7", "[" * 100_000, '{"state": 7, "ranks": [1, {"rank_id": "x"}], "cause": 3}']
)
def test_reports_that_are_none(start: Start, tool: Tool, program: Program, run_dir: Path, content: str) -> None:
    """The job is shown with what the history knows of it, or else without its end."""
    start("exit 0", ranks=1).finish()
    (program.log_dir / "job-report.json").write_text(content)
    known = tool("status", "job")
    shutil.rmtree(run_dir / "state")
    status, screen = tool("status", "job")

    assert (3, "job: succeeded after ") == (known[0], known[1][:21])
    assert 4 == status
    assert screen.startswith("job: ended; the reason is unknown")


def test_numbers_beyond_all_bounds(start: Start, tool: Tool, program: Program) -> None:
    """What cannot be true is not shown; the rest is."""
    start("exit 0", ranks=1).finish()
    (program.log_dir / "job-report.json").write_text(BEYOND_ALL_BOUNDS)

    assert [5, 5, 0] == [tool("status", "job")[0], tool("status", "--json", "job")[0], tool("list")[0]]
    assert tool("status", "job")[1].startswith("job: runner killed ")
