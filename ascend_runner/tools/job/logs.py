"""`ascend-job logs`: finds the logs of ranks, reads them while they grow and rotate, and shows them safely.

A log is a file and its rotated ones (`ranks.log_file`). The open file is followed rather than its path, so that nothing
is lost or read twice if the file is renamed between two reads.
"""

from __future__ import annotations

import itertools
import os
import re
import resource
import stat
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, suppress
from typing import Final, Optional

import attrs

from ascend_runner import files
from ascend_runner.errors import SettingsError, UnreadableError, reason
from ascend_runner.members import Members
from ascend_runner.node import bounded
from ascend_runner.record.job_record import JobRecord
from ascend_runner.record.nodes import JobVerdict, NodeRecord
from ascend_runner.text import PREFIX_STYLES, colored, lines_of, printable, rank_list
from ascend_runner.tool import write_text
from ascend_runner.tools.job import jobs
from ascend_runner.tools.job.jobs import FileWatch, FoundJob, JobEnd, Snapshot
from ascend_runner.views import facts

LONGEST: Final = 1 << 20  # bytes of a line; a longer one is shown in parts
EVERYTHING: Final = -1  # stands for all lines


@attrs.frozen(kw_only=True)
class LineFilter:
    """Which lines of each log are shown: the last `lines` that match `pattern` (None: all match)."""

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


BLOCK: Final = 256 * 1024  # bytes of a read
FIRST_BLOCK: Final = 8 * 1024  # at the end of a file, before larger ones: it is usually enough
COMPARED: Final = 4096  # bytes that tell two files apart
# "2026-11-22 09:47:36" in any of the usual forms, near the beginning of a line.
_STAMP: Final = re.compile(rb"^[^\n]{0,80}?(20\d\d)[-/](\d\d)[-/](\d\d)[ T_-](\d\d):(\d\d):(\d\d)", re.MULTILINE)
Start = Callable[[int], Optional[int]]  # takes an open file, returns the offset to begin at; None: in an earlier file


@attrs.frozen(order=True)
class RankLog:
    """The log of a rank, or of an auxiliary process, which has a name and a negative number."""

    rank_id: int
    title: str
    path: str


def find_logs(log_dir: str, job_id: str) -> list[RankLog]:
    """Return the logs of all ranks of a job in a directory, in their order; several nodes may share it.

    Raises:
        UnreadableError: The directory cannot be read.
    """
    pattern = re.compile(rf"{re.escape(job_id)}-proc-(?:rank-(\d{{1,9}})-device-\d+|([^.]+))\.txt")
    try:
        names = os.listdir(log_dir)
    except OSError as error:
        raise UnreadableError(f"cannot read the directory {log_dir!r}: {reason(error)}") from error
    found = [(pattern.fullmatch(name), os.path.join(log_dir, name)) for name in names]
    return sorted(
        RankLog(int(match[1]), f"rank {int(match[1])}", path) if match[1] else RankLog(-1, match[2], path)
        for match, path in found
        if match
    )


