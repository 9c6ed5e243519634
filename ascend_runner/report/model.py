"""The schema of the report file `<log dir>/<job id>-report.json`. Every field is the JSON member of the same name.

Records are JSON objects, tuples are arrays, None is null. Sizes are in bytes, durations in seconds of the monotonic
clock. Times are ISO 8601 with an offset: the wall clock at the start of the job plus monotonic seconds, so that a
change of the clock in between does not distort them. Secrets are masked.

`SCHEMA_VERSION` is raised when a field is removed or changes its meaning; new fields are added without that.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Final, Optional

import attrs

from ascend_runner.diagnosis.finding import Finding, StackGroup, SuspectedPeer
from ascend_runner.rank_record import RankState

SCHEMA_VERSION: Final = 2


class JobState(enum.Enum):
    """What a job is doing, or what it has come to."""

    PREPARING = "preparing"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"


@attrs.frozen(kw_only=True)
class CauseReport:
    """Why the job failed, as `sentence` explains.

    `kind` is "rank_failed", "rank_not_started", "interrupted", "hang" or "runner_failed". `rank_id` is the rank that
    caused it, if any; `first_exit` the one that ended first, whose exit status is the job's. `certainty` is "certain",
    "likely" or "open", `candidates` are the ranks that may have caused it if that is open. `signal` is the one that
    stopped the runner. `suspected_peer` is set if all failed ranks only report a peer.
    """

    kind: str
    sentence: str
    rank_id: Optional[int] = None
    first_exit: Optional[int] = None
    certainty: str = ""
    candidates: tuple[int, ...] = ()
    signal: Optional[int] = None
    suspected_peer: Optional[SuspectedPeer] = None


@attrs.frozen(kw_only=True, eq=False, repr=False)
class RankReport:
    """One rank, or an auxiliary process, which has a `name` and a `rank_id` below 0.

    `exit_code` is null if `signal` ended the rank; both are null if it has not ended. Resources are those of the leader
    and of the processes it waited for (getrusage(2)). The log lacks `log_lost` of the `log_size` bytes that the rank
    wrote, the first at `log_lost_from`. `variables` are those that the runner set or changed, `rerun` is a shell
    command that runs the rank alone, `finding` is why it failed.
    """

    rank_id: int
    local_rank: int
    pid: int
    state: RankState
    exit_code: Optional[int]
    signal: Optional[int]
    core_dumped: bool
    started_at: str
    ended_at: str
    seconds: float
    max_rss: Optional[int]
    user_seconds: Optional[float]
    system_seconds: Optional[float]
    log_path: str
    log_size: int
    log_lost: int
    log_lost_from: Optional[int]
    process_log_path: str
    cwd: str
    variables: Mapping[str, str]
    rerun: str
    finding: Optional[Finding]
    name: str


@attrs.frozen(kw_only=True, eq=False, repr=False)
class Report:
    """One node's part of a job.

    `status` is null until the job has ended; `ranks` is empty until then, and in rank order. `rank_size` is 0 if
    unknown. `hang` is where the ranks of a job that hung were, outliers first. `secrets_masked` is how many secrets in
    variables and in the ends of logs were replaced by ***.
    """

    job_id: str
    state: JobState
    status: Optional[int]
    server_id: str
    pod_name: str
    rank_size: int
    started_at: str
    ended_at: str
    seconds: float
    log_dir: str
    cause: Optional[CauseReport]
    ranks: tuple[RankReport, ...]
    hang: tuple[StackGroup, ...]
    warnings: tuple[str, ...]
    runner_version: str
    secrets_masked: int = 0
    schema_version: int = SCHEMA_VERSION
