"""Reads the logs of a job, whichever launcher started it, in constant memory, and judges its ranks.

The logs may come from anyone and contain anything: what cannot be read is reported in one sentence. What the lines of
a launcher look like is in `diagnosis.foreign_logs`.
"""

from __future__ import annotations

import codecs
import gzip
import io
import itertools
import os
import re
import stat
import sys
import zlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import BinaryIO, Final

import attrs

from ascend_runner.diagnosis import catalogue, foreign_logs
from ascend_runner.diagnosis.catalogue import EMPTY, Catalogue
from ascend_runner.diagnosis.foreign_logs import (
    Excerpt,
    Judged,
    Local,
    Number,
    Origin,
    PlogReader,
    Process,
    Splitter,
)
from ascend_runner.diagnosis.root_cause import Diagnosis
from ascend_runner.errors import UnreadableError, reason
from ascend_runner.record.job_record import CauseRecord, JobRecord
from ascend_runner.record.rank_record import Outcome, RankRecord, RankState
from ascend_runner.secrets import Masker
from ascend_runner.supervision.causes import Ending, Exited
from ascend_runner.text import counted, rank_title, shown, size
from ascend_runner.views import wording

# --- Files ------------------------------------------------------------------------------------------------------------

STDIN: Final = "-"
CHUNK: Final = 1 << 20  # bytes of a read
MOST_UNPACKED: Final = 1 << 32  # bytes to which a compressed file may expand
MOST_FILES: Final = 10_000  # logs, and entries of one directory that are examined
DEEPEST: Final = 16  # levels of directories
GZIP: Final = b"\x1f\x8b"
UTF_16: Final = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)  # written by redirections in PowerShell
# A log is text. In a binary file, many bytes are control characters.
_CONTROL: Final = bytes(range(1, 8)) + bytes(range(14, 27)) + b"\x7f"
MOST_CONTROL: Final = 0.05
MOST_HOLES: Final = 8
SAMPLE: Final = 4096  # bytes
SAME_RUN: Final = 120.0  # seconds between the last writes of the nodes of one run
INHERITED: Final = ("/dev/stdin", "/dev/fd/", "/proc/self/fd/")  # pipes of a shell: `explain <(kubectl logs pod)`


@attrs.frozen(kw_only=True)
class Source:
    """A log to read."""

    path: str  # STDIN: standard input
    origin: Origin
    size: int = 0
    written_at: float = 0.0

    @property
    def title(self) -> str:
        """Its path, for people."""
        return "standard input" if self.path == STDIN else self.path


def find(words: Iterable[str], problems: list[str]) -> list[Source]:
    """Return the logs that words name: files, all logs in directories, and standard input, each file once.

    Adds a sentence to `problems` for each log that is left out.
    """
    found: dict[tuple[int, int], Source] = {}
    for word in words:
        if word == STDIN:
            found[-1, -1] = Source(path=STDIN, origin=Origin())
            continue
        inside = os.path.isdir(word)
        for path in _walk(word, problems) if inside else [word]:
            if len(found) >= MOST_FILES:
                problems.append(f"only {MOST_FILES} logs were read")
                return _newest(list(found.values()), problems)
            try:
                status = os.stat(path, follow_symlinks=not inside)
            except OSError as error:
                problems.append(f"cannot read {path!r}: {reason(error)}")
                continue
            origin = foreign_logs.origin_of(os.path.abspath(path))
            source = Source(path=path, origin=origin, size=status.st_size, written_at=status.st_mtime)
            found.setdefault((status.st_dev, status.st_ino), source)
    return _newest(list(found.values()), problems)


def _walk(folder: str, problems: list[str], depth: int = 0) -> Iterator[str]:
    """Yield the logs in a directory and its subdirectories, without those of earlier runs. Ignores symlinks."""
    try:
        with os.scandir(folder) as entries:
            listed = sorted(itertools.islice(entries, MOST_FILES + 1), key=lambda entry: entry.name)
    except OSError as error:
        problems.append(f"cannot read the directory {folder!r}: {reason(error)}")
        return
    if len(listed) > MOST_FILES:
        problems.append(f"only {MOST_FILES} entries of {folder!r} were examined")
    for entry in listed[:MOST_FILES]:
        if entry.is_dir(follow_symlinks=False):
            if depth < DEEPEST and not foreign_logs.OTHER_FOLDERS.fullmatch(entry.name):
                yield from _walk(entry.path, problems, depth + 1)
        elif foreign_logs.is_log(entry.name) and not entry.is_symlink():
            yield entry.path


