"""Simulated nodes: their rank table, their lines on the console, and how they end."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from ascend_runner.guardian import process_tree, sweep
from ascend_runner.job import simulation
from ascend_runner.rank_table import checks, codec
from tests.helpers.program import Program, Run, run_here, run_to_end, sentence
from tests.helpers.surroundings import permitted
from tests.helpers.waiting import wait_until

SLEEPERS = ("--simulate", "2x2", "--grace", "5", "sh", "-c", "echo up; exec sleep 1000")


def test_table_gives_each_node_its_ranks() -> None:
    """The ranks are numbered node by node."""
    table = codec.loads(json.dumps(simulation.table(["10.99.0.1", "10.99.0.2"], 3)))

    assert {"10.99.0.1": [0, 1, 2], "10.99.0.2": [3, 4, 5]} == {
        server.server_id: [device.rank_id for device in server.devices] for server in table.servers
    }


@pytest.mark.parametrize("size", [(1, 1), (2, 3), (250, 16)])
def test_hccl_would_accept_the_table(size: tuple[int, int]) -> None:
    """The checks of rank tables find nothing in any size that the option accepts."""
    nodes, devices = size
    document = simulation.table([f"10.99.0.{node + 1}" for node in range(nodes)], devices)
    table = codec.loads(json.dumps(document))

    assert [] == list(checks.check(table, path="/jobstart_hccl.json", size=1, chip="", is_roce_wanted=False))


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (b"[rank 17] loss 1\n", b"[node 2 rank 17] loss 1\n"),
        (b"03:12:45 [rank 17] loss 1\n", b"03:12:45 [node 2 rank 17] loss 1\n"),
        (b"\x1b[36m[rank 17]\x1b[0m loss\n", b"\x1b[36m[node 2 rank 17]\x1b[0m loss\n"),
        (b"[ascend-runner] 03:12:45 INFO x\n", b"[node 2 ascend-runner] 03:12:45 INFO x\n"),
        (b"  | [rank 1] x\n", b"[node 2]   | [rank 1] x\n"),
        (b"[torchrun] x\n", b"[node 2] [torchrun] x\n"),
        (b"[rank 17] 50%\r", b"[node 2 rank 17] 50%\r"),
        (b"\n", b"\n"),
    ],
)
def test_lines_name_their_node(line: bytes, expected: bytes) -> None:
    """The title of a line gets the node; a line without a title gets one."""
    assert expected == simulation.titled(line, 2)


@pytest.mark.parametrize("value", ["4", "0x8", "4x0", "251x1", "1x17", "4x8x2", "x", "-1x2"])
def test_sizes_that_cannot_be_simulated(value: str) -> None:
    """A size that is none is refused with an example."""
    done = run_here(f"--simulate={value}", "true")

    assert (125, 1) == (done.returncode, done.stderr.count("\n"))
    assert "such as 4x8" in done.stderr


def test_options_of_one_node() -> None:
    """Options that say which node this is are refused, also by their variables."""
    by_flag = run_here("--simulate", "2x2", "--node-rank", "1", "true")
    by_variable = run_here("--simulate", "2x2", "true", env={"ASCEND_RUNNER_NNODES": "2"})

    assert "ERROR --simulate and --node-rank cannot be used together" == sentence(by_flag.stderr.rstrip())
    assert "ERROR --simulate and --nnodes cannot be used together" == sentence(by_variable.stderr.rstrip())


def test_each_rank_finds_its_place(program: Program) -> None:
    """Every rank of every node gets its variables; the nodes share the log directory."""
    run = program.start("--simulate", "2x2", "sh", "-c", 'echo "$NODE_RANK $RANK of $WORLD_SIZE at $MASTER_ADDR"')

    assert 0 == run.finish()
    for node, rank in ((0, 0), (0, 1), (1, 2), (1, 3)):
        shown = program.log(rank, rank % 2).decode().strip()
        assert f"{node} {rank} of 4 at " in shown
        assert f"[node {node} rank {rank}] {shown}\n" in run.lines
    assert "WARNING" not in run.screen


def test_newest_log_directory(tmp_path: Path) -> None:
    """Without --log-dir, `logs/latest` leads to the logs of the simulation."""
    done = run_to_end("--simulate", "1x1", "true", cwd=tmp_path)
    (folder,) = tmp_path.glob("logs/simulation-*")

    assert 0 == done.returncode
    assert str(folder) == os.path.realpath(tmp_path / "logs" / "latest")


@pytest.mark.deep
def test_nodes_without_namespaces(program: Program) -> None:
    """Without the privilege, each node has a loopback address, the job a free port, and the first line says so."""
    under = permitted("setpriv", "--bounding-set=-sys_admin")
    run = program.start("--simulate", "2x1", "sh", "-c", 'echo "$RANK $MASTER_ADDR $MASTER_PORT"', under=under)

    assert 0 == run.finish()
    assert "at 127.0.0.1, 127.0.0.2 in the network of this machine" in run.lines[0]
    shown = [line.split(" ")[4:] for line in run.lines if " rank " in line and "INFO" not in line]
    assert ["0", "1"] == sorted(rank for rank, *_rest in shown)
    assert 1 == len({tuple(rest) for _rank, *rest in shown})


def test_linked_nodes_end_as_one(program: Program) -> None:
    """A failed rank ends all nodes with its status, which one line says."""
    run = program.start("--simulate", "2x2", "sh", "-c", "[ $RANK = 2 ] && exit 7; exec sleep 1000")

    assert 7 == run.finish()
    assert "ERROR all nodes ended with exit status 7" == sentence(run.lines[-1].rstrip())
    assert "still running" not in run.screen


@pytest.mark.deep
def test_first_failure_is_the_status(program: Program) -> None:
    """Without a link, the other node goes on until it is stopped; the exit status is that of the first failure."""
    script = "[ $RANK = 2 ] && exit 7; echo up; exec sleep 1000"
    run = program.start("--simulate", "2x2", "--link", "off", "--grace", "5", "sh", "-c", script)
    run.wait_for("node 1 ended with exit status 7; still running: node 0")
    run.send(signal.SIGTERM)

    assert 7 == run.finish()
    assert "[node 1 ascend-runner]" in run.screen


def test_ctrl_c_stops_all_nodes(program: Program) -> None:
    """A stop signal reaches each runner once."""
    run = program.start(*SLEEPERS)
    run.wait_for("] up", times=4)
    run.send(signal.SIGINT)

    assert 130 == run.finish()
    assert 2 == run.screen.count("received SIGINT")


@pytest.mark.deep
def test_one_node_is_stopped(program: Program) -> None:
    """SIGTERM to the runner of one node stops all nodes that are linked."""
    run = program.start("--link", "require", *SLEEPERS)
    run.wait_for("] up", times=4)
    pids = next(line for line in run.lines if "node 1 has pid " in line)
    os.kill(int(pids.rpartition(" ")[2]), signal.SIGTERM)

    assert 143 == run.finish()


@pytest.mark.deep
@pytest.mark.parametrize(
    "killed",
    [
        lambda run: [run.runner_pid],
        lambda run: [run.popen.pid],
        pytest.param(lambda run: [run.popen.pid, run.runner_pid], marks=pytest.mark.deep),
        pytest.param(lambda run: [run.runner_pid, run.popen.pid], marks=pytest.mark.deep),
    ],
    ids=["runner", "guardian", "guardian and runner", "runner and guardian"],
)
def test_killed_simulator_leaves_nobody(program: Program, killed: Callable[[Run], list[int]]) -> None:
    """SIGKILL of the simulating process, its guardian or both ends all nodes."""
    before = set(process_tree.children(os.getpid()))
    run = program.start(*SLEEPERS)
    run.wait_for("] up", times=4)
    for pid in killed(run):
        os.kill(pid, signal.SIGKILL)
    run.popen.wait()

    def is_alone() -> bool:
        sweep.reap_adopted(keep=frozenset(before))
        return before.issuperset(process_tree.children(os.getpid()))

    wait_until(is_alone)
