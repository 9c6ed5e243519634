"""torch on CPU (gloo): a distributed training comes to the losses of a single process, on one node and on two."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

import pytest

from tests.clients.conftest import PROGRAMS, RUNNER, Ended, Started, TwoNodes, free_port, run

if TYPE_CHECKING:
    from pathlib import Path

DDP = (sys.executable, str(PROGRAMS / "ddp.py"))


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> list[float]:
    """Give the losses of one process, started by nobody but this test."""
    env = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": free_port()}
    ended = run(*DDP, env=env, cwd=tmp_path_factory.mktemp("alone"))
    assert (0, 12) == (ended.status, len(ended.losses)), ended.screen
    return ended.losses


def _start_node(nodes: TwoNodes, index: int, folder: Path, *arguments: str, command: tuple[str, ...] = DDP) -> Started:
    """Start one node of a ModelArts job of two, each with two devices, as the platform does."""
    mount = folder / f"node-{index}"
    mount.mkdir()
    (mount / "jobstart_hccl.json").write_text(json.dumps(_table(nodes)))
    env = {
        "MA_VJ_NAME": "ma-job-1",
        "MA_TASK_NAME": "worker",
        "MA_NUM_HOSTS": "2",
        "MA_NUM_GPUS": "2",
        "MA_MOUNT_PATH": str(mount),
        "MA_CURRENT_INSTANCE_NAME": f"ma-job-1-worker-{index}",
        "MA_CURRENT_HOST_IP": nodes.addresses[index],
        "VC_TASK_INDEX": str(index),
        "VC_WORKER_HOSTS": ",".join(nodes.addresses),
        "RANK_TABLE_FILE": str(mount),
        "GLOO_SOCKET_IFNAME": nodes.devices[index],
        "NPROC": "2",
    }
    return Started((*nodes.on(index), *RUNNER, "--log-dir", str(mount / "log"), *command, *arguments), env, folder)


def _table(nodes: TwoNodes) -> dict[str, object]:
    instances = [
        {
            "pod_name": f"ma-job-1-worker-{index}",
            "server_id": address,
            "devices": [{"device_id": str(card), "device_ip": f"10.78.{index}.{card + 1}"} for card in range(2)],
        }
        for index, address in enumerate(nodes.addresses)
    ]
    return {"status": "completed", "group_count": "1", "group_list": [{"instance_list": instances}]}


def test_four_ranks_learn_as_one(alone: list[float], tmp_path: Path) -> None:
    """Ranks find each other by env://, and average their gradients."""
    options = ("--nproc-per-node", "4", "--framework", "torch", "--master-port", free_port(), "--log-dir", "log")
    ended = run(*RUNNER, *options, *DDP, cwd=tmp_path)

    assert 0 == ended.status, ended.screen
    assert pytest.approx(alone, abs=1e-9) == ended.losses
    assert [f"rank {rank} of 4, local rank {rank}" for rank in range(4)] == _who(ended)


def test_two_nodes_learn_as_one(alone: list[float], nodes: TwoNodes, tmp_path: Path) -> None:
    """Each node knows nothing but its platform's variables and rank table."""
    started = [_start_node(nodes, index, tmp_path) for index in range(2)]
    first, second = (node.finish() for node in started)

    assert (0, 0) == (first.status, second.status), first.screen + second.screen
    assert pytest.approx(alone, abs=1e-9) == first.losses
    assert ["rank 0 of 4, local rank 0", "rank 1 of 4, local rank 1"] == _who(first)
    assert ["rank 2 of 4, local rank 0", "rank 3 of 4, local rank 1"] == _who(second)


def test_death_of_one_rank_ends_both_nodes(nodes: TwoNodes, tmp_path: Path) -> None:
    """The node of the dead rank names it; the other one names its own first failure, which points at a peer."""
    started = [_start_node(nodes, index, tmp_path, "--die", "1") for index in range(2)]
    first, second = (node.finish() for node in started)

    # gloo gives up with an exception, or, in a thread of its own, by abort().
    assert (137, True) == (first.status, second.status in {1, 134}), first.screen + second.screen
    assert " ERROR rank 1 failed first: killed by SIGKILL, " in first.screen
    assert "  others 0: told to stop" in first.screen
    report = json.loads((tmp_path / "node-1" / "log" / "modelarts-job-1-report-ma-job-1-worker-1.json").read_bytes())
    finding = next(rank["finding"] for rank in report["ranks"] if rank["rank_id"] == report["cause"]["rank_id"])
    assert report["cause"]["rank_id"] in {2, 3}
    assert f"[{nodes.addresses[0]}]" in finding["exception"]
    assert "the rank itself or a peer" == finding["code_kind"]


@pytest.mark.parametrize("program", ["accelerated.py", "lightened.py"])
def test_libraries_over_torch(program: str, tmp_path: Path) -> None:
    """Accelerate and Lightning find who they are and whom they meet, and start no process of their own."""
    options = ("--nproc-per-node", "2", "--master-port", free_port(), "--log-dir", "log")
    ended = run(*RUNNER, *options, sys.executable, str(PROGRAMS / program), cwd=tmp_path)

    assert 0 == ended.status, ended.screen
    assert [f"rank {rank} of 2, local rank {rank}, main {rank == 0}, sum 3" for rank in range(2)] == _who(ended)


@pytest.mark.parametrize("launcher", ["torchrun", "torch.distributed.launch"])
def test_torchs_own_engines(launcher: str, alone: list[float], tmp_path: Path) -> None:
    """Handed over to torch's engine, the ranks are numbered by it, and learn the same."""
    options = ("--launcher", launcher, "--nproc-per-node", "2", "--master-port", free_port(), "--log-dir", "log")
    ended = run(*RUNNER, *options, *DDP, cwd=tmp_path)

    assert 0 == ended.status, ended.screen
    assert pytest.approx(alone, abs=1e-9) == ended.losses
    assert all(f"[{launcher}] rank {rank} of 2, local rank {rank}\n" in ended.screen for rank in range(2))


def test_script_that_is_told_where_to_meet(nodes: TwoNodes, tmp_path: Path) -> None:
    """With --launcher init-method each node's one process starts its own, and all of them meet at node 0."""
    script = str(PROGRAMS / "init_method.py")
    command = ("--launcher", "init-method", sys.executable, script, "--epochs", "5")
    started = [_start_node(nodes, index, tmp_path, command=command) for index in range(2)]
    first, second = (node.finish() for node in started)

    assert (0, 0) == (first.status, second.status), first.screen + second.screen
    for rank in range(4):
        node = rank // 2
        assert f"[init-method-node-{node}] rank {rank} of 4, sum 10, epochs 5\n" in (first, second)[node].screen


def test_engines_exit_status(tmp_path: Path) -> None:
    """When a rank of torchrun's is killed, so the job has failed, with the status of torchrun."""
    options = ("--launcher", "torchrun", "--nproc-per-node", "2", "--master-port", free_port(), "--log-dir", "log")
    ended = run(*RUNNER, *options, *DDP, "--die", "1", cwd=tmp_path)

    assert 1 == ended.status, ended.screen
    assert " ERROR torchrun failed first: exit status 1, " in ended.screen


def _who(ended: Ended) -> list[str]:
    return [line for line in ended.lines if line.startswith("rank ")]
