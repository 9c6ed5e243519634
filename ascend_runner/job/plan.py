"""Makes a finished plan of the settings, this node's share and the environment. Below it nobody sees a setting."""

from __future__ import annotations

import os.path

from ascend_runner.annotations import TYPE_CHECKING, Final, NamedTuple
from ascend_runner.errors import SettingsError
from ascend_runner.frameworks.decide import decide
from ascend_runner.frameworks.situation import Situation
from ascend_runner.platforms import find

from .settings import WORKDIR_DEVICE, WORKDIR_INHERIT

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ascend_runner.launchers.handover import HostFile

    from .settings import Settings
    from .this_node import NodeShare

TABLE_NAME: Final = "jobstart_hccl.json"
FALLBACK_LOG_DIR: Final = "/tmp/log"  # noqa: S108  the platforms' own choice; made private, a stranger's is refused
NO_RANK: Final = -1  # where a rank's number would stand: the one process of a node that has none


class RankSpec(NamedTuple):
    """All that is needed to start one rank, or, with `name` and NO_RANK, a process that is none.

    `prefix` stands before its lines on the console; None: not shown. `cores` are those it may run on; None: all.
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

    @property
    def title(self) -> str:
        """What it is called: "rank 3", "scheduler"."""
        return self.name or f"rank {self.rank_id}"


class TableFile(NamedTuple):
    """The rank table that the ranks will read: `path`, or `fallback_path` where that cannot be written."""

    path: str
    fallback_path: str
    data: bytes


class JobSpec(NamedTuple):
    """All that is needed to run this node's part of a job. `folders` are to be made first, and `host_files` written.

    `grace` and `hang_timeout` (None: no limit) are in seconds; `rotation` is (bytes, or 0 for never, and backups kept).
    `rank_size` is 0 where it is not known. `is_passed_through`: somebody else has started a process per card, of which
    this is one. `beside` is what runs without being a rank, one process at most. `notes` and
    `warnings` are what is to be said of the plan.
    """

    job_id: str
    ranks: tuple[RankSpec, ...]
    rank_size: int
    server_id: str
    pod_name: str
    grace: float
    hang_timeout: float | None
    rotation: tuple[int, int]
    log_dir: str
    has_own_process_logs: bool
    folders: tuple[str, ...]
    table: TableFile | None
    beside: tuple[RankSpec, ...] = ()
    host_files: tuple[HostFile, ...] = ()
    is_passed_through: bool = False
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    @property
    def processes(self) -> tuple[RankSpec, ...]:
        """All that is started and watched, in the order of starting: those first at whom the ranks meet."""
        return (*self.beside, *self.ranks)


class Surroundings(NamedTuple):
    """What the plan must know of the machine: its environment, the caller's folder, and which folders there are.

    `cores` are those that this node may use (None: not known), `resolve` makes an address of a host's name.
    """

    environ: Mapping[str, str]
    cwd: str
    host_name: str
    is_folder: Callable[[str], bool]
    cores: int | None = None
    resolve: Callable[[str], str] = str


class Request(NamedTuple):
    """What is to be run: the program found for the command, its words, and the rank table for the ranks, if any."""

    executable: str
    argv: tuple[str, ...]
    table: bytes | None = None


def plan(request: Request, settings: Settings, share: NodeShare, surroundings: Surroundings) -> JobSpec:
    """Decide everything for this node's ranks.

    Errors: SettingsError for a job id that cannot be a file name, and for variables that must not be set together.
    """
    draft = Draft(settings, surroundings)
    environ = surroundings.environ
    table = None if request.table is None else place_table(request.table, draft.log_dir, surroundings)
    decided = decide(settings.framework, situation(settings, share, surroundings, table))

    ranks = tuple(
        draft.process(
            request,
            env={**decided.environment_of(local_rank, environ), "JOB_ID": draft.job_id},
            numbers=(rank_id, local_rank),
        )
        for local_rank, rank_id in enumerate(share.rank_ids)
    )
    beside = tuple(
        draft.process(
            request,
            env={**decided.environment_beside(process, environ), "JOB_ID": draft.job_id},
            name=process.name,
        )
        for process in decided.processes
    )
    return draft.job(share, ranks, beside)._replace(table=table, notes=decided.notes, warnings=decided.warnings)


def situation(
    settings: Settings, share: NodeShare, surroundings: Surroundings, table: TableFile | None = None
) -> Situation:
    """Say for the frameworks' room what the ranks are started in."""
    return Situation(
        node=share.node,
        rank_ids=share.rank_ids,
        rank_size=share.rank_size,
        table_path=table.path if table else None,
        environ=surroundings.environ,
        cores=surroundings.cores,
        isolate_devices=settings.isolate_devices,
        resolve=surroundings.resolve,
    )


