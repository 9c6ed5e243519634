"""The report of a job on one node: `<log dir>/<job id>-report.json`, written after success and failure alike. Pure.

The records below are the schema: each field of `Report` is a member of the JSON object with the same name, records are
objects, tuples arrays, None is null. Sizes are in bytes, durations in seconds of the monotonic clock. Times are ISO
8601 with their offset: the wall clock's at the start of the job plus monotonic seconds, so that setting the clock
meanwhile does not bend them. Values of variables that look secret are masked.

`schema_version` is raised when a field goes or changes its meaning. New fields come without that: a reader ignores
those that it does not know, as `decode` does, which gives what is missing its default.
"""

from __future__ import annotations

import time

from ascend_runner import records
from ascend_runner.annotations import TYPE_CHECKING, Any, Final, NamedTuple, Optional
from ascend_runner.job.rerun import rerun_command
from ascend_runner.job.secrets import mask
from ascend_runner.supervision.outcome import Interrupted, RankFailed, RankNotStarted

if TYPE_CHECKING:  # what the records below name has its place in `decode`, too
    from collections.abc import Mapping

    from ascend_runner.diagnosis.finding import Accused, Finding
    from ascend_runner.diagnosis.stack_groups import StackGroup
    from ascend_runner.job.plan import JobSpec, RankSpec
    from ascend_runner.supervision.outcome import Cause, Outcome, RankOutcome

SCHEMA_VERSION: Final = 1


class CauseReport(NamedTuple):
    """Why the job failed: `kind` is "rank_failed", "rank_not_started", "interrupted" or "hang"; `sentence` says it.

    `rank_id` is the rank that it began with, if it was one; `signal` the one that the runner was stopped by. `accused`
    is there where the ranks that failed only complained of another.
    """

    kind: str
    sentence: str
    rank_id: Optional[int] = None
    signal: Optional[int] = None
    accused: Optional[Accused] = None


class RankReport(NamedTuple):
    """What became of one rank, or, with a `name` and a `rank_id` below 0, of the process that is none.

    `exit_code` is None where it died of `signal`, and both where it has not ended.
    `state` is "succeeded", "failed", "stopped" (told to stop, and did, however), "not_started" or "not_killed".
    Resources are those of the leader and of what it waited for (getrusage(2)). Of `log_size` bytes that the rank wrote,
    the log lacks `log_lost`, the first at `log_lost_from`.
    """

    rank_id: int
    local_rank: int
    pid: int = 0
    state: str = ""
    exit_code: Optional[int] = None
    signal: Optional[int] = None
    core_dumped: bool = False
    started_at: str = ""
    ended_at: str = ""
    seconds: float = 0.0
    max_rss: Optional[int] = None
    user_seconds: Optional[float] = None
    system_seconds: Optional[float] = None
    log_path: str = ""
    log_size: int = 0
    log_lost: int = 0
    log_lost_from: Optional[int] = None
    process_log_path: str = ""
    cwd: str = ""
    variables: Mapping[str, str] = {}  # those that the runner set or changed
    rerun: str = ""
    finding: Optional[Finding] = None
    name: str = ""


class Report(NamedTuple):
    """One node's part of a job.

    `ranks` is in rank order, `rank_size` 0 where it is not known; `hang` tells where the ranks stood, the odd first.
    """

    job_id: str
    status: int
    server_id: str = ""
    pod_name: str = ""
    rank_size: int = 0
    started_at: str = ""
    ended_at: str = ""
    seconds: float = 0.0
    log_dir: str = ""
    cause: Optional[CauseReport] = None
    ranks: tuple[RankReport, ...] = ()
    hang: tuple[StackGroup, ...] = ()
    warnings: tuple[str, ...] = ()
    runner_version: str = ""
    schema_version: int = SCHEMA_VERSION


class RankSeen(NamedTuple):
    """What the manager has seen of a rank beside its outcome. `started_after` is in seconds from the job's start."""

    started_after: float = 0.0
    max_rss: Optional[int] = None
    user_seconds: Optional[float] = None
    system_seconds: Optional[float] = None
    log_lost: int = 0
    log_lost_from: Optional[int] = None
    finding: Optional[Finding] = None


class Seen(NamedTuple):
    """What the manager has seen of a job beside its outcome. `started_at` is in seconds of the epoch.

    `environ` is the caller's environment, `sentence` the cause as the screen has it.
    """

    started_at: float
    seconds: float
    environ: Mapping[str, str]
    ranks: Mapping[int, RankSeen]
    sentence: str = ""
    accused: Optional[Accused] = None
    hang: tuple[StackGroup, ...] = ()
    warnings: tuple[str, ...] = ()


