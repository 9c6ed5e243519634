"""Averages the CPU usage of ranks over the last minute. Pure.

Of ranks that wait for each other in each step, the one that computes for longer uses more CPU, or less if the others
poll while they wait. In a single second, a step of several seconds looks like such a difference.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Final

WINDOW: Final = 60.0  # seconds
LEAST: Final = 30.0  # seconds until there are averages


class CpuWindow:
    """The CPU time of each rank at some moments of the last minute."""

    def __init__(self) -> None:
        self._seen: deque[tuple[float, Mapping[int, float]]] = deque()

    def look(self, seconds: Mapping[int, float], now: float) -> dict[int, float]:
        """Return the average usage of each rank in percent of a core; `seconds` is its CPU time until now.

        A rank whose time has become less is left out: it was restarted, or one of its processes has ended.
        """
        self._seen.append((now, dict(seconds)))
        while len(self._seen) > 1 and now - self._seen[1][0] >= WINDOW:
            self._seen.popleft()
        began, before = self._seen[0]
        if now - began < LEAST:
            return {}
        used = {rank_id: after - before[rank_id] for rank_id, after in seconds.items() if rank_id in before}
        return {rank_id: 100 * more / (now - began) for rank_id, more in used.items() if more >= 0}
