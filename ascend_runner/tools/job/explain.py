"""`ascend-job explain`: what an error code means, or why a job failed, from its logs, whichever launcher started it.

The logs are read in constant memory. They may come from anyone and contain anything: what cannot be read is reported
in one sentence.
"""

from __future__ import annotations

import codecs
import gzip
import io
import itertools
import json
import os
import re
import stat
import sys
import zlib
from argparse import Namespace
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from signal import SIGINT, SIGTERM, Signals
from typing import BinaryIO, Final

import attrs

from ascend_runner import report_file
from ascend_runner.diagnosis import catalogue, endings, foreign_logs
from ascend_runner.diagnosis.catalogue import EMPTY, Catalogue, Entry
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
from ascend_runner.errors import SettingsError, UnreadableError, reason
from ascend_runner.members import plain
from ascend_runner.node import terminal
from ascend_runner.record.job_record import CauseRecord, JobRecord
from ascend_runner.record.rank_record import Outcome, RankRecord, RankState
from ascend_runner.secrets import Masker
from ascend_runner.supervision.causes import Ending, Exited
from ascend_runner.supervision.job_machine import JobState
from ascend_runner.text import abbreviated, counted, rank_title, shown, signal_name, size
from ascend_runner.tool import DONE, write_text
from ascend_runner.tools.job import jobs, node_reports
from ascend_runner.views import screen, wording

NOTHING_KNOWN: Final = 1  # exit status if the cause or a code is unknown; grep has the same for no match
STDIN: Final = "-"

# --- Codes ------------------------------------------------------------------------------------------------------------


@attrs.frozen
class Explanation:
    """What a code means, which rank usually causes it, what to do, and the source of all that; "" if unknown."""

    code: str
    meaning: str
    kind: str = ""
    next: str = ""
    source: str = ""


_CODE: Final = re.compile(
    r"E[A-Z0-9]\d{4}|[1-5]\d{5}|ERR\d{5}|0x[0-9a-f]{1,16}|(?:HCCL|driver) \d{1,5}|-?\d{1,3}|SIG[A-Z0-9+]{2,8}"
)
_OF_CANN: Final = re.compile(r"E[A-Z0-9]\d{4}|\d{6}|(?:HCCL|driver) \d+")  # a peer may be at fault
HIGHEST_STATUS: Final = 255
OURS: Final = {  # exit statuses specific to this program
    75: "with --exit-verdict: the job has failed, and a retry may help",
    93: "with --exit-verdict: the job has failed, and a retry will not help",
}
ASKED: Final[Mapping[int, str]] = {  # the sender is unknown, since this program has not started the job
    SIGTERM: "asked to stop, by the platform, a user, or a launcher after another rank has failed",
    SIGINT: "interrupted, as by Ctrl-C",
}
SIGNALS: Final = "https://man7.org/linux/man-pages/man7/signal.7.html"
CODES: Final = "https://www.hiascend.com/document"  # the source of CANN's codes that only their module explains


def is_code(word: str, site: Catalogue = EMPTY) -> bool:
    """Whether a word has the form of an error code, an exit status or a signal, or is a name in a catalogue."""
    if _CODE.fullmatch(word) and not os.path.isdir(word):
        return True
    return not os.path.lexists(word) and bool(_CODE.fullmatch(_cased(word)) or _entry_of(word) or word in site.names)


def _cased(word: str) -> str:
    """Return a code in the catalogue's letter case, any other word unchanged."""
    cased = word.lower() if word[:2].lower() in {"0x", "dr"} else word.upper()
    return cased if _CODE.fullmatch(cased) else word


def _entry_of(word: str) -> Entry | None:
    """Return the entry with this id or code, or with this list of codes."""
    return catalogue.entry_of(word) or catalogue.entry_of(next(catalogue.code_names(word), ""))


def look_up(word: str, site: Catalogue = EMPTY) -> Explanation | None:
    """Return what a code means, None if it is unknown. A site's own entry overrides the built-in explanation."""
    word = _cased(word)
    found = _built_in(word)
    entry = site.names.get(found.code if found else word)
    if entry is None:
        return found
    found = found or Explanation(word, entry.means)
    return attrs.evolve(found, meaning=entry.means, next=entry.next, source=entry.source)


def _built_in(word: str) -> Explanation | None:
    if re.fullmatch(r"-?\d{1,3}", word):
        return _of_status(int(word))
    if word in Signals.__members__:
        return _of_signal(word, Signals[word])
    entry = _entry_of(word)
    if entry is None and word.startswith("ERR") and (phrase := catalogue.first_phrase([word])):
        entry = catalogue.entry_of(phrase.code.name)
    if entry:
        return _of_entry(word, entry, catalogue.KINDS[entry.kind].value if _OF_CANN.fullmatch(word) else "")
    found = catalogue.first_code([f"{word}: [PID: 0]"])  # explained by its module
    return Explanation(word, found.code.meaning, found.code.kind.value, source=CODES) if found else None


