"""What the pump keeps of one rank: its log, its unfinished line, and the end of its output."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Callable, Final, Protocol

from ascend_runner.output.lines import LineCutter
from ascend_runner.output.log_file import Gap

TAIL_SIZE: Final = 64 * 1024  # bytes of each rank's output kept for the report


class Log(Protocol):
    """Where a rank's output is kept; see `log_writer.LogWriter`. Nothing here blocks or raises."""

    @property
    def gaps(self) -> Sequence[Gap]:
        """The bytes that were lost."""

    def put(self, data: bytes) -> bool:
        """Take `data`; return whether there is room for more."""

    def has_room(self) -> bool:
        """Whether there is room for some time."""

    def call_when_room(self, call: Callable[[], None]) -> None:
        """Call `call` once, in any thread, as soon as there is room."""

    def is_hung(self) -> bool:
        """Whether `put` drops data at present."""

    def close(self) -> None:
        """Store what was taken, and close, in the background."""


class Stream:
    """The output of one rank. Changed by the pump's thread only."""

    def __init__(self, rank_id: int, log: Log, cutter: LineCutter | None) -> None:
        """Without `cutter` the rank's lines are not shown."""
        self.rank_id = rank_id
        self.log = log
        self.cutter = cutter
        self.size = 0  # bytes read so far
        self._tail: list[bytes] = []
        self._tail_size = 0

    @property
    def tail(self) -> bytes:
        """The last `TAIL_SIZE` bytes of the output, or all of it."""
        return b"".join(self._tail)[-TAIL_SIZE:]

    def remember(self, data: bytes) -> None:
        """Count `data` and keep its end."""
        self.size += len(data)
        data = data[-TAIL_SIZE:]
        self._tail.append(data)
        self._tail_size += len(data)
        while self._tail_size - len(self._tail[0]) >= TAIL_SIZE:
            self._tail_size -= len(self._tail.pop(0))
