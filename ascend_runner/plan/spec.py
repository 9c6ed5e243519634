"""The finished plan: everything that is needed to run this node's part of a job. Nothing below it sees a setting.

The plan of one attempt: the variables that give its ranks its number, and the file in which they agree on steps.
"""

from __future__ import annotations

import os
import os.path
from collections.abc import Mapping, Sequence
from signal import SIGTERM, SIGUSR1, Signals
from typing import Final

import attrs

from ascend_runner.lifecycle.job_machine import JobState, Policy
from ascend_runner.settings.model import ATTEMPT, CHECKPOINT
from ascend_runner.supervision.causes import Cause, HangDetected, InspectAction, Slowdown, WatchAction
from ascend_runner.text import rank_title

NO_RESTARTS: Final = Policy()
NO_RANK: Final = -1  # the rank number of an auxiliary process


@attrs.frozen(kw_only=True, repr=False)  # its environment may have secrets
class RankSpec:
    """How to start one rank, or an auxiliary process, which has a `name` and the rank number NO_RANK.

    `prefix` precedes each of its lines on the console (None: its lines are not shown). `cores` are the cores that it
    may run on (None: all), `device_id` the physical number of its NPU (None: unknown). With `has_stdin` it reads the
    runner's standard input; otherwise that is empty.
    """

    rank_id: int
    local_rank: int
    executable: str
    argv: tuple[str, ...]
    env: Mapping[str, str]
    cwd: str
    log_path: str
    prefix: bytes | None
    name: str = ""
    cores: frozenset[int] | None = None
    device_id: int | None = None
    has_stdin: bool = False

    @property
    def title(self) -> str:
        """The name in messages, such as "rank 3" or "scheduler"."""
        return rank_title(self.rank_id, self.name)

    def changes(self, environ: Mapping[str, str]) -> dict[str, str]:
        """Return the variables that differ from those of the caller."""
        return {name: value for name, value in self.env.items() if environ.get(name) != value}


@attrs.frozen
class TableFile:
    """The rank table that the ranks read: at `path`, or at `fallback_path` if `path` cannot be written."""

    path: str
    fallback_path: str
    data: bytes


@attrs.frozen(kw_only=True)
class Rotation:
    """The rotation of a log file: before it exceeds `max_size` bytes (0: never). `backups` rotated files are kept."""

    max_size: int = 0
    backups: int = 3


