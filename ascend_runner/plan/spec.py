"""The finished plan: everything that is needed to run this node's part of a job. Nothing below it sees a setting.

One attempt of a job: the processes that it starts, which follow from the plan and from nothing else.
"""

from __future__ import annotations

import os
import os.path
from collections.abc import Mapping
from signal import SIGTERM, SIGUSR1, Signals
from typing import Final

import attrs

from ascend_runner.frameworks import env_patch
from ascend_runner.settings.model import ATTEMPT, CHECKPOINT
from ascend_runner.supervision.causes import Cause, HangDetected, InspectAction, Slowdown, WatchAction
from ascend_runner.supervision.job_machine import JobState, Policy
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
        """Return the variables that differ from the caller's."""
        return {name: value for name, value in self.env.items() if environ.get(name) != value}


@attrs.frozen
class TableFile:
    """The rank table that the ranks read: at `path`, or at `fallback_path` if `path` cannot be written.

    `source` is the platform's document from which `data` was made; it may have the names of pods. b"": there is none.
    """

    path: str
    fallback_path: str
    data: bytes
    source: bytes = b""


@attrs.frozen(kw_only=True)
class Rotation:
    """The rotation of a log file: before it exceeds `max_size` bytes (0: never). `backups` rotated files are kept."""

    max_size: int = 0
    backups: int = 3


@attrs.frozen(kw_only=True)
class Files:
    """The files of a job, and what must exist before its first process starts."""

    log_dir: str
    folders: tuple[str, ...] = ()  # created before the first process starts
    host_files: Mapping[str, bytes] = {}  # content by path, written before the first process starts
    scratch: str = ""  # a directory of an engine's own, which is removed when the job has ended ("": none)
    table: TableFile | None = None  # the rank table that the ranks read
    rotation: Rotation = attrs.field(factory=Rotation)
    has_own_process_logs: bool = False  # whether CANN's logs are below the log directory
    log_runs: int = 50  # earlier runs to keep the files of
    newest_link: str = ""  # the symlink that points at the newest log directory ("": none)
    checkpoint_dir: str = ""  # where the checkpoints of the training appear ("": unknown)
    catalogue: bytes = b""  # a site's own entries about errors, see diagnosis.catalogue
    html_states: frozenset[JobState] = frozenset()  # in one of these the report is also written as HTML
    folds_progress_bars: bool = True  # limits how often a redrawn line is shown on the console
    has_timestamps: bool = False  # each line on the console begins with the time


@attrs.frozen(kw_only=True)
class Stopping:
    """How the ranks are asked to save a checkpoint, and to stop."""

    grace: float = 15.0  # seconds between the signal and SIGKILL
    stop_signum: int = SIGTERM
    checkpoint_signum: int = SIGUSR1  # asks for a checkpoint (0: the ranks are never asked)
    checkpoint_grace: float = 0.0  # seconds to save before they are stopped (0: they are not asked then)
    recovery: float = 0.0  # seconds after the first failure in which the framework recovers (0: it does not)


@attrs.frozen(kw_only=True)
class Watching:
    """What is watched while the ranks run, and what it leads to."""

    hang_timeout: float | str | None = None  # seconds of silence that are a hang, or "auto" (None: no limit)
    hang_action: WatchAction = WatchAction.STOP
    perf_pattern: str | None = None  # a further form of lines about steps
    perf_threshold: float | None = None  # this and the next say when a training is slow, see supervision.performance
    perf_drop: float | None = None
    perf_action: WatchAction = WatchAction.WARN
    summary_interval: float | None = None  # seconds between two lines that sum up the job (None: never)
    inspect: InspectAction | None = None  # None: this node is inspected if it has NPUs

    @property
    def watches_performance(self) -> bool:
        """Whether a slow training is reported."""
        return bool(self.perf_pattern or self.perf_threshold or self.perf_drop)

    @property
    def reads_steps(self) -> bool:
        """Whether the ranks' lines about their steps are read."""
        return self.watches_performance or self.summary_interval is not None

    def stops_for(self, cause: Cause | None) -> bool:
        """Whether a hang or slow training ends the job even if restarts are left (--hang-action, --perf-action)."""
        actions = {HangDetected.report_kind: self.hang_action, Slowdown.report_kind: self.perf_action}
        return cause is not None and actions.get(cause.report_kind) is WatchAction.STOP


@attrs.frozen(kw_only=True, repr=False)  # it may have a secret
class LinkPlan:
    """How the runner of this node is linked to those of the other nodes."""

    node: int  # the number of this node
    nodes: int  # how many there are
    key: bytes  # by which the runners know each other
    hubs: tuple[str, ...]  # addresses and names of node 0, the most likely first
    ports: tuple[int, ...]  # where node 0 may listen
    timeout: float = 600.0  # seconds to wait for nodes that are missing
    node_timeout: float | None = None  # seconds without contact after which a node is lost (None: that proves nothing)
    is_required: bool = False  # no rank starts before every node has joined
    table: str = ""  # of the rank table, its hash and a description; or ""


