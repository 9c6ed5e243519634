"""From a platform's variables to what each process of the node gets and does."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import attrs
import pytest

from ascend_runner.job.setup import JobSetup
from ascend_runner.platforms import detect
from ascend_runner.ranks.messages import Messages
from ascend_runner.ranks.signals import Signals
from ascend_runner.settings import command_line
from ascend_runner.settings.model import decode
from tests.helpers.program import ACTOR, Program, run_here, run_to_end, sentence
from tests.helpers.surroundings import permitted
from tests.platforms import platform_cases

CASES = [
    (name, expected)
    for name in platform_cases.names("ranks")
    for expected in platform_cases.load(name).expected["ranks"]
]
# What the runner adds for every framework but `none`, or for all.
OWN = {"JOB_ID", "ASCEND_PROCESS_LOG_PATH", "OMP_NUM_THREADS"}
HOST_IP = "198.51.100.77"  # this machine, where a fixture does not say
# Two nodes of ModelArts, this one the second; the table of two servers fits them.
MODELARTS = {"MA_VJ_NAME": "job", "MA_NUM_HOSTS": "2", "VC_TASK_INDEX": "1", "MA_CURRENT_HOST_IP": "10.0.0.1"}


def table(servers: Mapping[str, int]) -> bytes:
    """Write a server list: so many devices on each server."""
    ranks = iter(range(sum(servers.values())))
    entries = [
        {
            "server_id": server_id,
            "device": [
                {"device_id": str(index), "device_ip": "", "rank_id": str(next(ranks))} for index in range(count)
            ],
        }
        for server_id, count in servers.items()
    ]
    document = {"status": "completed", "version": "1.0", "server_count": str(len(servers)), "server_list": entries}
    return json.dumps(document).encode()


def plan_of(folder: Path, *args: str, env: Mapping[str, str]) -> dict[str, Any]:
    """Return the plan that --dry-run prints."""
    ended = run_here("--dry-run", "--log-dir", "log", *args, "true", env=dict(env), cwd=folder)
    assert 0 == ended.returncode, ended.stderr
    plan: dict[str, Any] = json.loads(ended.stdout)
    return plan


def error_of(folder: Path, *args: str, env: Mapping[str, str]) -> str:
    """Return the sentence of a run that the runner refuses."""
    ended = run_here("--dry-run", "--log-dir", "log", *args, env=dict(env), cwd=folder)
    assert 125 == ended.returncode, ended.stdout
    return sentence(ended.stderr.splitlines()[-1]).partition("ERROR ")[2]


def _told(case: platform_cases.Case) -> list[str]:
    """Return the overrides as options."""
    facts, options = case.overrides.facts, case.overrides.sources
    return [word for fact, value in facts.items() for word in (options[fact], str(value))]


def _ranks_of(case: platform_cases.Case, folder: Path, *, has_table: bool) -> list[str]:
    """Return the number of ranks: by a rank table, or by an option if the platform does not give it."""
    node, nproc = detect.find_node(case.variables, case.overrides), case.expected["nproc"]
    if has_table:
        own = node.address or HOST_IP
        servers = [own if index == node.node_rank else f"198.51.100.{index + 1}" for index in range(node.nnodes)]
        (folder / "table.json").write_bytes(table(dict.fromkeys(servers, nproc)))
        return ["--rank-table", str(folder / "table.json"), "--no-table-checks"]

    is_told = node.devices_per_node and "RANK_TABLE_FILE" not in case.variables
    return [] if is_told else ["--nproc-per-node", str(nproc)]


# --- Every platform's fixture -----------------------------------------------------------------------------------------


@pytest.mark.deep(quick=12)
@pytest.mark.parametrize(
    ("name", "expected"), CASES, ids=[f"{name}-{expected['framework']}" for name, expected in CASES]
)
def test_ranks_of_a_platform(name: str, expected: dict[str, Any], tmp_path: Path) -> None:
    """The program plans the rank, and the process beside the ranks, that the fixture expects."""
    case = platform_cases.load(name)
    args = [*_told(case), *_ranks_of(case, tmp_path, has_table=bool(expected["table"]))]
    wanted = {"ASCEND_RUNNER_ATTEMPT": "0", **expected["set"]}
    env = {**case.variables, "HOST_IP": HOST_IP}
    plan = plan_of(tmp_path, *args, "--framework", expected["framework"], env=env)
    rank = plan["ranks"][expected["local_rank"]]
    if "RANK_TABLE_FILE" in wanted:
        logs = str(tmp_path / "log" / plan["job_id"])
        home = case.variables.get("MA_MOUNT_PATH") or case.variables.get("MA_HOME") or logs
        wanted["RANK_TABLE_FILE"] = f"{home}/rank_table/jobstart_hccl.json"

    assert case.expected["nproc"] == len(plan["ranks"])
    assert wanted == {key: value for key, value in rank["variables"].items() if key not in OWN}
    assert expected["unset"] == sorted(rank["unset"])
    if "beside" in expected:
        beside = {process["name"]: process for process in plan["beside"]}
        assert expected["beside"].keys() == beside.keys()
        for process, one in expected["beside"].items():
            variables = beside[process]["variables"]
            assert {"ASCEND_RUNNER_ATTEMPT": "0", **one["set"]} == {
                key: value for key, value in variables.items() if key not in OWN
            }
            assert one["unset"] == sorted(beside[process]["unset"])


HCCL = {"RANK_ID", "RANK_SIZE", "DEVICE_ID", "ASCEND_DEVICE_ID"}
TORCH = {
    "MASTER_ADDR",
    "MASTER_PORT",
    "RANK",
    "WORLD_SIZE",
    "LOCAL_RANK",
    "LOCAL_WORLD_SIZE",
    "NODE_RANK",
    "GROUP_RANK",
}
CLUSTER_VARIABLES = {"MS_ROLE", "MS_SCHED_HOST", "MS_SCHED_PORT", "MS_WORKER_NUM", "MS_NODE_ID"}
CHIEF = {"CM_CHIEF_IP", "CM_CHIEF_PORT", "CM_CHIEF_DEVICE", "CM_WORKER_SIZE", "CM_WORKER_IP"}
TABLE = {"RANK_TABLE_FILE"}


@attrs.frozen
class Cell:
    """The variables that a rank of a framework must and must not find, with or without a rank table."""

    framework: str
    has_table: bool
    wanted: set[str]
    unwanted: set[str]


CELLS = [
    Cell("auto", True, HCCL | TORCH | TABLE, CHIEF),
    Cell("mindspore", True, HCCL | TABLE, CHIEF),
    Cell("mindspore-cluster", False, CLUSTER_VARIABLES, CHIEF | TABLE),
    Cell("torch", False, TORCH, CHIEF | TABLE),
    Cell("torch", True, TORCH | TABLE, CHIEF),
    Cell("tensorflow", True, HCCL | TABLE, CHIEF),
    Cell("tensorflow", False, CHIEF, TABLE | {"RANK_ID", "RANK_SIZE"}),
    Cell("none", True, HCCL | TABLE, CHIEF),
]


@pytest.mark.deep(quick=40)
@pytest.mark.parametrize("name", platform_cases.names("nproc"))
@pytest.mark.parametrize("cell", CELLS, ids=[f"{cell.framework}-{cell.has_table}" for cell in CELLS])
def test_every_framework_on_every_platform(name: str, cell: Cell, tmp_path: Path) -> None:
    """On every platform a rank finds the variables of its framework, and none that would disturb it."""
    case = platform_cases.load(name)
    args = [*_told(case), *_ranks_of(case, tmp_path, has_table=cell.has_table), "--framework", cell.framework]
    line = command_line.parse(["--dry-run", "--log-dir", str(tmp_path), *args, "true"])
    environ = {"CM_WORKER_IP": HOST_IP, **case.variables, "HOST_IP": HOST_IP, "PATH": os.environ["PATH"]}
    with Signals() as signals:
        setup = JobSetup(decode(line.values, environ), environ, signals, Messages(lambda _: None))
        job = setup.prepare(line.command).job()

    wanted, unwanted = cell.wanted, cell.unwanted
    if cell.framework == "tensorflow" and job.rank_size == 1:
        wanted, unwanted = HCCL, CHIEF
    if cell.framework == "auto" and cell.has_table and "TF_CONFIG" in case.variables and len(job.ranks) > 1:
        wanted = HCCL | TABLE  # several ranks beside TF_CONFIG mean TensorFlow
    found = set(job.ranks[-1].env)
    assert set() == wanted - found
    assert set() == unwanted & found
    assert not any(variable.startswith("TORCHELASTIC_") for variable in found)
    is_with_scheduler = (
        cell.framework == "mindspore-cluster" and detect.find_node(case.variables, case.overrides).node_rank == 0
    )
    assert (["scheduler"] if is_with_scheduler else []) == [process.name for process in job.beside]


@pytest.mark.deep(quick=3)
@pytest.mark.parametrize("name", platform_cases.names("single"))
def test_process_per_card_is_left_as_it_is(name: str, tmp_path: Path) -> None:
    """A process per card that was started already runs the command once, although a table is announced."""
    case = platform_cases.load(name)
    expected = case.expected["single"]
    ended = run_here("--dry-run", "--log-dir", "log", "true", env={**case.variables}, cwd=tmp_path)
    plan = json.loads(ended.stdout)
    (rank,) = plan["ranks"] + plan["beside"]

    assert expected.get("rank_size") == plan["rank_size"]
    assert (expected.get("rank_id"), expected.get("local_rank")) == (rank.get("rank_id"), rank.get("local_rank"))
    assert {"JOB_ID", "PYTHONUNBUFFERED", "ASCEND_PROCESS_LOG_PATH", "ASCEND_RUNNER_ATTEMPT"} >= rank[
        "variables"
    ].keys()
    assert ([], str(tmp_path)) == (rank["unset"], rank["cwd"])
    assert f"INFO {expected['why']} (use --nnodes 1 to " in ended.stderr


def test_complete_overrides(tmp_path: Path) -> None:
    """--nnodes 1 overrides variables that an earlier launcher has left."""
    stale = {"RANK": "3", "LOCAL_RANK": "3", "WORLD_SIZE": "8"}
    plan = plan_of(tmp_path, "--nnodes", "1", "--nproc-per-node", "2", env=stale)

    assert [("0", "2"), ("1", "2")] == [
        (rank["variables"]["RANK"], rank["variables"]["WORLD_SIZE"]) for rank in plan["ranks"]
    ]


def test_flags_over_variables_that_cannot_be_read(tmp_path: Path) -> None:
    """Options hide invalid variables, and the platform gives the other facts."""
    broken = {**platform_cases.load("modelarts").variables, "MA_NUM_HOSTS": "abc", "MA_NUM_GPUS": "abc"}
    ranks = plan_of(tmp_path, "--nnodes", "2", "--nproc-per-node", "2", env=broken)["ranks"]

    assert [("2", "4"), ("3", "4")] == [(rank["variables"]["RANK"], rank["variables"]["WORLD_SIZE"]) for rank in ranks]
    assert "ma-job-7c1d-worker-0.ma-job-7c1d" == ranks[0]["variables"]["MASTER_ADDR"]


# --- With a table or without ------------------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a directory with a table of two servers with two devices each."""
    (tmp_path / "table.json").write_bytes(table({"10.0.0.2": 2, "10.0.0.1": 2}))
    return tmp_path


