"""The events of real jobs, as `ascend-job events` shows them."""

from __future__ import annotations

from tests.tools.job.conftest import Start, Tool


def test_events_of_a_restarted_job(start: Start, tool: Tool) -> None:
    """Each change is a line, with its attempt and its cause."""
    start("exit 7", "--max-restarts", "1", ranks=1).finish()
    status, screen = tool("events")
    states = [line.split()[3] for line in screen.splitlines()]

    assert 0 == status
    assert ["preparing", "starting"] == states[:2]
    assert ["restarting", "failed"] == [state for state in states if state in {"restarting", "failed"}]
    assert screen.endswith(
        "attempt 2: rank 0 failed: exit status 7; no restart: the limit of --max-restarts is reached\n"
    )


def test_events_are_followed_to_the_end(start: Start, tool: Tool) -> None:
    """`-f` shows what comes later, and ends with the job."""
    run = start("sleep 1", ranks=1)
    run.wait_for("starting rank")
    status, screen = tool("events", "-f")

    assert 0 == status
    assert "succeeded" == screen.splitlines()[-1].split()[3]
    assert 0 == run.finish()
