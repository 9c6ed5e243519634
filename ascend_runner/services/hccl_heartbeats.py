"""Reads what HCCL's own heartbeats report about other ranks, in the logs of this node's ranks, while they are silent.

The logs are below ASCEND_PROCESS_LOG_PATH of each rank. They are read in a thread of their own, because their disk may
hang. While ranks write output, the thread only looks at the time of the last output; in a silence it looks for files
that have grown, and reads their new part.
"""

from __future__ import annotations

import os
import re
import stat
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from ascend_runner.errors import AscendRunnerError
from ascend_runner.node import bounded
from ascend_runner.plan.spec import JobSpec
from ascend_runner.record.facts import Fact
from ascend_runner.supervision.events import Spawned
from ascend_runner.supervision.state import Phase, State
from ascend_runner.text import lines_of

if TYPE_CHECKING:
    from ascend_runner.diagnosis.heartbeat_events import Status
    from ascend_runner.diagnosis.root_cause import Place

INTERVAL: Final = 5.0  # seconds of silence before the logs are read, and between two looks
READ_LIMIT: Final = 1024 * 1024  # bytes of a file per look; of a longer part, the end
FILES_LIMIT: Final = 4096  # directory entries examined per look
TIME_FORMAT: Final = "%Y-%m-%d-%H:%M:%S"  # in the logs
CLOCKS: Final = 1.0  # seconds; the times in the logs are whole ones, and those of output are of another clock
_NAME: Final = re.compile(r"plog-(\d+)_\d+\.log")


class HcclHeartbeats:
    """The events that HCCL has reported since the last output. An observer of the manager's facts."""

    def __init__(
        self,
        job: JobSpec,
        pulse: Callable[[], tuple[float, float]],
        wake: Callable[[], None],
        now: Callable[[], float] = time.monotonic,
        interval: float = INTERVAL,
    ) -> None:
        """`pulse` returns the last activity and the end of the pauses that ranks have announced, in seconds of `now`.

        `wake` is called in the thread when there are new sentences.
        """
        paths = (spec.env.get("ASCEND_PROCESS_LOG_PATH", "") for spec in job.ranks)
        self._folders = tuple(dict.fromkeys(os.path.join(path, "run", "plog") for path in paths if path))
        self._job, self._pulse, self._wake, self._now, self._interval = job, pulse, wake, now, interval
        self.tell_lost: Callable[[Sequence[int]], object] = lambda _nodes: None  # called in the thread
        self._began = time.time()
        self._leaders: set[int] = set()
        self._read: dict[tuple[int, int], int] = {}  # the bytes of each file that were read, by its device and inode
        self._known: set[tuple[Place, Status]] = set()  # what was reported, by whichever rank
        self._sentences: deque[str] = deque()
        self._closing = threading.Event()
        self._thread: threading.Thread | None = None

    def observe(self, fact: Fact, _at: float) -> None:
        """Start when all ranks of a job of several nodes run, and end when they are stopped."""
        if isinstance(fact, Spawned):
            self._leaders.add(fact.pid)
        elif isinstance(fact, State) and fact.is_tearing_down:
            self.close()
        elif isinstance(fact, State) and fact.phase is Phase.RUNNING and not self._thread and self._is_wanted:
            with suppress(AscendRunnerError):  # the limit of threads is reached: the hang timeout remains
                self._thread = bounded.start_thread(self._watch)

    @property
    def _is_wanted(self) -> bool:
        return bool(self._folders) and not self._job.has_all_ranks and self._job.watching.hang_timeout is not None

    @property
    def is_reading(self) -> bool:
        """Whether the logs are watched."""
        return self._thread is not None and self._thread.is_alive()

    def take(self) -> Sequence[str]:
        """Return a sentence for each new event since the last call."""
        return [self._sentences.popleft() for _ in range(len(self._sentences))]

    def close(self) -> None:
        """Stop reading. Does not wait for the disk."""
        self._closing.set()

    # --- In the thread ------------------------------------------------------------------------------------------------

    def _watch(self) -> None:
        seconds = self._interval
        while not self._closing.wait(seconds):
            silent_for = self._now() - self._pulse()[0]
            seconds = self._interval if silent_for >= self._interval else self._interval - silent_for
            if silent_for >= self._interval and self.look(time.time() - silent_for):
                self._wake()

    def look(self, since: float) -> bool:
        """Look for events since then, in seconds since the epoch; return whether there are new ones.

        Ranks that have written later have outlived an earlier event, such as an interruption of the network. In a pause
        that a rank has announced, a rank without collective operations is not stuck.
        """
        lines = [line for folder in self._folders for line in self._new_lines(folder)]
        if not lines:
            return False
        from ascend_runner.diagnosis import heartbeat_events  # noqa: PLC0415  only a rank that HCCL reports needs it

        begin = time.strftime(TIME_FORMAT, time.localtime(since - CLOCKS))
        ignored = {heartbeat_events.Status.STUCK} if self._now() < self._pulse()[1] else set()
        new = {
            (event.place, event.status): event
            for event in heartbeat_events.events_in(lines)
            if event.at >= begin and event.status not in ignored and (event.place, event.status) not in self._known
        }
        self._known |= new.keys()
        table = self._job.files.table
        documents = (table.data, table.source or table.data) if table else None
        own = {(self._job.server_id, spec.local_rank): spec.rank_id for spec in self._job.ranks}
        self._sentences += heartbeat_events.sentences([*new.values()], own, documents)
        if lost := heartbeat_events.nodes_with_lost_ranks(new.values(), documents):
            self.tell_lost(lost)
        return bool(new)

    def _new_lines(self, folder: str) -> list[str]:
        lines: list[str] = []
        with suppress(OSError), os.scandir(folder) as entries:  # missing, not readable, or gone
            for _number, entry in zip(range(FILES_LIMIT), entries):
                match = _NAME.fullmatch(entry.name)
                if match and (self._job.files.has_own_process_logs or self._is_ours(int(match[1]))):
                    with suppress(OSError):
                        lines += self._new_lines_of(entry.path, entry.stat(follow_symlinks=False))
        return lines

    def _is_ours(self, pid: int) -> bool:
        """Whether a process is of a rank; other jobs may write to a folder that the user has chosen."""
        with suppress(OSError):
            return pid in self._leaders or os.getsid(pid) in self._leaders
        return False

    def _new_lines_of(self, path: str, found: os.stat_result) -> list[str]:
        """Return the complete lines that a file has got since the last look; of too many, the last."""
        key = found.st_dev, found.st_ino
        begin = self._read.get(key, 0)
        if not stat.S_ISREG(found.st_mode) or found.st_size == begin or found.st_mtime < self._began:
            return []
        begin = max(begin if begin < found.st_size else 0, found.st_size - READ_LIMIT)
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
        try:
            data = os.pread(fd, READ_LIMIT, begin)
        finally:
            os.close(fd)
        complete = data.rfind(b"\n") + 1
        self._read[key] = begin + (complete or len(data) * (len(data) == READ_LIMIT))
        return [line for line in lines_of(data[:complete]) if "LOST]" in line or "STUCK]" in line]