@attrs.frozen(kw_only=True, eq=False, repr=False)
class JobSpec:
    """The plan for this node's part of a job.

    `rank_size` is the number of ranks on all nodes (0: unknown). `grace` and `hang_timeout` (None: no limit, or "auto")
    are in seconds; `hang_action` is what a hang leads to, and `perf_action` a slow training; the other `perf_*` say
    when it is slow, see `supervision.performance`. `folders` must be created and `host_files` (content by path) written
    before the first process starts. `beside` holds at most one auxiliary process. `is_passed_through` means that
    another launcher has started this process, and others of the job beside it or on other nodes. `folds_progress_bars`
    limits how often a redrawn line is shown, and with `has_timestamps` each line on the console begins with the time. A
    line sums up the running job every `summary_interval` seconds (None: never). `log_runs` is the number of earlier
    runs whose files are kept, `newest_link` the symlink that points at the newest log directory ("": none).
    `stop_signum` asks the ranks to stop. For a checkpoint they are asked with `checkpoint_signum` (0: never), and have
    `checkpoint_grace` seconds before they are stopped (0: they are not asked then). `node_number` tells the files of
    several nodes apart (None: there is one node, or its number is unknown). `is_placed` is False while a job waits for
    the rank table that gives the number of nodes; its files have the name of this node until then. `nodes` are the
    numbers of nodes that take part and that could (--min-nodes). `restarts` says when the job is started again after a
    failure, `checkpoint_dir` is where its checkpoints appear ("": unknown), and `attempt` counts its starts from 0.
    This node is inspected if `inspect` says so (None: if it has NPUs). `hooks` are
    events with shell commands. In one of `html_states` the report is also written as HTML. `platform`, `framework`
    (`auto` if the platform has prepared none) and `runner_version` are for the report. `notes` are sentences about the
    plan.
    """

    job_id: str
    ranks: tuple[RankSpec, ...]
    rank_size: int
    server_id: str
    pod_name: str
    grace: float
    hang_timeout: float | str | None
    rotation: Rotation
    log_dir: str
    has_own_process_logs: bool
    folders: tuple[str, ...]
    table: TableFile | None = None
    beside: tuple[RankSpec, ...] = ()
    host_files: Mapping[str, bytes] = {}
    hang_action: WatchAction = WatchAction.STOP
    perf_pattern: str | None = None
    perf_threshold: float | None = None
    perf_drop: float | None = None
    perf_action: WatchAction = WatchAction.WARN
    is_passed_through: bool = False
    folds_progress_bars: bool = True
    has_timestamps: bool = False
    summary_interval: float | None = None
    log_runs: int = 10
    newest_link: str = ""
    node_number: int | None = None
    is_placed: bool = True
    nodes: tuple[int, int] = (1, 1)
    stop_signum: int = SIGTERM
    checkpoint_signum: int = SIGUSR1
    checkpoint_grace: float = 0.0
    restarts: Policy = NO_RESTARTS
    inspect: InspectAction | None = None
    hooks: tuple[tuple[str, str], ...] = ()
    checkpoint_dir: str = ""
    attempt: int = 0
    html_states: frozenset[JobState] = frozenset()
    platform: str = ""
    framework: str = ""
    runner_version: str = ""
    notes: tuple[str, ...] = ()

    @property
    def processes(self) -> tuple[RankSpec, ...]:
        """All processes in the order in which they start: the auxiliary one first, because ranks connect to it."""
        return (*self.beside, *self.ranks)

    @property
    def watches_performance(self) -> bool:
        """Whether a slow training is reported."""
        return bool(self.perf_pattern or self.perf_threshold or self.perf_drop)

    @property
    def reads_steps(self) -> bool:
        """Whether the ranks' lines about their steps are read."""
        return self.watches_performance or self.summary_interval is not None

    @property
    def has_all_ranks(self) -> bool:
        """Whether this node runs the whole job, so that each file of the job in the log directory is its own.

        A plan without ranks is that of a job that waits for them, or of a process that starts them itself.
        """
        if self.is_passed_through or not self.is_placed:
            return False
        return len(self.ranks) == self.rank_size if self.ranks else self.node_number is None

    @property
    def part(self) -> str:
        """The suffix of files that each part of a job writes separately: "", "-node-1", "-rank-3", "-HOST".

        The host name comes last: two nodes that share a log directory may have the same.
        """
        if self.has_all_ranks and self.nodes[0] == self.nodes[1]:
            return ""
        if self.node_number is not None and self.is_placed:
            return f"-node-{self.node_number}"
        if self.ranks:
            return f"-rank-{self.ranks[0].rank_id}"
        return "-" + "".join(
            char if char.isalnum() or char in "-_." else "_" for char in self.pod_name or self.server_id
        )

    @property
    def report_path(self) -> str:
        """The report of this part of the job."""
        return os.path.join(self.log_dir, f"{self.job_id}-report{self.part}.json")

    @property
    def html_path(self) -> str:
        """The report as an HTML page."""
        return os.path.join(self.log_dir, f"{self.job_id}-report{self.part}.html")

    @property
    def events_path(self) -> str:
        """The events of this part of the job, one line each."""
        return os.path.join(self.log_dir, f"{self.job_id}-events{self.part}.jsonl")

    @property
    def run_path(self) -> str:
        """The file with which `ascend-job` finds this part of the job."""
        return os.path.join(self.log_dir, f"{self.job_id}-run{self.part}.json")

    def is_stopped_for(self, cause: Cause | None) -> bool:
        """Whether the user wants a hang or a slow training to end the job, whatever restarts are left."""
        actions = {HangDetected.report_kind: self.hang_action, Slowdown.report_kind: self.perf_action}
        return cause is not None and actions.get(cause.report_kind) is WatchAction.STOP

    def hook_log_path(self, event: str) -> str:
        """The output of the hooks of an event."""
        return os.path.join(self.log_dir, f"{self.job_id}-hook-{event}{self.part}.txt")

    def rerun_path(self, process: RankSpec) -> str:
        """The script that runs a process again after a failure."""
        return os.path.join(self.log_dir, f"{self.job_id}-rerun-{process.title.replace(' ', '-')}.sh")


