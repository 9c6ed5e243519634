"""The plan: every variable, directory, log and table path of every rank, decided before anything is touched."""

from __future__ import annotations

import os.path
from collections.abc import Collection, Mapping, Sequence

import attrs
import pytest

from ascend_runner.errors import SettingsError
from ascend_runner.plan.ranks import Command, NodeShare, PlanContext, Seats, plan_ranks
from ascend_runner.plan.spec import Attempt, JobSpec, RankSpec, TableFile
from ascend_runner.platforms.node import Node
from ascend_runner.settings.model import Settings
from ascend_runner.supervision.causes import WatchAction
from tests.helpers.plans import changed

NODE = Node(node_rank=4, nnodes=8, master_addr="10.0.0.1")
SHARE = NodeShare(rank_ids=(8, 9), rank_size=16, server_id="10.0.0.2", pod_name="job-worker-1", node=NODE)
NOTHING_SET = Settings()
LOGS = "/here/logs/train-noon"
ALONE = NodeShare(rank_ids=(0,), rank_size=1, server_id="some-host")
MODELARTS = {"MA_MOUNT_PATH": "/mount", "MA_HOME": "/home/ma-user", "MA_VJ_NAME": "ma-job-605d", "PATH": "/bin"}


def _plan(  # noqa: PLR0913  what a plan depends on
    environ: Mapping[str, str],
    settings: Settings = NOTHING_SET,
    share: NodeShare = SHARE,
    *,
    existing: Collection[str] = (),
    table: bytes | None = b"{}\n",
    place: str = "",
    devices: Sequence[int] = (),
) -> JobSpec:
    context = PlanContext(
        settings=settings,
        command=("python", "train.py"),
        environ=environ,
        cwd="/here",
        logs="/here/logs",
        started_at="noon",
        host_name="some-host",
        is_folder=lambda path: path in existing,
        cache="/cache" if "/cache" in existing else "",
        cores=9,
    )
    file = None if table is None else context.place_table(table)
    file = attrs.evolve(file, path=place) if file and place else file
    command = Command("/bin/python", ("python", "train.py"))
    return plan_ranks(command, share, context, file, seats=Seats(device_ids=devices))


def _env(environ: Mapping[str, str]) -> Mapping[str, str]:
    return _plan(environ).ranks[0].env


# --- The whole --------------------------------------------------------------------------------------------------------


def test_plan_of_a_modelarts_node() -> None:
    """Everything that one rank of a ModelArts node gets, and everything that the node creates for it."""
    job = _plan(MODELARTS, existing={"/mount/log"})

    assert ("modelarts-job-605d", 16, "10.0.0.2", "job-worker-1", 15.0) == (
        job.job_id,
        job.rank_size,
        job.server_id,
        job.pod_name,
        job.stopping.grace,
    )
    env = {
        **MODELARTS,
        "RANK_ID": "9",
        "RANK": "9",
        "RANK_SIZE": "16",
        "WORLD_SIZE": "16",
        "LOCAL_WORLD_SIZE": "2",
        "DEVICE_ID": "1",
        "ASCEND_DEVICE_ID": "1",
        "LOCAL_RANK": "1",
        "JOB_ID": "modelarts-job-605d",
        "RANK_TABLE_FILE": "/mount/rank_table/jobstart_hccl.json",
        "MASTER_ADDR": "10.0.0.1",
        "MASTER_PORT": "29500",
        "NODE_RANK": "4",
        "GROUP_RANK": "4",
        "GROUP_WORLD_SIZE": "8",
        "HCCL_CONNECT_TIMEOUT": "1800",
        "OMP_NUM_THREADS": "4",
        "PYTHONUNBUFFERED": "1",
        "ASCEND_PROCESS_LOG_PATH": "/mount/log/modelarts-job-605d/ascend/process_log/rank_9",
    }
    expected = RankSpec(
        rank_id=9,
        local_rank=1,
        executable="/bin/python",
        argv=("python", "train.py"),
        env=env,
        cwd="/mount/workspace/device1",
        log_path="/mount/log/modelarts-job-605d-proc-rank-9-device-1.txt",
        prefix=b"[rank 9] ",
    )
    assert expected == job.ranks[1]
    assert (
        "/mount/log",
        "/mount/workspace/device0",
        "/mount/workspace/device1",
        "/mount/log/modelarts-job-605d/ascend/process_log/rank_8",
        "/mount/log/modelarts-job-605d/ascend/process_log/rank_9",
    ) == job.files.folders
    assert (
        TableFile(
            "/mount/rank_table/jobstart_hccl.json",
            "/mount/log/modelarts-job-605d/rank_table/jobstart_hccl.json",
            b"{}\n",
        )
        == job.files.table
    )


