"""The output of one rank over time, in a fixed amount of memory.

When the last cell is full, each pair of cells is merged into one, so that a job of a minute and a job of a month need
the same memory. Counting needs no lock; other threads may read.
"""

from __future__ import annotations

from typing import Final

CELLS: Final = 96
FIRST_CELL: Final = 0.25  # seconds
END: Final = 128  # bytes of the end of the output


class Activity:
    """The output of one rank. Changed by the thread that reads it; `began` is by the same clock as all times."""

    def __init__(self, began: float) -> None:
        self._counts = [0] * CELLS
        self._began = began
        self.size = self.lost = 0  # bytes: of the output, and missing from the log
        self.first_at: float | None = None
        self.last_at: float | None = None
        self.seconds = FIRST_CELL  # the seconds that a cell covers
        self.end = b""  # of the output

    def add(self, data: bytes, at: float) -> None:
        """Count bytes that were read at `at`."""
        count = len(data)
        if self.first_at is None:
            self.first_at = at
        self.last_at = at
        self.size += count
        self.end = data[-END:] if count >= END else (self.end + data)[-END:]
        cell = self._cell(at)
        if cell >= CELLS:
            cell = self._lengthen(at)
        self._counts[cell] += count

    def lose(self, size: int) -> None:
        """Store how many of the bytes the log lacks in total."""
        self.lost = size

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
            merged = [self._counts[2 * index] + self._counts[2 * index + 1] for index in range(half)]
            self._counts = merged + [0] * half
            self.seconds *= 2
        return cell
