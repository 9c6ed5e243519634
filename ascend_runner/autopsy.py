"""Puts together what is known of ranks that ended: log, ending, memory, plog. Loaded at a failure, never before.

The one entry to the diagnosis for the manager: it reads the plogs and leaves every judgement to `diagnosis`.
"""

from __future__ import annotations

from ascend_runner.annotations import TYPE_CHECKING, Final, NamedTuple
from ascend_runner.diagnosis import endings, first_cause, log_evidence
from ascend_runner.diagnosis.finding import Finding
from ascend_runner.linux import files, plog, threads

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ascend_runner.diagnosis.endings import Circumstances
    from ascend_runner.diagnosis.finding import Accused
    from ascend_runner.diagnosis.first_cause import Place
    from ascend_runner.diagnosis.log_evidence import Evidence
    from ascend_runner.job.plan import JobSpec
    from ascend_runner.supervision.events import Ending


FAR_BACK: Final = 1024 * 1024  # bytes of a log that are read where its very end tells nothing
DISK_LIMIT: Final = 5.0  # seconds; logs and plogs may be on a network's disk that does not answer any more


class Remains(NamedTuple):
    """What is left of a rank: how it ended, the last bytes of its log, where CANN wrote for it.

    `log_path` is where more than the `tail` can be read, "" where there is no more.
    `started_at` is in seconds of the epoch. `is_own_folder` is whether the plog folder is this rank's alone.
    """

    rank_id: int
    pid: int
    ending: Ending
    tail: bytes
    plog_folder: str = ""
    is_own_folder: bool = True
    started_at: float = 0.0
    log_path: str = ""


def order(remains: Sequence[Remains], circumstances: Circumstances, *, is_ordered: bool = False) -> tuple[int, ...]:
    """Give the ranks whose failure was seen in one wake-up in the order in which their failures shall count.

    `is_ordered` is whether `remains` are in the order in which the kernel saw them end.
    """
    deaths = [_death(rank, log_evidence.read(rank.tail, rank.ending), circumstances) for rank in remains]

    return tuple(death.rank_id for death in first_cause.by_suspicion(deaths, is_ordered=is_ordered))


def examine(
    remains: Sequence[Remains],
    circumstances: Circumstances,
    places: Mapping[int, Place],
    warn: Callable[[str], None],
) -> tuple[dict[int, Finding], Accused | None]:
    """Find out why each rank ended; and, where all only complain of others, whom they point at.

    `remains` are those that ended otherwise than with 0 before they were told to stop; `places` tells where the ranks
    of the whole job run, as far as known. `warn` is told where a disk does not answer.
    """
    findings: dict[int, Finding] = {}
    deaths: list[first_cause.Death] = []
    read = _read_disks(remains, warn)
    for rank in remains:
        evidence, found = read.get(rank.rank_id) or (log_evidence.read(rank.tail, rank.ending), None)
        evidence = evidence._replace(peers=tuple(first_cause.located(peer, places) for peer in evidence.peers))
        findings[rank.rank_id] = _finding(evidence, endings.meaning(rank.ending, circumstances), found)
        deaths.append(_death(rank, evidence, circumstances))

    return findings, first_cause.accused(deaths, places)


def places_of(job: JobSpec) -> dict[int, first_cause.Place]:
    """Tell where the ranks of the whole job run: by the rank table that they were given, else only this node's."""
    if job.table is None:
        return {spec.rank_id: first_cause.Place(job.server_id, spec.local_rank) for spec in job.ranks}

    from ascend_runner.rank_table import codec  # with a table it is there already, without one it is never needed

    return {
        device.rank_id: first_cause.Place(server.server_id, device.device_id)
        for server in codec.loads(job.table.data).servers
        for device in server.devices
    }


def _read_disks(
    remains: Sequence[Remains], warn: Callable[[str], None]
) -> dict[int, tuple[Evidence, plog.Plog | None]]:
    """Give what log and plog of each rank say; of those that cannot be read in time, nothing."""
    read: dict[int, tuple[Evidence, plog.Plog | None]] = {}

    def work() -> None:
        for rank in remains:
            found = _plog(rank)
            read[rank.rank_id] = _evidence(rank, found.errors if found else ()), found

    if not threads.within(DISK_LIMIT, work):
        warn(f"the disk of the logs has not answered for {DISK_LIMIT:g} s: the cause is told without plogs")
    return dict(read)


def _death(rank: Remains, evidence: Evidence, circumstances: Circumstances) -> first_cause.Death:
    return first_cause.Death(
        rank.rank_id, rank.ending, evidence, is_out_of_memory=endings.is_out_of_memory(rank.ending, circumstances)
    )


def _evidence(rank: Remains, plog_errors: Sequence[str]) -> Evidence:
    """Read the end of its log; farther back where no exception stands there, for much may be written after it."""
    evidence = log_evidence.read(rank.tail, rank.ending, plog_errors)
    if evidence.exception or rank.ending.signum or not rank.log_path:
        return evidence

    more = log_evidence.read(files.read_end(rank.log_path, FAR_BACK), rank.ending, plog_errors)
    return more._replace(last_lines=evidence.last_lines) if more.exception or more.code else evidence


def _plog(rank: Remains) -> plog.Plog | None:
    if not rank.plog_folder:
        return None
    return plog.newest(rank.plog_folder, () if rank.is_own_folder else (rank.pid,), rank.started_at)


def _finding(evidence: Evidence, meaning: str, found: plog.Plog | None) -> Finding:
    code = evidence.code
    return Finding(
        meaning=meaning,
        exception=evidence.exception,
        place=evidence.place,
        origin=evidence.origin,
        origin_place=evidence.origin_place,
        traceback=evidence.traceback,
        last_lines=evidence.last_lines,
        code=code.name if code else "",
        code_meaning=code.meaning if code else "",
        code_kind=code.kind.value if code else "",
        code_line=evidence.code_line,
        points_at=evidence.peers,
        plog_path=found.path if found else "",
        plog_error=found.first_error if found else "",
    )
