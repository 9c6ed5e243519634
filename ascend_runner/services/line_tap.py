"""Finds the lines about steps in the output of a rank by fixed texts; only a part of a flood is searched."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from itertools import islice
from typing import Final

from ascend_runner.training.steps import LONGEST

# What is searched of the output of all ranks, in bytes a second, and at once after a pause: a flood is read in parts,
# so that it costs less than 1 % of a core. Steps that are lost in this way come too fast to be those of a training.
RATE: Final = 1 << 19
BURST: Final = 1 << 18
SHORTEST_BURST: Final = 4 * LONGEST  # bytes for each rank, however many there are
MOST_LINES: Final = 100  # lines of one read: the newest ones
LINE_END: Final = re.compile(rb"[\r\n]")  # a progress bar ends a state with a carriage return


class LineTap:
    """Finds the lines about steps in the output of one rank. Used by the pump's thread only."""

    def __init__(self, literals: tuple[bytes, ...], put: Callable[[bytes], None], share: float) -> None:
        """`put` receives each line. `share` is the part of the limits that this rank has."""
        self._literals = literals
        self._put = put
        self._rate, self._burst = RATE * share, max(BURST * share, SHORTEST_BURST)
        self._allowed, self._at = self._burst, time.monotonic()
        self._rest = b""  # the beginning of an unfinished line

    def __call__(self, data: bytes) -> None:
        """Take what was read."""
        now = time.monotonic()
        self._allowed = min(self._burst, self._allowed + (now - self._at) * self._rate)
        self._at = now
        if len(data) > self._allowed:
            self._rest = b""
            if self._allowed < LONGEST:
                return
            data = data[-int(self._allowed) :].partition(b"\n")[2]
        self._allowed -= len(data)
        if self._rest:
            data = self._rest + data
        end = max(data.rfind(b"\n"), data.rfind(b"\r")) + 1
        self._rest = data[end : end + LONGEST]
        for literal in self._literals:
            if literal in data:
                self._put_lines(data[:end])
                return

    def _put_lines(self, data: bytes) -> None:
        lines = reversed(LINE_END.split(data))
        found = (line for line in lines if any(literal in line for literal in self._literals))
        for line in reversed([*islice(found, MOST_LINES)]):
            self._put(line[:LONGEST])
