"""Open MPI: mpirun starts the runner once on each of two nodes, and --launcher mpirun starts mpirun."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from ascend_runner.node.namespaces import INTERFACE
from tests.clients.conftest import (
    DYING,
    LIMIT,
    RESTARTING,
    RUNNER,
    Ended,
    Nodes,
    Started,
    check_resumed,
    failed_ranks,
    run,
)
from tests.helpers.waiting import wait_until

TELL = 'echo "$RANK of $WORLD_SIZE, node $NODE_RANK, on $(hostname), meets at $MASTER_ADDR"'
AS_ROOT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}


@pytest.fixture
def job(nodes: Nodes, tmp_path: Path) -> Callable[..., Ended]:
    """Return a way to run `mpirun -N 1 ascend-runner ... sh -c SCRIPT` on two nodes, called on node 0."""
    network = ("--mca", "oob_tcp_if_include", "10.77.0.0/24", "--mca", "plm_rsh_agent", _agent(nodes, tmp_path))
    hosts = ",".join(f"{address}:1" for address in nodes.addresses)
    options = ("--nproc-per-node", "2", "--master-addr", nodes.addresses[0], "--log-dir", str(tmp_path / "log"))

    def start(script: str, *more: str) -> Ended:
        words = ("mpirun", *network, "-N", "1", "--host", hosts, *RUNNER, *options, *more, "sh", "-c", script)
        return run(*nodes.on(0), *words, env=AS_ROOT, cwd=tmp_path)

    return start


def _agent(nodes: Nodes, folder: Path) -> str:
    """Make what mpirun calls in place of ssh, as `agent HOST COMMAND ...`: it runs the command on node 1."""
    agent = folder / "agent"
    agent.write_text(f'#!/bin/sh\nshift\nexec {_quoted(nodes.on(1))} sh -c "$*"\n')
    agent.chmod(0o755)
    return str(agent)


def _quoted(words: tuple[str, ...]) -> str:
    return " ".join(f"'{word}'" for word in words)


def test_two_nodes(job: Callable[..., Ended]) -> None:
    """Each node starts its own ranks, and all of them meet at one address."""
    ended = job(TELL)

    assert 0 == ended.status, ended.screen
    assert [
        f"{rank} of 4, node {rank // 2}, on node-{rank // 2}, meets at 10.77.0.1" for rank in range(4)
    ] == ended.lines


def test_exit_status_is_carried_through(job: Callable[..., Ended], tmp_path: Path) -> None:
    """The exit status of a rank becomes that of the runner and of mpirun, and mpirun stops the other node."""
    ended = job('if [ "$RANK" = 3 ]; then exit 9; fi; exec sleep 300')

    assert 9 == ended.status, ended.screen
    assert (3, 9, None) in failed_ranks(tmp_path / "log")


def test_nodes_restart_and_resume_as_one(job: Callable[..., Ended], alone: list[float]) -> None:
    """After the death of a rank of node 1, both runners start their ranks again, and mpirun notices nothing."""
    check_resumed(job(f"GLOO_SOCKET_IFNAME={INTERFACE} exec {_quoted(DYING)}", *RESTARTING), alone)


def test_process_per_card_is_not_multiplied(tmp_path: Path) -> None:
    """Under mpirun with several processes on a node, each runner is one rank."""
    script = 'echo "$OMPI_COMM_WORLD_RANK of $OMPI_COMM_WORLD_SIZE"'
    options = ("--log-dir", str(tmp_path / "log"))
    ended = run(
        "mpirun", "--oversubscribe", "-np", "4", *RUNNER, *options, "sh", "-c", script, env=AS_ROOT, cwd=tmp_path
    )

    logs = [(tmp_path / "log" / f"sh-proc-rank-{rank}-device-{rank}.txt").read_text() for rank in range(4)]

    assert 0 == ended.status, ended.screen
    assert [f"{rank} of 4\n" for rank in range(4)] == logs  # mpirun mixes the output of its processes
    assert 4 == len(list((tmp_path / "log").glob("sh-report-rank-*.json")))


def test_mpirun_as_launcher(tmp_path: Path) -> None:
    """With --launcher mpirun, the runner supervises one mpirun that starts the processes."""
    script = 'echo "$OMPI_COMM_WORLD_RANK of $OMPI_COMM_WORLD_SIZE"; exit "$1"'
    options = ("--launcher", "mpirun", "--nproc-per-node", "2", "--log-dir", "log")
    env = {"OMPI_MCA_rmaps_base_oversubscribe": "1"}
    for status in (0, 5):
        ended = run(*RUNNER, *options, "sh", "-c", script, "sh", str(status), env=env, cwd=tmp_path)

        assert status == ended.status, ended.screen
        assert "[mpirun] 0 of 2\n" in ended.screen
        assert "[mpirun] 1 of 2\n" in ended.screen


@pytest.mark.parametrize("has_file", [True, False])
@pytest.mark.parametrize("command", [("--launcher", "mpirun"), ("mpirun", "-np", "4")])
def test_one_boot_command(command: tuple[str, ...], nodes: Nodes, tmp_path: Path, *, has_file: bool) -> None:
    """With the platform's hosts both nodes run one command: node 0 starts all ranks, and node 1 ends as node 0."""
    hosts = tmp_path / "hostfile"
    hosts.write_text("".join(f"{address} slots=2\n" for address in nodes.addresses))
    env = {
        **AS_ROOT,
        "OMPI_MCA_plm_rsh_agent": _agent(nodes, tmp_path),
        "OMPI_MCA_oob_tcp_if_include": "10.77.0.0/24",
    }
    if has_file:
        env["OMPI_MCA_orte_default_hostfile"] = str(hosts)
    else:
        env.update({"VC_WORKER_HOSTS": ",".join(nodes.addresses), "SLOTS": "2"})
    script = 'echo "$OMPI_COMM_WORLD_RANK of $OMPI_COMM_WORLD_SIZE on $(hostname)"; exit 5'
    words = (*RUNNER, "--log-dir", str(tmp_path / "log"), "--job-name", "job", *command, "sh", "-c", script)
    waiting = Started((*nodes.on(1), *words), {**env, "VK_TASK_INDEX": "1"}, tmp_path)
    log = tmp_path / "log" / "job-proc-mpirun-node-1.txt"
    wait_until(lambda: log.exists() and log.stat().st_size, limit=LIMIT)
    first = run(*nodes.on(0), *words, env={**env, "VK_TASK_INDEX": "0"}, cwd=tmp_path)
    second = waiting.finish()

    assert (5, 5) == (first.status, second.status), first.screen + second.screen
    shown = {line.partition("] ")[2] for line in first.screen.splitlines() if line.startswith("[mpirun")}
    assert shown & {f"{rank} of 4 on node-{rank // 2}" for rank in range(4)}