def test_ranks_are_in_local_order() -> None:
    """Local rank, device index and position are one number, whatever the global ranks are."""
    job = _plan({}, share=NodeShare(rank_ids=(5, 2, 7), rank_size=8))

    assert [(5, 0), (2, 1), (7, 2)] == [(rank.rank_id, rank.local_rank) for rank in job.ranks]
    assert ["0", "1", "2"] == [rank.env["DEVICE_ID"] for rank in job.ranks]


# --- Variables --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    [
        "RANK_ID",
        "RANK",
        "RANK_SIZE",
        "WORLD_SIZE",
        "LOCAL_WORLD_SIZE",
        "DEVICE_ID",
        "ASCEND_DEVICE_ID",
        "LOCAL_RANK",
        "RANK_TABLE_FILE",
    ],
)
def test_what_only_the_plan_can_know_beats_the_environment(name: str) -> None:
    """Wrong values of an outer launcher or an image do not reach a rank."""
    assert _env({})[name] == _env({name: "stale"})[name]


@pytest.mark.parametrize(
    "name", ["HCCL_CONNECT_TIMEOUT", "PYTHONUNBUFFERED", "ASCEND_PROCESS_LOG_PATH", "OMP_NUM_THREADS"]
)
def test_what_the_user_may_choose_is_kept(name: str) -> None:
    """Defaults are set only for variables that are unset or empty."""
    assert "chosen" == _env({name: "chosen"})[name]
    assert _env({})[name] == _env({name: ""})[name]


def test_chosen_process_log_path_is_made() -> None:
    """CANN's log directory is created, whether the user or the runner chose it."""
    assert (LOGS, "/chosen") == _plan({"ASCEND_PROCESS_LOG_PATH": "/chosen"}).files.folders


def test_other_variables_are_handed_on() -> None:
    """A rank gets the caller's environment, but for the runner's options: a runner inside a rank has its own."""
    environ = {"PATH": "/bin", "PYTHONPATH": "", "ASCEND_RUNNER_OWN": "3"}
    env = _env({**environ, "ASCEND_RUNNER_GRACE": "3", "ASCEND_RUNNER_NPROC_PER_NODE": "8"})

    assert environ.items() <= env.items()
    assert set() == {"ASCEND_RUNNER_GRACE", "ASCEND_RUNNER_NPROC_PER_NODE"} & env.keys()


@pytest.mark.parametrize("name", ["RANK_TABLE_FILE", "RANK_TABLE_FILE_V_1_0"])
def test_without_table_both_variables_are_unset(name: str) -> None:
    """Without a table its variables are unset: frameworks would read a table of another job."""
    job = _plan({name: "/user/config"}, share=ALONE, table=None)

    assert job.files.table is None
    assert set() == {"RANK_TABLE_FILE", "RANK_TABLE_FILE_V_1_0"} & job.ranks[0].env.keys()


def test_with_table_ranks_know_one_table_only() -> None:
    """RANK_TABLE_FILE is the converted file; the platform's other variable is unset."""
    env = _env({"RANK_TABLE_FILE": "/user/config", "RANK_TABLE_FILE_V_1_0": "/user/config/v1.json"})

    assert f"{LOGS}/train/rank_table/jobstart_hccl.json" == env["RANK_TABLE_FILE"]
    assert "RANK_TABLE_FILE_V_1_0" not in env


