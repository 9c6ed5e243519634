"""Shows the logs of a job, those of several ranks with prefixes, and follows them until the job ends."""

from __future__ import annotations

import itertools
import os
import resource
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, suppress
from typing import Final

import attrs

from ascend_runner.errors import SettingsError, UnreadableError, reason
from ascend_runner.host import bounded
from ascend_runner.job_tool.job.jobs import FoundJob
from ascend_runner.job_tool.job.watching import FileWatch, JobEnd
from ascend_runner.job_tool.logs.log_files import LogReader, RankLog, Start, find_logs, last_lines, lines_since
from ascend_runner.job_tool.logs.log_lines import EVERYTHING, LineFilter, LineReader
from ascend_runner.text import PREFIX_STYLES, colored, printable, rank_list
from ascend_runner.tool import write_text

BEGIN_LIMIT: Final = 60.0  # seconds to find the beginning in all logs
READERS: Final = 16  # threads: enough for a network disk, whose answers take long
STATE_INTERVAL: Final = 1.0  # seconds between two states of a progress bar that is followed, as on the console
LINES_AT_ONCE: Final = 1000  # lines that are written at once


@attrs.frozen(kw_only=True)
class Query:
    """The logs to show: those of `ranks` (None: all), since a time in seconds since the epoch (None: the beginning)."""

    line_filter: LineFilter
    ranks: frozenset[int] | None
    since: float | None
    follows: bool
    has_colors: bool


class LogViewer:
    """Shows the logs of a job, of which all parts have their logs in one directory."""

    def __init__(self, parts: Sequence[FoundJob], query: Query, tell: Callable[[str], None]) -> None:
        self._parts = parts
        self._query = query
        self._tell = tell
        self._shown: dict[str, _ShownLog] = {}  # logs by the name of their file
        self._has_prefix = False

    def run(self) -> None:
        """Show what was written so far, and with `follows` also what is written until the job ends.

        Raises:
            SettingsError: A rank has no log.
            UnreadableError: There is no log, or one cannot be read.
            BrokenPipeError: Nobody reads what is shown.
        """
        _allow_open_files()
        is_local = self._query.follows and all(part.is_of_this_machine or part.is_alive() for part in self._parts)
        end = JobEnd(self._parts)
        with closing(end), closing(FileWatch(self._parts[0].log_dir, is_local=is_local)) as watch:
            is_over = not self._query.follows or end.has_come()  # before the files are read
            logs = self._new_logs()
            self._check(may_come=not is_over)
            self._begin(logs)
            for log in logs:
                log.show(self._query.line_filter, is_whole=is_over)
                if not self._query.follows:
                    log.close()
            if not is_over:
                self._follow(watch, end)

    def _follow(self, watch: FileWatch, end: JobEnd) -> None:
        line_filter = attrs.evolve(self._query.line_filter, lines=EVERYTHING)
        changed: set[str] | None = None  # names of files; None if any may have
        drawn: set[_ShownLog] = set()  # logs with a progress bar that was drawn again
        is_over, states_at = False, 0.0
        while not is_over:
            is_over = end.has_come()  # before the files are read
            for log in self._logs_of(None if is_over else changed):
                log.show(line_filter, is_whole=is_over)
                if log.has_new_state:
                    drawn.add(log)
            if time.monotonic() >= states_at:
                for log in drawn:
                    log.show_state(line_filter)
                drawn.clear()
                states_at = time.monotonic() + STATE_INTERVAL
            if not is_over:
                # Without a lock that can be waited for, the end must be looked for.
                changed = watch.wait(STATE_INTERVAL if drawn or not end.locks else None, *end.locks)

    def _logs_of(self, names: set[str] | None) -> list[_ShownLog]:
        """Return the logs with these names, also those that are new, or all logs without names."""
        if names is None or not names <= self._shown.keys():
            self._new_logs()
        return [self._shown[name] for name in (self._shown if names is None else names & self._shown.keys())]

    def _new_logs(self) -> list[_ShownLog]:
        """Find the logs that were not there before."""
        ranks, first = self._query.ranks, self._parts[0]
        logs = [log for log in find_logs(first.log_dir, first.job_id) if not ranks or log.rank_id in ranks]
        self._has_prefix |= len(ranks or logs) != 1
        new = {
            name: _ShownLog(log, _prefix(log, has_colors=self._query.has_colors) if self._has_prefix else "")
            for log in logs
            if (name := os.path.basename(log.path)) not in self._shown
        }
        self._shown.update(new)
        return [*new.values()]

    def _check(self, *, may_come: bool) -> None:
        """Check that the ranks have logs; those of a job that begins `may_come`."""
        job = self._parts[0]
        there = {log.rank_id for log in find_logs(job.log_dir, job.job_id)}
        missing = (self._query.ranks or there) - there
        if not there and not may_come:
            raise UnreadableError(f"no logs of {job.job_id} in {job.log_dir!r}")
        if there and missing:
            raise SettingsError(f"no log of {rank_list(missing)} in {job.log_dir!r}, only of {rank_list(there)}")

    def _begin(self, logs: Sequence[_ShownLog]) -> None:
        """Find where to begin in each log, in several at once, because a network disk takes long for each answer."""
        query = self._query
        if query.since is None and (query.line_filter.lines == EVERYTHING or query.line_filter.pattern):
            return
        without_times: list[_ShownLog] = []

        def begin(log: _ShownLog) -> str:
            if query.since is None:
                return log.begin(last_lines(query.line_filter.lines))
            return log.begin(lines_since(query.since, lambda: without_times.append(log)))

        found = bounded.call_each(logs, begin, BEGIN_LIMIT, workers=READERS)
        for log in logs:
            why = found.get(log, f"no response from its disk within {BEGIN_LIMIT:g} s")
            if why:
                raise UnreadableError(f"cannot read {log.log.path!r}: {why}")
        if without_times:
            ranks = rank_list({log.log.rank_id for log in without_times})
            self._tell(f"the lines of {ranks} have no timestamps; --since may show older lines")