def _of_entry(code: str, entry: Entry, kind: str = "") -> Explanation:
    return Explanation(code, entry.means, kind, entry.next, entry.source)


def _of_status(number: int) -> Explanation | None:
    """Explain an exit status, or a negative number: a signal, as in Python's subprocess."""
    code = f"exit status {number}"
    if entry := _entry_of(code):
        return _of_entry(code, entry)
    if number in OURS:
        return Explanation(code, OURS[number])
    signum = -number if number < 0 else endings.signal_behind(Ending(exit_code=number))
    if 0 < signum <= endings.SIGNAL_LIMIT:
        return _of_signal(str(number) if number < 0 else code, signum)
    meaning = "chosen by the program: see its documentation, or the end of its log"
    return Explanation(code, meaning) if 0 <= number <= HIGHEST_STATUS else None


def _of_signal(code: str, signum: int) -> Explanation:
    name = signal_name(signum)
    entry = catalogue.entry_of(name)
    code = code if code == name else f"{code} ({name})"
    if entry and signum not in ASKED:
        return _of_entry(code, entry)
    return Explanation(code, ASKED.get(signum, "sent from outside, or by the program itself"), source=SIGNALS)


def _explain_codes(words: Sequence[str], options: Namespace) -> int:
    found = [(word, look_up(word, options.site)) for word in words]
    if options.json:
        write_text(json.dumps([attrs.asdict(one) for _word, one in found if one], indent=1) + "\n")
    for word, one in found:
        if one is None:
            options.tell(f"unknown code {word!r}")
        elif not options.json:
            write_text("".join(f"{line}\n" for line in _lines_of(one)))
    return DONE if all(one for _word, one in found) else NOTHING_KNOWN


def _lines_of(one: Explanation) -> Iterator[str]:
    yield f"{one.code}{f' ({one.kind})' if one.kind else ''}: {one.meaning}"
    yield from [f"  next   {one.next}"] if one.next else []
    yield from [f"  source {one.source}"] if one.source else []


# --- Files ------------------------------------------------------------------------------------------------------------

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


SHOWN_FROM: Final = 1 << 26  # bytes; reading fewer takes no noticeable time


@contextmanager
def _progress(total: int) -> Iterator[Callable[[int], object]]:
    """Show a progress bar on standard error if it is a terminal, and rich is installed."""
    if total < SHOWN_FROM or not terminal.columns(terminal.STDERR):
        yield lambda _count: None
        return
    try:
        from rich import console, progress  # noqa: PLC0415  an extra, and 50 ms
    except ModuleNotFoundError:
        yield lambda _count: None
        return
    columns = progress.BarColumn(), progress.DownloadColumn(), progress.TimeRemainingColumn()
    with progress.Progress(*columns, console=console.Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=total)
        yield lambda count: bar.advance(task, count)


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


# --- The answer -------------------------------------------------------------------------------------------------------

MOST_PROBLEMS: Final = 10  # sentences to print about logs that were left out or cut short
MOST_ERRORS: Final = 3  # to print if no cause is known: the last of each log and the first of each plog
RANK: Final = ("rank_id", "name", "exit_code", "signal", "log_path", "finding")  # members of a rank in the JSON


def run(options: Namespace) -> int:
    """Explain codes, or the logs of a job, and return the exit status.

    Raises:
        SettingsError: A word is neither a file nor a code, codes and files are mixed, or --catalogue has faults.
        UnreadableError: No log can be read.
    """
    words: Sequence[str] = options.words
    options.site = _site(options)
    if all(is_code(word, options.site) for word in words):
        return _explain_codes(words, options)
    _check_words(words, options.site)
    found = of_reports(words, options)
    if isinstance(found, str):
        return _show(JobRecord(), found.splitlines(), options)
    if found:
        return _show(found, (), options)
    problems: list[str] = []
    sources = find(words, problems)
    if not sources:
        raise UnreadableError("".join(problems[:1]) or f"no logs in {abbreviated(words)}")
    with _progress(sum(one.size for one in sources)) as advance:
        reader = LogReader(sources, advance, problems, options.site)
        reader.read()
    for problem in problems[:MOST_PROBLEMS]:
        options.tell(problem)
    if len(problems) > MOST_PROBLEMS:
        options.tell(f"... and {counted(len(problems) - MOST_PROBLEMS, 'more problem')}")
    record = reader.record()
    where = sources[0].title if len(sources) == 1 else counted(len(sources), "log")
    return _show(record, [*_nothing(reader, where)], options)