class LogReader:
    """Reads one log. A file that is missing has no bytes yet. All methods raise OSError if a file cannot be read."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._fd = -1
        self._offset = 0
        self._later: list[int] = []  # the files after the one that is read, the next one first

    def close(self) -> None:
        """Close the files. May be called twice."""
        for fd in (self._fd, *self._later):
            if fd >= 0:
                os.close(fd)
        self._fd, self._later = -1, []

    def begin(self, start: Start) -> None:
        """Choose where to begin: `start` is asked for the newest file first. Otherwise it is the very beginning."""
        earlier = self._newer()
        while earlier:
            fd = earlier.pop()
            offset = start(fd)
            if offset is not None or not earlier:
                self._fd, self._offset = fd, offset or 0
                break
            self._later.insert(0, fd)
        for fd in earlier:
            os.close(fd)

    def read(self) -> Iterator[bytes]:
        """Yield what was written since the last call."""
        while True:
            yield from self._rest_of_file()
            if not self._later:
                self._later = self._newer()
                yield from self._rest_of_file()  # what was written just before the file was renamed
            if not self._later:
                return
            self._go_on_with(self._later.pop(0))

    def _rest_of_file(self) -> Iterator[bytes]:
        if self._fd < 0:
            return
        if os.fstat(self._fd).st_size < self._offset:  # it was emptied
            self._offset = 0
        while data := os.pread(self._fd, BLOCK, self._offset):
            self._offset += len(data)
            yield data

    def _go_on_with(self, fd: int) -> None:
        old, self._fd = self._fd, fd
        if old >= 0:
            is_same = not self._later and _is_copy(old, fd, self._offset)
            self._offset = self._offset if is_same else 0
            os.close(old)

    def _newer(self) -> list[int]:
        """Open the files that are newer than the one that is read, and return them, the oldest first.

        The newest is opened first: a file that is renamed meanwhile is found twice, but none is missed.
        """
        own = _identity(self._fd) if self._fd >= 0 else None
        found: dict[tuple[int, int], int] = {}
        for number in itertools.count():
            fd = _open(f"{self._path}.{number}" if number else self._path)
            if fd is None and number:
                break
            if fd is None:  # it is just being renamed, or was removed
                continue
            identity = _identity(fd)
            if identity == own or identity in found:
                os.close(fd)
            else:
                found[identity] = fd
            if identity == own:
                break
        return [*reversed(found.values())]


def last_lines(count: int) -> Start:
    """Begin with the last lines of a log."""
    missing = count

    def start(fd: int) -> int | None:
        nonlocal missing
        position = size = os.fstat(fd).st_size
        block = FIRST_BLOCK
        while position and missing:
            end, position = position, max(0, position - block)
            block = min(BLOCK, 4 * block)
            data = os.pread(fd, end - position, position)
            at = len(data) - 1 if end == size else len(data)  # no line begins after the last newline
            while missing and (at := data.rfind(b"\n", 0, max(0, at))) >= 0:
                missing -= 1
                if not missing:
                    return position + at + 1
        missing -= 1 if size and missing else 0  # the first line of the file
        if missing:
            return None
        return 0 if count else size

    return start


def lines_since(at: float, note: Callable[[], None]) -> Start:
    """Begin with the lines that were written since a time, in seconds since the epoch.

    These are the lines after the last one that begins with an earlier local time. A file that was not written since
    then is left out. If no line of a file has a time, all of it may have been written since then: `note` is called.
    """
    digits = time.strftime("%Y%m%d%H%M%S", time.localtime(at)).encode()

    def start(fd: int) -> int | None:
        status = os.fstat(fd)
        if status.st_mtime < at:
            return status.st_size
        end, has_times, block = status.st_size, False, FIRST_BLOCK
        while end:
            begin, block = max(0, end - block), min(BLOCK, 4 * block)
            data = os.pread(fd, end - begin, begin)
            cut = data.find(b"\n") + 1 if begin else 0  # the first line is whole in the next block
            stamps = [(b"".join(found.groups()), found.end()) for found in _STAMP.finditer(data, cut)]
            earlier = [place for stamp, place in stamps if stamp < digits]
            if earlier:
                newline = data.find(b"\n", earlier[-1])
                return begin + newline + 1 if newline >= 0 else end
            has_times = has_times or bool(stamps)
            end = begin + cut if begin + cut < end else begin
        if not has_times and status.st_size:
            note()
        return None

    return start


def _open(path: str) -> int | None:
    """Open a log file. Return None if it does not exist."""
    try:
        fd = os.open(path, files.READ_FLAGS)
    except FileNotFoundError:
        return None
    if stat.S_ISREG(os.fstat(fd).st_mode):
        return fd
    os.close(fd)
    return None


def _identity(fd: int) -> tuple[int, int]:
    status = os.fstat(fd)
    return status.st_dev, status.st_ino


def _is_copy(old: int, new: int, size: int) -> bool:
    """Whether a file has the content of one that was removed: the runner creates a removed log again."""
    is_removed = not os.fstat(old).st_nlink and os.fstat(new).st_size >= size
    return is_removed and os.pread(old, COMPARED, 0) == os.pread(new, COMPARED, 0)[: os.fstat(old).st_size]


BEGIN_LIMIT: Final = 60.0  # seconds to find the beginning in all logs
READERS: Final = 16  # threads: enough for a network disk with slow answers
STATE_INTERVAL: Final = 1.0  # seconds between two states of a progress bar that is followed, as on the console
LINES_AT_ONCE: Final = 1000  # lines that are written at once


@attrs.frozen(kw_only=True)
class Query:
    """The logs to show: of `ranks` (None: all), since a time in seconds since the epoch (None: the beginning)."""

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
            self._show_carried()

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
        """Return the logs with these names, also new ones, or all logs without names."""
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
        """Check that the ranks have logs; at the beginning of a job, they `may_come`.

        Raises:
            SettingsError: A rank has no log.
            UnreadableError: There is no log.
        """
        job, there = self._parts[0], self._there()
        missing = {*(self._query.ranks or there)} - there
        if not there and not may_come:
            raise UnreadableError(f"no logs of {job.job_id} in {job.log_dir!r}")
        if there and missing:
            self._check_missing(there, missing)

    def _there(self) -> set[int]:
        """Return the ranks with a log."""
        return {log.rank_id for log in find_logs(self._parts[0].log_dir, self._parts[0].job_id)}

    def _check_missing(self, there: set[int], missing: set[int]) -> None:
        """Say on which nodes ranks are whose logs are not here.

        Raises:
            SettingsError: They are not ranks of other nodes, or there is nothing else to show.
        """
        seen = jobs.take(self._parts[0])
        carried = _carried(seen.record)
        silent = missing - {carried.rank_id if carried else None}
        nodes = _nodes_of(silent, seen)
        if unknown := silent.difference(*nodes.values()):
            where = f"in {self._parts[0].log_dir!r}, only of {rank_list(there)}"
            raise SettingsError(f"no log of {rank_list(unknown)} {where}")
        sentences = [_where(node, ranks, seen) for node, ranks in nodes.items()]
        if silent == missing and not self._shown:
            raise SettingsError("; ".join(sentences))
        for sentence in sentences:
            self._tell(sentence)

    def _show_carried(self) -> None:
        """Show the last lines of a failed rank of another node that the link has carried, unless its log is here."""
        if not self._parts[0].part:
            return
        seen = jobs.take(self._parts[0], asks=False)
        verdict = _carried(seen.record)
        rank_id = verdict.rank_id if verdict else None
        ranks = self._query.ranks or {rank_id}
        if verdict and rank_id is not None and rank_id in ranks and rank_id not in self._there():
            where = _where(verdict.node or 0, {rank_id}, seen)
            self._tell(f"{where}; last lines received over the link:")
            log = RankLog(rank_id, f"rank {rank_id}", verdict.log)
            prefix = _prefix(log, has_colors=self._query.has_colors) if self._shown or self._has_prefix else ""
            for line in self._query.line_filter.chosen(map(printable, verdict.lines)):
                write_text(f"{prefix}{line}\n")

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


def _carried(record: JobRecord) -> JobVerdict | None:
    """Return the verdict on a failure of another node, with the last lines of its rank; None without one."""
    verdict = record.verdict
    is_elsewhere = verdict is not None and verdict.rank_id is not None and verdict.node != record.node_rank
    return verdict if verdict and verdict.lines and is_elsewhere else None


def _nodes_of(ranks: set[int], seen: Snapshot) -> dict[int, set[int]]:
    """Return the ranks of other nodes by the number of their node, as far as that is known."""
    own = seen.record.node_rank or 0
    nodes = {node: ranks & {*share} for node, share in enumerate(_shares(seen)) if node != own}
    return {node: found for node, found in nodes.items() if found}


def _shares(seen: Snapshot) -> Sequence[Sequence[int]]:
    """Return the ranks of each node: those in the rank table, else as many as each node has, else equally many.

    They are unknown if this node has others.
    """
    record, node = seen.record, seen.record.node_rank or 0
    count = record.node_count or 1
    sizes = [row.ranks for row in seen.all_nodes]
    if len(sizes) != count or 0 in sizes:
        sizes = [record.rank_size // count] * count
    ends = [*itertools.accumulate(sizes)]
    shares = _shares_of_table(seen) or [range(end - size, end) for end, size in zip(ends, sizes)]
    own = {rank.rank_id for rank in record.ranks if rank.rank_id >= 0}
    return shares if node < len(shares) and own == {*shares[node]} else ()


def _shares_of_table(seen: Snapshot) -> Sequence[Sequence[int]]:
    """Return the ranks of each node in the rank table of the job, none if that cannot be read."""
    from ascend_runner.views import page_content  # noqa: PLC0415  50 ms, and most logs are here

    table = page_content.table_of(Members(seen.record.encode()), seen.job.path("report", "json"))
    if table is None:
        return ()
    nodes: dict[str, list[int]] = {}
    for device in table.devices:  # a pod is a node; without pods, a server is
        nodes.setdefault(device.pod_name, []).append(device.rank_id)
    servers = [[device.rank_id for device in server.devices] for server in table.servers_by_rank]
    return [*nodes.values()] if table.pod_names else servers


def _where(node: int, ranks: set[int], seen: Snapshot) -> str:
    """Return a sentence on ranks of another node, and where their logs are: where this node has its own, if need be."""
    record = seen.record
    verdict = record.verdict if record.verdict and record.verdict.node == node else JobVerdict()
    known = NodeRecord(address=verdict.address, pod=verdict.pod)
    row = next((row for row in seen.nodes or record.nodes if row.node == node), known)
    place = facts.place(row.address, row.pod, row.host)
    folder = os.path.dirname(verdict.log) or record.log_dir
    rank_id, share = min(ranks), dict(enumerate(_shares(seen))).get(node, ())
    name = f"{rank_id}-device-{share.index(rank_id)}" if ranks == {rank_id} <= {*share} else "*"
    path = os.path.join(folder, f"{record.job_id}-proc-rank-{name}.txt")
    doubt = "" if verdict.log else ", unless that node has another log directory"
    verb, log = ("is", "its log is") if len(ranks) == 1 else ("are", "their logs are")
    return f"{rank_list(ranks)} {verb} on node {node}{f' ({place})' if place else ''}; {log} {path} there{doubt}"


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
