"""How long the ranks have been silent, without the time in which they were not allowed to run."""

from __future__ import annotations

from typing import Final

import attrs

LOOKS: Final = 10  # within the limit


@attrs.define
class Silence:
    """Silence that becomes a hang after `limit` seconds. All other times are moments of one clock, in seconds.

    It is looked at ten times within the limit. Where a rank is held then (stopped, or in a frozen control group), or
    the look comes late because this process was held as well, the limit begins anew.
    """

    limit: float
    since: float
    next_look: float = attrs.field(init=False)
    _was_held: bool = attrs.field(init=False, default=False)

    def __attrs_post_init__(self) -> None:
        self.next_look = self.since + self.limit / LOOKS

    def look(self, now: float, last_activity: float, *, is_held: bool) -> bool:
        """Return whether the limit is reached, and set the time of the next look."""
        is_late = now - self.next_look > self.limit / LOOKS
        if is_late or is_held or self._was_held:
            self.since = now
        self._was_held = is_held
        self.since = max(self.since, last_activity)
        self.next_look = min(now + self.limit / LOOKS, max(now, self.since + self.limit))
        return now - self.since >= self.limit
