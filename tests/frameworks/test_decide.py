"""What the ranks of each framework find in their environment, for every platform's fixture and beyond."""

from __future__ import annotations

from typing import Any

import pytest

from ascend_runner.frameworks import conflicts
from ascend_runner.frameworks.decide import FRAMEWORKS, SUBJECTS, decide
from ascend_runner.frameworks.situation import Changes, Situation
from ascend_runner.platforms.find import find
from tests.frameworks.framework_situations import TABLE, changes, situation
from tests.platforms import platform_cases

CASES = [
    (name, expected)
    for name in platform_cases.names("ranks")
    for expected in platform_cases.load(name).expected["ranks"]
]


def _situation(name: str, table: str | None) -> Situation:
    case = platform_cases.load(name)
    node = find(case.variables, case.said)
    nproc = case.expected["nproc"]
    return Situation(node, node.rank_ids(nproc), nproc * node.nnodes, table, case.variables)


@pytest.mark.parametrize(
    ("name", "expected"), CASES, ids=[f"{name}-{expected['framework']}" for name, expected in CASES]
)
def test_rank_on_platform(name: str, expected: dict[str, Any]) -> None:
    """A rank's environment differs from the platform's by exactly what its file expects."""
    environ = platform_cases.load(name).variables
    decided = decide(expected["framework"], _situation(name, expected["table"]))
    local_rank = expected["local_rank"]

    assert (expected["set"], expected["unset"]) == changes(environ, decided.environment_of(local_rank, environ))


@pytest.mark.parametrize(("name", "expected"), [(name, expected) for name, expected in CASES if "beside" in expected])
def test_process_beside_the_ranks(name: str, expected: dict[str, Any]) -> None:
    """The scheduler's environment likewise, and only where it belongs."""
    environ = platform_cases.load(name).variables
    decided = decide(expected["framework"], _situation(name, expected["table"]))

    assert expected["beside"] == {
        process.name: dict(zip(("set", "unset"), changes(environ, decided.environment_beside(process, environ))))
        for process in decided.processes
    }


@pytest.mark.parametrize("framework", FRAMEWORKS)
@pytest.mark.parametrize("table", [None, TABLE])
def test_no_rank_like_another(framework: str, table: str | None) -> None:
    """Whatever the framework, each rank has a device of its own, and nothing of one is set for all."""
    environ = {"CM_WORKER_IP": "10.0.0.2"}
    found = situation(environ, nproc=4)._replace(table_path=table)
    if framework == "mindspore" and not table:
        found = found._replace(rank_ids=(0,), rank_size=1)
    environments = [decide(framework, found).environment_of(index, environ) for index in range(len(found.rank_ids))]

    assert [str(index) for index in range(len(environments))] == [own["DEVICE_ID"] for own in environments]
    assert all(own["DEVICE_ID"] == own["ASCEND_DEVICE_ID"] for own in environments)


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_agent_store_is_never_left_set(framework: str) -> None:
    """With TORCHELASTIC_USE_AGENT_STORE every rank would wait for a store that nobody opens."""
    environ = {"TORCHELASTIC_USE_AGENT_STORE": "True", "TORCHELASTIC_RUN_ID": "none", "TORCH": "kept"}
    found = situation(environ)._replace(table_path=TABLE)
    own = decide(framework, found).environment_of(0, environ)

    assert [] == [name for name in own if name.startswith("TORCHELASTIC_")]
    assert "kept" == own["TORCH"]