def _newest(sources: list[Source], problems: list[str]) -> list[Source]:
    """Drop the logs of earlier attempts of torchrun and of earlier runs in the same directory."""
    attempts: dict[str, int] = {}
    written: dict[str, float] = {}
    for one in sources:
        run = one.origin.run
        attempts[run] = max(attempts.get(run, 0), one.origin.attempt)
        written[run] = max(written.get(run, 0.0), one.written_at)
    newest: dict[str, float] = {}
    for run, at in written.items():
        newest[os.path.dirname(run)] = max(newest.get(os.path.dirname(run), 0.0), at)
    kept = [
        one
        for one in sources
        if not one.origin.run
        or (
            one.origin.attempt == attempts[one.origin.run]
            and written[one.origin.run] >= newest[os.path.dirname(one.origin.run)] - SAME_RUN
        )
    ]
    if len(kept) < len(sources):
        problems.append(f"ignored {counted(len(sources) - len(kept), 'log')} of earlier runs and attempts")
    return kept


def chunks(source: Source, advance: Callable[[int], object], most_unpacked: int = MOST_UNPACKED) -> Iterator[bytes]:
    """Yield the content of a log, uncompressed and in UTF-8. A growing log is read up to its present size.

    `advance` is called with the number of bytes read.

    Raises:
        UnreadableError: The log is not a text file, or cannot be read to its end.
    """
    title = source.title
    try:
        with _open(source) as file:
            head = file.peek(SAMPLE)[:SAMPLE] if isinstance(file, io.BufferedReader) else b""
            if head.startswith(GZIP):
                yield from _unpacked(file, title, most_unpacked)
                advance(source.size)
                return
            pieces = _pieces(file, source.size or sys.maxsize, advance)
            if head.startswith(UTF_16):
                yield from codecs.iterencode(codecs.iterdecode(pieces, "utf-16", "replace"), "utf-8")
                return
            if _is_binary(head):
                raise UnreadableError(f"{title!r} is not a text file")
            yield from pieces
    except (OSError, EOFError, zlib.error) as error:
        why = reason(error) if isinstance(error, OSError) and error.errno else "it is damaged"
        raise UnreadableError(f"cannot read {title!r}: {why}") from error


def _open(source: Source) -> io.BufferedReader:
    """Open a log.

    Raises:
        UnreadableError: The path is not a file.
        OSError: The file cannot be opened.
    """
    if source.path == STDIN:
        return open(0, "rb", closefd=False)
    fd = os.open(source.path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)  # opening a FIFO must not block
    mode = os.fstat(fd).st_mode
    is_pipe = stat.S_ISFIFO(mode) and source.path.startswith(INHERITED)
    if not (stat.S_ISREG(mode) or is_pipe):
        os.close(fd)
        raise UnreadableError(f"{source.path!r} is not a file; to read a pipe, redirect it to standard input")
    os.set_blocking(fd, True)
    return open(fd, "rb")


def _pieces(file: io.BufferedReader, left: int, advance: Callable[[int], object]) -> Iterator[bytes]:
    while left > 0 and (data := file.read1(min(CHUNK, left))):
        left -= len(data)
        advance(len(data))
        yield data


def _unpacked(file: BinaryIO, title: str, most: int) -> Iterator[bytes]:
    left = most
    with gzip.GzipFile(fileobj=file) as unpacked:
        while data := unpacked.read1(CHUNK):
            if left == most and _is_binary(data[:SAMPLE]):
                raise UnreadableError(f"{title!r} is not a compressed text file")
            yield data[:left]
            left -= len(data)
            if left < 0:
                raise UnreadableError(f"only the first {size(most)} of {title!r} were read")


def _is_binary(head: bytes) -> bool:
    """Whether a file is not text. A log may have a few holes of NULs, where it was truncated while being written."""
    text = head.replace(b"\0", b"")
    has_many_holes = len(re.findall(rb"\0+", head)) > MOST_HOLES
    return has_many_holes or len(text.translate(None, delete=_CONTROL)) < len(text) * (1 - MOST_CONTROL)


