"""Where the output of one rank goes: its log file, its lines on the console, and the end that a report shows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from ascend_runner.output.lines import LineCutter
from ascend_runner.output.log_writer import LogWriter

TAIL_SIZE: Final = 64 * 1024  # bytes of the output kept for the report
SHOW_AFTER: Final = 1.0  # seconds after which an unfinished line is shown, and between two states of a progress bar


class Stream:
    """The output of one rank. Changed by the pump's thread only."""

    def __init__(
        self,
        rank_id: int,
        log: LogWriter,
        cutter: LineCutter | None,
        *,
        show_after: float = SHOW_AFTER,
        tap: Callable[[bytes], None] | None = None,
    ) -> None:
        """Without `cutter` the rank's lines are not shown; unfinished lines are shown after `show_after` seconds.

        `tap` also receives everything that is read.
        """
        self.rank_id = rank_id
        self.log = log
        self.cutter = cutter
        self.show_after = show_after
        self.tap = tap
        self.activity = log.activity
        self.unread = 0  # bytes that were left in the pipe
        self._tail: list[bytes] = []
        self._tail_size = 0

    @property
    def tail(self) -> bytes:
        """The last `TAIL_SIZE` bytes of the output, or all of it."""
        return b"".join(self._tail)[-TAIL_SIZE:]

    def remember(self, data: bytes, at: float) -> None:
        """Count `data`, which was read at a time of the pump's clock, and keep its end."""
        self.activity.add(data, at)
        data = data[-TAIL_SIZE:]
        self._tail.append(data)
        self._tail_size += len(data)
        while self._tail_size - len(self._tail[0]) >= TAIL_SIZE:
            self._tail_size -= len(self._tail.pop(0))
