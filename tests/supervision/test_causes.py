"""Causes answer for themselves."""

from __future__ import annotations

from signal import SIGHUP, SIGINT, SIGKILL, SIGTERM

import pytest

from ascend_runner.supervision.causes import (
    CAUSES,
    Cause,
    Ending,
    Exited,
    HangDetected,
    LimitReached,
    NodeFinding,
    PeerFailed,
    Restart,
    Rule,
    SignalReceived,
    Slowdown,
    SpawnFailed,
    named,
)
from ascend_runner.supervision.machine import TRANSITIONS
from ascend_runner.supervision.state import Phase

UNHEALTHY = NodeFinding(subject="device 5: 80E01801", sentence="device 5 reported 80E01801", at=0.0)
SLOW = Slowdown(rule=Rule.DROP, rank_id=3, own=2.0, reference=1.0)
STOP = SignalReceived(SIGTERM)
ORPHAN = SignalReceived(SIGTERM, launcher=7)
KILLED = SignalReceived(SIGTERM, guardian=5, runner=6)
FAILED = Exited(1, Ending(exit_code=3))
PEER = PeerFailed(attempt=0, sentence="node 3 failed (rank 26: exit status 7)", exit_status=7)


def test_every_cause_has_a_kind_of_its_own() -> None:
    """The report tells causes apart by their kind."""
    assert len(CAUSES) == len({cause.report_kind for cause in CAUSES})


def test_where_a_cause_may_lie() -> None:
    """Any node may have caused a hang or slow training; findings about this node may explain a failure or a hang."""
    assert {HangDetected, Slowdown} == {cause for cause in CAUSES if cause.may_be_elsewhere}
    assert {Exited, HangDetected} == {cause for cause in CAUSES if cause.may_be_the_node}


def test_every_cause_has_a_row() -> None:
    """Each cause ends an attempt from some phase: a cause without a row would be ignored."""
    without = {
        cause
        for cause in CAUSES
        if len({TRANSITIONS[phase][cause] for phase in (Phase.STARTING, Phase.RUNNING, Phase.DONE)}) == 1
    }

    assert set() == without
    ignored = {cause for cause in CAUSES if TRANSITIONS[Phase.HOLDING][cause] is TRANSITIONS[Phase.DONE][cause]}
    assert {SpawnFailed} == ignored, "while ranks are held, all have been started"


@pytest.mark.parametrize(
    ("expected", "cause"),
    [
        (3, FAILED),
        (127, SpawnFailed(0, "no such file", 127)),
        (143, STOP),
        (137, KILLED),
        (124, HangDetected(60.0)),
        (124, LimitReached(60.0)),
        (124, UNHEALTHY),
        (124, SLOW),
        (7, PEER),
        (143, SignalReceived(SIGTERM, node=3)),
    ],
)
def test_exit_status(expected: int, cause: Cause) -> None:
    """A rank's status and a signal's are those of a shell; what the runner ends by itself is a timeout."""
    assert expected == cause.exit_status


@pytest.mark.parametrize(
    ("expected", "cause"),
    [
        ((Restart.TRANSIENT, "exit status 3"), FAILED),
        ((Restart.NEVER, "not started: exit status 127"), SpawnFailed(0, "no such file", 127)),
        ((Restart.CONFIRM, "not started: exit status 125"), SpawnFailed(0, "no memory", 125)),
        ((Restart.TRANSIENT, "hang"), HangDetected(60.0)),
        ((Restart.TRANSIENT, "slow: drop"), SLOW),
        ((Restart.EXCLUDED, "unhealthy: device 5: 80E01801"), UNHEALTHY),
        ((Restart.TRANSIENT, "node_failed"), PEER),
        ((Restart.NEVER, "node_failed"), PeerFailed(attempt=0, sentence="other table", exit_status=125)),
        ((Restart.EXCLUDED, "interrupted"), STOP),
        ((Restart.EXCLUDED, "expired"), LimitReached(60.0)),
    ],
)
def test_restart_and_fingerprint(expected: tuple[Restart, str], cause: Cause) -> None:
    """Nothing follows what somebody wanted to end the job for."""
    assert expected == (cause.restart, cause.fingerprint)
    assert cause.may_restart is (expected[0] is not Restart.EXCLUDED)


@pytest.mark.parametrize(
    ("expected", "cause"),
    [
        ("rank 1 failed (exit status 3)", FAILED),
        ("scheduler failed (exit status 3)", named(Exited(-1, Ending(exit_code=3)), {-1: "scheduler"})),
        ("received SIGTERM", STOP),
        ("node 3 received SIGTERM", SignalReceived(SIGTERM, node=3)),
        ("the runner of node 3 was killed", SignalReceived(SIGKILL, node=3)),
        ("node 3 failed (rank 26: exit status 7)", PEER),
        ("ascend-runner (pid 5) was killed", KILLED),
        ("the process that launched ascend-runner (pid 7) has ended", ORPHAN),
        ("time limit of 1 min 0 s", LimitReached(60.0)),
        (str(UNHEALTHY), UNHEALTHY),
    ],
)
def test_reason(expected: str, cause: Cause) -> None:
    """The phrase while ranks are stopped is short where the cause is a signal or a limit."""
    assert expected == cause.reason


@pytest.mark.parametrize(
    ("to_stop", "to_kill", "cause"),
    [
        ("SIGINT", "Ctrl-C", FAILED),
        ("SIGTERM again", "SIGTERM again", STOP),
        ("SIGINT again", "Ctrl-C again", SignalReceived(SIGINT)),
        ("SIGINT", "Ctrl-C", SignalReceived(SIGINT, node=3)),
        ("SIGHUP again", "SIGTERM", SignalReceived(SIGHUP)),
        ("send SIGTERM to pid 6", "send SIGTERM to pid 6", KILLED),
    ],
)
def test_what_cuts_the_time_short(to_stop: str, to_kill: str, cause: Cause) -> None:
    """Where the guardian was killed, its pid no longer reaches the runner."""
    assert (to_stop, to_kill) == (cause.to_stop, cause.to_kill)


@pytest.mark.parametrize("cause", [FAILED, SpawnFailed(1, "no memory", 125)])
def test_only_causes_of_a_rank_have_a_first_exit(cause: Cause) -> None:
    """A slow rank has not ended: it is what the cause is about, and no more."""
    assert 1 == cause.first_exit
    assert (3, None) == (SLOW.rank_id, SLOW.first_exit)
