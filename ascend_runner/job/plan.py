"""Makes a finished plan of the settings, this node's share and the environment. Below it nobody sees a setting."""

from __future__ import annotations

import os.path

from ascend_runner.annotations import TYPE_CHECKING, Final, NamedTuple
from ascend_runner.errors import SettingsError

from .settings import WORKDIR_DEVICE, WORKDIR_INHERIT

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from .settings import Settings
    from .this_node import NodeShare

TABLE_NAME: Final = "jobstart_hccl.json"
TABLE_VARIABLES: Final = ("RANK_TABLE_FILE", "RANK_TABLE_FILE_V_1_0")
FALLBACK_LOG_DIR: Final = "/tmp/log"  # noqa: S108  the platforms' own choice; made private, a stranger's is refused
HCCL_CONNECT_TIMEOUT: Final = "1800"  # seconds, HCCL's default of 120 is too short for large jobs to load
MASTER_PORT: Final = "29500"  # torch's default; outside HCCL's 60000 to 60031


class RankSpec(NamedTuple):
    """All that is needed to start one rank.

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
    cores: frozenset[int] | None = None


class TableFile(NamedTuple):
    """The rank table that the ranks will read: `path`, or `fallback_path` where that cannot be written."""

    path: str
    fallback_path: str
    data: bytes


class JobSpec(NamedTuple):
    """All that is needed to run this node's part of a job. `folders` are to be made first.

    `grace` and `hang_timeout` (None: no limit) are in seconds; `rotation` is (bytes, or 0 for never, and backups kept).
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


class Surroundings(NamedTuple):
    """What the plan must know of the machine: its environment, the caller's folder, and which folders there are."""

    environ: Mapping[str, str]
    cwd: str
    host_name: str
    is_folder: Callable[[str], bool]


class Request(NamedTuple):
    """What is to be run: the program found for the command, its words, and the rank table for the ranks, if any."""

    executable: str
    argv: tuple[str, ...]
    table: bytes | None


def plan(request: Request, settings: Settings, share: NodeShare, surroundings: Surroundings) -> JobSpec:
    """Decide everything for this node's ranks. Errors: SettingsError for a job id that cannot be a file name."""
    job_id = _job_id(surroundings)
    log_dir = find_log_dir(settings, surroundings)
    table = None if request.table is None else place_table(request.table, log_dir, surroundings)
    process_logs = [_process_log(surroundings, log_dir, job_id, rank_id) for rank_id in share.rank_ids]
    inherited = {name: value for name, value in surroundings.environ.items() if name not in TABLE_VARIABLES}
    shared = {**inherited, **_job_variables(share, surroundings, job_id)}
    if table:
        shared["RANK_TABLE_FILE"] = table.path

    ranks = tuple(
        RankSpec(
            rank_id=rank_id,
            local_rank=local_rank,
            executable=request.executable,
            argv=request.argv,
            env={**shared, **_rank_variables(share, local_rank), "ASCEND_PROCESS_LOG_PATH": process_logs[local_rank]},
            cwd=_workdir(settings, surroundings, local_rank, log_dir),
            log_path=os.path.join(log_dir, f"{job_id}-proc-rank-{rank_id}-device-{local_rank}.txt"),
            prefix=_prefix(settings, rank_id),
        )
        for local_rank, rank_id in enumerate(share.rank_ids)
    )
    own_workdirs = [rank.cwd for rank in ranks if _workdir_setting(settings, surroundings) == WORKDIR_DEVICE]
    own_process_logs = [] if surroundings.environ.get("ASCEND_PROCESS_LOG_PATH") else process_logs

    return JobSpec(
        job_id=job_id,
        ranks=ranks,
        rank_size=share.rank_size,
        server_id=share.server_id,
        pod_name=share.pod_name,
        grace=settings.grace,
        hang_timeout=settings.hang_timeout,
        rotation=(settings.log_max_size, settings.log_backups),
        log_dir=log_dir,
        has_own_process_logs=bool(own_process_logs),
        folders=(log_dir, *own_workdirs, *own_process_logs),
        table=table,
    )


