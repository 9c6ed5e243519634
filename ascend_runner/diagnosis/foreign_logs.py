"""Reads the logs of a job started by any launcher: which process wrote them, and why it failed. Pure.

The rank is found in the path or in the prefixes of lines. The patterns cover torchrun (--log-dir, --tee, its report on
failed workers), torch (the excepthook and c10d), accelerate, DeepSpeed, msrun, MindSpore's scripts, Open MPI and PRRTE
(--output-filename, --tag-output), horovodrun, srun, kubectl, docker compose, CRI, ModelArts, MindCluster (FaultDiag),
CANN (plogs) and this runner.

A log may have any length and contain anything. Of each process, only the end is kept, and the last errors before it.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from signal import SIGABRT, SIGBUS, SIGILL, SIGKILL, SIGSEGV, SIGTERM
from typing import Final, Union

import attrs

from ascend_runner.diagnosis import log_evidence, root_cause, statements
from ascend_runner.diagnosis.endings import Circumstances
from ascend_runner.diagnosis.finding import Finding
from ascend_runner.diagnosis.root_cause import Death, Diagnosis, Suspicion
from ascend_runner.diagnosis.tracebacks import HEADER
from ascend_runner.supervision.causes import Ending
from ascend_runner.text import LAST_LINES, MOST_DIGITS, lines_of

# --- Paths ------------------------------------------------------------------------------------------------------------

NUMBER: Final = r"\d{1,6}"


@attrs.frozen(kw_only=True)
class Origin:
    """What a path tells about the process that has written a log."""

    rank: int | None = None
    local: int | None = None  # its number on its node, if the path has no rank
    node: str = ""  # such as "worker-1"
    name: str = ""  # of a process without a rank, such as "scheduler"
    pid: int | None = None  # of a plog
    attempt: int = 0
    run: str = ""  # the directory of one run of torchrun, which holds its attempts

    @property
    def is_plog(self) -> bool:
        """Whether the log is a plog of CANN."""
        return self.pid is not None


# Later patterns override earlier ones, and inner directories override outer ones.
_PATHS: Final = tuple(
    re.compile(form)
    for form in (
        rf"/(?P<node>(?:worker|node|pod|server|host)[-_]?{NUMBER})(?=/)",
        rf"/(?:train_parallel|device_?)(?P<local>{NUMBER})(?=[/.])",
        rf"(?P<run>/.*?)/attempt_(?P<attempt>{NUMBER})/(?P<local>{NUMBER})(?=/)",
        rf"(?i:local[-_]?rank)[-_.]?(?P<local>{NUMBER})(?![0-9A-Za-z])",
        rf"/(?i:rank)[-_.]?(?P<rank>{NUMBER})(?=/)",
        rf"(?<![A-Za-z])(?<!(?i:local)[-_])(?i:rank)[-_. ]?(?P<rank>{NUMBER})(?![0-9A-Za-z])[^/]*$",
        rf"/worker_(?P<rank>{NUMBER})\.log$",
        rf"/(?P<node>worker-{NUMBER})\.(?:log|txt)$",
        rf"/modelarts-job-[^/]*-(?P<node>[a-z]{{1,20}}-{NUMBER})\.log$",
        r"/(?P<name>scheduler)\.log$",
        r"-proc-(?P<name>(?!rank-)[A-Za-z][^./]{0,60})\.txt$",
        r"/plog-(?P<pid>\d{1,9})_\d+\.log$",
    )
)
_LOG: Final = re.compile(r"(?:\.(?:log|txt|out|err)|(?:^|[._-])(?:stdout|stderr))(?:\.gz)?$")
_NO_LOG: Final = re.compile(r"device-\d+_\d+\.log")  # logs of CANN's device side, not written by a rank
# Other logs that MindCluster collects, the security logs of CANN, earlier runs of this runner, and caches.
OTHER_FOLDERS: Final = re.compile(
    r"device_log|dl_log|environment_check|amct_log|mindie|crash|security|run-\d+|kernel_meta|__pycache__|\.git"
)


def origin_of(path: str) -> Origin:
    """Return what a path tells about the process that has written the log."""
    found: dict[str, str] = {}
    plain = f"/{path.removesuffix('.gz').lstrip('/')}"
    for form in _PATHS:
        for match in form.finditer(plain):
            found.update(match.groupdict())
    numbers = {name: int(found[name]) for name in ("rank", "local", "pid", "attempt") if name in found}
    return Origin(
        rank=numbers.get("rank"),
        local=None if "rank" in numbers else numbers.get("local"),
        node=found.get("node", ""),
        name=found.get("name", ""),
        pid=numbers.get("pid"),
        attempt=numbers.get("attempt", 0),
        run=found.get("run", ""),
    )


def is_log(name: str) -> bool:
    """Whether a file in a directory is a log, according to its name."""
    return bool(_LOG.search(name)) and not _NO_LOG.match(name)


# --- Lines ------------------------------------------------------------------------------------------------------------

_TIME: Final = (  # of kubectl, docker and CRI; of this runner; of horovodrun
    rb"(?:\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d\S{0,16} (?:std(?:out|err) [FP] )?|\d\d:\d\d:\d\d(?:[.,]\d{1,9})? "
    rb"|[A-Z][a-z]{2} [A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d \d{4})?"
)
_PREFIX: Final = re.compile(
    _TIME + rb"(?:[\w.-]{1,64}: {1,2})?(?:"  # pdsh begins a line with the host
    rb"\[(?i:rank)[ =:_-]?(?P<rank>\d{1,6})\]:? ?"  # torch, this runner, and many programs
    rb"|\[[A-Za-z]\w{0,31}?(?P<local>\d{1,6})\]:"  # torchrun: the role and the local rank
    rb"|\[(?:\d{1,9},)?(?P<of_mpi>\d{1,6})\]<std(?:out|err|diag)>:"  # Open MPI, horovodrun
    rb"|\[[^][,<>\s]{1,80}@\d{1,9},(?P<of_prrte>\d{1,6})\]<std(?:out|err)>: ?"
    rb"|\[pod/(?P<pod>[\w.-]{1,253})/[\w.-]{1,63}\] "  # kubectl logs --prefix
    rb"|(?P<container>[\w.-]{1,64}[-_]\d{1,4}) {2,64}\| "  # docker compose logs
    rb")"
)
_LABEL: Final = re.compile(rb" *(?P<rank>\d{1,6}): ")  # srun --label
_HINT: Final = re.compile(rb"\](?::|<std| )|\d  +\| ")  # found in every prefix
_COLOR: Final = re.compile(rb"\x1b\[[0-9;]*m")
PREFIXES: Final = 3  # most prefixes of a line, such as those of torchrun and torch
LABELLED: Final = 20  # lines at the beginning that must all have a label for a log to count as labelled

Number = tuple[bool, int]  # whether it is a local rank, and its number
Tag = Union[Number, str]  # or the pod or container of a process whose rank is unknown


# --- Bounded memory ---------------------------------------------------------------------------------------------------

END: Final = 1 << 20  # bytes of the end of a log that are kept, as of a rank's
LEAST_END: Final = 1 << 15  # the same, if there are many processes
ENDS: Final = 1 << 26  # bytes in total, for all processes in shared logs
MOST_PROCESSES: Final = 2048  # in one log
PIECE: Final = 1 << 14  # bytes kept or dropped together
LONGEST_LINE: Final = 1 << 16  # bytes; a longer line is split
MARKS: Final = (b"Traceback (most", b"Fatal Python error", b"terminate called", b"Error: ", b"[ERROR]")
GAP: Final = b"\n" * (statements.FAR + 1)  # enough blank lines to separate errors from an unrelated end


class Excerpt:
    """The end of a log of any length, and the last errors before it."""

    def __init__(self) -> None:
        self._end: deque[bytes] = deque()
        self._held = 0  # bytes of the end
        self._errors: list[bytes] = []
        self._before = b""  # the last piece dropped from the end
        self._quiet = PIECE  # bytes dropped from the end since the last error

    def feed(self, data: bytes, limit: int = END) -> None:
        """Add the next bytes of the log, and keep about `limit` bytes of its end."""
        start = 0
        while start < len(data):
            end = data.rfind(b"\n", start, start + PIECE) + 1 or start + PIECE
            self._end.append(data[start:end])
            self._held += len(self._end[-1])
            start = end
        while self._end and self._held - len(self._end[0]) > limit:
            self._leave(self._end.popleft(), limit)

    def _leave(self, piece: bytes, limit: int) -> None:
        self._held -= len(piece)
        has_error = any(mark in piece for mark in MARKS)
        if has_error and self._quiet >= PIECE:
            self._errors = [self._before]
        if has_error or not self._quiet:  # an error may continue in the next piece
            self._errors.append(piece)
        while len(self._errors) > 2 and sum(map(len, self._errors)) > limit // 2:  # noqa: PLR2004  the first and the last
            del self._errors[len(self._errors) // 2]
        self._quiet = 0 if has_error else self._quiet + len(piece)
        self._before = piece

    @property
    def text(self) -> bytes:
        """The text that was kept. A gap separates the end from errors long before it."""
        end = b"".join(self._end)
        return b"".join([*self._errors, GAP, end]) if self._errors else end


class Splitter:
    """Splits one log into excerpts, one for each process named in the prefixes of its lines.

    `parts` maps tags to excerpts; lines without a prefix have the tag None. `aliases` maps local ranks to ranks, found
    in lines with both prefixes. `logs` is the number of logs that share the memory.
    """

    def __init__(self, logs: int = 1) -> None:
        self.parts: dict[Tag | None, Excerpt] = {}
        self.aliases: dict[int, int] = {}
        self._room = ENDS // logs
        self._form = _PREFIX
        self._has_begun = False
        self._rest = b""

    def feed(self, data: bytes) -> None:
        """Take what follows."""
        whole, self._rest = _cut(self._rest + (_COLOR.sub(b"", data) if b"\x1b" in data else data))
        if whole:
            self._take(whole)

    def close(self) -> None:
        """Take the last line, which may have no end."""
        if self._rest:
            self._take(self._rest + b"\n")

    def _take(self, data: bytes) -> None:
        if not self._has_begun:
            self._has_begun = True
            self._form = _LABEL if _is_labelled(data) else _PREFIX
        if self._form is _PREFIX and not _HINT.search(data):
            self._keep(None, data)
            return
        lines: dict[Tag | None, list[bytes]] = {}
        for line in data.removesuffix(b"\n").split(b"\n"):
            found = self._form.match(line)
            tag, text = self._tagged(found, line) if found else (None, line)
            lines.setdefault(tag, []).append(text)
        for tag, of_one in lines.items():
            self._keep(tag, b"\n".join(of_one) + b"\n")

    def _tagged(self, found: re.Match[bytes], line: bytes) -> tuple[Tag, bytes]:
        """Return the tag of a line, and the line without its prefixes. A rank takes precedence over a local rank."""
        rank = local = -1
        name = ""
        for _number in range(PREFIXES):
            if found.lastgroup == "local":
                local = int(found["local"])
            elif found.lastgroup in {"pod", "container"}:
                name = f"{found.lastgroup} {found[found.lastgroup].decode()}"
            else:
                rank = int(found[found.lastindex or 0])
            line = line[found.end() :]
            following = self._form.match(line) if line[:1] == b"[" else None
            if following is None:
                break
            found = following
        if rank < 0:
            return name or (True, local), line
        if local >= 0 and len(self.aliases) < MOST_PROCESSES:
            self.aliases[local] = rank
        return (False, rank), line

    def _keep(self, tag: Tag | None, data: bytes) -> None:
        if tag not in self.parts:
            tag = tag if len(self.parts) < MOST_PROCESSES else None
            self.parts.setdefault(tag, Excerpt())
        self.parts[tag].feed(data, max(LEAST_END, min(END, self._room // len(self.parts))))


def _cut(data: bytes) -> tuple[bytes, bytes]:
    """Split off an unfinished last line, unless it is too long to be kept."""
    end = data.rfind(b"\n") + 1
    return (data, b"") if len(data) - end > LONGEST_LINE else (data[:end], data[end:])


def _is_labelled(data: bytes) -> bool:
    lines = data.split(b"\n", LABELLED)[:LABELLED]
    return len(lines) == LABELLED and all(map(_LABEL.match, lines))


PLOG_LINES: Final = 200  # kept from the first error on
LONGEST_ERROR: Final = 4096  # bytes kept of each of these lines
_OF_PLOG: Final = re.compile(  # HCCL's lines about a communicator: its size and this rank, in either order
    rb"(?:rank(?:s|Num)\[(?P<size>\d{1,6})\], ?rank\[(?P<rank>\d{1,6})\]"
    rb"|rank\[(?P<rank2>\d{1,6})\], ?totalRanks\[(?P<size2>\d{1,6})\])"
)
NO_RANK: Final[tuple[int, int | None]] = (0, None)


class PlogReader:
    """Reads one plog: the lines from its first error on, and the rank in the largest communicator of the process.

    `found` is the size of that communicator, and the rank.
    """

    def __init__(self) -> None:
        self.errors: list[bytes] = []
        self.found = NO_RANK
        self._rest = b""

    def feed(self, data: bytes) -> None:
        """Take what follows."""
        data, self._rest = _cut(self._rest + data)
        for found in _OF_PLOG.finditer(data):
            size, rank = (int(found[name] or found[f"{name}2"]) for name in ("size", "rank"))
            self.found = self.found if self.found[0] >= size else (size, rank)
        start = 0 if self.errors else data.find(b"[ERROR]")
        if start >= 0 and len(self.errors) < PLOG_LINES:
            lines = data[data.rfind(b"\n", 0, start) + 1 :].split(b"\n", PLOG_LINES)[:PLOG_LINES]
            self.errors += [line[:LONGEST_ERROR] for line in lines if line.strip()]

    def close(self) -> None:
        """Take the last line, which may have no end."""
        if self._rest:
            self.feed(b"\n")


# --- Exit statuses reported by launchers ------------------------------------------------------------------------------

_ENDINGS: Final = tuple(
    re.compile(form)
    for form in (
        # torchrun: its report, and the line before it
        r"\brank *: (?P<rank>\d{1,6}) \(local_rank: \d+\)\s{1,80}exitcode *: (?P<code>-?\d{1,4}) \(pid: (?P<pid>\d+)\)",
        r"failed \(exitcode: (?P<code>-?\d{1,4})\) local_rank: (?P<local>\d{1,6}) \(pid: (?P<pid>\d+)\)",
        # Open MPI and PRRTE
        r"Process name: \[[^]\n]{1,100}\]?,(?P<rank>\d{1,6})\]\s{1,80}Exit code: +(?P<code>\d{1,3})\b",
        r"process rank (?P<rank>\d{1,6}) with PID \d+ on node \S+ exited on signal (?P<signal>\d{1,2})\b",
        # DeepSpeed; not lines from other nodes, which begin with the host (pdsh)
        (
            r"(?m:^)(?![\w.-]{1,64}: ).{0,4000}--local_rank=(?P<local>\d{1,6})'.{0,4000}\]"
            r" exits with return code = (?P<code>-?\d{1,4})"
        ),
        r"\bProcess (?P<rank>\d{1,6}) exit with status code (?P<code>-?\d{1,4})",  # horovodrun
        r"srun: error: \S+ task (?P<rank>\d{1,6}): (?:Exited with exit code (?P<code>\d{1,3})|(?P<words>[A-Z][a-z ]+))",
    )
)
_FIRST: Final = "Root Cause (first observed failure)"  # of torchrun
_WORDS: Final[Mapping[str, int]] = {  # strsignal(3), as srun prints it
    "Killed": SIGKILL,
    "Aborted": SIGABRT,
    "Bus error": SIGBUS,
    "Segmentation fault": SIGSEGV,
    "Illegal instruction": SIGILL,
    "Terminated": SIGTERM,
}


def endings_in(text: str) -> dict[Number, Ending]:
    """Return how ranks ended according to their launcher, beginning with the first rank to end."""
    found: dict[Number, Ending] = {}
    first = text.rfind(_FIRST)
    for part in [text[first:], text[:first]] if first >= 0 else [text]:
        for match in (match for form in _ENDINGS for match in form.finditer(part)):
            fields = match.groupdict()
            ending = _ending(fields)
            tag = (False, int(fields["rank"])) if fields.get("rank") else (True, int(fields["local"]))
            if ending and not ending.is_success:
                found.setdefault(tag, ending)
    return found


def _ending(fields: Mapping[str, str | None]) -> Ending | None:
    if code := fields.get("code"):
        return Ending.of(int(code))
    signum = int(fields.get("signal") or 0) or _WORDS.get((fields.get("words") or "").strip(), 0)
    return Ending(signum=signum) if signum else None


# --- Processes --------------------------------------------------------------------------------------------------------

Local = tuple[str, int]  # a node, and a local rank on it


def ranks_of(found: Iterable[Local], aliases: Mapping[Local, int] = {}) -> dict[Local, int]:
    """Return the ranks of local ranks: the known ones from `aliases`, the others numbered node by node.

    The number in the name of a node is its index, such as 1 for worker-1, if all nodes have one and node 0 is among
    them. Otherwise, nodes are numbered in the order of their names.
    """
    keys = sorted(set(found))
    nodes = sorted({node for node, _local in keys}, key=_in_order)
    size = 1 + max((local for _node, local in keys), default=0)
    places = {node: place for place, node in enumerate(nodes)}
    numbers = [int(text) for node in nodes for text in re.findall(r"^[a-z]+[-_]?(\d{1,6})$", node)]
    if 0 in numbers and len(set(numbers)) == len(nodes):
        places = dict(zip(nodes, numbers))
    return {key: aliases.get(key, places[key[0]] * size + key[1]) for key in keys}


def _in_order(name: str) -> list[tuple[int, str]]:
    """Order names by the numbers in them: worker-2 precedes worker-10."""
    return [
        (int(text), "") if text.isdigit() else (-1, text) for text in re.findall(rf"\d{{1,{MOST_DIGITS}}}|\D+", name)
    ]


PROGRESS_AT_EXIT: Final = 3  # lines of progress bars that a program may print after an error, when it exits
PROGRESS_OF_OTHERS: Final = 10  # the same in a log of several ranks, where the others go on for a while
BUFFERED: Final = 1 << 14  # bytes of output that may be flushed at exit, after the traceback
BUFFERED_OF_ALL: Final = 1 << 18
UNCAUGHT: Final = 4  # lines from the header of a traceback to the first frame, with those of other ranks


@attrs.frozen(kw_only=True)
class Process:
    """The logs of one process. A process without a rank has a negative `rank_id`.

    `ending` is None if no launcher reports it. With `is_mixed`, the text comes from several processes.
    """

    rank_id: int
    text: bytes = b""
    plog: tuple[str, ...] = ()
    ending: Ending | None = None
    is_mixed: bool = False


@attrs.frozen(kw_only=True)
class Judged:
    """The evidence about a process. `last_error` is an error too weak to be a cause, or "".

    With `is_mixed`, the text came from several processes.
    """

    death: Death
    last_error: str = ""
    is_mixed: bool = False

    @property
    def is_silent(self) -> bool:
        """Whether nothing shows that the process has failed."""
        return self.death.is_stopped and not self.death.evidence.summary


def judge(process: Process, mask: Callable[[bytes], bytes] = bytes) -> Judged:
    """Return the evidence in the logs of a process.

    If the process was stopped by its launcher, or its exit status is unknown, an error counts only if no progress
    follows it, apart from output flushed at exit. Then the error must have a traceback or a code, or come from native
    code, because an error message of a logger may be about anything. `mask` masks secrets, only in the lines that are
    examined: masking takes longer than reading.
    """
    ending, text, plog = process.ending, process.text, process.plog
    if ending and ending.signum != SIGTERM:
        evidence = log_evidence.read(mask(text), ending, plog)
        return Judged(death=Death(rank_id=process.rank_id, ending=ending, evidence=evidence))
    lines = lines_of(text)
    at_exit, buffered = (PROGRESS_OF_OTHERS, BUFFERED_OF_ALL) if process.is_mixed else (PROGRESS_AT_EXIT, BUFFERED)
    lines = lines[min(_survived(lines, at_exit), _uncaught(lines, buffered)) :]
    text = mask("\n".join(lines).encode())
    evidence = log_evidence.read(text, None, plog)
    if evidence.summary and not evidence.traceback:
        evidence = log_evidence.read(text, None, plog, is_stopped=True)
    has_failed = bool(evidence.summary) and not evidence.is_weak
    death = Death(
        rank_id=process.rank_id,
        ending=ending or Ending(),
        evidence=evidence if has_failed else Finding(last_lines=evidence.last_lines),
        is_stopped=bool(ending) or not has_failed,
    )
    return Judged(death=death, last_error="" if has_failed else evidence.exception, is_mixed=process.is_mixed)


def _survived(lines: Sequence[str], at_exit: int) -> int:
    """Return the index of the first line after the last progress, not counting the last `at_exit` lines of progress."""
    end = len(lines)
    for _number in range(at_exit + 1):
        start = end - len(statements.since_progress(lines[:end]))
        if not start:
            return 0
        end = start - 1
    return end + 1


def _uncaught(lines: Sequence[str], buffered: int) -> int:
    """Return the index of the lines about the last uncaught exception, or the number of lines without one.

    The traceback of such an exception begins in the main module, and at most `buffered` bytes of flushed output follow.
    """
    size = 0
    for at in range(len(lines) - 1, -1, -1):
        size += len(lines[at])
        if size > buffered:
            break
        if HEADER.search(lines[at]) and any(", in <module>" in line for line in lines[at + 1 : at + UNCAUGHT]):
            return max(0, at - LAST_LINES)
    return len(lines)


def diagnose(judged: Sequence[Judged], first: int | None = None) -> Diagnosis:
    """Explain why processes failed. `first` is the rank that ended first according to the launcher.

    Lines that belong to no rank decide only if no rank has failed by itself: a launcher repeats errors of its ranks.
    """
    own = {one.death.evidence.summary for one in judged if not one.is_mixed}
    judged = [one for one in judged if not (one.is_mixed and one.death.evidence.summary in own)]
    failed = [one.death for one in judged if not one.is_silent]
    ranks, others = _with_crashes(
        [death for death in failed if death.rank_id >= 0], [death for death in failed if death.rank_id < 0]
    )
    if ranks:
        others = [death for death in others if not death.evidence.only_passes_on]
    if any(root_cause.suspicion(death) <= Suspicion.ENDED_FROM_OUTSIDE for death in ranks):
        others = []
    failed = [*ranks, *others]
    if not failed:
        return Diagnosis(findings={}, suspected_peer=None, root=None)
    best = root_cause.by_suspicion(failed)[0].rank_id
    first = first if first in {death.rank_id for death in failed} else best
    quiet = [one.death for one in judged if one.is_silent and one.death.rank_id >= 0]
    return root_cause.diagnose([*failed, *quiet], Circumstances(), {}, first)


def _with_crashes(ranks: list[Death], others: list[Death]) -> tuple[list[Death], list[Death]]:
    """Assign a crash that belongs to no rank to the only rank killed by the same signal."""
    crashed = {signum: death for death in others if (signum := root_cause.crash_in(death.evidence))}
    killed = [death for death in ranks if death.ending.signum in crashed and not death.evidence.summary]
    if len(killed) != 1:
        return ranks, others
    crash = crashed[killed[0].ending.signum]
    found = attrs.evolve(killed[0], evidence=crash.evidence)
    return [found if death is killed[0] else death for death in ranks], [one for one in others if one is not crash]
