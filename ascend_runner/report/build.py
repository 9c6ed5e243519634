"""Builds the report of a job on one node from what was observed, and encodes it as JSON. Pure."""

from __future__ import annotations

import enum
import time
from collections.abc import Mapping
from datetime import datetime

import attrs
import orjson

from ascend_runner.diagnosis.finding import RootCause
from ascend_runner.errors import AscendRunnerError
from ascend_runner.plan.job import JobSpec, RankSpec
from ascend_runner.plan.secrets import Masker
from ascend_runner.rank_record import Outcome, RankRecord
from ascend_runner.report.model import CauseReport, JobState, RankReport, Report
from ascend_runner.supervision.events import Cause, Exited, HangDetected, SignalReceived, SpawnFailed

_KINDS = {Exited: "rank_failed", SpawnFailed: "rank_not_started", SignalReceived: "interrupted", HangDetected: "hang"}


def build(outcome: Outcome, job: JobSpec, environ: Mapping[str, str], runner_version: str) -> Report:
    """Build the report; `environ` is the environment that the runner was started with."""
    specs = {spec.rank_id: spec for spec in job.processes}
    masker = Masker(count=outcome.secrets_masked)
    variables = {rank_id: masker.variables(spec.changes(environ)) for rank_id, spec in specs.items()}
    return Report(
        job_id=job.job_id,
        state=JobState.FAILED if outcome.cause else JobState.SUCCEEDED,
        status=outcome.status,
        server_id=job.server_id,
        pod_name=job.pod_name,
        rank_size=job.rank_size,
        started_at=_iso(outcome.started_at),
        ended_at=_iso(outcome.started_at + outcome.seconds),
        seconds=round(outcome.seconds, 3),
        log_dir=job.log_dir,
        cause=_cause(outcome.cause, outcome) if outcome.cause else None,
        ranks=tuple(
            _rank(rank, specs[rank.rank_id], variables[rank.rank_id], job_started_at=outcome.started_at)
            for rank in outcome.ranks
        ),
        hang=outcome.hang,
        warnings=outcome.warnings,
        runner_version=runner_version,
        secrets_masked=masker.count,
    )


def unfinished(
    job: JobSpec, state: JobState, runner_version: str, error: AscendRunnerError | None = None
) -> dict[str, object]:
    """Build the document of a job that has not ended, or of one that the runner could not run because of `error`."""
    now = _iso(time.time())
    return document(
        Report(
            job_id=job.job_id,
            state=state,
            status=error.exit_status if error else None,
            server_id=job.server_id,
            pod_name=job.pod_name,
            rank_size=job.rank_size,
            started_at=now,
            ended_at=now if error else "",
            seconds=0.0,
            log_dir=job.log_dir,
            cause=CauseReport(kind="runner_failed", sentence=str(error)) if error else None,
            ranks=(),
            hang=(),
            warnings=(),
            runner_version=runner_version,
        )
    )


def document(report: Report) -> dict[str, object]:
    """Convert a report to what JSON can contain."""
    return attrs.asdict(report, value_serializer=_plain)


def encode(document: Mapping[str, object]) -> bytes:
    """Encode the document for people, grep and jq alike: one line per member, and one per item of an array."""
    lines = []
    for name, value in document.items():
        text = orjson.dumps(value)
        if isinstance(value, (list, tuple)) and value:
            text = b"[\n  " + b",\n  ".join(map(orjson.dumps, value)) + b"\n ]"
        lines.append(b' "%s": %s' % (name.encode(), text))
    return b"{\n" + b",\n".join(lines) + b"\n}\n"


def _plain(_owner: object, _field: object, value: object) -> object:
    """Escape the bytes of names and paths that are not UTF-8, which JSON cannot contain."""
    if isinstance(value, str):
        return value.encode(errors="backslashreplace").decode()
    if isinstance(value, enum.Enum):
        return value.value
    return value


def _cause(cause: Cause, outcome: Outcome) -> CauseReport:
    rank_id = cause.rank_id if isinstance(cause, (Exited, SpawnFailed)) else None
    root = outcome.root
    return CauseReport(
        kind=_KINDS[type(cause)],
        sentence=_sentence(cause, root),
        rank_id=rank_id if root is None else root.rank_id,
        first_exit=rank_id,
        certainty=root.certainty.value if root else "",
        candidates=root.candidates if root else (),
        signal=cause.signum if isinstance(cause, SignalReceived) else None,
        suspected_peer=outcome.suspected_peer,
    )


def _sentence(cause: Cause, root: RootCause | None) -> str:
    """Say in one line why the job failed."""
    if root is None or root.summary in str(cause):
        return str(cause)
    if isinstance(cause, Exited) and root.rank_id != cause.rank_id:
        return f"rank {root.rank_id} caused the failure: {root.summary}"
    return f"{cause} ({root.summary})"


def _rank(rank: RankRecord, spec: RankSpec, variables: Mapping[str, str], *, job_started_at: float) -> RankReport:
    ending = rank.ending
    started_at = job_started_at + rank.started_after

    return RankReport(
        rank_id=rank.rank_id,
        local_rank=spec.local_rank,
        pid=rank.pid,
        state=rank.state,
        exit_code=None if ending is None or ending.signum else ending.exit_code,
        signal=ending.signum if ending and ending.signum else None,
        core_dumped=bool(ending and ending.core_dumped),
        started_at=_iso(started_at) if rank.is_started else "",
        ended_at=_iso(started_at + rank.seconds) if ending else "",
        seconds=round(rank.seconds, 3),
        max_rss=rank.max_rss,
        user_seconds=_rounded(rank.user_seconds),
        system_seconds=_rounded(rank.system_seconds),
        log_path=rank.log_path,
        log_size=rank.log_size,
        log_lost=rank.log_lost,
        log_lost_from=rank.log_lost_from,
        process_log_path=spec.env.get("ASCEND_PROCESS_LOG_PATH", ""),
        cwd=spec.cwd,
        variables=variables,
        rerun=rank.rerun,
        finding=rank.finding,
        name=spec.name,
    )


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 3)


def _iso(epoch: float) -> str:
    """Format a time in ISO 8601 with milliseconds and the local offset."""
    return datetime.fromtimestamp(epoch).astimezone().isoformat(timespec="milliseconds")
