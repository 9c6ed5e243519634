"""Gathers the evidence about failed ranks from their logs and plogs. `root_cause` decides what it means.

They are below ASCEND_PROCESS_LOG_PATH, as {debug,run}/plog/plog-<pid>_<time>.log (CANN log reference). All reads are
bounded: the directory may be on a slow disk, and contain thousands of files or special files.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

import attrs

from ascend_runner import files
from ascend_runner.diagnosis import endings, log_evidence, tracebacks
from ascend_runner.diagnosis.codes import Kind
from ascend_runner.diagnosis.endings import Circumstances
from ascend_runner.diagnosis.finding import Finding
from ascend_runner.diagnosis.root_cause import Death
from ascend_runner.node import bounded
from ascend_runner.node.bounded import Patience
from ascend_runner.secrets import Masker
from ascend_runner.supervision.causes import Ending
from ascend_runner.text import lines_of, shown

FILES_LIMIT: Final = 4096  # directory entries examined
READ_LIMIT: Final = 8 * 1024 * 1024  # bytes per file; at CANN's default level a plog contains errors only
ERRORS_LIMIT: Final = 200  # lines; errors after the first are mostly its consequences
_NAME: Final = re.compile(r"plog-(\d+)_\d+\.log")


@attrs.frozen
class Plog:
    """A rank's newest plog. `errors` is its first error and the lines that follow, raw; empty if it contains none."""

    path: str
    errors: tuple[str, ...] = ()


def newest(folder: str, pids: Iterable[int] = (), since: float = 0.0) -> Plog | None:
    """Return the newest plog below a rank's log directory, preferring one with errors, or None if there is none.

    If other ranks share the directory, `pids` are the rank's processes, and only their files count. `since` is the
    start of the rank in seconds since the epoch: files last written before belong to an earlier run.
    """
    wanted = frozenset(pids)
    silent = None
    for kind in ("debug", "run"):
        path = _newest_file(os.path.join(folder, kind, "plog"), wanted, since)
        if path:
            errors = _errors(path)
            if errors:
                return Plog(path, errors)
            silent = silent or Plog(path)
    return silent


def _newest_file(folder: str, pids: frozenset[int], since: float) -> str:
    found: list[tuple[float, str]] = []
    try:
        with os.scandir(folder) as entries:
            for _number, entry in zip(range(FILES_LIMIT), entries):
                match = _NAME.fullmatch(entry.name)
                if match and (not pids or int(match[1]) in pids) and entry.is_file(follow_symlinks=False):
                    found.append((entry.stat(follow_symlinks=False).st_mtime, entry.path))
    except OSError:
        return ""  # missing or not readable: the report then has no plog

    return max((candidate for candidate in found if candidate[0] >= since), default=(0.0, ""))[1]


def _errors(path: str) -> tuple[str, ...]:
    data = _read_plog(path)
    start = data.find(b"[ERROR]")
    if start < 0:
        return ()
    lines = lines_of(data[data.rfind(b"\n", 0, start) + 1 :])

    return tuple(line for line in lines[:ERRORS_LIMIT] if line.strip())


def _read_plog(path: str) -> bytes:
    try:
        fd = os.open(path, files.READ_FLAGS)
        with open(fd, "rb", buffering=0) as file:
            pieces = []
            left = READ_LIMIT if stat.S_ISREG(os.fstat(fd).st_mode) else 0
            while left > 0 and (piece := file.read(min(left, 1024 * 1024))):
                pieces.append(piece)
                left -= len(piece)
                if b"[ERROR]" in piece and len(pieces) > 1:
                    break  # the first error and most of its consequences are in this piece
            return b"".join(pieces)
    except OSError:
        return b""


FAR_BACK: Final = 512 * 1024  # bytes of a log to search for an exception if its last bytes contain none
ALL_FAR_BACK: Final = 1024 * 1024  # bytes of all these logs together: text of the worst kind takes a second
WORKERS_LIMIT: Final = 64  # logs of a launcher's workers that are read, and the bytes of each
WORKER_END: Final = 64 * 1024
DISK_LIMIT: Final = 5.0  # seconds; logs and plogs may be on a network disk that no longer responds


