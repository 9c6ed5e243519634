"""The lines of a log as a terminal may show them, without control characters. Pure: bytes in, text out."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator
from typing import Final

import attrs

from ascend_runner.text import lines_of, printable

LONGEST: Final = 1 << 20  # bytes of a line; a longer one is shown in parts
EVERYTHING: Final = -1  # stands for all lines


@attrs.frozen(kw_only=True)
class LineFilter:
    """Which lines of each log are shown: the last `lines` of those that `pattern` matches (None: all match)."""

    lines: int = EVERYTHING
    pattern: re.Pattern[str] | None = None

    def chosen(self, lines: Iterator[str]) -> Iterator[str]:
        """Return the lines of a log that are shown."""
        found = filter(self.pattern.search, lines) if self.pattern else lines
        return found if self.lines == EVERYTHING else iter(deque(found, maxlen=self.lines))


class LineReader:
    """Cuts one log into lines. A line that is drawn again with carriage returns is shown in its last state."""

    def __init__(self) -> None:
        self._rest = b""
        self._is_rest_shown = False

    @property
    def has_new_state(self) -> bool:
        """Whether an unfinished line was drawn again, as a progress bar, and was not shown since then."""
        return b"\r" in self._rest and not self._is_rest_shown

    def feed(self, data: bytes) -> Iterator[str]:
        """Yield the lines that are complete."""
        self._rest += data
        self._is_rest_shown = False
        end = self._rest.rfind(b"\n") + 1
        if end or len(self._rest) > LONGEST:
            whole, self._rest = self._rest[: end or LONGEST], self._rest[end or LONGEST :]
            yield from _shown(whole)

    def state(self) -> Iterator[str]:
        """Yield the unfinished line as it is now, unless it was shown like this before."""
        if self._rest and not self._is_rest_shown:
            self._is_rest_shown = True
            yield from _shown(self._rest)


def _shown(data: bytes) -> Iterator[str]:
    return map(printable, lines_of(data.removesuffix(b"\n")))