@attrs.frozen(kw_only=True, eq=False, repr=False)
class JobSpec:
    """The plan for this node's part of a job."""

    job_id: str
    ranks: tuple[RankSpec, ...]
    beside: tuple[RankSpec, ...] = ()  # at most one auxiliary process
    rank_size: int  # the number of ranks on all nodes (0: unknown)
    server_id: str
    pod_name: str
    node_number: int | None = None  # tells the files of several nodes apart (None: there is one node, or it is unknown)
    nodes: tuple[int, int] = (1, 1)  # the numbers of nodes that take part and that could (--min-nodes)
    # While a job waits for the rank table that gives the number of nodes, its files have the name of this node.
    is_placed: bool = True
    # Another launcher has started this process, and others of the job beside it or on other nodes.
    is_passed_through: bool = False
    files: Files
    stopping: Stopping = attrs.field(factory=Stopping)
    watching: Watching = attrs.field(factory=Watching)
    restarts: Policy = NO_RESTARTS  # when the job is started again after a failure
    link: LinkPlan | None = None  # to the other nodes (None: there are none, or this node is on its own)
    hooks: tuple[tuple[str, str], ...] = ()  # events with shell commands
    platform: str = ""  # this and the next two are for the report
    framework: str = ""  # `auto` if the platform has prepared none
    runner_version: str = ""
    notes: tuple[str, ...] = ()  # sentences about the plan

    @property
    def processes(self) -> tuple[RankSpec, ...]:
        """All processes in the order in which they start: the auxiliary one first, because ranks connect to it."""
        return (*self.beside, *self.ranks)

    @property
    def has_all_ranks(self) -> bool:
        """Whether this node runs the whole job, so that each file of the job in the log directory is its own.

        A plan without ranks belongs to a job that waits for them, or to a process that starts them itself.
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
        return os.path.join(self.files.log_dir, f"{self.job_id}-report{self.part}.json")

    @property
    def html_path(self) -> str:
        """The report as an HTML page."""
        return os.path.join(self.files.log_dir, f"{self.job_id}-report{self.part}.html")

    @property
    def events_path(self) -> str:
        """The events of this part of the job, one line each."""
        return os.path.join(self.files.log_dir, f"{self.job_id}-events{self.part}.jsonl")

    @property
    def run_path(self) -> str:
        """The file with which `ascend-job` finds this part of the job."""
        return os.path.join(self.files.log_dir, f"{self.job_id}-run{self.part}.json")

    def hook_log_path(self, event: str) -> str:
        """The output of the hooks of an event."""
        return os.path.join(self.files.log_dir, f"{self.job_id}-hook-{event}{self.part}.txt")

    def rerun_path(self, process: RankSpec) -> str:
        """The script that runs a process again after a failure."""
        return os.path.join(self.files.log_dir, f"{self.job_id}-rerun-{process.title.replace(' ', '-')}.sh")


RESTART_COUNT: Final = "TORCHELASTIC_RESTART_COUNT"
# torch takes TORCHELASTIC_RUN_ID as a sign of an agent whose store it may use, so that is never set.
MAX_RESTARTS: Final = "TORCHELASTIC_MAX_RESTARTS"
STARTS: Final = "MA_PROC_START_CNT"  # ModelArts: how often the command was started in this container, from 1
NOTIFY_SOCKET: Final = "NOTIFY_SOCKET"  # as in sd_notify(3)
CHECKPOINT_REQUESTS_VARIABLE: Final = "ASCEND_RUNNER_CHECKPOINT_REQUESTS"  # as in training.rank_calls
FLIGHT_RECORDER: Final = "flight-recorder"  # in the names of the dumps beside the logs


@attrs.frozen(eq=False, repr=False)
class Attempt:
    """One attempt of a job."""

    job: JobSpec
    number: int = 0  # the starts of the ranks before this one
    checkpoint: str = ""  # the newest complete checkpoint ("": there is none)

    @property
    def processes(self) -> tuple[RankSpec, ...]:
        """The processes in the order in which they start, as a user can run them again: without a runner to answer."""
        return tuple(map(self._numbered, self.job.processes))

    def processes_with(self, folder: str, addresses: Mapping[int, str]) -> tuple[RankSpec, ...]:
        """Return the processes of an attempt that the runner watches.

        In `folder` ("": there is none) the ranks agree on the step of a checkpoint, and have the pipes of their flight
        recorders. `addresses` are the sockets to which they report, by rank.
        """
        signum = self.job.stopping.checkpoint_signum
        signal = Signals(signum).name[3:] if signum else "none"
        requests = f"{signal}:{os.path.join(folder, 'checkpoint-requests')}"

        def watched(rank: RankSpec) -> RankSpec:
            if rank.name:
                return rank
            env = {name: value for name, value in rank.env.items() if name != CHECKPOINT_REQUESTS_VARIABLE}
            if folder:
                env |= {CHECKPOINT_REQUESTS_VARIABLE: requests, **env_patch.recorder_pipes(env, folder)}
            if rank.rank_id in addresses:
                env[NOTIFY_SOCKET] = addresses[rank.rank_id]
            return attrs.evolve(rank, env=env)

        return tuple(map(watched, self.processes))

    def _numbered(self, spec: RankSpec) -> RankSpec:
        variables = {CHECKPOINT: self.checkpoint} if self.checkpoint else {}
        limit = self.job.restarts.max_restarts
        if limit:
            variables |= {ATTEMPT: str(self.number), RESTART_COUNT: str(self.number), MAX_RESTARTS: str(limit)}
        starts = spec.env.get(STARTS, "")
        if self.number and starts.isdecimal():
            variables[STARTS] = str(int(starts) + self.number)
        # A runner without restarts inside a rank of another runner leaves the number of that one.
        return attrs.evolve(spec, env={ATTEMPT: str(self.number), **spec.env, **variables})
