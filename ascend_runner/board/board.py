"""The board of a running job: a small file in memory, into which the runner stores facts for others to read.

An observer of the manager's facts. A store needs no system call, wakes no process and never blocks, so an idle runner
stays idle, however many processes read the board. Without room for the file or a file system in memory, the job runs
without a board. The runner never reads it. Each attempt has its own; `reader` decodes it.
"""

from __future__ import annotations

import mmap
import os
import time
from collections.abc import Callable, Mapping
from contextlib import suppress

from ascend_runner.activity import Activity
from ascend_runner.board import layout
from ascend_runner.node import memory
from ascend_runner.observations.facts import Fact, LimitChanged, RankOutput, SignalsSent
from ascend_runner.observations.stopped_ranks import StoppedRanks
from ascend_runner.plan.spec import JobSpec
from ascend_runner.supervision.causes import Exited
from ascend_runner.supervision.events import Spawned
from ascend_runner.supervision.state import State


class Board:
    """The facts of one attempt, in memory that others may see. `activities` and `store_step` are for other threads."""

    def __init__(self, deadline: Callable[[], float | None], room: memoryview) -> None:
        """`room` has `size_of(spec)` zero bytes; `deadline` returns the end of the time limit."""
        self._room, self._deadline = room, deadline
        self._places: dict[int, int] = {}  # the offset of each rank's record
        self._stopped = StoppedRanks()
        self._sent: dict[int, list[int]] = {}
        self._step: tuple[float, ...] = (0, 0, 0.0)
        self.activities: dict[int, Activity] = {}

    def begin(self, spec: JobSpec, attempt: int = 0) -> None:
        """Store what is known before ranks start."""
        now = time.monotonic()
        for index, rank in enumerate(spec.processes):
            place = layout.RANKS_AT + index * layout.RECORD
            self._places[rank.rank_id], self._sent[rank.rank_id] = place, []
            self.activities[rank.rank_id] = Activity(
                now, self._room[place + layout.ACTIVITY_AT : place + layout.RECORD]
            )
            layout.WHO.pack_into(self._room, place, rank.rank_id, rank.local_rank, rank.name.encode(errors="replace"))
        layout.PHASE.pack_into(self._room, layout.PHASE_AT, 0, now)
        layout.LIMIT.pack_into(self._room, layout.LIMIT_AT, self._deadline() or layout.NO_LIMIT)
        counts = (layout.RECORD, len(self._places), attempt, os.getpid())
        layout.HEAD.pack_into(self._room, 0, layout.MAGIC, layout.LAYOUT, *counts, time.time(), now)

    @property
    def content(self) -> bytes:
        """A copy of the board, see `reader.decode`."""
        return bytes(self._room)

    def observe(self, fact: Fact, at: float) -> None:
        """Store one fact."""
        self._stopped.observe(fact)
        if isinstance(fact, State):
            layout.PHASE.pack_into(self._room, layout.PHASE_AT, layout.PHASES.index(fact.phase), at)
            for rank_id, place in self._places.items():
                layout.STOPPED.pack_into(self._room, place + layout.STOPPED_AT, rank_id in self._stopped.rank_ids)
        elif isinstance(fact, Spawned):
            layout.STARTED.pack_into(self._room, self._places[fact.rank_id] + layout.STARTED_AT, fact.pid, at)
        elif isinstance(fact, Exited):
            ending = fact.ending
            place = self._places[fact.rank_id] + layout.ENDED_AT
            layout.ENDED.pack_into(self._room, place, ending.exit_code, ending.signum, ending.core_dumped, at)
        elif isinstance(fact, SignalsSent):
            self._store_signals(fact.signums, at)
        elif isinstance(fact, RankOutput):
            self.activities[fact.rank_id].lose(fact.lost)
        elif isinstance(fact, LimitChanged):
            layout.LIMIT.pack_into(self._room, layout.LIMIT_AT, self._deadline() or layout.NO_LIMIT)

    def store_step(self, at: float, step: int | None, steps: int | None = None, seconds: float | None = None) -> None:
        """Store the last step of the training, the number of steps and the seconds of one. None leaves a figure as is.

        Heartbeats give only the step, while lines of the output may give all three.
        """
        given = step and min(step, layout.LARGEST_STEP), steps and min(steps, layout.LARGEST_STEP), seconds
        self._step = tuple(old if new is None else new for old, new in zip(self._step, given))
        layout.STEP.pack_into(self._room, layout.STEP_AT, *self._step, at)

    def _store_signals(self, signums: Mapping[int, int], at: float) -> None:
        """Store the first time at which each signal was sent to each rank."""
        for rank_id, signum in signums.items():
            sent = self._sent[rank_id]
            if signum not in sent and len(sent) < layout.SIGNALS:
                layout.SENT.pack_into(
                    self._room, self._places[rank_id] + layout.SENT_AT + len(sent) * layout.SENT.size, signum, at
                )
                sent.append(signum)


def size_of(spec: JobSpec) -> int:
    """Return the bytes of the board of a job."""
    return layout.RANKS_AT + len(spec.processes) * layout.RECORD


def opened(folder: str, spec: JobSpec, deadline: Callable[[], float | None], attempt: int = 0) -> Board:
    """Return the board of an attempt: a file in the directory of the job if possible, or else memory of this process.

    `deadline` returns the end of the time limit on the monotonic clock.
    """
    board = Board(deadline, _room(folder, size_of(spec)))
    board.begin(spec, attempt)
    return board


def _room(folder: str, size: int) -> memoryview:
    if folder and memory.is_tmpfs(folder):
        with suppress(OSError, ValueError):
            return _mapped(os.path.join(folder, layout.NAME), size)
    return memoryview(bytearray(size))


def _mapped(path: str, size: int) -> memoryview:
    """Make a file with room for all of it, so that no store can find the file system full (SIGBUS).

    Nobody but root can open it to write, since a file that was truncated has the same effect.

    Raises:
        OSError: There is no room.
    """
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o400)
    try:
        os.posix_fallocate(fd, 0, size)
        return memoryview(mmap.mmap(fd, size))
    except OSError:
        os.unlink(path)
        raise
    finally:
        os.close(fd)
