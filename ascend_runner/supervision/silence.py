"""Measures how long the ranks have been silent, excluding the time they were suspended."""

from __future__ import annotations

import math
from typing import Final

import attrs

CHECKS: Final = 10  # within a limit that the user has set
LAST_PART: Final = 10.0  # seconds before the limit; of a limit below 20 s the second half
# Seconds between two checks for a limit that follows from the pauses of the job, which are measured by these checks. In
# a silence, the time between two of them doubles up to a tenth of the limit: a runner whose ranks are idle sleeps.
CHECK_EVERY: Final = 10.0

# The limit that follows from the job: evaluations and checkpoints are much longer than steps, and graphs are compiled
# before the first ones. A limit that is too short ends a good job.
BEFORE_OUTPUT: Final = 3600.0  # seconds until the first output and while the job warms up
WARM_UP: Final = 600.0  # seconds from the first output on; a pause that began in them does not count
SHORTEST: Final = 600.0  # seconds
TIMES_LONGEST: Final = 5  # as long as the longest pause so far
TIMES_MEAN: Final = 25  # as long as the mean pause: the first evaluation takes 20 steps, even of minutes


@attrs.define(eq=False, repr=False)
class OwnPace:
    """A limit that follows from the pauses of the job, in seconds; times are moments of one clock."""

    limit: float = attrs.field(init=False, default=BEFORE_OUTPUT)
    _first_activity: float | None = attrs.field(init=False, default=None)
    _is_warm: bool = attrs.field(init=False, default=False)
    _longest: float = attrs.field(init=False, default=0.0)
    _sum: float = attrs.field(init=False, default=0.0)
    _count: int = attrs.field(init=False, default=0)

    def note_pause(self, seconds: float, last_activity: float) -> None:
        """Take a pause of the ranks that was ended by their last activity."""
        if self._first_activity is None:
            self._first_activity = last_activity
        if self._is_warm:
            self._longest = max(self._longest, seconds)
            self._sum += seconds
            self._count += 1
            mean = self._sum / self._count
            self.limit = float(math.ceil(max(SHORTEST, TIMES_LONGEST * self._longest, TIMES_MEAN * mean)))
        elif last_activity >= self._first_activity + WARM_UP:
            self._is_warm, self.limit = True, SHORTEST


@attrs.define(eq=False, repr=False)
class Silence:
    """Silence that becomes a hang after `limit` seconds. All other times are moments of one clock, in seconds.

    It is checked ten times per limit. If a rank is suspended at a check (stopped, or in a frozen control group), or the
    check is late because this process was suspended, the limit starts over. Without a limit of the user, the limit is
    that of the job's own pace, and it is checked more often while the ranks are active.
    """

    _users_limit: float | None
    since: float
    next_check: float = attrs.field(init=False)
    interval: float = attrs.field(init=False)  # seconds between two checks
    _pace: OwnPace = attrs.field(init=False, factory=OwnPace)
    _last_activity: float = attrs.field(init=False)
    is_half_over: bool = attrs.field(init=False, default=False)  # whether half of the limit was over at the last check
    is_nearly_over: bool = attrs.field(init=False, default=False)  # whether only the last part of it was left then
    _was_held: bool = attrs.field(init=False, default=False)
    _known_until: float = attrs.field(init=False, default=float("-inf"))

    def __attrs_post_init__(self) -> None:
        self._last_activity = self.since
        self.interval = self.limit / CHECKS
        self.next_check = self.since + self.interval

    @property
    def limit(self) -> float:
        """The limit that holds now."""
        return self._pace.limit if self._users_limit is None else self._users_limit

    def go_on(self, last_activity: float) -> None:
        """Report the next hang only after a sign of life since the last activity: this one is known."""
        self._known_until = self._last_activity = max(self._last_activity, last_activity)

    def check(self, now: float, last_activity: float, *, is_held: bool, announced_until: float = 0.0) -> bool:
        """Return whether the limit is reached, and set the time of the next check.

        A pause that the ranks have announced is no hang before its end, and does not set the pace.
        """
        is_late = now - self.next_check > self.interval
        is_active = last_activity > self._last_activity
        if is_active:
            if self._last_activity >= announced_until:
                self._pace.note_pause(last_activity - self.since, last_activity)
            self._last_activity = last_activity
        if self._users_limit is None:
            self.interval = CHECK_EVERY if is_active else min(2 * self.interval, self.limit / CHECKS)
        if is_late or is_held or self._was_held:
            self.since = now
        self._was_held = is_held
        self.since = now if last_activity <= self._known_until else max(self.since, last_activity)
        ends_at = max(self.since + self.limit, announced_until)
        half, last_part = ends_at - self.limit / 2, ends_at - min(LAST_PART, self.limit / 2)
        self.is_half_over, self.is_nearly_over = now >= half, now >= last_part
        self.next_check = min(now + self.interval, max(now, ends_at if self.is_nearly_over else last_part))
        return now >= ends_at
