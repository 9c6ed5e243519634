"""Gathers the evidence about failed ranks from logs and plogs. What it means is decided in `diagnosis`."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final

import attrs

from ascend_runner import files
from ascend_runner.diagnosis import endings, first_cause, log_evidence, passing_on
from ascend_runner.diagnosis.codes import Kind
from ascend_runner.diagnosis.endings import Circumstances
from ascend_runner.diagnosis.finding import Finding
from ascend_runner.diagnosis.first_cause import Death, Place
from ascend_runner.evidence import plog
from ascend_runner.host import bounded
from ascend_runner.plan.job import JobSpec
from ascend_runner.rank_table import codec
from ascend_runner.secrets import Masker
from ascend_runner.supervision.events import Ending
from ascend_runner.text import shown

FAR_BACK: Final = 1024 * 1024  # bytes of a log to search for an exception if its last bytes contain none
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


def read_disks(
    ranks: Sequence[FailedRank],
    masker: Masker,
    warn: Callable[[str], None],
    is_cut: Callable[[], bool] = bounded.never,
) -> Mapping[int, Finding]:
    """Return the evidence in the logs and plogs of failed ranks; ranks that cannot be read in time are missing.

    `warn` is called if that is so.
    """
    read: dict[int, Finding] = {}

    def work() -> None:
        for rank in ranks:
            read[rank.rank_id] = _read(rank, masker)

    bounded.call(DISK_LIMIT, work, is_cut)
    found = dict(read)  # a copy, because the thread may still be running
    if len(found) < len(ranks):
        warn(f"the disk with the logs did not respond within {DISK_LIMIT:g} s; diagnosing without plogs")
    return found


def places_of(job: JobSpec) -> dict[int, Place]:
    """Return the server and device of each rank of the whole job; without a rank table, of this node's ranks only."""
    if job.table is None:
        return {spec.rank_id: Place(job.server_id, spec.local_rank) for spec in job.ranks}

    return first_cause.places(codec.loads(job.table.data))


def _read(rank: FailedRank, masker: Masker) -> Finding:
    """Read the end of a log, and further back if it contains no exception: much may have been written after one."""
    found = _plog(rank)
    errors = tuple(map(masker.text, found.errors)) if found else ()
    evidence = log_evidence.read(rank.tail, rank.ending, errors)
    if not evidence.exception and not rank.ending.signum and rank.log_path:
        earlier = log_evidence.read(
            masker.data(files.read_end(rank.log_path, min(FAR_BACK, rank.size))), rank.ending, errors
        )
        if earlier.exception or earlier.code:
            evidence = attrs.evolve(earlier, last_lines=evidence.last_lines)

    directory = passing_on.log_directory(evidence.exception)
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


def _plog(rank: FailedRank) -> plog.Plog | None:
    if not rank.plog_folder:
        return None
    return plog.newest(rank.plog_folder, () if rank.has_own_plog_folder else (rank.pid,), rank.started_at)
