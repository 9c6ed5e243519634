"""The output of all ranks on this node: the real side of `manager.node.Output`."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Final

from ascend_runner.activity import Activity
from ascend_runner.errors import AscendRunnerError
from ascend_runner.node import bounded
from ascend_runner.node.terminal import STDOUT
from ascend_runner.plan.spec import Attempt
from ascend_runner.ranks.console import Console
from ascend_runner.ranks.lines import LineCutter
from ascend_runner.ranks.log_file import DiskWarnings, Gap, LogFile, LogWriter, drain, queue_limit
from ascend_runner.ranks.pump import BAR_INTERVAL, SHOW_AFTER, Pump, Stream
from ascend_runner.record.facts import RankOutput

SEVERAL_BARS: Final = (
    f"progress bars of several ranks are shown every {BAR_INTERVAL:g} s; use --console 0 to show only that of rank 0"
)
HUNG_DISK_LIMIT: Final = 0.2  # seconds for other files, when the disk of some has hung


class RankOutputs:
    """Gives each rank a pipe, and moves its output to its log file and the console."""

    def __init__(
        self,
        attempt: Attempt,
        console: Console,
        warn: Callable[[str], None],
        activities: Mapping[int, Activity],
        *,
        tap: Callable[[int], Callable[[bytes], None]] | None = None,
    ) -> None:
        """`activities` count the output of each rank; `tap` returns what also receives the output of a rank."""
        self.note: Callable[[str], object] = bool  # called with a hint for the user
        self._job, self._continues = attempt.job, attempt.number > 0
        self._warn, self._activities, self._tap = warn, activities, tap
        self._pump = Pump(console)
        self._pump.is_redrawn, self._pump.tell_bars = os.isatty(STDOUT), lambda: self.note(SEVERAL_BARS)
        self._hung: set[int] = set()  # ranks with a disk that did not respond at the end
        self._streams: dict[int, Stream] = {}

    @property
    def last_activity(self) -> float:
        """The time of the last output that counts as activity, in seconds of the monotonic clock."""
        return self._pump.last_activity

    def ignore(self, is_no_activity: Callable[[bytes], bool]) -> None:
        """From now on, do not count a piece of output as activity if the function returns true for it."""
        self._pump.is_no_activity = is_no_activity

    @property
    def failure(self) -> BaseException | None:
        """The error that ended the reading of output, or None while it works."""
        return self._pump.failure

    def start(self) -> None:
        """Open the log files and begin to read.

        Raises:
            OutputError: A log file cannot be created.
            AscendRunnerError: The limit of processes leaves no room for a thread.
        """
        warnings = DiskWarnings(self._warn)
        limit = queue_limit(len(self._job.processes))
        for spec in self._job.processes:
            file = LogFile(spec.log_path, self._job.files.rotation, warnings, continues=self._continues)
            folds = self._job.files.folds_progress_bars and not spec.has_stdin
            clock = _clock if self._job.files.has_timestamps and not spec.has_stdin else bytes
            cutter = None if spec.prefix is None else LineCutter(spec.prefix, folds=folds, time=clock)
            # A person waits for a prompt.
            show_after = 0.0 if spec.has_stdin else SHOW_AFTER
            writer = LogWriter(file, limit, self._activities[spec.rank_id], warnings)
            tap = self._tap and self._tap(spec.rank_id)
            self._streams[spec.rank_id] = Stream(spec.rank_id, writer, cutter, show_after=show_after, tap=tap)
        self._pump.start()

    @contextmanager
    def open(self, rank_id: int) -> Iterator[int]:
        """Return the fd for a rank to write to, valid within `with`.

        Raises:
            OSError: There are no descriptors left.
        """
        output = self._pump.add(self._streams[rank_id])
        try:
            yield output
        finally:
            os.close(output)

    def settle(self) -> None:
        """Wait a moment until everything written before the call was read."""
        self._pump.settle()

    def read_so_far(self, rank_id: int) -> RankOutput:
        """Return the output of a rank that has been read so far."""
        stream = self._streams[rank_id]
        start, activity = stream.log.file.start, stream.activity
        unread = [Gap(start + activity.size, stream.unread)] if stream.unread else []
        gaps = [*stream.log.gaps, *unread]
        return RankOutput(
            rank_id=rank_id,
            start=start,
            size=activity.size + stream.unread,
            tail=stream.tail,
            lost=sum(gap.size for gap in gaps),
            lost_from=min((gap.offset for gap in gaps), default=None),
            is_disk_hung=rank_id in self._hung,
            first_at=activity.first_at,
            last_at=activity.last_at,
            activity=activity.counts,
            cell_seconds=activity.seconds,
        )

    def finish(self, seconds: float, is_cut: Callable[[], bool]) -> None:
        """Read the rest, and wait until it was stored, as long as something is read or stored within `seconds`.

        Output that is not stored by then, or when `is_cut` returns true, counts as lost.
        """
        if not self._pump.finish(seconds, is_cut):  # it writes to a hung disk itself, as no thread could be started
            self._pump.give_up()
        drain([stream.log for stream in self._streams.values()], seconds, is_cut)
        self._hung = {rank_id for rank_id, stream in self._streams.items() if stream.log.is_alive}
        with suppress(AscendRunnerError):
            bounded.start_thread(self._close_silent_logs).join(HUNG_DISK_LIMIT if self._hung else seconds)

    def _close_silent_logs(self) -> None:
        for stream in self._streams.values():
            if not stream.log.is_alive:
                stream.log.file.close()


def _clock() -> bytes:
    return time.strftime("%H:%M:%S ").encode()