# --- The processes of a job -------------------------------------------------------------------------------------------

_PID: Final = re.compile(rb"\[PID: ?(\d{1,9})\]|\] [A-Z]{2,20}\((\d{1,9}),")  # in CANN's messages
_RANK: Final = re.compile(r"\(PID:\d+, Device:\d+, RankID:(\d{1,6})\)\.? ERR\d{4,5}")  # in torch_npu's errors
NEEDLE: Final = 40  # bytes of an error that show which of several logs has it
Text = tuple[str, bytes]  # the title of a log, and what was kept of it


@attrs.frozen(kw_only=True, eq=False)
class Mixed:
    """A log of several processes, or of an unknown one.

    `node` keeps its local ranks apart from those of other nodes.
    """

    title: str
    node: str
    parts: Mapping[Number, Text]
    aliases: Mapping[int, int]
    endings: Mapping[Number, Ending]


@attrs.frozen(kw_only=True, eq=False)
class Plog:
    """The plogs of one process: path and first errors of the newest one, and the rank if the plogs contain it."""

    origin: Origin
    path: str
    errors: tuple[str, ...]
    rank: int | None

    def is_of(self, rank_id: int, pids: Collection[int], nodes: Collection[str]) -> bool:
        """Whether the plog belongs to a rank, or may belong to a process with one of the pids on one of the nodes."""
        if self.origin.rank is not None:
            return self.origin.rank == rank_id
        is_there = not (self.origin.node and any(nodes)) or self.origin.node in nodes
        return self.rank == rank_id or (is_there and self.origin.pid in pids)