def test_table_numbers_the_nodes(folder: Path) -> None:
    """The table determines the ranks and node 0."""
    plan = plan_of(folder, "--rank-table", "table.json", "--no-table-checks", env=MODELARTS)

    assert [2, 3] == [rank["rank_id"] for rank in plan["ranks"]]
    assert "10.0.0.2" == plan["ranks"][0]["variables"]["MASTER_ADDR"]
    assert "1" == plan["ranks"][0]["variables"]["NODE_RANK"]


def test_table_that_contradicts_the_node_is_refused(folder: Path) -> None:
    """A table that contradicts the platform's number of nodes is an error."""
    options = ("--no-table-checks", "--rank-table", "table.json")
    error = error_of(folder, *options, "true", env={**MODELARTS, "MA_NUM_HOSTS": "4"})

    assert error.startswith("MA_NUM_HOSTS is 4, but the rank table has 2 servers; ")


@pytest.mark.deep(quick=3)
@pytest.mark.parametrize(
    ("args", "env", "is_read"),
    [
        ((), {"MA_NUM_GPUS": "2"}, True),
        (("--framework", "torch"), {"MA_NUM_GPUS": "2"}, True),
        ((), {}, True),
        (("--nproc-per-node", "2"), {}, False),
        (("--framework", "mindspore-cluster"), {"MA_NUM_GPUS": "2"}, False),
        (("--framework", "mindspore-cluster"), {}, True),
        (("--launcher", "torch.distributed.launch"), {"MA_NUM_GPUS": "2"}, False),
        (("--launcher", "torch.distributed.launch"), {}, True),
    ],
)
def test_when_an_announced_table_is_awaited(
    args: tuple[str, ...], env: dict[str, str], folder: Path, *, is_read: bool
) -> None:
    """A table is not awaited if the ranks are numbered without it and the platform gives the devices per node."""
    host = {"MASTER_ADDR": "10.0.0.9"}
    command = ("python3", "train.py")
    env = {**MODELARTS, **host, **env, "RANK_TABLE_FILE": "table.json"}
    ended = run_here("--dry-run", "--no-table-checks", "--log-dir", "log", *args, *command, env=env, cwd=folder)
    assert 0 == ended.returncode, ended.stderr
    plan = json.loads(ended.stdout)

    # The table has the servers in another order than the node's own number says; only who reads it has a server_id.
    assert ("10.0.0.1" == plan["server_id"]) is is_read
    assert all(rank["variables"]["RANK_ID"] in {"2", "3"} for rank in plan["ranks"])


