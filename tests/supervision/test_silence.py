"""Silence becomes a hang after the limit, without the time in which the ranks were not allowed to run."""

from __future__ import annotations

from bisect import bisect_right
from random import Random

import pytest

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
    """Anything that suspended the runner has suspended the ranks as well."""
    silence = Silence(60.0, since=0.0)

    assert not silence.check(500.0, 0.0, is_held=False)
    assert [560.0] == looks(silence, 1000.0)


@pytest.mark.parametrize(("limit", "expected"), [(600.0, 590.0), (21.0, 11.0), (3.0, 1.5)])
def test_last_part(limit: float, expected: float) -> None:
    """It begins 10 s before the limit, or after half of a short one, with a check of its own."""
    silence, nearly_over = Silence(limit, since=0.0), []
    while not silence.check(now := silence.next_check, 0.0, is_held=False):
        nearly_over += [now] * silence.is_nearly_over

    assert (expected, limit) == (nearly_over[0], now)


def test_announced_pause_is_no_hang() -> None:
    """The limit is not reached before the end that the ranks have announced."""
    silence = Silence(60.0, since=0.0)
    found = [now for now in range(0, 400, 10) if silence.check(now, 0.0, is_held=False, announced_until=300.0)]

    assert 300 == found[0]


class Log:
    """The times at which a job writes, made up from its steps, evaluations, checkpoints and compilation."""

    def __init__(self, seed: int) -> None:
        random = Random(seed)  # noqa: S311  not for cryptography
        step = random.choice([0.1, 1.0, 5.0, 25.0, 60.0, 200.0])
        now = random.uniform(1.0, 1800.0)  # imports, and waiting for the other nodes
        self.times = [now, now + random.uniform(0.0, 2700.0)]  # compiling graphs
        for number in range(1, 2001):
            is_save, is_evaluation = number % 300 == 0, number % 500 == 0
            pause = 20 * step if is_evaluation else 300.0 if is_save else step
            self.times.append(self.times[-1] + pause * random.uniform(0.9, 1.0))

    def last_before(self, now: float) -> float:
        """Return when the job wrote last; the start counts as well."""
        index = bisect_right(self.times, now)
        return self.times[index - 1] if index else 0.0


@pytest.mark.parametrize("seed", range(100))
def test_own_pace_ends_no_good_job(seed: int) -> None:
    """Evaluations are 20 times longer than steps, checkpoints take five minutes: only the real hang at the end is one.

    It ends the job within the limit and two seconds.
    """
    log, silence = Log(seed), Silence(None, since=0.0)
    now = silence.next_check
    while not silence.check(now, log.last_before(now), is_held=False):
        now = silence.next_check

    assert now > log.times[-1]
    assert now <= log.times[-1] + silence.limit + 2.0


def test_own_pace_never_ends_a_job_within_ten_minutes() -> None:
    """However fast the steps were, and an hour is given before the first output."""
    silent, fast = Silence(None, since=0.0), Silence(None, since=0.0)
    now = 0.0
    while now < 2000.0:
        now = fast.next_check
        fast.check(now, now, is_held=False)

    assert [3600.0] == looks(silent, 10_000.0)
    assert [now + 600.0] == looks(fast, 10_000.0, last_activity=now)


def test_idle_ranks_wake_the_runner_rarely() -> None:
    """Without a limit of the user, the time between two checks doubles in a silence, up to a tenth of the limit."""
    silence = Silence(None, since=0.0)
    first = silence.next_check
    silence.check(first, first - 5.0, is_held=False)  # the first output
    checks = [first, silence.next_check]
    while not silence.check(checks[-1], first - 5.0, is_held=False):
        checks.append(silence.next_check)
    gaps = [after - before for before, after in zip(checks, checks[1:])]

    assert 360.0 == first
    assert [10.0, 20.0, 40.0, 80.0, 160.0, 320.0] == gaps[:6]
    assert {360.0} >= set(gaps[6:-2])
    assert 10.0 == gaps[-1], "the last part"