@attrs.define(eq=False)
class LogReader:
    """Reads the logs of a job: the launchers' first, then the ranks', and judges each rank once its logs are read."""

    sources: Sequence[Source]
    advance: Callable[[int], object]
    problems: list[str]  # a sentence is added for each log that cannot be read
    site: Catalogue = EMPTY
    judged: dict[int, Judged] = attrs.field(factory=dict)
    ranks: dict[int, RankRecord] = attrs.field(factory=dict)  # without the findings of the diagnosis
    first: int | None = None  # the rank that ended first according to the launcher
    _has_read: bool = False
    _masker: Masker = attrs.field(factory=Masker)
    _plogs: list[Plog] = attrs.field(factory=list)  # not assigned to a rank yet
    _endings: dict[int, Ending] = attrs.field(factory=dict)

    def read(self) -> None:
        """Read and judge everything.

        Raises:
            UnreadableError: No log can be read.
        """
        self._read_plogs()
        own = [one for one in self.sources if _is_of_one(one.origin)]
        shared = [one for one in self.sources if not (_is_of_one(one.origin) or one.origin.is_plog)]
        mixed = [self._read_mixed(source, len(shared)) for source in shared]
        local = _ranks_of_locals(own, mixed)
        self._note_endings(mixed, local)
        for key, sources in _by_process(own, local).items():
            self._judge(key, [(one.title, self._text(one)) for one in sources])
        for rank, texts in _of_lines(mixed, local).items():
            if rank not in self.ranks:
                self._judge(rank, texts)
        for rank in self._endings:
            if rank not in self.ranks:
                self._judge(rank, [(one.title, b"") for one in mixed[:1]])
        for plog in self._plogs:
            name = f"process {plog.origin.pid}"
            self._judge(name if plog.rank is None or plog.rank in self.ranks else plog.rank, [], plog)
        if not self._has_read and self.problems:
            raise UnreadableError(self.problems[0])

    def _feed(self, source: Source, take: Callable[[bytes], None]) -> None:
        try:
            for data in chunks(source, self.advance):
                take(data.replace(b"\0", b""))
                self._has_read = True
        except UnreadableError as error:
            self.problems.append(str(error))

    def _text(self, source: Source) -> bytes:
        """Read the log of one process."""
        excerpt = Excerpt()
        self._feed(source, excerpt.feed)
        return excerpt.text

    def _read_mixed(self, source: Source, count: int) -> Mixed:
        """Read one of `count` logs of several processes, and judge the lines without a rank."""
        splitter = Splitter(count)
        self._feed(source, splitter.feed)
        splitter.close()
        texts = {tag: excerpt.text for tag, excerpt in splitter.parts.items()}
        rest = texts.pop(None, b"")
        is_alone = len(self.sources) == 1
        name = "the program" if is_alone else source.origin.node or f"the program in {os.path.basename(source.title)}"
        named = {name: rest, **{tag: text for tag, text in texts.items() if isinstance(tag, str)}}
        for tag, text in named.items():
            self._judge(tag, [(source.title, text)], is_mixed=True)
        return Mixed(
            title=source.title,
            node=source.origin.node or (source.path if count > 1 else ""),
            parts={tag: (source.title, text) for tag, text in texts.items() if isinstance(tag, tuple)},
            aliases=splitter.aliases,
            endings=foreign_logs.endings_in(b"".join(named.values()).decode(errors="replace")),
        )

    def _note_endings(self, mixed: Sequence[Mixed], local: Mapping[Local, int]) -> None:
        for one in mixed:
            for (is_local, number), ending in one.endings.items():
                rank = local.get((one.node, number), number) if is_local else number
                self._endings.setdefault(rank, ending)
                self.first = rank if self.first is None else self.first

    def _read_plogs(self) -> None:
        """Read the plogs of each process, and keep the newest one with errors, from `debug/plog` if possible."""
        groups: dict[tuple[str, int | None, int | None], list[Source]] = {}
        for one in self.sources:
            if one.origin.is_plog:
                groups.setdefault((one.origin.node, one.origin.rank, one.origin.pid), []).append(one)
        for sources in groups.values():
            sources.sort(key=lambda one: ("/run/" not in one.path, os.path.basename(one.path)), reverse=True)
            readers = [PlogReader() for _source in sources]
            for source, reader in zip(sources, readers):
                self._feed(source, reader.feed)
                reader.close()
            best = next((at for at, reader in enumerate(readers) if reader.errors), 0)
            errors = (line.decode(errors="replace") for line in readers[best].errors)
            self._plogs.append(
                Plog(
                    origin=sources[best].origin,
                    path=sources[best].path,
                    errors=tuple(map(self._masker.text, errors)),
                    rank=max((reader.found for reader in readers), default=foreign_logs.NO_RANK)[1],
                )
            )
        ranks = [plog.rank for plog in self._plogs]  # ranks in subgroups, if several processes have the same one
        self._plogs = [attrs.evolve(one, rank=one.rank if ranks.count(one.rank) == 1 else None) for one in self._plogs]

    def _judge(
        self, key: int | str, texts: Sequence[Text], plog: Plog | None = None, *, is_mixed: bool = False
    ) -> None:
        """Judge the process with this rank or name by its logs and its plog, which is looked up if not given."""
        rank_id, name = (key, "") if isinstance(key, int) else (min([0, *self.ranks]) - 1, key)
        plog = plog or (None if is_mixed else self._plog_of(rank_id, texts))
        process = Process(
            rank_id=rank_id,
            text=b"\n".join(text for _title, text in texts),
            plog=plog.errors if plog else (),
            ending=self._endings.get(rank_id),
            is_mixed=is_mixed,
        )
        judged = foreign_logs.judge(process, self._masker.data)
        evidence = judged.death.evidence
        if plog:
            error = shown("".join(plog.errors[:1]))
            evidence = attrs.evolve(evidence, plog_path=plog.path, plog_error=error)
        evidence = catalogue.advised(evidence, self.site)
        self.judged[rank_id] = attrs.evolve(judged, death=attrs.evolve(judged.death, evidence=evidence))
        said = {number for line in evidence.traceback for number in _RANK.findall(line)}
        name = f"rank {said.pop()}" if is_mixed and len(said) == 1 else name
        path = _with_the_error(texts, evidence.summary)
        self.ranks[rank_id] = RankRecord(rank_id=rank_id, name=name, state=RankState.UNKNOWN, log_path=path)

    def _plog_of(self, rank_id: int, texts: Sequence[Text]) -> Plog | None:
        """Remove all plogs of a rank from `_plogs`; return the newest one, if possible with errors."""
        if not self._plogs:
            return None
        pids = {int(number) for _title, text in texts for found in _PID.findall(text) for number in found if number}
        nodes = {foreign_logs.origin_of(title).node for title, _text in texts}
        found = [plog for plog in self._plogs if plog.is_of(rank_id, pids, nodes)]
        self._plogs = [plog for plog in self._plogs if plog not in found]
        return max(found, key=lambda one: (bool(one.errors), os.path.basename(one.path)), default=None)

    def record(self) -> JobRecord:
        """Return what is known about the job."""
        found = foreign_logs.diagnose(list(self.judged.values()), self.first)
        ranks = tuple(
            attrs.evolve(
                rank, state=RankState.FAILED, ending=self._endings.get(rank_id), finding=found.findings[rank_id]
            )
            if rank_id in found.findings
            else rank
            for rank_id, rank in sorted(self.ranks.items())
            if rank_id >= 0 or rank_id in found.findings
        )
        return JobRecord(ranks=ranks, cause=self._cause(found, ranks))

    def _cause(self, found: Diagnosis, ranks: tuple[RankRecord, ...]) -> CauseRecord | None:
        root = found.root
        if root is None:
            return None
        ended = root.rank_id if self.first is None or self.first not in found.findings else self.first
        exited = Exited(ended, self._endings.get(ended) or Ending(), name=self.ranks[ended].name)
        root = attrs.evolve(root, candidates=tuple(rank_id for rank_id in root.candidates if rank_id >= 0))
        outcome = Outcome(cause=exited, ranks=ranks, root=root, suspected_peer=found.suspected_peer)
        cause = wording.cause_record(outcome)
        if cause is None or root.rank_id in self._endings or wording.alike(outcome):
            return cause
        title = rank_title(root.rank_id, self.ranks[root.rank_id].name)  # its exit status is unknown
        first = None if ended == root.rank_id else ended
        return attrs.evolve(cause, sentence=f"{title} failed: {root.summary}", first_exit=first)


