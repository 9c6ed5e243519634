"""Builds the report file `<log dir>/<job>-report.json` of a job on one node. Pure.

Sizes are in bytes, durations in seconds of the monotonic clock; values that do not apply are null or "". Times are ISO
8601 with an offset: the wall clock at the start of the job plus monotonic seconds, so that a change of the clock in
between does not distort them. Values of variables whose names look like secrets are masked.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Final

from ascend_runner.errors import AscendRunnerError, LimitReachedError, StopRequestedError
from ascend_runner.lifecycle.job_machine import AnyState, Event, Job
from ascend_runner.members import Members
from ascend_runner.observations import cause_text
from ascend_runner.observations.rank_record import Outcome, RankRecord
from ascend_runner.plan.spec import JobSpec, RankSpec
from ascend_runner.report import causes, clocks, rank_member
from ascend_runner.report.document import iso, plain_members
from ascend_runner.secrets import Masker

SCHEMA_VERSION: Final = 4  # raised when a member is removed or changes its meaning, but not when one is added


def build(outcome: Outcome, job: JobSpec, environ: Mapping[str, str]) -> dict[str, object]:
    """Build the report of a job that has ended; `environ` is the environment that the runner was started with."""
    specs = {spec.rank_id: spec for spec in job.processes}
    masker = Masker(count=outcome.secrets_masked)
    variables = {rank_id: masker.variables(spec.changes(environ)) for rank_id, spec in specs.items()}
    return plain_members(
        {
            **_members(job, outcome.started_at),
            "status": outcome.status,
            **rank_member.end(outcome.started_at, outcome.seconds),
            "cause": causes.member(outcome.cause, outcome) if outcome.cause else None,
            "ranks": [
                _rank(rank, specs[rank.rank_id], variables[rank.rank_id], job_started_at=outcome.started_at)
                for rank in outcome.ranks
            ],
            "hang": outcome.hang,
            "clock": clocks.member(outcome.clock) if outcome.clock else None,
            "warnings": outcome.warnings,
            "secrets_masked": masker.count,
        }
    )


def unfinished(
    job: JobSpec,
    state: AnyState,
    began: float,
    error: AscendRunnerError | None = None,
    started: Mapping[int, tuple[int, float]] = {},
) -> dict[str, object]:
    """Build the report of a job that has not ended, or of one that the runner could not run because of `error`.

    `began` is in seconds since the epoch; `started` has the pid and the time of each rank that was started.
    """
    ranks = [_started(spec, *started[spec.rank_id]) for spec in job.processes if spec.rank_id in started]
    report = {**_members(job, began), "state": state, "ranks": ranks}
    if error:
        kinds = {StopRequestedError: "interrupted", LimitReachedError: "expired"}
        cause = {
            **causes.NO_CAUSE,
            "kind": kinds.get(type(error), "runner_failed"),
            "sentence": str(error),
            "signal": error.signum if isinstance(error, StopRequestedError) else None,
        }
        report |= {"status": error.exit_status, "ended_at": iso(time.time()), "cause": cause}
    return plain_members(report)


def attempt(outcome: Outcome, job: Job, ended: Event) -> dict[str, object]:
    """Return the record of an attempt from its outcome, its end, and the job after that.

    `log_starts` are the offsets in the logs at which the output of this attempt begins, by rank. Equal failures
    have the same `fingerprint`; `restart` is whether this one permits a restart, and `verdict` the decision. `progress`
    is whether the training got further than before the attempt (null: unknown). `delay` is the time until the next
    attempt, in seconds.
    """
    return plain_members(
        {
            "attempt": job.attempt,
            "started_at": iso(outcome.started_at),
            **rank_member.end(outcome.started_at, outcome.seconds),
            "cause": causes.member(outcome.cause, outcome) if outcome.cause else None,
            "status": ended.status,
            "fingerprint": ended.fingerprint,
            "restart": ended.restart,
            "progress": ended.has_progressed,
            "verdict": job.verdict,
            "delay": job.delay,
            "log_starts": {str(rank.rank_id): rank.log_start for rank in outcome.ranks},
        }
    )


def with_last_failure(report: Mapping[str, object], attempts: Sequence[Mapping[str, object]]) -> Mapping[str, object]:
    """Return the report of a job that ended for another reason after a failed attempt, with both in its cause."""
    last = next((cause_text.of_attempt(Members(one)) for one in reversed(attempts) if one["verdict"]), "")
    cause = report["cause"]
    if not (last and isinstance(cause, Mapping)):
        return report
    sentence = f"{cause['sentence']}; the previous attempt failed: {last}"
    return {**report, "cause": {**cause, "sentence": sentence}}


def end(report: Mapping[str, object], at: float) -> dict[str, object]:
    """Return the members about the end of a job without an attempt, at `at` (seconds since the epoch)."""
    began = datetime.fromisoformat(str(report["started_at"])).timestamp()
    return rank_member.end(began, at - began)


def _members(job: JobSpec, began: float) -> dict[str, object]:
    """Return all members of a report, with the values of a job that began at `began`.

    `status` is null until the job has ended. `exit_verdict` is the exit status of the runner if that is not `status`:
    with --exit-verdict, 75 if a retry may help, 93 if it will not. `ranks` is in rank order; until the attempt has
    ended, it has those that were started, with the state "running" and few members. A job that is held has ended, and
    stays on its node until `held_until`, "" for others. `attempt` counts from 0; `attempts` has a record of each that
    has ended (see `attempt`), and the other members are about the newest one. `conditions` are the present ones: a hang
    or a slow training (see `supervision.events`), an unhealthy node (see `health.conditions`). `last_step` has the last
    figures of the training (see `training.steps.Step`), and `last_checkpoint` is the last one that was requested
    (see `checkpoint.member`); null: none. `rank_size` is 0 if unknown. `node_rank` is the number of this node among
    `node_count` (null: unknown). `platform` is the one that was detected ("": none). `rank_table` is the file that the
    ranks read, "" without one. `staged` has a record of each dataset that was copied (see `plan.ranks.Staged`).
    `hang` has the stacks of the ranks of a job that hung, outliers first (see `diagnosis.finding.StackGroup`). `clock`
    is that of this node (see `node.clock.Clock`). `secrets_masked` is the number of secrets in variables and in the
    ends of logs that were replaced by ***.
    """
    return {
        "job_id": job.job_id,
        "state": None,
        "status": None,
        "exit_verdict": None,
        "attempt": 0,
        "held_until": "",
        **_this_node(job),
        "rank_size": job.rank_size,
        "started_at": iso(began),
        "ended_at": "",
        "seconds": 0.0,
        "log_dir": job.log_dir,
        "rank_table": job.table.path if job.table else "",
        "cause": None,
        "ranks": [],
        "hang": [],
        "clock": None,
        "attempts": [],
        "staged": [],
        "conditions": [],
        "last_step": None,
        "last_checkpoint": None,
        "warnings": [],
        "framework": job.framework,
        "runner_version": job.runner_version,
        "secrets_masked": 0,
        "schema_version": SCHEMA_VERSION,
    }


def _this_node(job: JobSpec) -> dict[str, object]:
    return {
        "node_rank": job.node_number,
        "node_count": job.nodes[0],
        "server_id": job.server_id,
        "pod_name": job.pod_name,
        "platform": job.platform,
    }


def _rank(
    rank: RankRecord, spec: RankSpec, variables: Mapping[str, str], *, job_started_at: float
) -> dict[str, object]:
    """Describe one rank as `rank_member` does, with the facts that are known only after its end.

    `device_id` is the physical number of its NPU (null: unknown). Resources are those of the leader and of the
    processes it waited for (getrusage(2); `max_rss` is null if it is not above that of the runner). The first byte that
    the log lacks is at `log_lost_from`; the output begins at `log_start`, after that of earlier attempts. `variables`
    are those that the runner set or changed, `rerun` is a shell command that runs the rank again ("" if no script was
    written), `finding` explains its failure.
    """
    return {
        **rank_member.of_record(rank, job_started_at),
        "local_rank": spec.local_rank,
        "device_id": spec.device_id,
        "max_rss": rank.max_rss,
        "user_seconds": rank.user_seconds and round(rank.user_seconds, 3),
        "system_seconds": rank.system_seconds and round(rank.system_seconds, 3),
        "log_path": rank.log_path,
        "log_start": rank.log_start,
        "log_lost_from": rank.log_lost_from,
        "process_log_path": spec.env.get("ASCEND_PROCESS_LOG_PATH", ""),
        "cwd": spec.cwd,
        "variables": variables,
        "rerun": rank.rerun,
        "finding": rank.finding,
    }


def _started(spec: RankSpec, pid: int, at: float) -> dict[str, object]:
    return {
        "rank_id": spec.rank_id,
        "local_rank": spec.local_rank,
        "device_id": spec.device_id,
        "pid": pid,
        "state": "running",
        "started_at": iso(at),
        "log_path": spec.log_path,
        "name": spec.name,
    }