# --- The job id -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("environ", "job_id"),
    [
        ({"BATCH_JOB_ID": "job0a1b", "MA_VJ_NAME": "ma-job-1"}, "job0a1b"),
        ({"BATCH_JOB_ID": "", "MA_VJ_NAME": "ma-job-1"}, "modelarts-job-1"),
        ({"MA_VJ_NAME": "ma-job-of-ma-job"}, "modelarts-job-of-ma-job"),
        ({"MA_VJ_NAME": "other"}, "other"),
        ({"SLURM_JOB_ID": "42"}, "slurm-42"),
        ({}, "train"),
    ],
    ids=["BATCH_JOB_ID", "MA_VJ_NAME", "first-ma-job-only", "no-ma-job", "slurm", "command"],
)
def test_job_id(environ: dict[str, str], job_id: str) -> None:
    """BATCH_JOB_ID, else MA_VJ_NAME with its first ma-job made modelarts-job, else the name of the command."""
    job = _plan(environ)

    assert job_id == job.job_id == job.ranks[0].env["JOB_ID"]
    assert f"{job_id}-proc-rank-8-device-0.txt" == os.path.basename(job.ranks[0].log_path)


@pytest.mark.parametrize("environ", [{}, {"SLURM_JOB_ID": "42"}, {"JOB_ID": "of-the-image"}])
def test_job_name_of_the_user(environ: dict[str, str]) -> None:
    """--job-name overrides the platform's name of the job, and JOB_ID."""
    job = _plan(environ, Settings(job_name="mine"))

    assert "mine" == job.job_id == job.ranks[0].env["JOB_ID"]


def test_job_id_of_the_user_stays() -> None:
    """Without --job-name and a platform, a JOB_ID that the user has set is kept; logs have the command's name."""
    job = _plan({"JOB_ID": "of-the-user"})

    assert "of-the-user" == job.ranks[0].env["JOB_ID"]
    assert "train" == job.job_id


@pytest.mark.parametrize(
    ("command", "name"),
    [
        ("python -u /job/train.py --lr 1", "train"),
        ("python -m pkg.train", "pkg.train"),
        ("/opt/run.sh", "run"),
        ("nice -n 5 python train.py", "train"),
        ("./a b", "a_b"),
        ("...", "job"),
        ("x" * 300, "x" * 64),
    ],
)
def test_name_of_a_command(command: str, name: str) -> None:
    """A job is named after its script, its module or its program, in characters that suit a file name."""
    argv = ("./a b",) if command == "./a b" else tuple(command.split())
    context = PlanContext(command=argv, environ={}, cwd="/", host_name="some-host", is_folder=lambda _: False)

    assert name == context.job_id


@pytest.mark.parametrize("job_id", ["../x", "a/b", "/", ".", "..", "a\nb", "a\0b", "\x1b[2J"])
def test_job_id_that_would_leave_its_folder_is_refused(job_id: str) -> None:
    """A job id that is not a plain file name is refused."""
    with pytest.raises(SettingsError) as caught:
        _plan({"BATCH_JOB_ID": job_id})

    assert f"invalid value {job_id!r} for BATCH_JOB_ID: expected a plain file name; use another --job-name" == str(
        caught.value
    )


# --- Directories and files --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("environ", "setting", "existing", "log_dir"),
    [
        ({"BATCH_TASK_LOG_PATH": "/batch", "MA_MOUNT_PATH": "/mount"}, "/chosen", {"/batch"}, "/chosen"),
        ({}, "logs", (), "/here/logs"),
        ({"BATCH_TASK_LOG_PATH": "/batch", "MA_MOUNT_PATH": "/mount"}, None, {"/batch", "/mount/log"}, "/batch"),
        ({"BATCH_TASK_LOG_PATH": "/batch", "MA_MOUNT_PATH": "/mount"}, None, {"/mount/log"}, "/mount/log"),
        ({"BATCH_TASK_LOG_PATH": "batch"}, None, {"batch"}, "/here/batch"),
        ({"BATCH_TASK_LOG_PATH": "/batch", "MA_MOUNT_PATH": "/mount"}, None, (), "/tmp/log"),
        ({"MA_VJ_NAME": "ma-job-1"}, None, (), "/tmp/log"),
        ({}, None, (), LOGS),
        ({"SLURM_JOB_ID": "42"}, None, (), "/here/logs/slurm-42-noon"),
    ],
    ids=["chosen", "relative", "BATCH", "mount", "relative-BATCH", "none-exists", "modelarts", "nothing", "slurm"],
)
def test_log_dir(environ: dict[str, str], setting: str | None, existing: Collection[str], log_dir: str) -> None:
    """--log-dir, else the first of ModelArts' directories that exists, else a new one, to which logs/latest points."""
    job = _plan(environ, Settings(log_dir=setting), existing=existing)

    assert log_dir == job.files.log_dir == job.files.folders[0]
    assert ("/here/logs/latest" if log_dir.endswith("-noon") else "") == job.files.newest_link


