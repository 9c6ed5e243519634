"""torch on CPU (gloo): distributed training has the losses of a single process, on one node and on several."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from ascend_runner.node.namespaces import INTERFACE
from tests.clients.conftest import (
    DDP,
    DYING,
    PROGRAMS,
    RESTARTING,
    RUNNER,
    Ended,
    Nodes,
    Started,
    check_resumed,
    failed_ranks,
    free_port,
    run,
)

WORLD = 4  # ranks of all nodes


def _start_node(nodes: Nodes, index: int, folder: Path, *arguments: str, command: tuple[str, ...] = DDP) -> Started:
    """Start a node of a ModelArts job with four devices in all, as the platform does."""
    devices = str(WORLD // len(nodes.addresses))
    mount = folder / f"node-{index}"
    mount.mkdir()
    (mount / "jobstart_hccl.json").write_text(json.dumps(_table(nodes)))
    env = {
        "MA_VJ_NAME": "ma-job-1",
        "MA_TASK_NAME": "worker",
        "MA_NUM_HOSTS": str(len(nodes.addresses)),
        "MA_NUM_GPUS": devices,
        "MA_MOUNT_PATH": str(mount),
        "MA_CURRENT_INSTANCE_NAME": f"ma-job-1-worker-{index}",
        "MA_CURRENT_HOST_IP": nodes.addresses[index],
        "VC_TASK_INDEX": str(index),
        "VC_WORKER_HOSTS": ",".join(nodes.addresses),
        "RANK_TABLE_FILE": str(mount),
        "GLOO_SOCKET_IFNAME": INTERFACE,
        "NPROC": devices,
    }
    return Started((*nodes.on(index), *RUNNER, "--log-dir", str(mount / "log"), *command, *arguments), env, folder)


def _table(nodes: Nodes) -> dict[str, object]:
    cards = range(WORLD // len(nodes.addresses))
    instances = [
        {
            "pod_name": f"ma-job-1-worker-{index}",
            "server_id": address,
            "devices": [{"device_id": str(card), "device_ip": f"10.78.{index}.{card + 1}"} for card in cards],
        }
        for index, address in enumerate(nodes.addresses)
    ]
    return {"status": "completed", "group_count": "1", "group_list": [{"instance_list": instances}]}


def test_four_ranks_learn_as_one(alone: list[float], tmp_path: Path) -> None:
    """Ranks find each other through env:// and average their gradients."""
    options = ("--nproc-per-node", "4", "--framework", "torch", "--master-port", free_port(), "--log-dir", "log")
    ended = run(*RUNNER, *options, *DDP, cwd=tmp_path)

    assert 0 == ended.status, ended.screen
    assert pytest.approx(alone, abs=1e-9) == ended.losses
    assert [f"rank {rank} of 4, local rank {rank}" for rank in range(4)] == _who(ended)


def test_two_nodes_learn_as_one(alone: list[float], nodes: Nodes, tmp_path: Path) -> None:
    """Two nodes need only the variables and the rank table of their platform."""
    started = [_start_node(nodes, index, tmp_path) for index in range(2)]
    first, second = (node.finish() for node in started)

    assert (0, 0) == (first.status, second.status), first.screen + second.screen
    assert pytest.approx(alone, abs=1e-9) == first.losses
    assert ["rank 0 of 4, local rank 0", "rank 1 of 4, local rank 1"] == _who(first)
    assert ["rank 2 of 4, local rank 0", "rank 3 of 4, local rank 1"] == _who(second)


