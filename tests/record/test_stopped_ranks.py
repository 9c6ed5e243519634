"""Which ranks were stopped by the runner: `ascend-job` shows what the report says later."""

from __future__ import annotations

from collections.abc import Sequence
from signal import SIGKILL, SIGTERM
from typing import Final

import pytest

from ascend_runner.node.bounded import Patience
from ascend_runner.record.facts import CheckpointEnded, Fact, RankOutput, SignalsSent
from ascend_runner.record.rank_record import RankState
from ascend_runner.report.recorder import Recorder
from ascend_runner.supervision.causes import Cause, Ending, Exited, SignalReceived
from ascend_runner.supervision.events import Spawned
from ascend_runner.supervision.state import Phase, State
from tests.helpers.plans import job_spec, rank_spec

JOB: Final = job_spec([rank_spec(rank_id) for rank_id in range(3)])
ALL: Final = frozenset(range(3))
FAILED: Final = Ending(exit_code=7)
KILLED: Final = Ending(signum=SIGTERM)
STOP: Final = SignalReceived(SIGTERM)
FAILURE: Final = Exited(0, FAILED)
STATES: Final = {"F": RankState.FAILED, "S": RankState.STOPPED, ".": RankState.SUCCEEDED}


def state(phase: Phase, cause: Cause | None = None, stopped: frozenset[int] = frozenset()) -> State:
    """Return a state of the attempt."""
    return State(grace=1.0, phase=phase, cause=cause, stopped=stopped)


def asked(*rank_ids: int) -> SignalsSent:
    """Return the fact that ranks were asked to stop."""
    return SignalsSent(dict.fromkeys(rank_ids, SIGTERM))


TEARDOWN: Final = state(Phase.TERMINATING, FAILURE, ALL - {0})


@pytest.mark.parametrize(
    ("facts", "states"),
    [
        ([FAILURE, TEARDOWN, asked(1, 2), Exited(1, FAILED), Exited(2, KILLED)], "FSS"),
        ([FAILURE, Exited(1, FAILED), TEARDOWN, asked(2), Exited(2, Ending())], "FFS"),
        ([FAILURE, TEARDOWN, asked(2), Exited(1, FAILED), Exited(2, KILLED)], "FFS"),
        ([Exited(0, KILLED), state(Phase.TERMINATING, STOP, ALL), Exited(1, KILLED), Exited(2, FAILED)], "SSS"),
        (
            [
                state(Phase.CHECKPOINTING, STOP, ALL),
                FAILURE,
                Exited(1, Ending()),
                CheckpointEnded(asked_at=0.0, seconds=1.0, failed={0: FAILED}),
                state(Phase.TERMINATING, STOP, ALL),
                Exited(2, KILLED),
            ],
            "FSS",
        ),
        (
            [
                state(Phase.CHECKPOINTING),
                CheckpointEnded(asked_at=0.0, seconds=1.0, failed={0: FAILED}),
                state(Phase.TERMINATING, STOP, ALL),
                *(Exited(rank_id, KILLED) for rank_id in range(3)),
            ],
            "SSS",
        ),
        (
            [
                FAILURE,
                TEARDOWN,
                asked(1, 2),
                Exited(1, Ending(signum=SIGKILL)),
                SignalsSent({2: SIGKILL}),
                Exited(2, Ending(signum=SIGKILL)),
            ],
            "FFS",
        ),
        ([Exited(rank_id, Ending()) for rank_id in range(3)], "..."),
    ],
    ids=[
        "failure",
        "same moment",
        "before it was asked",
        "signal",
        "unsaved",
        "saved before",
        "killed by another",
        "success",
    ],
)
def test_live_records_and_report_agree(facts: Sequence[Fact], states: str) -> None:
    """While a job ends, its records have the states that its report gets."""
    recorder = Recorder(JOB, Patience(warn=pytest.fail))
    spawned = [Spawned(rank_id, 4711 + rank_id) for rank_id in range(3)]
    last = next((fact for fact in reversed(facts) if isinstance(fact, State)), state(Phase.RUNNING))
    outputs = [RankOutput(rank_id=rank_id) for rank_id in range(3)]
    for fact in (state(Phase.STARTING), *spawned, *facts, *outputs, state(Phase.DONE, last.cause, last.stopped)):
        recorder.observe(fact, 1.0)
    live = [rank.state for rank in recorder.so_far()]

    assert [STATES[letter] for letter in states] == live
    assert live == [rank.state for rank in recorder.finish().ranks]
