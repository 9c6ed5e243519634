"""The environment of the ranks for each framework, for every platform's fixture and beyond."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import attrs
import pytest

import ascend_runner.frameworks
from ascend_runner.frameworks import env_patch
from ascend_runner.frameworks.env_patch import LaunchContext
from ascend_runner.frameworks.registry import FRAMEWORKS, NAMES, patch_environment
from ascend_runner.platforms.detect import find_node
from tests.frameworks.launch_contexts import NODE, TABLE, changes, context
from tests.platforms import platform_cases

CASES = [
    (name, expected)
    for name in platform_cases.names("ranks")
    for expected in platform_cases.load(name).expected["ranks"]
]


def _on_platform(framework: str, name: str, table: str | None = None) -> LaunchContext:
    case = platform_cases.load(name)
    node = find_node(case.variables, case.overrides)
    return context(framework, case.variables, node=node, nproc=case.expected["nproc"], table_path=table)


@pytest.mark.parametrize(
    ("name", "expected"), CASES, ids=[f"{name}-{expected['framework']}" for name, expected in CASES]
)
def test_rank_on_platform(name: str, expected: dict[str, Any]) -> None:
    """A rank's environment differs from the platform's by exactly what its file expects."""
    environ = platform_cases.load(name).variables
    patch = patch_environment(_on_platform(expected["framework"], name, expected["table"]))
    local_rank = expected["local_rank"]

    assert (expected["set"], expected["unset"]) == changes(environ, patch.environments_of_ranks(environ)[local_rank])


@pytest.mark.parametrize(("name", "expected"), [(name, expected) for name, expected in CASES if "beside" in expected])
def test_process_beside_the_ranks(name: str, expected: dict[str, Any]) -> None:
    """The scheduler has the expected environment, and runs only on its node."""
    environ = platform_cases.load(name).variables
    patch = patch_environment(_on_platform(expected["framework"], name, expected["table"]))

    assert expected["beside"] == {
        process: dict(zip(("set", "unset"), changes(environ, patch.environment_of_process(process, environ))))
        for process in patch.beside
    }


@pytest.mark.parametrize("framework", FRAMEWORKS)
@pytest.mark.parametrize("table", [None, TABLE])
def test_no_rank_like_another(framework: str, table: str | None) -> None:
    """With every framework each rank has a device of its own."""
    environ = {"CM_WORKER_IP": "10.0.0.2"}
    found = context(framework, environ, nproc=4, table_path=table)
    if framework == "mindspore" and not table:
        found = attrs.evolve(found, rank_ids=(0,), rank_size=1)
    environments = patch_environment(found).environments_of_ranks(environ)

    assert [str(index) for index in range(len(environments))] == [own["DEVICE_ID"] for own in environments]
    assert all(own["DEVICE_ID"] == own["ASCEND_DEVICE_ID"] for own in environments)


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_agent_store_is_never_left_set(framework: str) -> None:
    """TORCHELASTIC_* are removed: every rank would wait for a store that no process opens."""
    environ = {"TORCHELASTIC_USE_AGENT_STORE": "True", "TORCHELASTIC_RUN_ID": "none", "TORCH": "kept"}
    found = context(framework, environ, table_path=TABLE)
    own = patch_environment(found).environments_of_ranks(environ)[0]

    assert [] == [name for name in own if name.startswith("TORCHELASTIC_")]
    assert "kept" == own["TORCH"]


def test_what_lightning_takes_for_torchrun() -> None:
    """Ranks get the variables that Lightning's TorchElasticEnvironment and accelerate look for."""
    own = patch_environment(context("torch")).environments_of_ranks({})[1]

    assert {"RANK": "3", "GROUP_RANK": "1", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2"}.items() <= own.items()
    assert {"WORLD_SIZE": "4", "MASTER_ADDR": "10.0.0.1", "MASTER_PORT": "29500"}.items() <= own.items()


# --- auto ------------------------------------------------------------------------------------------------------------


def test_auto_says_what_it_means() -> None:
    """`auto` selects the framework that the platform has prepared, and a note names the variables."""
    variables = platform_cases.load("mindcluster_mindspore").variables

    assert (
        "--framework auto selects mindspore-cluster, because MS_SCHED_HOST and MS_WORKER_NUM are set"
        in patch_environment(_on_platform("auto", "mindcluster_mindspore")).notes
    )
    assert "MS_SCHED_HOST" in variables


def test_auto_without_anything_prepared() -> None:
    """`auto` has no note if the platform has prepared nothing."""
    assert () == patch_environment(context("auto")).notes


# --- What helps all --------------------------------------------------------------------------------------------------


def test_what_the_user_set_stays() -> None:
    """The defaults do not replace variables that the user has set."""
    environ = {"HCCL_CONNECT_TIMEOUT": "600", "OMP_NUM_THREADS": "3", "PYTHONUNBUFFERED": "x"}
    own = patch_environment(context("auto", environ, cores=64)).environments_of_ranks(environ)[0]

    assert environ.items() <= own.items()


RECORDERS = {
    "TORCH_FR_BUFFER_SIZE": "2000",
    "TORCH_FR_DUMP_TEMP_FILE": "/log/job-torch-rank-",
    "TORCH_NCCL_DUMP_ON_TIMEOUT": "1",
    "TORCH_HCCL_TRACE_BUFFER_SIZE": "2000",
    "TORCH_HCCL_DEBUG_INFO_TEMP_FILE": "/log/job-torch_npu-rank-",
}
MONITORED = {"TORCH_HCCL_ENABLE_MONITORING": "1"}


@pytest.mark.parametrize(
    ("environ", "limit", "expected"),
    [
        ({}, 60.0, RECORDERS),
        (dict.fromkeys(RECORDERS, "mine"), 60.0, {}),
        (
            {"TORCH_NCCL_TRACE_BUFFER_SIZE": "0", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE": "x"},
            60.0,
            {**RECORDERS, "TORCH_FR": ""},
        ),
        (MONITORED, 60.0, {**RECORDERS, "TORCH_HCCL_DUMP_ON_TIMEOUT": "1", "TORCH_HCCL_HEARTBEAT_TIMEOUT_SEC": "600"}),
        (
            MONITORED,
            1800.0,
            {**RECORDERS, "TORCH_HCCL_DUMP_ON_TIMEOUT": "1", "TORCH_HCCL_HEARTBEAT_TIMEOUT_SEC": "3600"},
        ),
        (MONITORED, None, {**RECORDERS, "TORCH_HCCL_DUMP_ON_TIMEOUT": "1"}),
        ({"TORCH_HCCL_ENABLE_MONITORING": "0"}, 60.0, RECORDERS),
    ],
)
def test_flight_recorders(environ: dict[str, str], limit: float | None, expected: dict[str, str]) -> None:
    """They are switched on where the user has not set them, by whatever name; torch_npu's monitor only by the user."""
    found = context("torch", environ, dumps="/log/job-", hang_timeout=limit)
    own = env_patch.flight_recorders(found).job
    if "TORCH_FR" in expected:
        expected = {name: value for name, value in expected.items() if not name.startswith("TORCH_FR")}

    assert expected == own


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_frameworks_with_flight_recorders(framework: str) -> None:
    """Ranks that may use torch have them if a hang is watched for, and no others."""
    environ = {"CM_WORKER_IP": "10.0.0.2"}
    off, on = (
        patch_environment(context(framework, environ, table_path=TABLE, dumps=dumps)).job for dumps in ("", "/log/job-")
    )

    assert (RECORDERS if framework in {"auto", "torch"} else {}) == {
        name: value for name, value in on.items() if off.get(name) != value
    }


def test_paths_of_flight_recorders() -> None:
    """Each recorder that dumps gets a pipe in the run directory, unless the user has chosen one."""
    env = {**RECORDERS, "TORCH_NCCL_DEBUG_INFO_PIPE_FILE": "pipe-"}
    pipes = env_patch.recorder_pipes(env, "/run")

    assert {"TORCH_HCCL_DEBUG_INFO_PIPE_FILE": "/run/flight-recorder-torch_npu-rank-"} == pipes
    assert {} == env_patch.recorder_pipes({}, "/run")
    assert (
        ("/src/pipe-5.pipe", "/log/job-torch-rank-5"),
        ("/run/flight-recorder-torch_npu-rank-5.pipe", "/log/job-torch_npu-rank-5"),
    ) == env_patch.recorder_paths({**env, **pipes}, "/src", 5)


@pytest.mark.parametrize(("cores", "nproc", "threads"), [(192, 8, "24"), (7, 2, "3"), (2, 8, "1"), (1, 1, "1")])
def test_threads(cores: int, nproc: int, threads: str) -> None:
    """Each rank gets an equal share of the cores as threads, at least one."""
    assert threads == patch_environment(context("auto", nproc=nproc, cores=cores)).job["OMP_NUM_THREADS"]


def test_threads_where_the_cores_are_not_known() -> None:
    """Without a number of cores OMP_NUM_THREADS is not set."""
    assert "OMP_NUM_THREADS" not in patch_environment(context("auto")).job


# --- Auto ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("table", [None, TABLE])
def test_tasks_of_several_ranks(table: str | None) -> None:
    """TF_CONFIG beside several ranks means TensorFlow: no two ranks get one task, and one rank keeps the node's."""
    text = '{"cluster": {"worker": ["a:1", "b:1"]}, "task": {"type": "worker", "index": 1}}'
    environ = {"TF_CONFIG": text, "CM_WORKER_IP": "b"}
    several = patch_environment(context("auto", environ, table_path=table))
    alone = patch_environment(context("auto", environ, nproc=1, table_path=table))

    assert [2, 3] == [json.loads(own["TF_CONFIG"])["task"]["index"] for own in several.ranks]
    assert text == alone.environments_of_ranks(environ)[0]["TF_CONFIG"]


# --- Devices ---------------------------------------------------------------------------------------------------------


def test_visible_devices_are_respected() -> None:
    """ASCEND_RT_VISIBLE_DEVICES stays, and DEVICE_ID is an index into it."""
    environ = {"ASCEND_RT_VISIBLE_DEVICES": "4,5"}
    own = patch_environment(context("auto", environ)).environments_of_ranks(environ)[1]

    assert ("4,5", "1") == (own["ASCEND_RT_VISIBLE_DEVICES"], own["DEVICE_ID"])


@pytest.mark.parametrize(("environ", "device"), [({"ASCEND_RT_VISIBLE_DEVICES": "4,6"}, "6"), ({}, "1")])
def test_isolated_devices(environ: dict[str, str], device: str) -> None:
    """An isolated rank sees one card, with index 0."""
    own = patch_environment(context("auto", environ, isolate_devices=True)).environments_of_ranks(environ)[1]

    assert (device, "0", "0") == (own["ASCEND_RT_VISIBLE_DEVICES"], own["DEVICE_ID"], own["ASCEND_DEVICE_ID"])


# --- The dynamic cluster ---------------------------------------------------------------------------------------------


def test_scheduler_is_on_node_0() -> None:
    """The scheduler runs on node 0 only."""
    here = context("mindspore-cluster", node=attrs.evolve(NODE, node_rank=0))

    assert ["scheduler"] == [*patch_environment(here).beside]
    assert [] == [*patch_environment(context("mindspore-cluster")).beside]


def test_scheduler_has_no_rank() -> None:
    """The scheduler gets no variable of a rank, not even one that the runner has inherited."""
    environ = {"RANK": "1", "DEVICE_ID": "3", "RANK_ID": "3", "LOCAL_RANK": "3", "MS_NODE_ID": "3"}
    here = context("mindspore-cluster", environ, node=attrs.evolve(NODE, node_rank=0))
    patch = patch_environment(here)
    own = patch.environment_of_process("scheduler", environ)

    assert "MS_SCHED" == own["MS_ROLE"]
    assert set() == {*own} & {*environ}


def test_scheduler_is_met_at_an_address() -> None:
    """The host name of node 0 is resolved for MS_SCHED_HOST."""
    node = attrs.evolve(NODE, master_addr="node0")
    named = context("mindspore-cluster", node=node, resolve=lambda name: {"node0": "10.9.9.9"}[name])

    assert "10.9.9.9" == patch_environment(named).job["MS_SCHED_HOST"]


def test_cluster_reads_no_table() -> None:
    """The dynamic cluster gets no rank table."""
    environ = {"RANK_TABLE_FILE": "/user/config"}
    found = context("mindspore-cluster", environ, table_path=TABLE)

    assert "RANK_TABLE_FILE" not in patch_environment(found).environments_of_ranks(environ)[0]


# --- The README ------------------------------------------------------------------------------------------------------


def test_readme_lists_the_frameworks() -> None:
    """Each framework has a row in the README's first table."""
    readme = Path(ascend_runner.frameworks.__file__).with_name("README.md").read_text("utf-8")
    table = next(part for part in readme.split("\n\n") if part.startswith("|"))
    cells = [row.split("|")[1].strip() for row in table.splitlines()]

    assert sorted(f"`{name}`" for name in NAMES) == sorted(cells[2:])


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({}, ("", 0.0)),
        ({"MS_ENABLE_TFT": "{TTP:1,UCE:1}"}, ("MS_ENABLE_TFT", 750.0)),
        ({"MS_ENABLE_TFT": "{UCE: 0 ARF:1}", "TTP_OT": "1000"}, ("MS_ENABLE_TFT", 1030.0)),
        ({"MS_ENABLE_TFT": "{TTP:0,RSC:1}"}, ("", 0.0)),
        ({"TTP_ADDR": "10.0.0.1", "MINDIO_WAIT_MINDX_TIME": "60"}, ("TTP_ADDR", 780.0)),
        ({"TTP_LOG_PATH": "logs"}, ("", 0.0)),
    ],
)
def test_recovery_by_the_framework(environ: dict[str, str], expected: tuple[str, float]) -> None:
    """MindIO TFT recovers with the variables that enable it, within the time that it allows itself."""
    assert expected == env_patch.recovery(environ)
