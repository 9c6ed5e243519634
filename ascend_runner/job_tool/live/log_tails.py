"""The ends of logs: when each was last written, its last lines, and the last step in it.

A log that has not changed is not opened. If there are many logs, only some are examined each time, so that the cost
does not grow with the job.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from typing import Final

import attrs

from ascend_runner.job_tool.job import log_end
from ascend_runner.training import steps
from ascend_runner.training.steps import Step

MOST_EXAMINED: Final = 256  # logs each time, besides those that are shown
MOST_READ: Final = 32  # likewise
FIRST_TAIL: Final = 1 << 16  # bytes of a log that is read for the first time, and at most at any time


@attrs.frozen(kw_only=True)
class Tail:
    """The end of a log. `at` is when it was written, in seconds since the epoch; the lines are without secrets."""

    size: int
    at: float
    lines: tuple[str, ...] = ()
    step: Step = steps.NO_STEP
    is_read: bool = False


class LogTails:
    """Reads the ends of the logs of a job whenever `look` is called."""

    def __init__(self) -> None:
        self.tails: dict[int, Tail] = {}
        self._turn = 0

    def look(self, paths: Mapping[int, str], shown: Collection[int]) -> None:
        """Examine logs, by rank: those that are shown, and in turn some of the others."""
        others = [rank_id for rank_id in paths if rank_id not in shown]
        ends = range(self._turn, self._turn + min(MOST_EXAMINED, len(others)))
        in_turn = [others[index % len(others)] for index in ends]
        self._turn = ends.stop % len(others) if others else 0
        read = itertools.count()

        def may_read(rank_id: int) -> bool:
            return rank_id in shown or next(read) < MOST_READ

        for rank_id in itertools.chain(shown, in_turn):
            path = paths.get(rank_id)
            if path:
                self._examine(rank_id, path, may_read)

    def _examine(self, rank_id: int, path: str, may_read: Callable[[int], bool]) -> None:
        """Read the end of a log if it has changed."""
        with suppress(OSError, ValueError):
            status = os.stat(path)
            old = self.tails.get(rank_id)
            if old and (old.size, old.at) == (status.st_size, status.st_mtime) and old.is_read:
                return
            tail = Tail(size=status.st_size, at=status.st_mtime)
            if old:
                tail = attrs.evolve(tail, lines=old.lines, step=old.step)
            if may_read(rank_id):
                tail = _read(path, tail, old.size if old and old.is_read else None)
            self.tails[rank_id] = tail


def _read(path: str, tail: Tail, old_size: int | None) -> Tail:
    """Return a tail with what was written since the log had the old size, if the log can be read."""
    grown = FIRST_TAIL if old_size is None or old_size > tail.size else tail.size - old_size + log_end.LINE
    end = log_end.read(path, min(grown, FIRST_TAIL))
    lines = log_end.last_lines(end) or tail.lines
    return attrs.evolve(tail, lines=lines, step=steps.newest(end, tail.step), is_read=bool(end) or not tail.size)