def file_name(job: JobSpec) -> str:
    """Name the report's file: where nodes may share the folder, by the node, too; one of many by its rank."""
    if job.ranks and job.is_passed_through:
        return f"{job.job_id}-report-rank-{job.ranks[0].rank_id}.json"
    if job.ranks and len(job.ranks) == job.rank_size:
        return f"{job.job_id}-report.json"
    node = "".join(char if char.isalnum() or char in "-_." else "_" for char in job.pod_name or job.server_id)
    return f"{job.job_id}-report-{node}.json"


def make(outcome: Outcome, job: JobSpec, seen: Seen, runner_version: str = "") -> Report:
    """Put together what became of the job."""
    specs = {spec.rank_id: spec for spec in job.processes}
    return Report(
        job_id=job.job_id,
        status=outcome.status,
        server_id=job.server_id,
        pod_name=job.pod_name,
        rank_size=job.rank_size,
        started_at=_iso(seen.started_at),
        ended_at=_iso(seen.started_at + seen.seconds),
        seconds=round(seen.seconds, 3),
        log_dir=job.log_dir,
        cause=_cause(outcome.cause, seen) if outcome.cause else None,
        ranks=tuple(_rank(rank, specs[rank.rank_id], seen) for rank in outcome.ranks),
        hang=seen.hang,
        warnings=seen.warnings,
        runner_version=runner_version,
    )


def encode(report: Report) -> Any:  # Any: what json.dumps takes
    """Make the JSON-able document of a report."""
    return records.encode(report)


def text(document: Mapping[str, Any]) -> str:
    """Write the document for people, grep and jq alike: a line for each member, and for each item of an array."""
    lines = []
    for name, value in document.items():
        items = ",\n  ".join(map(records.text, value)) if isinstance(value, list) else ""
        lines.append(f' "{name}": ' + (f"[\n  {items}\n ]" if items else records.text(value)))
    return "{\n" + ",\n".join(lines) + "\n}\n"


def decode(document: object) -> Report:
    """Read a report again. Errors: AscendRunnerError, naming the place in the document."""
    from collections.abc import Mapping  # whoever only writes a report, pays for no more

    from ascend_runner.diagnosis import finding, stack_groups

    return records.decode(
        Report,
        document,
        names={
            "Accused": finding.Accused,
            "Finding": finding.Finding,
            "Mapping": Mapping,
            "StackGroup": stack_groups.StackGroup,
        },
    )


def _cause(cause: Cause, seen: Seen) -> CauseReport:
    kind = {RankFailed: "rank_failed", RankNotStarted: "rank_not_started", Interrupted: "interrupted"}
    return CauseReport(
        kind=kind.get(type(cause), "hang"),
        sentence=seen.sentence,
        rank_id=None if not isinstance(cause, (RankFailed, RankNotStarted)) else cause.rank_id,
        signal=cause.signum if isinstance(cause, Interrupted) else None,
        accused=seen.accused,
    )


def _rank(rank: RankOutcome, spec: RankSpec, seen: Seen) -> RankReport:
    more = seen.ranks.get(rank.rank_id, RankSeen())
    ending = rank.ending
    changed = {name: value for name, value in spec.env.items() if seen.environ.get(name) != value}
    started_at = seen.started_at + more.started_after

    return RankReport(
        rank_id=rank.rank_id,
        local_rank=spec.local_rank,
        pid=rank.pid,
        state=_state(rank),
        exit_code=None if ending is None or ending.signum else ending.exit_code,
        signal=ending.signum if ending and ending.signum else None,
        core_dumped=bool(ending and ending.core_dumped),
        started_at=_iso(started_at) if rank.is_started else "",
        ended_at=_iso(started_at + rank.seconds) if ending else "",
        seconds=round(rank.seconds, 3),
        max_rss=more.max_rss,
        user_seconds=_rounded(more.user_seconds),
        system_seconds=_rounded(more.system_seconds),
        log_path=rank.log_path or spec.log_path,
        log_size=rank.log_size,
        log_lost=more.log_lost,
        log_lost_from=more.log_lost_from,
        process_log_path=spec.env.get("ASCEND_PROCESS_LOG_PATH", ""),
        cwd=spec.cwd,
        variables=mask(changed),
        rerun=rerun_command(spec, seen.environ),
        finding=more.finding,
        name=spec.name,
    )


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 3)


def _state(rank: RankOutcome) -> str:
    if not rank.is_started:
        return "not_started"
    if rank.ending is None:
        return "not_killed"
    if rank.is_told_to_stop:
        return "stopped"
    return "succeeded" if rank.ending.is_success else "failed"


def _iso(epoch: float) -> str:
    """Say a time in ISO 8601, to the millisecond. By hand: datetime takes longer to import than a report to be made."""
    local = time.localtime(epoch)
    minutes = local.tm_gmtoff // 60
    sign = "-" if minutes < 0 else "+"
    offset = f"{sign}{abs(minutes) // 60:02d}:{abs(minutes) % 60:02d}"
    return f"{time.strftime('%Y-%m-%dT%H:%M:%S', local)}.{int(epoch * 1000) % 1000:03d}{offset}"