@attrs.frozen(kw_only=True)
class FailedRank:
    """The traces of a failed rank: its ending, the last bytes of its log with secrets masked, and paths to read more.

    `log_path` is "" if the `tail` is the whole output, which has `size` bytes. `started_at` is in seconds since the
    epoch. `has_own_plog_folder` is false if several ranks write to `plog_folder`. With `is_stopped`, the runner asked
    the rank to stop, and `tail` is its output up to then.
    """

    rank_id: int
    pid: int
    ending: Ending
    tail: bytes
    plog_folder: str = ""
    has_own_plog_folder: bool = True
    started_at: float = 0.0
    log_path: str = ""
    size: int = FAR_BACK
    is_stopped: bool = False


def gather(
    ranks: Iterable[FailedRank], circumstances: Circumstances, on_disk: Mapping[int, Finding] = {}
) -> Iterator[Death]:
    """Yield the evidence about failed ranks: what `read_disks` has found, or else what is in memory."""
    for rank in ranks:
        evidence = on_disk.get(rank.rank_id) or log_evidence.read(rank.tail, rank.ending, is_stopped=rank.is_stopped)
        is_out_of_memory = not rank.is_stopped and endings.is_out_of_memory(rank.ending, circumstances)
        yield Death(
            rank_id=rank.rank_id,
            ending=rank.ending,
            evidence=attrs.evolve(evidence, is_out_of_memory=is_out_of_memory),
            is_stopped=rank.is_stopped,
        )


def read_disks(ranks: Sequence[FailedRank], masker: Masker, patience: Patience) -> Mapping[int, Finding]:
    """Return the evidence in the logs and plogs of failed ranks; with a warning, without what does not respond."""
    read: dict[int, Finding] = {}

    def work() -> None:
        for rank in ranks:
            read[rank.rank_id] = _read(rank, masker, min(FAR_BACK, ALL_FAR_BACK // len(ranks)))

    bounded.call(DISK_LIMIT, work, patience.is_hurried)
    found = dict(read)  # a copy, because the thread may still be running
    if len(found) < len(ranks):
        patience.warn(f"the disk with the logs did not respond within {DISK_LIMIT:g} s; diagnosing without plogs")
    return found


def _read(rank: FailedRank, masker: Masker, far_back: int) -> Finding:
    """Read the end of a log, and further back if it contains no exception: much may have been written after one."""
    found = _plog(rank)
    errors = tuple(map(masker.text, found.errors)) if found else ()
    evidence = log_evidence.read(rank.tail, rank.ending, errors)
    if not evidence.exception and not rank.ending.signum and rank.log_path:
        end = files.read_end(rank.log_path, min(far_back, rank.size))
        earlier = log_evidence.read(end, rank.ending, errors)
        if earlier.exception or earlier.code:  # only now, because to mask it takes longer than to read it
            earlier = log_evidence.read(masker.data(end), rank.ending, errors)
            evidence = attrs.evolve(earlier, last_lines=evidence.last_lines)

    directory = tracebacks.log_directory(evidence.exception)
    evidence = (_read_workers(directory, masker) if directory else None) or evidence

    return (
        attrs.evolve(evidence, plog_path=found.path, plog_error=shown(errors[0]) if errors else "")
        if found
        else evidence
    )


def _read_workers(directory: str, masker: Masker) -> Finding | None:
    """Return the evidence in the logs of a launcher's workers: of the first one that reports an error of its own."""
    try:
        names = sorted(name for name in os.listdir(directory) if name.startswith("worker") and name.endswith(".log"))
    except OSError:
        return None  # missing or not readable: the launcher's own words are all there is

    for name in names[:WORKERS_LIMIT]:
        evidence = log_evidence.read(masker.data(files.read_end(os.path.join(directory, name), WORKER_END)))
        if evidence.place and evidence.kind is Kind.ROOT:
            return evidence
    return None


def _plog(rank: FailedRank) -> Plog | None:
    if not rank.plog_folder:
        return None
    return newest(rank.plog_folder, () if rank.has_own_plog_folder else (rank.pid,), rank.started_at)