@pytest.mark.parametrize(
    ("environ", "setting", "existing", "cwd"),
    [
        ({}, None, (), "/here"),
        ({"MA_MOUNT_PATH": "/mount"}, None, (), "/mount/workspace/device1"),
        ({"MA_MOUNT_PATH": "/mount"}, "inherit", (), "/here"),
        ({"MA_MOUNT_PATH": "/mount"}, "/chosen", (), "/chosen"),
        ({}, "chosen", (), "/here/chosen"),
        ({"MA_MOUNT_PATH": "/mount"}, "device", {"/cache"}, "/mount/workspace/device1"),
        ({"MA_MOUNT_PATH": "mount"}, "device", (), "/here/mount/workspace/device1"),
        ({}, "device", {"/cache"}, "/cache/device1"),
        ({}, "device", (), f"{LOGS}/device1"),
        ({}, None, {"/cache"}, "/here"),
        ({"MA_VJ_NAME": "ma-job-1"}, None, {"/cache"}, "/cache/device1"),
        ({"MA_VJ_NAME": "ma-job-1"}, "inherit", {"/cache"}, "/here"),
        ({"MA_VJ_NAME": "ma-job-1"}, None, (), "/here"),
    ],
)
def test_workdir(environ: dict[str, str], setting: str | None, existing: Collection[str], cwd: str) -> None:
    """The working directory is one per device on ModelArts where there is a place for it, else the caller's."""
    job = _plan(environ, Settings(workdir=setting), existing=existing)

    assert cwd == job.ranks[1].cwd
    assert (cwd in job.files.folders) is cwd.endswith("device1")


@pytest.mark.parametrize(
    ("environ", "path"),
    [
        ({"MA_MOUNT_PATH": "/mount", "MA_HOME": "/home/ma-user"}, "/mount/rank_table/jobstart_hccl.json"),
        ({"MA_HOME": "/home/ma-user"}, "/home/ma-user/rank_table/jobstart_hccl.json"),
        ({"MA_MOUNT_PATH": "", "MA_HOME": ""}, f"{LOGS}/train/rank_table/jobstart_hccl.json"),
        ({"MA_HOME": "home"}, "/here/home/rank_table/jobstart_hccl.json"),
    ],
)
def test_table_path(environ: dict[str, str], path: str) -> None:
    """The converted table is under MA_MOUNT_PATH, else MA_HOME, else the job's part of the logs; always a full path."""
    job = _plan(environ)

    assert job.files.table
    assert path == job.files.table.path == job.ranks[0].env["RANK_TABLE_FILE"]
    assert f"{job.files.log_dir}/{job.job_id}/rank_table/jobstart_hccl.json" == job.files.table.fallback_path


def test_fallback_changes_what_the_ranks_are_told_and_nothing_else() -> None:
    """If the table is written to its fallback path, only that path changes in the plan."""
    job = _plan(MODELARTS)
    assert job.files.table
    other = _plan(MODELARTS, place=job.files.table.fallback_path)
    assert other.files.table

    path = "/tmp/log/modelarts-job-605d/rank_table/jobstart_hccl.json"
    assert path == other.files.table.path
    assert [path, path] == [rank.env["RANK_TABLE_FILE"] for rank in other.ranks]
    back = [attrs.evolve(rank, env={**rank.env, "RANK_TABLE_FILE": job.files.table.path}) for rank in other.ranks]
    assert attrs.asdict(job) == attrs.asdict(changed(other, ranks=tuple(back), table=job.files.table))