@pytest.mark.parametrize("nodes", [2, 4], indirect=True)
def test_death_of_one_rank_ends_all_nodes(nodes: Nodes, tmp_path: Path) -> None:
    """All nodes end with the status of the killed rank and name it, whatever gloo says of the lost peer."""
    numbers = range(len(nodes.addresses))
    started = [_start_node(nodes, index, tmp_path, "--die", "1") for index in numbers]
    ends = [node.finish() for node in started]
    folders = [tmp_path / f"node-{index}" / "log" for index in numbers]
    reports = [
        json.loads((folders[index] / f"modelarts-job-1-report-node-{index}.json").read_bytes()) for index in numbers
    ]

    assert [137 for _ in numbers] == [node.status for node in ends], "".join(node.screen for node in ends)
    assert (1, None, 9) in failed_ranks(tmp_path)
    assert [(len(numbers) // 4, 1, 137) for _ in numbers] == [
        tuple(report["verdict"][name] for name in ("node", "rank_id", "status")) for report in reports
    ]


@pytest.mark.parametrize("nodes", [2, 4], indirect=True)
def test_nodes_restart_and_resume_as_one(alone: list[float], nodes: Nodes, tmp_path: Path) -> None:
    """After the death of a rank of the last node, all nodes start again and go on at the last checkpoint."""
    numbers = range(len(nodes.addresses))
    # Absolute, since on ModelArts each rank has a working directory of its own.
    command = [str(tmp_path / word) if word == "checkpoints" else word for word in (*RESTARTING, *DYING)]
    started = [_start_node(nodes, index, tmp_path, command=tuple(command)) for index in numbers]
    first, *others = (node.finish() for node in started)

    check_resumed(first, alone)
    assert [0 for _ in others] == [node.status for node in others], "".join(node.screen for node in others)


@pytest.mark.parametrize("program", ["accelerated.py", "lightened.py"])
def test_libraries_over_torch(program: str, tmp_path: Path) -> None:
    """Accelerate and Lightning use the ranks that they are given, and start no processes."""
    options = ("--nproc-per-node", "2", "--master-port", free_port(), "--log-dir", "log")
    ended = run(*RUNNER, *options, sys.executable, str(PROGRAMS / program), cwd=tmp_path)

    assert 0 == ended.status, ended.screen
    assert [f"rank {rank} of 2, local rank {rank}, main {rank == 0}, sum 3" for rank in range(2)] == _who(ended)


@pytest.mark.parametrize("launcher", ["torchrun", "torch.distributed.launch"])
def test_torchs_own_engines(launcher: str, alone: list[float], tmp_path: Path) -> None:
    """With --launcher, torch's own engine numbers the ranks, and the losses are the same."""
    options = ("--launcher", launcher, "--nproc-per-node", "2", "--master-port", free_port(), "--log-dir", "log")
    ended = run(*RUNNER, *options, *DDP, cwd=tmp_path)

    assert 0 == ended.status, ended.screen
    assert pytest.approx(alone, abs=1e-9) == ended.losses
    assert all(f"[{launcher}] rank {rank} of 2, local rank {rank}\n" in ended.screen for rank in range(2))


def test_script_that_starts_its_own_processes(nodes: Nodes, tmp_path: Path) -> None:
    """With --launcher init-method, one process per node starts the others, and all of them meet at node 0."""
    script = str(PROGRAMS / "init_method.py")
    command = ("--launcher", "init-method", sys.executable, script, "--epochs", "5")
    started = [_start_node(nodes, index, tmp_path, command=command) for index in range(2)]
    first, second = (node.finish() for node in started)

    assert (0, 0) == (first.status, second.status), first.screen + second.screen
    for rank in range(4):
        node = rank // 2
        assert f"[init-method-node-{node}] rank {rank} of 4, sum 10, epochs 5\n" in (first, second)[node].screen


def test_engines_exit_status(tmp_path: Path) -> None:
    """When a rank of torchrun is killed, the job fails with the exit status of torchrun."""
    options = ("--launcher", "torchrun", "--nproc-per-node", "2", "--master-port", free_port(), "--log-dir", "log")
    ended = run(*RUNNER, *options, *DDP, "--die", "1", cwd=tmp_path)

    assert 1 == ended.status, ended.screen
    assert {1} == {exit_code for _rank_id, exit_code, _signal in failed_ranks(tmp_path / "log")}


def _who(ended: Ended) -> list[str]:
    return [line for line in ended.lines if line.startswith("rank ")]