def _site(options: Namespace) -> Catalogue:
    """Return the site's own catalogue, an empty one without --catalogue. Reports all of its faults.

    Raises:
        SettingsError: The catalogue has faults, or cannot be read.
    """
    path: str | None = options.catalogue
    if path is None:
        return EMPTY
    data, faults = catalogue.read(path)
    for fault in faults[:-1]:
        options.tell(fault)
    if faults:
        raise SettingsError(faults[-1])
    return catalogue.build(catalogue.parse(data))


def _check_words(words: Iterable[str], site: Catalogue) -> None:
    """Check that each word names a log.

    Raises:
        SettingsError: A word is neither a file nor a code, or codes and files are mixed.
        UnreadableError: A file may exist, but is not accessible.
    """
    codes, logs = [], []
    for word in words:
        try:
            if word != STDIN:
                os.lstat(word)
            logs.append(word)
        except (FileNotFoundError, NotADirectoryError) as error:
            if not is_code(word, site):
                raise SettingsError(f"{word!r} is neither a file nor an error code") from error
            codes.append(word)
        except OSError as error:
            raise UnreadableError(f"cannot read {word!r}: {reason(error)}") from error
    if codes:
        raise SettingsError(f"{codes[0]!r} is an error code, and {logs[0]!r} a log: explain them separately")


def _nothing(reader: LogReader, where: str) -> Iterator[str]:
    """Yield the lines for logs without a known cause."""
    yield f"no known cause in {where}"
    errors = [
        f"  {which} error of {reader.ranks[rank_id].title}: {error}"
        for rank_id, one in sorted(reader.judged.items())
        for which, error in (("last", one.last_error), ("first", one.death.evidence.plog_error))
        if error
    ]
    yield from errors[:MOST_ERRORS]


def _show(record: JobRecord, nothing: Sequence[str], options: Namespace) -> int:
    if options.json:
        write_text(json.dumps(document(record), indent=1) + "\n")
    else:
        masker = Masker()
        lines = screen.explained(record) if record.cause else nothing
        write_text("".join(f"{shown(masker.text(line))}\n" for line in lines))
    return DONE if record.cause else NOTHING_KNOWN


def document(record: JobRecord) -> dict[str, object]:
    """Return the JSON of a diagnosis (`--json`), with members as in a report."""
    encoded = record.encode()
    ranks = [{name: plain(rank)[name] for name in RANK} for rank in (one.encode(0.0) for one in record.ranks)]
    return {"cause": encoded["cause"], "ranks": ranks}


def of_reports(words: Sequence[str], options: Namespace) -> JobRecord | str | None:
    """Return the answer of this runner's reports, if each word names a report or a directory with one.

    The answer is the record of the failed job (with several nodes, of the node with the likely cause), or a sentence if
    the job has not failed. It is None if the logs must be read, because there is no report or the runner was killed.

    Raises:
        SettingsError: The reports belong to different jobs.
    """
    reports = [_reports_at(word) for word in words]
    if not all(reports):
        return None
    paths = list(itertools.chain.from_iterable(reports))
    path = max(paths, key=_written_at)
    if len(paths) > 1:
        several = node_reports.find(words, options.environ)
        path = several.candidates[0].path if several and several.candidates else path
        if several and not path:
            return node_reports.screen(several)
    record = JobRecord.decode(report_file.read(path))
    folder = os.path.dirname(path)
    ranks = tuple(
        attrs.evolve(
            one,
            log_path=os.path.join(folder, one.log_name),
            finding=one.finding and catalogue.advised(one.finding, options.site),
        )
        for one in record.ranks
    )
    if record.cause:
        return attrs.evolve(record, ranks=ranks)
    if record.state is JobState.SUCCEEDED:
        return f"{record.job_id} has succeeded"
    is_alive = any(job.is_alive() for job in jobs.at_path(path))
    return f"{record.job_id} is running and has not failed" if is_alive else None


def _written_at(path: str) -> float:
    try:
        return os.stat(path).st_mtime
    except OSError:
        return 0.0


def _reports_at(word: str) -> list[str]:
    """Return the paths of the reports in a directory, or `word` if it is the path of a report."""
    try:
        paths = [os.path.join(word, name) for name in sorted(os.listdir(word))] if os.path.isdir(word) else [word]
    except OSError:
        return []
    return list(filter(_REPORT.search, paths))


_REPORT: Final = re.compile(rf"{report_file.KIND}(?:-[^/]+)?\.json$")
