"""The output of one rank over time, in a small piece of memory of fixed size that other processes may read.

Counting needs no system call and no lock. The memory has, in the byte order of the machine: `HEAD`,
then `CELLS` counts of bytes, each of 8 bytes. When the last cell is full, each pair of cells is
merged into one, so that a job of a minute and a job of a month need the same memory.
"""

from __future__ import annotations

import struct
from typing import Final

CELLS: Final = 96
FIRST_CELL: Final = 0.25  # seconds
END: Final = 128  # bytes of the end of the output
LATEST: Final = struct.Struct(f"=dQ{END}s")  # time of the last output, bytes, and their end
# The time of the first output, 0 before it; bytes that the log lacks; seconds of a cell; padding; LATEST.
HEAD: Final = struct.Struct(f"=dQd8x{LATEST.size}s")
SIZE: Final = HEAD.size + 8 * CELLS
_LATEST_AT: Final = HEAD.size - LATEST.size
_LATEST_INTO: Final = LATEST.pack_into  # bound once, because each read calls it
_NUMBER: Final = struct.Struct("=d")
_COUNT: Final = struct.Struct("=Q")


class Activity:
    """The output of one rank. Changed by the thread that reads it; `began` is by the same clock as all times."""

    def __init__(self, began: float, memory: memoryview | None = None) -> None:
        """Begin with nothing; `memory` has `SIZE` zero bytes."""
        self._memory = memoryview(bytearray(SIZE)) if memory is None else memory
        self._counts = self._memory[HEAD.size :].cast("Q")
        self._began = began
        self.size = self.lost = 0  # bytes
        self.first_at: float | None = None
        self.last_at: float | None = None
        self.seconds = FIRST_CELL  # the seconds that a cell covers
        self._end = b""
        _NUMBER.pack_into(self._memory, 16, self.seconds)

    def add(self, data: bytes, at: float) -> None:
        """Count bytes that were read at `at`."""
        count = len(data)
        if self.first_at is None:
            self.first_at = at
            _NUMBER.pack_into(self._memory, 0, at)
        self.last_at = at
        self.size += count
        self._end = end = data[-END:] if count >= END else (self._end + data)[-END:]
        _LATEST_INTO(self._memory, _LATEST_AT, at, self.size, end)
        cell = self._cell(at)
        if cell >= CELLS:
            cell = self._lengthen(at)
        self._counts[cell] += count

    def lose(self, size: int) -> None:
        """Store how many of the bytes the log lacks in total."""
        self.lost = size
        _COUNT.pack_into(self._memory, 8, size)

    @property
    def counts(self) -> tuple[int, ...]:
        """The bytes of each cell, up to the last one that is not empty."""
        return () if self.last_at is None else tuple(self._counts[: self._cell(self.last_at) + 1])

    def _cell(self, at: float) -> int:
        return int((at - self._began) / self.seconds)

    def _lengthen(self, at: float) -> int:
        """Lengthen the cells until they cover a time; return its cell."""
        half = CELLS // 2
        while (cell := self._cell(at)) >= CELLS:
            for index in range(half):
                self._counts[index] = self._counts[2 * index] + self._counts[2 * index + 1]
            self._counts[half:] = memoryview(bytes(8 * half)).cast("Q")
            self.seconds *= 2
        _NUMBER.pack_into(self._memory, 16, self.seconds)
        return cell