# --- The console ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "prefixes"),
    [
        (Settings(), [b"[rank 8] ", b"[rank 9] "]),
        (Settings(console=frozenset({9})), [None, b"[rank 9] "]),
        (Settings(console=frozenset()), [None, None]),
    ],
)
def test_prefix(settings: Settings, prefixes: list[bytes | None]) -> None:
    """Lines carry the global rank, unless the console shows other ranks, or none."""
    assert prefixes == [rank.prefix for rank in _plan({}, settings).ranks]


def test_grace_is_the_users() -> None:
    """The plan carries the settings that supervision needs."""
    assert 3.5 == _plan({}, Settings(grace=3.5)).stopping.grace


def test_devices() -> None:
    """Each rank has the number of its NPU, or none has, if there are more or fewer NPUs than ranks."""
    assert [5, 4] == [rank.device_id for rank in _plan({}, table=None, devices=(5, 4)).ranks]
    assert [None, None] == [rank.device_id for rank in _plan({}, table=None, devices=(5,)).ranks]


def test_platform_and_framework() -> None:
    """The plan has the platform, if one was detected, and the framework that `auto` selects, for the report."""
    detected = attrs.evolve(SHARE, node=attrs.evolve(NODE, platform="Slurm", detected_by=("SLURM_JOB_ID",)))
    settings = Settings(framework="torch")

    assert ("", "auto") == (_plan({}).platform, _plan({}).framework)
    assert "mindspore-cluster" == _plan({"MS_SCHED_HOST": "10.0.0.1", "MS_WORKER_NUM": "16"}, table=None).framework
    assert ("Slurm", "torch") == (
        _plan({}, settings, detected).platform,
        _plan({}, settings, detected).framework,
    )


@pytest.mark.parametrize(
    ("settings", "timeout", "action"),
    [
        (NOTHING_SET, "auto", WatchAction.WARN),
        (Settings(max_restarts=1), "auto", WatchAction.WARN),
        (Settings(hang_action="stop"), "auto", WatchAction.STOP),
        (Settings(hang_timeout="auto"), "auto", WatchAction.STOP),
        (Settings(hang_timeout=60.0, max_restarts=1), 60.0, WatchAction.RESTART),
        (Settings(hang_timeout="off"), None, WatchAction.STOP),
    ],
)
def test_hang_ends_a_job_only_if_the_user_has_set_a_limit(
    settings: Settings, timeout: float | str | None, action: WatchAction
) -> None:
    """By default a job is watched at its own pace, and a hang is only a warning."""
    watching = _plan({}, settings).watching

    assert (timeout, action) == (watching.hang_timeout, watching.hang_action)


@pytest.mark.parametrize(
    ("settings", "is_on"),
    [
        (NOTHING_SET, False),
        (Settings(hang_timeout="off"), False),
        (Settings(hang_timeout="auto"), True),
        (Settings(hang_timeout=60.0), True),
        (Settings(hang_timeout=60.0, launcher="torchrun"), False),  # it may start ranks that the runner cannot ask
    ],
)
def test_flight_recorders_are_on_if_the_user_has_set_a_limit(settings: Settings, *, is_on: bool) -> None:
    """The ranks then dump beside the logs, and open pipes where the runner writes to them; a rank that is rerun not."""
    attempt = Attempt(_plan({}, settings))
    (rank, *_others), (started, *_rest) = attempt.processes, attempt.processes_with("/run", {})
    dump, pipe = "TORCH_HCCL_DEBUG_INFO_TEMP_FILE", "TORCH_HCCL_DEBUG_INFO_PIPE_FILE"

    assert is_on is (dump in rank.env)
    assert is_on is (pipe in started.env)
    assert pipe not in rank.env
    if is_on:
        assert f"{attempt.job.files.log_dir}/{attempt.job.job_id}-flight-recorder-torch_npu-rank-" == rank.env[dump]