def test_platform_that_counts_devices_needs_no_table(tmp_path: Path) -> None:
    """Without a table the platform's numbers suffice."""
    env = {"MLP_WORKER_NUM": "2", "MLP_ROLE_INDEX": "1", "MLP_WORKER_GPU": "4", "MLP_WORKER_0_HOST": "a"}

    assert [4, 5, 6, 7] == [rank["rank_id"] for rank in plan_of(tmp_path, env=env)["ranks"]]


def test_ambiguity_is_an_error(tmp_path: Path) -> None:
    """WORLD_SIZE and RANK alone could count nodes or processes."""
    error = error_of(tmp_path, "--nproc-per-node", "2", "true", env={"WORLD_SIZE": "2", "RANK": "1"})

    assert "WORLD_SIZE" in error


def test_nodes_on_cpus_take_part_each(tmp_path: Path) -> None:
    """A table without devices starts the command once on every node, as one rank."""
    (tmp_path / "table.json").write_bytes(table({"10.0.0.1": 0, "10.0.0.2": 0}))
    env = {**MODELARTS, "MASTER_ADDR": "10.0.0.2"}
    (rank,) = plan_of(tmp_path, "--rank-table", "table.json", env=env)["ranks"]

    assert (1, "2", None) == (rank["rank_id"], rank["variables"]["RANK_SIZE"], rank["variables"].get("RANK_TABLE_FILE"))


