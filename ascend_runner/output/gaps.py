"""The parts of a rank's output that its log file lacks."""

from __future__ import annotations

import attrs


@attrs.frozen
class Gap:
    """A part of the rank's output that the file lacks: `size` bytes, starting at `offset`."""

    offset: int
    size: int

    @property
    def end(self) -> int:
        """The offset of the first byte after the gap."""
        return self.offset + self.size


def add_gap(gaps: list[Gap], gap: Gap) -> None:
    """Append a gap, or lengthen the last one if it ends where this one begins."""
    if gaps and gaps[-1].end == gap.offset:
        gap = Gap(gaps[-1].offset, gaps.pop().size + gap.size)
    gaps.append(gap)
