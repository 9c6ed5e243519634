"""The states of a rank and their words: after a failure, in the HTML report, by `ascend-job` and in notebooks. Pure."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from signal import SIGKILL
from typing import Final

from ascend_runner.guardian.signal_sets import STOP_SIGNALS
from ascend_runner.supervision.causes import Ending


class RankState(enum.Enum):
    """The state of a rank, while its job runs or after it."""

    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    STOPPED = "stopped"  # asked to stop by the runner, and ended, with whatever exit status
    NOT_STARTED = "not_started"
    NOT_KILLED = "not_killed"  # still alive after SIGKILL


WORDS: Final[Mapping[RankState, str]] = {
    RankState.NOT_STARTED: "not started",
    RankState.NOT_KILLED: "still alive after SIGKILL",
}
ENDS_OF_A_STOP: Final = STOP_SIGNALS | {SIGKILL}
WITH_ENDING: Final = frozenset({RankState.FAILED, RankState.STOPPED})


def described(state: RankState, ending: Ending | None) -> str:
    """Describe a rank: "running", "failed (exit status 1)", "stopped by the runner (SIGTERM)"."""
    if state not in WITH_ENDING:
        return WORDS.get(state, state.value)
    verb = _stopped(ending) if state is RankState.STOPPED else state.value
    return f"{verb} ({ending.in_parentheses.replace('killed by ', '')})" if ending else verb


def _stopped(ending: Ending | None) -> str:
    """Say how a rank has ended that was asked to stop: if not of that, it may have failed by itself all the same."""
    if ending and not (ending.is_success or ending.exit_status - 128 in ENDS_OF_A_STOP):
        return "ended after being asked to stop"
    return f"{'killed' if ending and ending.signum == SIGKILL else 'stopped'} by the runner"
