"""Measures how long the ranks have been silent, excluding the time they were suspended."""

from __future__ import annotations

from typing import Final

import attrs

CHECKS: Final = 10  # within the limit


@attrs.define
class Silence:
    """Silence that becomes a hang after `limit` seconds. All other times are moments of one clock, in seconds.

    It is checked ten times per limit. If a rank is suspended at a check (stopped, or in a frozen control group), or the
    check is late because this process was suspended, the limit starts over.
    """

    limit: float
    since: float
    next_check: float = attrs.field(init=False)
    _was_held: bool = attrs.field(init=False, default=False)

    def __attrs_post_init__(self) -> None:
        self.next_check = self.since + self.limit / CHECKS

    def check(self, now: float, last_activity: float, *, is_held: bool) -> bool:
        """Return whether the limit is reached, and set the time of the next check."""
        is_late = now - self.next_check > self.limit / CHECKS
        if is_late or is_held or self._was_held:
            self.since = now
        self._was_held = is_held
        self.since = max(self.since, last_activity)
        self.next_check = min(now + self.limit / CHECKS, max(now, self.since + self.limit))
        return now - self.since >= self.limit