def test_verbose_says_which_platform_and_what_was_cleaned(tmp_path: Path) -> None:
    """--verbose prints the platform, its variables, and the variables that were removed."""
    env = {**MODELARTS, "MASTER_ADDR": "a", "TORCHELASTIC_RUN_ID": "none"}
    ended = run_here("--verbose", "--dry-run", "--nproc-per-node", "1", "true", env=env, cwd=tmp_path)
    lines = [sentence(line) for line in ended.stderr.splitlines()]

    assert lines[0].startswith("DEBUG ModelArts (detected by MA_VJ_NAME): node rank 1 of 2")
    assert any(line.startswith("DEBUG removed TORCHELASTIC_*") for line in lines)


def test_what_is_forbidden_is_refused_before_anything_starts(tmp_path: Path) -> None:
    """A forbidden combination of variables is refused before anything starts."""
    env = {"HCCL_INTRA_PCIE_ENABLE": "1", "HCCL_INTRA_ROCE_ENABLE": "1"}
    error = error_of(tmp_path, "--nproc-per-node", "1", "true", env=env)

    assert "HCCL_INTRA_PCIE_ENABLE and HCCL_INTRA_ROCE_ENABLE cannot both be 1" == error


@pytest.mark.deep(quick=3)
@pytest.mark.parametrize(
    ("env", "options", "sentence"),
    [
        ({"HCCL_CONNECT_TIMEOUT": "60"}, "--nproc-per-node 1", "WARNING invalid value '60' for HCCL_CONNECT_TIMEOUT: "),
        (
            {"HCCL_EVENT_TIMEOUT": "1800"},
            "--nproc-per-node 1",
            "WARNING HCCL_EVENT_TIMEOUT (1800) does not exceed HCCL_EXEC_TIMEOUT (1836, the default): ",
        ),
        (
            {"HCCL_EXEC_TIMEOUT": "17341"},
            "--nproc-per-node 1 --chip 910",
            "WARNING invalid value '17341' for HCCL_EXEC_TIMEOUT: expected 1 to 17340 seconds on the 910",
        ),
        (
            {"CPU_AFFINITY_CONF": "1"},
            "--nproc-per-node 1 --bind cores",
            "WARNING --bind has no effect: CPU_AFFINITY_CONF is '1', with which torch_npu binds the ranks itself",
        ),
        (
            {"HCCL_OP_RETRY_ENABLE": "L1:1"},
            "--rank-table table.json",
            "WARNING host_ip is missing for server '10.0.0.1', so that HCCL cannot retry operations",
        ),
        ({"TTP_OT": "1000"}, "--nproc-per-node 2", "INFO TTP_OT is set, so the framework recovers by itself: "),
    ],
)
def test_what_is_odd_is_said(env: dict[str, str], options: str, sentence: str, tmp_path: Path) -> None:
    """A suspicious variable is a warning, and the job starts."""
    (tmp_path / "table.json").write_bytes(table({"10.0.0.1": 1}))
    ended = run_to_end("--log-dir", "log", *options.split(), "true", env=env, cwd=tmp_path)

    assert 0 == ended.returncode
    assert 1 == ended.stderr.count(f" {sentence}"), ended.stderr


@pytest.mark.deep(quick=1)
@pytest.mark.parametrize(("word", "named"), [("KEY=VALUE", "env KEY=... COMMAND"), ("a && b", "'a && b'")])
def test_line_for_a_shell_is_refused(word: str, named: str, tmp_path: Path) -> None:
    """A command in shell syntax is an error that names the syntax, without the value of a variable."""
    error = error_of(tmp_path, "--nproc-per-node", "1", word, "python3", "train.py", env={})

    assert named in error
    assert "VALUE" not in error


def test_each_rank_sees_its_own_device(tmp_path: Path) -> None:
    """With --isolate-devices each rank gets one of the visible devices, with index 0."""
    env = {"ASCEND_RT_VISIBLE_DEVICES": "4,6"}
    ranks = plan_of(tmp_path, "--isolate-devices", "--nproc-per-node", "2", env=env)["ranks"]

    assert [("4", "0"), ("6", "0")] == [
        (rank["variables"]["ASCEND_RT_VISIBLE_DEVICES"], rank["variables"]["DEVICE_ID"]) for rank in ranks
    ]


# --- The process that is no rank --------------------------------------------------------------------------------------

CLUSTER = ("--framework", "mindspore-cluster")
WHO = 'echo "$MS_ROLE ${MS_NODE_ID-none} ${RANK_ID-none}"'


def test_scheduler_has_a_log_of_its_own_and_no_rank(program: Program) -> None:
    """The scheduler runs the same command beside the ranks on node 0."""
    run = program.start("--nproc-per-node", "2", *CLUSTER, "sh", "-c", WHO)

    assert 0 == run.finish()
    assert b"MS_WORKER 1 1\n" == program.log(1)
    assert b"MS_SCHED none none\n" == (program.log_dir / "job-proc-scheduler.txt").read_bytes()
    assert "[scheduler] MS_SCHED none none\n" in run.lines
    assert " INFO starting ranks 0, 1 of 2 and scheduler on " in run.screen
    assert " INFO both ranks exited with status 0 after " in run.screen