def test_what_lightning_takes_for_torchrun() -> None:
    """Lightning's TorchElasticEnvironment wants these four; accelerate wants the first, third and the address."""
    own = decide("torch", situation()).environment_of(1, {})

    assert {"RANK": "3", "GROUP_RANK": "1", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2"}.items() <= own.items()
    assert {"WORLD_SIZE": "4", "MASTER_ADDR": "10.0.0.1", "MASTER_PORT": "29500"}.items() <= own.items()


# --- auto ------------------------------------------------------------------------------------------------------------


def test_auto_says_what_it_means() -> None:
    """Where a platform has prepared one framework's own way, the sentence names its variables."""
    variables = platform_cases.load("mindcluster_mindspore").variables

    assert (
        "--framework auto is mindspore-cluster here, since MS_SCHED_HOST and MS_WORKER_NUM are set"
        in decide("auto", _situation("mindcluster_mindspore", None)).notes
    )
    assert "MS_SCHED_HOST" in variables


def test_auto_without_anything_prepared() -> None:
    """Then it is the table's variables and torch's, with nothing to note."""
    assert () == decide("auto", situation()).notes


# --- What helps all --------------------------------------------------------------------------------------------------


def test_what_the_user_set_stays() -> None:
    """HCCL's patience, threads and buffering are only set where the user has not."""
    environ = {"HCCL_CONNECT_TIMEOUT": "600", "OMP_NUM_THREADS": "3", "PYTHONUNBUFFERED": "x"}
    own = decide("auto", situation(environ)._replace(cores=64)).environment_of(0, environ)

    assert environ.items() <= own.items()


@pytest.mark.parametrize(("cores", "nproc", "threads"), [(192, 8, "24"), (7, 2, "3"), (2, 8, "1"), (1, 1, "1")])
def test_threads(cores: int, nproc: int, threads: str) -> None:
    """The cores are shared out evenly, at least one for each."""
    assert threads == decide("auto", situation(nproc=nproc)._replace(cores=cores)).job["OMP_NUM_THREADS"]


def test_threads_where_the_cores_are_not_known() -> None:
    """No number is made up."""
    assert "OMP_NUM_THREADS" not in decide("auto", situation()).job


# --- Devices ---------------------------------------------------------------------------------------------------------


def test_visible_devices_are_respected() -> None:
    """The list stays, and DEVICE_ID is an index into it."""
    environ = {"ASCEND_RT_VISIBLE_DEVICES": "4,5"}
    own = decide("auto", situation(environ)).environment_of(1, environ)

    assert ("4,5", "1") == (own["ASCEND_RT_VISIBLE_DEVICES"], own["DEVICE_ID"])


@pytest.mark.parametrize(("environ", "device"), [({"ASCEND_RT_VISIBLE_DEVICES": "4,6"}, "6"), ({}, "1")])
def test_isolated_devices(environ: dict[str, str], device: str) -> None:
    """Each rank sees its one card, which is number 0 then."""
    own = decide("auto", situation(environ)._replace(isolate_devices=True)).environment_of(1, environ)

    assert (device, "0", "0") == (own["ASCEND_RT_VISIBLE_DEVICES"], own["DEVICE_ID"], own["ASCEND_DEVICE_ID"])


# --- The dynamic cluster ---------------------------------------------------------------------------------------------


def test_scheduler_is_on_node_0() -> None:
    """Node 0 has it, no other node has."""
    here = situation()._replace(node=situation().node._replace(node_rank=0))

    assert ["scheduler"] == [process.name for process in decide("mindspore-cluster", here).processes]
    assert () == decide("mindspore-cluster", situation()).processes


def test_scheduler_has_no_rank() -> None:
    """Nothing that makes a rank is left in its environment, not even what the runner was started with."""
    environ = {"RANK": "1", "DEVICE_ID": "3", "RANK_ID": "3", "LOCAL_RANK": "3", "MS_NODE_ID": "3"}
    here = situation(environ)._replace(node=situation().node._replace(node_rank=0))
    decided = decide("mindspore-cluster", here)
    own = decided.environment_beside(decided.processes[0], environ)

    assert "MS_SCHED" == own["MS_ROLE"]
    assert set() == {*own} & {*environ}


def test_scheduler_is_met_at_an_address() -> None:
    """MS_SCHED_HOST takes no names, so they are resolved."""
    node = situation().node._replace(master_addr="node0")
    named = situation(node=node)._replace(resolve=lambda name: {"node0": "10.9.9.9"}[name])

    assert "10.9.9.9" == decide("mindspore-cluster", named).job["MS_SCHED_HOST"]


def test_cluster_reads_no_table() -> None:
    """Where a table told who is who, the dynamic cluster still does not read it."""
    environ = {"RANK_TABLE_FILE": "/user/config"}
    found = situation(environ)._replace(table_path=TABLE)

    assert "RANK_TABLE_FILE" not in decide("mindspore-cluster", found).environment_of(0, environ)


def test_without_its_subjects_nothing_is_in_conflict() -> None:
    """What spares the start-up a table misses no row that could hold for `auto`."""
    names = {
        *(name for conflict in conflicts.CONFLICTS for name in conflict.names),
        *("HCCL_CONNECT_TIMEOUT", "HCCL_WHITELIST_DISABLE", "HCCL_INTRA_PCIE_ENABLE", "HCCL_EVENT_TIMEOUT"),
        *("HCCL_EXEC_TIMEOUT", "MS_WORKER_NUM", "CM_WORKER_SIZE", "ASCEND_RT_VISIBLE_DEVICES", "RANK_ID", "RANK_SIZE"),
    }
    harmless = situation({"PATH": "/bin", "DEVICE_ID": "3", "MASTER_PORT": "1", "LOCAL_RANK": "x"})

    assert [] == [name for name in names if not name.startswith(SUBJECTS)]
    assert Changes() == conflicts.settle("auto", harmless)