def _is_of_one(origin: Origin) -> bool:
    """Whether a path names the process that has written the log."""
    return not origin.is_plog and (origin.rank is not None or origin.local is not None or bool(origin.name))


def _local(source: Source) -> Local:
    return source.origin.node or source.origin.run, source.origin.local or 0


def _ranks_of_locals(own: Sequence[Source], mixed: Sequence[Mixed]) -> dict[Local, int]:
    """Return the ranks of all local ranks. Prefixes of lines are ignored if file names contain ranks."""
    if any(one.origin.rank is not None or one.origin.local is not None for one in own):
        return foreign_logs.ranks_of(_local(one) for one in own if one.origin.local is not None)
    found = [(one.node, number) for one in mixed for is_local, number in one.parts if is_local]
    aliases = {(one.node, local): rank for one in mixed for local, rank in one.aliases.items()}
    return foreign_logs.ranks_of(found, aliases)


def _by_process(own: Sequence[Source], local: Mapping[Local, int]) -> dict[int | str, list[Source]]:
    """Return the logs of each process, standard error last, from the newest directory with logs of this process."""
    found: dict[int | str, list[Source]] = {}
    for one in own:
        rank = local[_local(one)] if one.origin.local is not None else one.origin.rank
        found.setdefault(one.origin.name if rank is None else rank, []).append(one)
    for key, sources in found.items():
        folder = os.path.dirname(max(sources, key=lambda one: one.written_at).path)
        kept = [one for one in sources if os.path.dirname(one.path) == folder]
        found[key] = sorted(kept, key=lambda one: "stderr" in os.path.basename(one.path))
    return found


def _of_lines(mixed: Sequence[Mixed], local: Mapping[Local, int]) -> dict[int, list[Text]]:
    """Return the lines of each rank, those with a local rank first."""
    found: dict[int, list[Text]] = {}
    for wanted in (True, False):
        for one in mixed:
            for (is_local, number), text in one.parts.items():
                rank = local.get((one.node, number)) if is_local else number
                if is_local is wanted and rank is not None:
                    found.setdefault(rank, []).append(text)
    return dict(sorted(found.items()))


def _with_the_error(texts: Sequence[Text], summary: str) -> str:
    """Return the title of the log that contains the error, else of the last log with text; "" without logs."""
    needle = summary[:NEEDLE].encode()
    last = next((title for title, text in reversed(texts) if text), texts[-1][0] if texts else "")
    return next((title for title, text in reversed(texts) if needle and needle in text), last)