@pytest.mark.deep(quick=1)
@pytest.mark.parametrize("failing", ["MS_WORKER", "MS_SCHED"])
def test_scheduler_and_ranks_end_together(failing: str, program: Program) -> None:
    """If the scheduler or a rank fails, the job fails with its status, and the others are stopped."""
    fails = "while ! [ -e up ]; do :; done; exit 9"
    script = f'if [ "$MS_ROLE" = {failing} ]; then {fails}; fi; touch up; exec sleep 100'
    run = program.start("--nproc-per-node", "1", *CLUSTER, "sh", "-c", script)

    assert 9 == run.finish()
    who, other = ("scheduler", "rank 0") if failing == "MS_SCHED" else ("rank 0", "scheduler")
    assert f" ERROR {who} failed: exit status 9" in run.screen
    assert f"  others stopped by the runner (SIGTERM): {other}\n" in run.lines
    assert {-1: "scheduler", 0: ""} == {rank["rank_id"]: rank["name"] for rank in program.report()["ranks"]}


def test_scheduler_runs_on_node_0_only(program: Program) -> None:
    """The other nodes start ranks only."""
    other = ("--nnodes", "2", "--node-rank", "1", "--master-addr", "127.0.0.1")
    run = program.start("--nproc-per-node", "1", *CLUSTER, *other, "sh", "-c", 'echo "$MS_SCHED_HOST $MS_NODE_ID"')

    assert 0 == run.finish()
    assert ["job-proc-rank-1-device-0.txt"] == [path.name for path in program.log_dir.glob("*.txt")]
    assert b"127.0.0.1 1\n" == program.log(1, 0)


def test_name_of_node_0_becomes_an_address(program: Program) -> None:
    """MS_SCHED_HOST is an address."""
    where = ("--nnodes", "2", "--node-rank", "1", "--master-addr", "localhost")
    run = program.start("--nproc-per-node", "1", *CLUSTER, *where, "sh", "-c", 'echo "at $MS_SCHED_HOST"')

    assert 0 == run.finish()
    assert b"at 127.0.0.1\n" == program.log(1, 0)


def test_what_is_no_name_is_not_waited_for(tmp_path: Path) -> None:
    """An invalid host name is refused at once."""
    where = ("--nnodes", "2", "--node-rank", "1", "--master-addr", "a..b", "--nproc-per-node", "1")

    assert "'a..b'" in error_of(tmp_path, *where, *CLUSTER, "true", env={})


def test_wait_for_a_name_can_be_stopped(program: Program) -> None:
    """An unknown host name is waited for; a signal ends the wait."""
    where = ("--nnodes", "2", "--node-rank", "1", "--master-addr", "nobody.invalid")
    run = program.start("--verbose", "--nproc-per-node", "1", *CLUSTER, *where, "touch", "ran")
    run.wait_for("cannot resolve host 'nobody.invalid' yet")
    run.send(signal.SIGTERM)

    assert run.finish() == 128 + signal.SIGTERM
    assert not (program.folder / "ran").exists()


@pytest.mark.deep(quick=1)
@pytest.mark.parametrize("options", [("--nproc-per-node", "2"), ("--rank-table", "table.json")])
def test_who_says_which_ranks_there_are_starts_these(tmp_path: Path, options: tuple[str, str]) -> None:
    """The user's ranks override variables that another launcher or an enclosing rank has left."""
    (tmp_path / "table.json").write_bytes(table({"10.0.0.1": 2}))
    left = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "RANK_ID": "0", "ASCEND_DEVICE_ID": "0"}

    assert [0, 1] == [rank["rank_id"] for rank in plan_of(tmp_path, *options, env=left)["ranks"]]


def test_srun_that_starts_a_runner_for_every_rank(tmp_path: Path) -> None:
    """Several runners on a node that would each start all ranks are refused."""
    env = {"SLURM_STEP_NUM_TASKS": "16", "SLURM_STEP_NUM_NODES": "2", "SLURM_NODEID": "1", "SLURM_PROCID": "9"}

    assert "srun --ntasks-per-node=1" in error_of(tmp_path, "--nproc-per-node", "8", "true", env=env)


@pytest.mark.deep(quick=1)
@pytest.mark.parametrize("names", [("flag", "variable"), ("variable", "flag")])
def test_flag_beats_a_variable_of_another_option(tmp_path: Path, names: tuple[str, str]) -> None:
    """An option overrides a variable of the image, be it a table or a number of ranks."""
    (tmp_path / "table.json").write_bytes(table({"10.0.0.1": 3}))
    variables = {"ASCEND_RUNNER_RANK_TABLE": "table.json", "ASCEND_RUNNER_NPROC_PER_NODE": "2"}
    flags = {"flag": ("--nproc-per-node", "2"), "variable": ("--rank-table", "table.json")}[names[0]]

    assert {"flag": 2, "variable": 3}[names[0]] == len(plan_of(tmp_path, *flags, env=variables)["ranks"])


