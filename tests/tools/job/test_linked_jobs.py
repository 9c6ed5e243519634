"""`ascend-job` on one node of a real job of two that are linked: its requests are for both, and it shows both."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from ascend_runner.services.run_folder import CONTROL, RUN_DIR_VARIABLE
from ascend_runner.tools.job import jobs
from tests.helpers.program import Program, Run
from tests.helpers.surroundings import CLEAN, bound_to_free_port
from tests.helpers.terminal import Terminal
from tests.helpers.waiting import LIMIT, wait_until
from tests.tools.job.conftest import Start, Tool, document, state_of

TRAPS = 'trap "echo noted" USR1; echo ready; while :; do sleep 0.1; done'
StartNodes = Callable[..., list[Run]]


@pytest.fixture(name="start_nodes")
def fixture_start_nodes(start: Start, tool: Tool) -> StartNodes:
    """Return a function that starts two linked nodes with a rank each, and waits until both know that they are."""

    def start_nodes(*options: str) -> list[Run]:
        with bound_to_free_port() as bound:
            port = str(bound.getsockname()[1])
        place = ("--nnodes", "2", "--master-addr", "127.0.0.1", "--link-port", port, "--link", "require", *options)
        runs = [start(TRAPS, *place, "--node-rank", str(node), ranks=1) for node in (0, 1)]
        for run in runs:
            run.wait_for("ready")
        wait_until(lambda: all(state_of(tool, f"job-node-{node}") == "running" for node in (0, 1)))
        return runs

    return start_nodes


@pytest.mark.deep
def test_requests_are_for_all_nodes(start_nodes: StartNodes, tool: Tool) -> None:
    """A checkpoint, a limit and a stop that any node is asked for reach both, also if a restart would follow."""
    runs = start_nodes("--max-restarts", "1")
    checkpoint = tool("checkpoint", "job-node-1")
    for run in runs:
        run.wait_for("noted")
    limit = tool("limit", "job-node-1", "2h")
    limits = [document(tool, f"job-node-{node}")["limit_at"] is not None for node in (0, 1)]
    stop = tool("stop", "job")

    assert [143, 143] == [run.finish() for run in runs]
    assert (0, "job-node-1: both nodes: all ranks were asked for a checkpoint\n") == checkpoint
    assert (0, [True, True]) == (limit[0], limits)
    assert limit[1].endswith("; both nodes: changed\n")
    assert (0, "job-node-0: both nodes: stopping the ranks\n") == stop


@pytest.mark.deep
def test_signal_for_a_checkpoint_is_for_all_nodes(start_nodes: StartNodes) -> None:
    """SIGUSR1 to one runner asks the ranks of both; to both, as by a scheduler, it asks each rank once."""
    runs = start_nodes()
    runs[1].send(signal.SIGUSR1)
    for run in runs:
        run.wait_for("noted")
    for run in runs:
        run.send(signal.SIGTERM)

    assert [143, 143] == [run.finish() for run in runs]
    assert "checkpoint: both nodes: all ranks were asked for a checkpoint" in runs[1].screen


@pytest.mark.deep
def test_status_shows_the_nodes(start_nodes: StartNodes, tool: Tool) -> None:
    """Node 0, which needs no name, shows all nodes, another one itself and whether it reaches node 0.

    A frozen runner delays nothing.
    """
    runs = start_nodes()
    wait_until(lambda: ["running"] * 2 == [row["state"] for row in document(tool, "job-node-0")["nodes"]])
    here, there = (document(tool, f"job-node-{node}")["nodes"] for node in (0, 1))
    screen = tool()[1]
    os.kill(runs[1].runner_pid, signal.SIGSTOP)
    checkpoint = tool("checkpoint", "job-node-0")
    os.kill(runs[1].runner_pid, signal.SIGCONT)
    tool("stop", "job-node-0")

    assert [143, 143] == [run.finish() for run in runs]
    assert [0, 1] == [row["node"] for row in here]
    assert all(row["round_trip"] is not None for row in here)
    assert [(0, False), (1, False)] == [(row["node"], row["is_unreachable"]) for row in there]
    assert screen.startswith("job-node-0: running")
    assert "  node  place" in screen
    assert (0, "job-node-0: node 0: all ranks were asked for a checkpoint; node 1: no answer\n") == checkpoint


@pytest.mark.deep
@pytest.mark.parametrize("node", [0, 1])
def test_frozen_runner_of_a_node(program: Program, run_dir: Path, tool: Tool, node: int) -> None:
    """`status` and `top` say at once that the runner does not answer, on its own node and on node 0."""
    env = {RUN_DIR_VARIABLE: str(run_dir), "MA_VJ_NAME": "job"}
    run = program.start("--simulate", "2x2", "sh", "-c", "echo up; exec sleep 1000", env=env)
    run.wait_for("] up", times=4)
    frozen = jobs.find(f"job-node-{node}", os.environ).runner_pid
    os.kill(frozen, signal.SIGSTOP)
    status, screen = tool("status", f"job-node-{node}")
    command = [sys.executable, "-m", "ascend_runner.tools.job", "top"]
    tops = [Terminal([*command, f"job-node-{number}"], program.folder, env, 140) for number in (node, 0)]
    try:
        tops[0].wait_for("the runner did not respond")
        tops[1].wait_for("not responding" if node else "the runner did not respond")
        ends = [top.finish("q") for top in tops]
    finally:
        for top in tops:
            top.close()
        os.kill(frozen, signal.SIGCONT)
    run.send(signal.SIGTERM)

    assert 143 == run.finish()
    assert (0, [0, 0]) == (status, ends)
    assert "the runner did not respond" in " ".join(screen.split())


@pytest.mark.deep
def test_reports_agree(start_nodes: StartNodes, tool: Tool, program: Program) -> None:
    """The reports of both nodes carry one verdict, which `ascend-job report` shows, and of which `logs` takes lines."""
    runs = start_nodes()
    os.kill(document(tool, "job-node-1")["ranks"][0]["pid"], signal.SIGKILL)
    statuses = [run.finish() for run in runs]
    next(program.log_dir.glob("job-proc-rank-1-*")).unlink()
    lines = tool("report", str(program.log_dir))[1].splitlines()

    assert [137, 137] == statuses
    assert lines[1].startswith("  cause   rank 1 on node 1 ")
    assert "the verdict of nodes 0, 1" in lines[2]
    assert tool("logs", "job-node-0", "-r", "1")[1].startswith("ready\nascend-job: rank 1 is on node 1 (")


def test_without_a_link(start: Start, tool: Tool) -> None:
    """Then a request is for one node, and the answer says so."""
    run = start(TRAPS, "--nnodes", "2", "--node-rank", "1", "--master-addr", "127.0.0.1", "--link", "off", ranks=1)
    run.wait_for("ready")
    checkpoint, stop = tool("checkpoint"), tool("stop")

    assert 143 == run.finish()
    assert "asked rank 1 for a checkpoint; on this node only" in checkpoint[1]
    assert "; on this node only" in stop[1]


def test_job_that_ends_while_it_is_asked_to_stop(start: Start, run_dir: Path) -> None:
    """Its ranks may stop before the answer is known: then it has ended, as was asked for."""
    run = start(TRAPS, "--nnodes", "2", "--node-rank", "1", "--master-addr", "127.0.0.1", "--link", "off", ranks=1)
    run.wait_for("ready")
    runner = run.runner_pid
    os.kill(runner, signal.SIGSTOP)
    (control,) = run_dir.glob(f"*/{CONTROL}")
    command = [sys.executable, "-m", "ascend_runner.tools.job", "stop"]
    with subprocess.Popen(command, env={**CLEAN, RUN_DIR_VARIABLE: str(run_dir)}, stdout=subprocess.PIPE) as popen:
        wait_until(lambda: 2 == Path("/proc/net/unix").read_text().count(str(control)))  # the listener, a connection
        os.kill(runner, signal.SIGKILL)
        shown = popen.communicate(timeout=LIMIT)[0]

    assert 137 == run.finish()
    assert (0, b"job-node-1: the job has ended\n") == (popen.returncode, shown)
