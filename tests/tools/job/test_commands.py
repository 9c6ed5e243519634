"""What `ascend-job` does to real jobs."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from ascend_runner.guardian import process_tree
from ascend_runner.services.run_folder import CONTROL
from tests.helpers.program import Program
from tests.helpers.waiting import wait_until
from tests.tools.job.conftest import Start, Tool, document, running, state_of


def test_commands_to_a_running_job(start: Start, tool: Tool) -> None:
    """It is neither released by mistake nor saved by ranks that cannot; it is stopped as by SIGTERM."""
    run = running(start, tool)
    release, checkpoint = tool("release"), tool("checkpoint")
    run.wait_for("WARNING no rank handles SIGUSR1")

    assert 1 == release[0]
    assert (1, True) == (checkpoint[0], "no rank handles SIGUSR1" in checkpoint[1])
    assert process_tree.look(run.popen.pid)
    stopped = f"job: sent SIGTERM to pid {run.popen.pid}; the ranks have their grace period to exit\n"
    assert (0, stopped) == tool("stop", "job")
    assert 143 == run.finish()
    assert " asked rank" not in run.screen
    assert (5, True) == (tool()[0], "stopped" in tool()[1])


def test_stop_without_ranks(start: Start, tool: Tool) -> None:
    """Between two attempts there is no rank that would need time to end; a changed limit is an event all the same."""
    run = start("exit 7", "--max-restarts", "1", "--restart-delay", "600", ranks=1)
    run.wait_for("restarting in 10 min 0 s")
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


@pytest.mark.deep
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


def is_removed(folder: Path) -> bool:
    """Remove a folder, and return whether it is gone: the runner may be writing a file there meanwhile."""
    shutil.rmtree(folder, ignore_errors=True)
    return not folder.exists()


def test_release_without_the_report(start: Start, tool: Tool, program: Program, run_dir: Path) -> None:
    """If the logs were removed, the runner knows whether the job is held; if it cannot be asked, the pid is named."""
    run = start("exit 7", "--hold", "1h", "--html", "failure", ranks=1)
    run.wait_for("HTML report: ")  # the last file that is written
    wait_until(lambda: is_removed(program.log_dir))
    (socket,) = run_dir.glob(f"*/{CONTROL}")
    socket.rename(socket.with_name("moved"))
    refused = tool("release")
    socket.with_name("moved").rename(socket)
    released = tool("release")

    assert 7 == run.finish()
    assert (1, True) == (refused[0], f"release it with kill {run.popen.pid}\n" in refused[1])
    assert (0, f"job: released (sent SIGTERM to pid {run.popen.pid})\n") == released


def test_running_job_without_its_report_is_not_held(start: Start, tool: Tool, program: Program) -> None:
    """A job that is running is not released by mistake, and nothing is claimed about its ranks when it is stopped."""
    run = running(start, tool)
    wait_until(lambda: is_removed(program.log_dir))
    refused, stopped = tool("release"), tool("stop")

    assert 143 == run.finish()
    assert (1, True) == (refused[0], refused[1].startswith("ascend-job: job is not held; "))
    assert (0, f"job: sent SIGTERM to pid {run.popen.pid}\n") == stopped