@pytest.mark.deep
def test_single_process_keeps_report_and_log_apart(program: Program) -> None:
    """Eight runners under one mpirun write eight logs and eight reports."""
    env = {"OMPI_COMM_WORLD_LOCAL_SIZE": "2", "OMPI_COMM_WORLD_RANK": "5", "OMPI_COMM_WORLD_LOCAL_RANK": "1"}
    run = program.start(*ACTOR, "say=hello", "exit=4", env=env)

    assert 4 == run.finish()
    assert b"hello\n" == program.log(5, 1)
    assert (program.log_dir / "job-report-rank-5.json").exists()
    assert " ERROR rank 5 failed: exit status 4" in run.screen


def test_process_without_a_rank_is_called_by_its_host(program: Program) -> None:
    """A parameter server's log and report differ from rank 0's in the same directory."""
    cluster = '{"cluster": {"ps": ["a:1"], "worker": ["b:1"]}, "task": {"type": "ps", "index": 0}}'
    run = program.start(*ACTOR, "say=hello", env={"TF_CONFIG": cluster})
    host = os.uname().nodename

    assert 0 == run.finish()
    assert b"hello\n" == (program.log_dir / f"job-proc-{host}.txt").read_bytes()
    assert (program.log_dir / f"job-report-{host}.json").exists()
    assert f"[{host}] hello\n" in run.lines


# --- conda ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def anaconda(tmp_path: Path) -> Path:
    """Lay out a conda installation with one environment, whose python is a shell script."""
    python = tmp_path / "conda" / "envs" / "py39" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text('#!/bin/sh\necho "this is conda, $LD_LIBRARY_PATH"\n')
    python.chmod(0o755)
    return tmp_path / "conda"


@pytest.mark.deep(quick=1)
@pytest.mark.parametrize("by_flag", [False, True])
def test_conda_environment_runs_the_command(program: Program, anaconda: Path, *, by_flag: bool) -> None:
    """The image's variables or --conda-env select the python that runs, without a shell."""
    name = {} if by_flag else {"DEFAULT_CONDA_ENV_NAME": "py39"}
    flag = ("--conda-env", "py39") if by_flag else ()
    env = {"ANACONDA_DIR": str(anaconda), "LD_LIBRARY_PATH": "/driver", **name}
    run = program.start("--nproc-per-node", "1", *flag, "python", "train.py", env=env)

    assert 0 == run.finish()
    assert program.log(0) == f"this is conda, {anaconda}/envs/py39/lib:/driver\n".encode()


def test_conda_environment_that_is_not_there(program: Program, anaconda: Path) -> None:
    """A missing environment is an error, no matter whether the user or the image has named it."""
    asked = program.start("--nproc-per-node", "1", "--conda-env", "no", "true", env={"ANACONDA_DIR": str(anaconda)})
    assert 125 == asked.finish()
    assert f" ERROR conda environment not found: 'no' (--conda-env): '{anaconda}/envs/no/bin/python'" in asked.screen

    env = {"ANACONDA_DIR": str(anaconda), "DEFAULT_CONDA_ENV_NAME": "no"}
    named = program.start("--nproc-per-node", "1", "true", env=env)
    assert 125 == named.finish()
    assert " ERROR conda environment not found: 'no' (DEFAULT_CONDA_ENV_NAME): " in named.screen


# --- Another engine ---------------------------------------------------------------------------------------------------


def _engine(program: Program, name: str) -> dict[str, str]:
    """Put a program of this name first in PATH that prints its arguments and environment."""
    path = program.folder / "bin" / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(
        '#!/bin/sh\necho "$0 $*" | sed "s,.*/bin/,,"\necho "table ${RANK_TABLE_FILE-none}"\nexit ${END-0}\n'
    )
    path.chmod(0o755)
    return {"PATH": f"{path.parent}:{os.environ['PATH']}"}


def test_engine_is_one_process_that_starts_the_others(program: Program) -> None:
    """An engine gets the arguments of its guide, an environment without the table, and a log of its own."""
    env = {**_engine(program, "torchrun"), "RANK_TABLE_FILE": "/user/config"}
    run = program.start(
        "--launcher", "torchrun", "--nproc-per-node", "4", "--master-port", "29611", "python", "train.py", env=env
    )

    assert 0 == run.finish()
    log = (program.log_dir / "job-proc-torchrun.txt").read_bytes()
    assert b"torchrun --nproc_per_node=4 --master_port=29611 train.py\ntable none\n" == log
    assert " INFO --launcher torchrun: running the command with torchrun\n" in run.screen
    assert " INFO starting torchrun on " in run.screen
    assert " INFO torchrun exited with status 0 after " in run.screen
    assert "[torchrun] table none\n" in run.lines


def test_engines_failure_is_the_jobs(program: Program) -> None:
    """An engine's exit status is the runner's, and its last lines are shown."""
    env = {**_engine(program, "torchrun"), "END": "7"}
    run = program.start("--launcher", "torchrun", "--nproc-per-node", "2", "python", "train.py", env=env)

    assert 7 == run.finish()
    assert " ERROR torchrun failed: exit status 7" in run.screen