def with_table_at(job: JobSpec, path: str) -> JobSpec:
    """Return the plan with its rank table at another path, also in the environments of the ranks."""
    return attrs.evolve(
        job,
        ranks=tuple(
            attrs.evolve(rank, env={**rank.env, "RANK_TABLE_FILE": path}) if "RANK_TABLE_FILE" in rank.env else rank
            for rank in job.ranks
        ),
        table=job.table and attrs.evolve(job.table, path=path),
    )


def with_cores(job: JobSpec, cores: Sequence[frozenset[int]]) -> JobSpec:
    """Return the plan with the cores of each rank, given in local order."""
    return attrs.evolve(job, ranks=tuple(attrs.evolve(rank, cores=own) for rank, own in zip(job.ranks, cores)))


def with_devices(job: JobSpec, device_ids: Sequence[int]) -> JobSpec:
    """Return the plan with the physical number of each rank's NPU, given in local order, if there is one for each."""
    if len(device_ids) != len(job.ranks):
        return job
    ranks = (attrs.evolve(rank, device_id=device_id) for rank, device_id in zip(job.ranks, device_ids))
    return attrs.evolve(job, ranks=tuple(ranks))


RESTART_COUNT: Final = "TORCHELASTIC_RESTART_COUNT"
# torch takes TORCHELASTIC_RUN_ID as a sign of an agent whose store it may use, so that is never set.
MAX_RESTARTS: Final = "TORCHELASTIC_MAX_RESTARTS"
STARTS: Final = "MA_PROC_START_CNT"  # ModelArts: how often the command was started in this container, from 1
CHECKPOINT_REQUESTS_VARIABLE: Final = "ASCEND_RUNNER_CHECKPOINT_REQUESTS"  # as in training.rank_calls


def of_attempt(job: JobSpec, attempt: int, checkpoint: str = "") -> JobSpec:
    """Return the plan of an attempt, counted from 0; `checkpoint` is the newest complete one ("": there is none)."""
    variables = {CHECKPOINT: checkpoint} if checkpoint else {}
    if job.restarts.max_restarts:
        variables |= {
            ATTEMPT: str(attempt),
            RESTART_COUNT: str(attempt),
            MAX_RESTARTS: str(job.restarts.max_restarts),
        }

    def planned(spec: RankSpec) -> RankSpec:
        starts = spec.env.get(STARTS, "")
        counted = {STARTS: str(int(starts) + attempt)} if attempt and starts.isdecimal() else {}
        # A runner without restarts inside a rank of another runner leaves the number of that one.
        return attrs.evolve(spec, env={ATTEMPT: str(attempt), **spec.env, **variables, **counted})

    return attrs.evolve(
        job, attempt=attempt, ranks=tuple(map(planned, job.ranks)), beside=tuple(map(planned, job.beside))
    )


def with_checkpoint_requests(job: JobSpec, folder: str) -> JobSpec:
    """Return the plan with the file in which the ranks agree on the step of a checkpoint."""
    signal = Signals(job.checkpoint_signum).name[3:] if job.checkpoint_signum else "none"
    own = {CHECKPOINT_REQUESTS_VARIABLE: f"{signal}:{os.path.join(folder, 'checkpoint-requests')}"} if folder else {}

    def planned(rank: RankSpec) -> RankSpec:
        inherited = {name: value for name, value in rank.env.items() if name != CHECKPOINT_REQUESTS_VARIABLE}
        return attrs.evolve(rank, env={**inherited, **own})

    return attrs.evolve(job, ranks=tuple(map(planned, job.ranks)))
