"""The words for the state of a rank."""

from __future__ import annotations

from signal import SIGKILL, SIGSEGV, SIGTERM

import pytest

from ascend_runner.members import Members
from ascend_runner.observations import rank_states
from ascend_runner.observations.rank_states import RankState
from ascend_runner.supervision.causes import Ending
from ascend_runner.views.page_ranks import words_of


@pytest.mark.parametrize(
    ("state", "ending", "words"),
    [
        (RankState.RUNNING, None, "running"),
        (RankState.NOT_STARTED, None, "not started"),
        (RankState.NOT_KILLED, None, "still alive after SIGKILL"),
        (RankState.SUCCEEDED, Ending(), "succeeded"),
        (RankState.FAILED, Ending(exit_code=7), "failed (exit status 7)"),
        (RankState.FAILED, Ending(signum=SIGSEGV, core_dumped=True), "failed (SIGSEGV, core dumped)"),
        (RankState.STOPPED, Ending(), "stopped by the runner (exit status 0)"),
        (RankState.STOPPED, Ending(signum=SIGTERM), "stopped by the runner (SIGTERM)"),
        (RankState.STOPPED, Ending(exit_code=143), "stopped by the runner (exit status 143)"),
        (RankState.STOPPED, Ending(signum=SIGKILL), "killed by the runner (SIGKILL)"),
        (RankState.STOPPED, Ending(exit_code=7), "ended after being asked to stop (exit status 7)"),
        (RankState.STOPPED, Ending(signum=SIGSEGV), "ended after being asked to stop (SIGSEGV, no core)"),
    ],
)
def test_screen_and_report_use_the_same_words(state: RankState, ending: Ending | None, words: str) -> None:
    """The words also say that a rank was stopped by the runner, not by the platform or by itself."""
    members = {
        "exit_code": ending.exit_code if ending and not ending.signum else None,
        "signal": int(ending.signum) if ending and ending.signum else None,
        "core_dumped": bool(ending and ending.core_dumped),
    }

    assert words == rank_states.described(state, ending)
    assert words == words_of(Members(members), state.value)


def test_unknown_state_is_shown_as_it_is() -> None:
    """A report of a later version may have further states."""
    assert "parked" == words_of(Members({"signal": 1 << 40}), "parked")
    assert "failed" == words_of(Members({"signal": "x"}), "failed")