def find_log_dir(settings: Settings, surroundings: Surroundings) -> str:
    """Decide where the logs go: --log-dir, else the platform's folder if it exists, else /tmp/log."""
    if settings.log_dir:
        return os.path.join(surroundings.cwd, settings.log_dir)

    mount = surroundings.environ.get("MA_MOUNT_PATH")
    for candidate in (surroundings.environ.get("BATCH_TASK_LOG_PATH"), mount and os.path.join(mount, "log")):
        if candidate and surroundings.is_folder(candidate):
            return os.path.join(surroundings.cwd, candidate)

    return FALLBACK_LOG_DIR


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
    """Change a plan whose table file had to be written elsewhere: the ranks are told where."""
    return job._replace(
        ranks=tuple(rank._replace(env={**rank.env, "RANK_TABLE_FILE": path}) for rank in job.ranks),
        table=job.table and job.table._replace(path=path),
    )


def with_cores(job: JobSpec, cores: Sequence[frozenset[int]]) -> JobSpec:
    """Give each rank of a plan its cores, in local order."""
    return job._replace(ranks=tuple(rank._replace(cores=own) for rank, own in zip(job.ranks, cores)))


def job_id_of(environ: Mapping[str, str], host_name: str) -> str:
    """Give the name that the platform knows the job by, else the host's. Not checked."""
    return (
        environ.get("BATCH_JOB_ID") or environ.get("MA_VJ_NAME", "").replace("ma-job", "modelarts-job", 1) or host_name
    )


def _job_id(surroundings: Surroundings) -> str:
    job_id = job_id_of(surroundings.environ, surroundings.host_name)
    if "/" in job_id or job_id in {".", ".."} or not job_id.isprintable():
        raise SettingsError(
            f"the job id is {job_id!r} (from BATCH_JOB_ID, MA_VJ_NAME or the host name), expected a plain file name"
        )
    return job_id


def _workdir_setting(settings: Settings, surroundings: Surroundings) -> str:
    return settings.workdir or (WORKDIR_DEVICE if surroundings.environ.get("MA_MOUNT_PATH") else WORKDIR_INHERIT)


def _workdir(settings: Settings, surroundings: Surroundings, local_rank: int, log_dir: str) -> str:
    workdir = _workdir_setting(settings, surroundings)
    if workdir == WORKDIR_INHERIT:
        return surroundings.cwd
    if workdir != WORKDIR_DEVICE:
        return os.path.join(surroundings.cwd, workdir)

    mount = surroundings.environ.get("MA_MOUNT_PATH")
    if mount:
        return os.path.join(surroundings.cwd, mount, "workspace", f"device{local_rank}")
    root = "/cache" if surroundings.is_folder("/cache") else log_dir
    return os.path.join(root, f"device{local_rank}")


def _process_log(surroundings: Surroundings, log_dir: str, job_id: str, rank_id: int) -> str:
    chosen = surroundings.environ.get("ASCEND_PROCESS_LOG_PATH")
    return chosen or os.path.join(log_dir, job_id, "ascend", "process_log", f"rank_{rank_id}")


def _rank_variables(share: NodeShare, local_rank: int) -> dict[str, str]:
    """Give what differs from rank to rank. DEVICE_ID is the local index: CANN counts the container's devices from 0."""
    rank_id = str(share.rank_ids[local_rank])
    return {
        "RANK_ID": rank_id,
        "RANK": rank_id,
        "DEVICE_ID": str(local_rank),
        "ASCEND_DEVICE_ID": str(local_rank),
        "LOCAL_RANK": str(local_rank),
    }


def _job_variables(share: NodeShare, surroundings: Surroundings, job_id: str) -> dict[str, str]:
    environ = surroundings.environ
    hosts = environ.get("VC_WORKER_HOSTS", "").split(",") if share.master_addr != "127.0.0.1" else [""]
    return {
        "JOB_ID": job_id,
        "RANK_SIZE": str(share.rank_size),
        "WORLD_SIZE": str(share.rank_size),
        "LOCAL_WORLD_SIZE": str(len(share.rank_ids)),
        "MASTER_ADDR": environ.get("MASTER_ADDR") or hosts[0] or share.master_addr,
        "MASTER_PORT": environ.get("MASTER_PORT") or MASTER_PORT,
        "PYTHONUNBUFFERED": environ.get("PYTHONUNBUFFERED") or "1",  # or the last lines before a crash are lost
        "HCCL_CONNECT_TIMEOUT": environ.get("HCCL_CONNECT_TIMEOUT") or HCCL_CONNECT_TIMEOUT,
    }


def _prefix(settings: Settings, rank_id: int) -> bytes | None:
    if settings.console is not None and rank_id not in settings.console:
        return None
    return b"" if settings.no_prefix else f"[rank {rank_id}] ".encode()