def test_engine_that_is_not_there(program: Program) -> None:
    """A missing engine is exit status 127, before any file is written."""
    ended = program.here("--launcher", "msrun", "--nproc-per-node", "2", "python", "train.py", env={"PATH": "/bin"})

    assert 127 == ended.returncode
    assert "'msrun'" in ended.stderr
    assert not program.log_dir.exists()


@pytest.mark.deep
def test_lists_of_hosts_are_written_first(program: Program) -> None:
    """Host files that the platform has not written are in the log directory; a dry run prints them only."""
    env = {
        **_engine(program, "mpirun"),
        "MA_NUM_HOSTS": "2",
        "VC_TASK_INDEX": "0",
        "VC_WORKER_HOSTS": "a,b",
        "MA_NUM_GPUS": "4",
    }
    options = ("--job-name", "job", "--log-dir", str(program.log_dir), "--launcher", "mpirun")
    folder = program.log_dir / "job" / "mpirun"
    plan = plan_of(program.folder, *options, env=env)
    assert [
        {"path": str(folder / "hostfile"), "lines": ["a slots=4", "b slots=4"]},
        {"path": str(folder / "mpich_hostfile"), "lines": ["a:4", "b:4"]},
    ] == plan["host_files"]
    assert not folder.exists()
    run = program.start("--launcher", "mpirun", "python", "train.py", env=env)

    assert 0 == run.finish()
    assert b"a slots=4\nb slots=4\n" == (folder / "hostfile").read_bytes()
    assert b"a:4\nb:4\n" == (folder / "mpich_hostfile").read_bytes()
    assert (
        (program.log_dir / "job-proc-mpirun-node-0.txt").read_bytes().startswith(b"mpirun --allow-run-as-root -np 8 ")
    )


def _horovod(program: Program, host: str) -> dict[str, str]:
    """Return the environment that the task-training guide documents for Horovod with Open MPI, on one of two nodes."""
    path = program.folder / "hostfile"
    path.write_text("server1 slots=4\nserver2 slots=4\n", "utf-8")
    return {
        **_engine(program, "mpirun"),
        "HOSTNAME": host,
        "MA_VJ_NAME": "job",
        "OMPI_MCA_orte_default_hostfile": str(path),
        "HYDRA_HOST_FILE": str(path),
    }


def test_horovod_in_its_documented_environment(program: Program) -> None:
    """The platform's host file gives the number of processes, and is left alone."""
    env = _horovod(program, "server1")
    run = program.start("--launcher", "mpirun", "python", "train.py", env=env)

    assert 0 == run.finish()
    log = (program.log_dir / "job-proc-mpirun-node-0.txt").read_text("utf-8")
    assert log.startswith("mpirun --allow-run-as-root -np 8 ")
    assert "server1 slots=4\nserver2 slots=4\n" == (program.folder / "hostfile").read_text("utf-8")
    assert 0 == json.loads((program.log_dir / "job-report-node-0.json").read_bytes())["status"]


def _listed(program: Program, host: str) -> dict[str, str]:
    """Return the environment of a pod in which Volcano lists the hosts, without the index of this one."""
    lists = {"VC_WORKER_HOSTS": "server1.job,server2.job", "SLOTS": "4", "HOSTNAME": host}
    own = {"MA_VJ_NAME": "", "ASCEND_RUNNER_JOB_NAME": "job"}
    return {**_engine(program, "mpirun"), **_engine(program, "horovodrun"), **lists, **own}


@pytest.mark.deep
@pytest.mark.deep(quick=1)
@pytest.mark.parametrize(
    ("command", "environment"),
    [
        (("--launcher", "mpirun", "python", "train.py"), _horovod),
        (("mpirun", "-np", "8", "python", "train.py"), _horovod),
        (("mpirun", "-np", "8", "python", "train.py"), _listed),
        (("horovodrun", "-np", "8", "python", "train.py"), _listed),
    ],
)
def test_one_boot_command_for_all_nodes(
    command: tuple[str, ...], environment: Callable[[Program, str], dict[str, str]], program: Program
) -> None:
    """On the other nodes the runner waits, and ends as the report of node 0 in the shared log directory says."""
    waiting = program.start(*command, env=environment(program, "server2"))
    waiting.wait_for("waiting for an exit status")
    first = program.start(*command, env={**environment(program, "server1"), "END": "3"})

    assert 3 == first.finish()
    assert 3 == waiting.finish()
    engine = "horovodrun" if "horovodrun" in command else "mpirun"
    log = (program.log_dir / f"job-proc-{engine}-node-1.txt").read_text("utf-8")
    assert log.endswith("node 0 has ended with exit status 3\n")


