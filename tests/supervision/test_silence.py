"""Silence becomes a hang after the limit, without the time in which the ranks were not allowed to run."""

from __future__ import annotations

from ascend_runner.supervision.silence import Silence


def looks(silence: Silence, until: float, last_activity: float = 0.0, *, is_held: bool = False) -> list[float]:
    """Look whenever it is due; return the times at which a hang was found."""
    found: list[float] = []
    while silence.next_check <= until and not found:
        now = silence.next_check
        if silence.check(now, last_activity, is_held=is_held):
            found.append(now)
    return found


def test_limit_is_kept_to_the_second() -> None:
    """It counts from the start, or from the last output."""
    assert [60.0] == looks(Silence(60.0, since=0.0), 1000.0)
    assert [75.0] == looks(Silence(60.0, since=0.0), 1000.0, last_activity=15.0)


def test_time_in_which_a_rank_is_held_does_not_count() -> None:
    """The limit starts over with the first check after it."""
    silence = Silence(60.0, since=0.0)

    assert [] == looks(silence, 500.0, is_held=True)
    assert [504.0 + 60.0] == looks(silence, 1000.0)


def test_late_look_begins_anew() -> None:
    """Whatever has kept the runner from running has kept the ranks, too."""
    silence = Silence(60.0, since=0.0)

    assert not silence.check(500.0, 0.0, is_held=False)
    assert [560.0] == looks(silence, 1000.0)