class _ShownLog:
    """The log of one rank, and how much of it was shown."""

    def __init__(self, log: RankLog, prefix: str) -> None:
        self.log = log
        self._prefix = prefix
        self._reader = LogReader(log.path)
        self._lines = LineReader()

    @property
    def has_new_state(self) -> bool:
        """Whether it has a progress bar that was drawn again."""
        return self._lines.has_new_state

    def begin(self, start: Start) -> str:
        """Choose where to begin; return the reason if the log cannot be read, else ""."""
        try:
            self._reader.begin(start)
        except OSError as error:
            return reason(error)
        return ""

    def show(self, line_filter: LineFilter, *, is_whole: bool) -> None:
        """Show what was written since the last call; with `is_whole` also a line that is not finished.

        Raises:
            UnreadableError: It cannot be read.
        """
        self._write(line_filter.chosen(self._new_lines(is_whole=is_whole)))

    def show_state(self, line_filter: LineFilter) -> None:
        """Show a progress bar as it is now, if it was drawn again."""
        if self._lines.has_new_state:
            self._write(line_filter.chosen(self._lines.state()))

    def close(self) -> None:
        """Close the files. May be called twice."""
        self._reader.close()

    def _new_lines(self, *, is_whole: bool) -> Iterator[str]:
        try:
            for data in self._reader.read():
                yield from self._lines.feed(data)
        except OSError as error:
            raise UnreadableError(f"cannot read {self.log.path!r}: {reason(error)}") from error
        if is_whole:
            yield from self._lines.state()

    def _write(self, lines: Iterator[str]) -> None:
        while some := [f"{self._prefix}{line}\n" for line in itertools.islice(lines, LINES_AT_ONCE)]:
            write_text("".join(some))


def _prefix(log: RankLog, *, has_colors: bool) -> str:
    prefix = f"[{printable(log.title)}] "
    return colored(prefix, PREFIX_STYLES[log.rank_id % len(PREFIX_STYLES)]) if has_colors else prefix


def _allow_open_files() -> None:
    """Allow as many open files as this process may have: one for each rank, of thousands."""
    _soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