@pytest.mark.deep
@pytest.mark.deep(quick=1)
@pytest.mark.parametrize(
    "command", [("mpirun", "-np", "4", "python", "train.py"), ("--launcher", "mpirun", "python", "train.py")]
)
def test_engine_of_all_nodes_is_restarted(command: tuple[str, ...], program: Program) -> None:
    """Node 0 restarts it without the other nodes, which wait until the last attempt has ended."""
    own = {**_engine(program, "mpirun"), "VC_WORKER_HOSTS": "127.0.0.1,127.0.0.2", "SLOTS": "2"}
    (program.folder / "bin" / "mpirun").write_text("#!/bin/sh\nexit $((3 - 3 * ASCEND_RUNNER_ATTEMPT))\n")
    waiting = program.start("--max-restarts", "1", *command, env={**own, "HOSTNAME": "127.0.0.2"})
    waiting.wait_for("waiting for an exit status")
    first = program.start("--max-restarts", "1", *command, env={**own, "HOSTNAME": "127.0.0.1"})

    assert (0, 0) == (first.finish(), waiting.finish())
    assert 1 == program.report("-node-0")["attempt"]
    assert "WARNING" not in waiting.screen


@pytest.mark.deep
def test_verdict_of_an_engine_of_all_nodes(program: Program) -> None:
    """The other nodes exit with the verdict of node 0 on the engine, not with one of their own on their wait."""
    own = _engine(program, "mpirun")
    script = f"#!/bin/sh\nexec {sys.executable} -c 'import a_module_that_nobody_has'\n"
    (program.folder / "bin" / "mpirun").write_text(script)
    lists = {**own, "VC_WORKER_HOSTS": "127.0.0.1,127.0.0.2", "SLOTS": "2"}
    waiting = program.start("--exit-verdict", "mpirun", "train.py", env={**lists, "HOSTNAME": "127.0.0.2"})
    waiting.wait_for("waiting for an exit status")
    first = program.start("--exit-verdict", "mpirun", "train.py", env={**lists, "HOSTNAME": "127.0.0.1"})

    assert (93, 93) == (first.finish(), waiting.finish())


def test_platform_stops_a_node_that_waits(program: Program) -> None:
    """A node that waits ends when its platform stops it."""
    waiting = program.start("--launcher", "mpirun", "python", "train.py", env=_horovod(program, "server2"))
    waiting.wait_for("waiting for an exit status")
    waiting.popen.terminate()

    assert 128 + signal.SIGTERM == waiting.finish()


def test_hosts_of_the_user(tmp_path: Path) -> None:
    """Without a platform --hosts gives the nodes, their devices, node 0, and by a name of this machine its rank."""
    plan = plan_of(tmp_path, "--hosts", "a.net:2,b.net:2", env={"HOSTNAME": "b"})

    assert [2, 3] == [process["rank_id"] for process in plan["ranks"]]
    assert ("a.net", "4") == tuple(plan["ranks"][0]["variables"][name] for name in ("MASTER_ADDR", "WORLD_SIZE"))


@pytest.mark.deep(quick=1)
@pytest.mark.parametrize(
    ("hosts", "options"), [("a:2,b:4", ()), ("a:2,b:2", ()), ("a:2,b:2", ("--nnodes", "3", "--node-rank", "0"))]
)
def test_hosts_that_do_not_tell_the_ranks(hosts: str, options: tuple[str, ...], tmp_path: Path) -> None:
    """Hosts with different numbers of ranks, none of them this machine, or another number of them are refused."""
    name = "a" if hosts == "a:2,b:4" else "c"
    ended = run_to_end("--dry-run", "--hosts", hosts, *options, "true", env={"HOSTNAME": name}, cwd=tmp_path)

    assert 125 == ended.returncode
    assert "hosts" in ended.stderr


@pytest.mark.deep(quick=1)
@pytest.mark.parametrize("option", ["--workdir device", "--isolate-devices", "--bind cores"])
def test_options_for_each_rank_are_not_an_engines(option: str, tmp_path: Path) -> None:
    """Options that require --launcher direct are refused."""
    args = ("--launcher", "torchrun", *option.split(), "--nproc-per-node", "2", "torchrun", "train.py")
    env = {"PATH": f"{tmp_path}:/bin"}
    (tmp_path / "torchrun").write_text("")
    (tmp_path / "torchrun").chmod(0o755)

    error = error_of(tmp_path, *args, env=env)

    assert error.startswith(option.replace(" cores", ""))
    assert "torchrun" in error


# --- /cache -----------------------------------------------------------------------------------------------------------

# Runs a command where the root directory has a /cache besides everything that it has anyway.
WITH_CACHE = """
mount -t tmpfs none "$0" && mkdir "$0/cache" || exit
for place in /*; do
    if [ -L "$place" ]; then cp -P "$place" "$0$place"
    elif [ -d "$place" ] && [ "$place" != /cache ]; then mkdir -p "$0$place" && mount --rbind "$place" "$0$place"; fi
done
exec chroot "$0" /bin/sh -c 'cd "$0" && exec "$@"' "$PWD" "$@"
"""


@pytest.mark.deep
def test_folders_in_the_cache(program: Program) -> None:
    """On ModelArts without MA_MOUNT_PATH, ranks work in /cache/device<N>, as with the platform's own scripts."""
    (program.folder / "root").mkdir()
    under = (*permitted("unshare", "--mount"), "sh", "-c", WITH_CACHE, str(program.folder / "root"))
    run = program.start("--nproc-per-node", "2", "sh", "-c", "echo in $PWD", under=under)

    assert 0 == run.finish()
    assert {"[rank 0] in /cache/device0\n", "[rank 1] in /cache/device1\n"} <= {*run.lines}
