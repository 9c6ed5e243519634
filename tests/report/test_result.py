"""The outcome or error that a runner passes to the process that launched it."""

from __future__ import annotations

from signal import SIGTERM

import pytest

from ascend_runner import errors
from ascend_runner.diagnosis.finding import Finding, Peer, StackGroup
from ascend_runner.problems import Problem, RankTableFormatError, Severity
from ascend_runner.record.rank_record import Outcome, RankRecord, RankState
from ascend_runner.report import result
from ascend_runner.supervision.causes import Cause, Ending, Exited, HangDetected, SignalReceived, SpawnFailed

FINDING = Finding(exception="ValueError: x", traceback=("a", "b"), points_at=(Peer(rank_id=3), Peer(server_id="s")))


@pytest.mark.parametrize(
    "cause",
    [
        None,
        Exited(0, Ending(signum=SIGTERM)),
        SpawnFailed(rank_id=-1, reason="no memory", exit_status=125, name="scheduler"),
        SignalReceived(SIGTERM),
        HangDetected(1.5),
    ],
)
def test_outcome(cause: Cause | None) -> None:
    """An outcome arrives unchanged, whatever its cause."""
    outcome = Outcome(
        cause=cause,
        ranks=(
            RankRecord(rank_id=0, ending=Ending(exit_code=1), log_path="/l\udcff", last_lines=("x",), finding=FINDING),
            RankRecord(rank_id=1, state=RankState.NOT_STARTED),
        ),
        started_at=1.25,
        seconds=3.5,
        suspected_peer=Peer(rank_id=3, reported_by=(0, 1)),
        hang=(StackGroup(rank_ids=(0, 1), state="sleeping", frames=("f (x.py:1)",)),),
        warnings=("odd",),
        report={"job_id": "job", "ranks": [{"rank_id": 0}]},
    )

    assert outcome == result.decode(result.encode(outcome), outcome.status)


def test_error() -> None:
    """An error of the runner is raised as its own class, with its sentence and exit status."""
    error = errors.CommandError("command not found: 'x'", exit_status=errors.COMMAND_NOT_FOUND)

    with pytest.raises(errors.CommandError, match=r"^command not found: 'x'$") as caught:
        result.decode(result.encode(error), 127)
    assert errors.COMMAND_NOT_FOUND == caught.value.exit_status


def test_error_with_problems() -> None:
    """An error about a rank table arrives with what was found in it."""
    problem = Problem(severity=Severity.ERROR, sentence="duplicate rank_id 3", path="server_list[0].device[3]")

    with pytest.raises(RankTableFormatError) as caught:
        result.decode(result.encode(RankTableFormatError([problem])), 125)
    assert [problem] == list(caught.value.problems)


@pytest.mark.parametrize(("status", "text"), [(-9, "killed by signal 9"), (1, "ended with exit status 1")])
def test_runner_that_died(status: int, text: str) -> None:
    """If the runner died before it could write a result, that is the error."""
    with pytest.raises(errors.AscendRunnerError, match=text):
        result.decode(b"", status)