class Draft:
    """What all plans have in common: the job's name, its folders, and how one process is written down."""

    def __init__(self, settings: Settings, surroundings: Surroundings) -> None:
        """Errors: SettingsError for a job id that cannot be a file name."""
        self.job_id = _job_id(surroundings)
        self.log_dir = find_log_dir(settings, surroundings)
        self._settings = settings
        self._surroundings = surroundings
        self._has_own_process_logs = not surroundings.environ.get("ASCEND_PROCESS_LOG_PATH")

    def process(
        self, request: Request, env: Mapping[str, str], numbers: tuple[int, int] = (NO_RANK, 0), name: str = ""
    ) -> RankSpec:
        """Write down a rank, by its number and local number, or a process that is none, by its name.

        `env` is its whole environment, but for CANN's log folder.
        """
        rank_id, local_rank = numbers
        process_log = env.get("ASCEND_PROCESS_LOG_PATH") or os.path.join(
            self.log_dir, self.job_id, "ascend", "process_log", name or f"rank_{rank_id}"
        )
        file_name = name or f"rank-{rank_id}-device-{local_rank}"
        return RankSpec(
            rank_id=rank_id,
            local_rank=local_rank,
            executable=request.executable,
            argv=request.argv,
            env={**env, "ASCEND_PROCESS_LOG_PATH": process_log},
            cwd=self._workdir(name or f"device{local_rank}"),
            log_path=os.path.join(self.log_dir, f"{self.job_id}-proc-{file_name}.txt"),
            prefix=self._prefix(rank_id, name),
            name=name,
        )

    def job(self, share: NodeShare, ranks: tuple[RankSpec, ...], beside: tuple[RankSpec, ...] = ()) -> JobSpec:
        """Put the processes together with what the job needs besides."""
        processes = (*beside, *ranks)
        workdirs = [process.cwd for process in processes] if self._workdir_setting == WORKDIR_DEVICE else []
        process_logs = [process.env["ASCEND_PROCESS_LOG_PATH"] for process in (*ranks, *beside)]
        settings = self._settings
        return JobSpec(
            job_id=self.job_id,
            ranks=ranks,
            rank_size=share.rank_size,
            server_id=share.server_id,
            pod_name=share.pod_name,
            grace=settings.grace,
            hang_timeout=settings.hang_timeout,
            rotation=(settings.log_max_size, settings.log_backups),
            log_dir=self.log_dir,
            has_own_process_logs=self._has_own_process_logs,
            folders=(self.log_dir, *workdirs, *(process_logs if self._has_own_process_logs else ())),
            table=None,
            beside=beside,
        )

    @property
    def _workdir_setting(self) -> str:
        mount = self._surroundings.environ.get("MA_MOUNT_PATH")
        return self._settings.workdir or (WORKDIR_DEVICE if mount else WORKDIR_INHERIT)

    def _workdir(self, folder: str) -> str:
        surroundings, workdir = self._surroundings, self._workdir_setting
        if workdir == WORKDIR_INHERIT:
            return surroundings.cwd
        if workdir != WORKDIR_DEVICE:
            return os.path.join(surroundings.cwd, workdir)

        mount = surroundings.environ.get("MA_MOUNT_PATH")
        if mount:
            return os.path.join(surroundings.cwd, mount, "workspace", folder)
        root = "/cache" if surroundings.is_folder("/cache") else self.log_dir
        return os.path.join(root, folder)

    def _prefix(self, rank_id: int, name: str) -> bytes | None:
        settings = self._settings
        if settings.console is not None and rank_id not in settings.console:
            return None
        return b"" if settings.no_prefix else f"[{name or f'rank {rank_id}'}] ".encode()


def find_log_dir(settings: Settings, surroundings: Surroundings) -> str:
    """Decide where the logs go: --log-dir, else the platform's folder if it exists, else /tmp/log."""
    if settings.log_dir:
        return os.path.join(surroundings.cwd, settings.log_dir)

    found = next(filter(surroundings.is_folder, find.log_dirs(surroundings.environ)), "")
    return os.path.join(surroundings.cwd, found) if found else FALLBACK_LOG_DIR


def place_table(data: bytes, log_dir: str, surroundings: Surroundings) -> TableFile:
    """Decide where the table that the ranks will read is written."""
    environ = surroundings.environ
    root = os.path.join(surroundings.cwd, environ.get("MA_MOUNT_PATH") or environ.get("MA_HOME") or log_dir)
    return TableFile(
        path=os.path.join(root, "rank_table", TABLE_NAME),
        fallback_path=os.path.join(log_dir, "rank_table", TABLE_NAME),
        data=data,
    )


def with_table_at(job: JobSpec, path: str) -> JobSpec:
    """Change a plan whose table file had to be written elsewhere: the ranks that read it are told where."""
    return job._replace(
        ranks=tuple(
            rank._replace(env={**rank.env, "RANK_TABLE_FILE": path}) if "RANK_TABLE_FILE" in rank.env else rank
            for rank in job.ranks
        ),
        table=job.table and job.table._replace(path=path),
    )


def with_cores(job: JobSpec, cores: Sequence[frozenset[int]]) -> JobSpec:
    """Give each rank of a plan its cores, in local order."""
    return job._replace(ranks=tuple(rank._replace(cores=own) for rank, own in zip(job.ranks, cores)))


def _job_id(surroundings: Surroundings) -> str:
    job_id = find.job_id(surroundings.environ) or surroundings.host_name
    if "/" in job_id or job_id in {".", ".."} or not job_id.isprintable():
        raise SettingsError(
            f"the job id is {job_id!r} (from {', '.join(find.JOB_IDS)} or the host name), expected a plain file name"
        )
    return job_id
