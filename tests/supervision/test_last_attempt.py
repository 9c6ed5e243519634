"""Whether a job ends with the attempt that runs, for each way in which one can end."""

from __future__ import annotations

from signal import SIGTERM

import attrs
import pytest

from ascend_runner.supervision import job_machine
from ascend_runner.supervision.causes import (
    Cause,
    Ending,
    Exited,
    FindingKind,
    HangDetected,
    LimitReached,
    NodeFinding,
    Restart,
    Rule,
    SignalReceived,
    Slowdown,
    SpawnFailed,
)
from ascend_runner.supervision.job_machine import Failed, Job, JobState, Policy, is_last
from ascend_runner.supervision.state import CheckpointRequest, Phase, State

FAILED = Exited(0, Ending(exit_code=7))
LIMIT = LimitReached(60.0)
TEARDOWN = (Phase.TERMINATING, Phase.KILLING, Phase.DONE)
SLOW = Slowdown(rule=Rule.DROP, rank_id=0, own=2.0, reference=1.0)
UNHEALTHY = NodeFinding(kind=FindingKind.UNHEALTHY, subject="device 0", sentence="lost", at=1.0, is_error=True)


def in_phase(phase: Phase, cause: Cause | None = None) -> State:
    """Return an attempt in a phase."""
    return State(grace=15.0, phase=phase, cause=cause)


@pytest.mark.parametrize("phase", [Phase.STARTING, Phase.RUNNING, Phase.CHECKPOINTING])
def test_running(phase: Phase) -> None:
    """As long as nothing ends an attempt, it is not the last one."""
    assert not is_last(in_phase(phase), Policy(), 0)


@pytest.mark.parametrize("phase", TEARDOWN)
def test_success(phase: Phase) -> None:
    """Nothing follows an attempt whose ranks have all succeeded."""
    assert is_last(in_phase(phase), Policy(max_restarts=9), 0)


@pytest.mark.parametrize("cause", [SignalReceived(SIGTERM), LIMIT, UNHEALTHY])
@pytest.mark.parametrize("phase", [Phase.CHECKPOINTING, *TEARDOWN])
def test_end_without_a_restart(phase: Phase, cause: Cause) -> None:
    """Nothing follows a stop signal, the limit or --inspect stop, which begin with the request for a checkpoint."""
    assert is_last(in_phase(phase, cause), Policy(max_restarts=9), 0)


@pytest.mark.parametrize("cause", [FAILED, SpawnFailed(0, "no memory", 125), HangDetected(60.0), SLOW])
@pytest.mark.parametrize("phase", [Phase.CHECKPOINTING, Phase.HOLDING, *TEARDOWN])
@pytest.mark.parametrize(("max_restarts", "attempt", "expected"), [(0, 0, True), (2, 1, False), (2, 2, True)])
def test_failure(phase: Phase, cause: Cause, max_restarts: int, attempt: int, *, expected: bool) -> None:
    """A failure may be followed by another attempt as long as there are restarts left."""
    assert expected is is_last(in_phase(phase, cause), Policy(max_restarts=max_restarts), attempt)


def test_failure_and_a_stop_signal() -> None:
    """A signal that arrives during the teardown after a failure prevents the restart."""
    state = attrs.evolve(in_phase(Phase.TERMINATING, FAILED), is_interrupted=True)

    assert is_last(state, Policy(max_restarts=9), 0)


@pytest.mark.parametrize("limit", [LIMIT, None])
def test_request_before_the_limit(limit: LimitReached | None) -> None:
    """While the ranks are being asked to save before the limit, it is too late to change it."""
    request = CheckpointRequest(is_being_sent=True, before_limit=limit)
    state = attrs.evolve(in_phase(Phase.CHECKPOINTING), checkpoint=request)

    assert (limit is not None) is is_last(state, Policy(max_restarts=9), 0)


@pytest.mark.parametrize("restart", list(Restart))
@pytest.mark.parametrize(("max_restarts", "attempt"), [(0, 0), (1, 1), (2, 2)])
def test_last_attempt_is_never_followed(restart: Restart, max_restarts: int, attempt: int) -> None:
    """Where a failure makes an attempt the last one, the machine of the job restarts it in no case."""
    policy = Policy(max_restarts=max_restarts)
    job = Job(policy=policy, state=Phase.TERMINATING, attempt=attempt)
    event = Failed(status=7, restart=restart, fingerprint="exit status 7", has_progressed=True)

    assert is_last(in_phase(Phase.DONE, FAILED), policy, attempt)
    assert job_machine.transition(job, event)[0].state is JobState.FAILED
