"""Two runners of one job on this machine, linked over loopback: they fail, stop and restart as one."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable

import pytest

from ascend_runner.guardian import process_tree
from ascend_runner.views import page
from tests.helpers.program import WORKERS, Program, Run
from tests.helpers.surroundings import bound_to_free_port, permitted

SECRET = {"ASCEND_RUNNER_LINK_SECRET": "a secret of the test"}
# Ranks of node 0 that have not been started before the failure are not started at all.
FAIL_ON_RANK_3 = """touch up-$RANK
    until [ -e up-0 -a -e up-1 ]; do sleep 0.01; done
    [ $RANK -eq 3 ] && echo bad input && exit 7
    sleep 600"""
START = Callable[..., list[Run]]


@pytest.fixture
def start(program: Program) -> START:
    """Return a function that starts a shell command on nodes of two ranks; `variable` has the number of each."""
    with bound_to_free_port() as bound:
        port = str(bound.getsockname()[1])

    def start(
        command: str,
        *options: str,
        nodes: tuple[int, ...] = (0, 1),
        of: int = 2,
        variable: str = "X",
        under: tuple[str, ...] = (),
    ) -> list[Run]:
        place = ("--nproc-per-node", "2", "--nnodes", f"{of}", "--master-addr", "127.0.0.1")
        at_port = () if under else ("--link-port", port)  # in namespaces of their own, all eight ports are theirs
        linked = (*place, *at_port, "--link", "require", *options)
        ranks = ("sh", "-c", command) if " " in command else (command,)
        return [
            program.start(*linked, "--node-rank", str(node), *ranks, env={**SECRET, variable: str(node)}, under=under)
            for node in nodes
        ]

    return start


def test_failure_stops_all_nodes_with_one_cause(program: Program, start: START) -> None:
    """A rank that fails on one node stops the ranks of both; both runners name it, and exit with its status."""
    runs = start(FAIL_ON_RANK_3)

    assert [7, 7] == [run.finish() for run in runs]
    assert "ERROR rank 3 on node 1 failed: exit status 7" in runs[0].screen
    assert "  | bad input\n" in runs[0].lines
    assert "ERROR rank 3 failed: exit status 7" in runs[1].screen
    assert all("  others stopped on both nodes: ranks 0-2\n" in run.lines for run in runs)
    reports = [json.loads((program.log_dir / f"job-report-node-{node}.json").read_bytes()) for node in (0, 1)]
    assert [(1, 3, 7)] * 2 == [
        tuple(report["verdict"][name] for name in ("node", "rank_id", "status")) for report in reports
    ]
    assert [("stopped", 0), ("failed", 0)] == [(row["state"], row["alive"]) for row in reports[0]["nodes"]]
    assert [2, 2] == [row["ranks"] for row in reports[0]["nodes"]]
    events = [[event["event"] for event in program.events(f"-node-{node}")] for node in (0, 1)]
    assert [1, 1] == [names.count("verdict") for names in events]
    for node, report in enumerate(reports):
        text = page.make(report, str(program.log_dir / f"job-report-node-{node}.json")).decode()
        assert "Verdict of all nodes: rank 3 on node 1 failed: exit status 7" in text
        assert (node == 0) is ('aria-label="Table of nodes"' in text)


@pytest.mark.deep
def test_runner_of_node_0_is_killed(program: Program, start: START) -> None:
    """Its link process outlives it, and makes the verdict once the ranks of the other node have ended."""
    runs = start("trap 'sleep 1.5; exit 1' TERM; echo ready; sleep 600 & wait")
    for run in runs:
        run.wait_for("ready", times=2)
    os.kill(runs[0].runner_pid, signal.SIGKILL)

    assert [137, 137] == [run.finish() for run in runs]
    verdict = json.loads((program.log_dir / "job-report-node-1.json").read_bytes())["verdict"]
    assert (0, "likely", False) == (verdict["node"], verdict["certainty"], verdict["is_alone"])


def test_process_that_starts_the_ranks_of_its_node(start: START) -> None:
    """The nodes are linked by such processes as by ranks, and one per node is not alone: it may not be the cause."""
    runs = start(
        "touch up-$X; until [ -e up-0 ]; do sleep 0.01; done; [ $X -eq 1 ] && exit 7; sleep 600",
        *("--launcher", "init-method"),
    )

    assert [7, 7] == [run.finish() for run in runs]
    assert "ERROR init-method-node-1 failed: exit status 7 (likely the cause)" in runs[1].screen
    assert "INFO node 1 failed (exit status 7); stopping" in runs[0].screen
    assert "ERROR node 1: init-method-node-1 failed: exit status 7 (likely the cause)" in runs[0].screen
    assert not any("Traceback" in run.screen for run in runs)


def test_stop_signal_to_one_node_stops_both(program: Program, start: START) -> None:
    """A job that is not to be restarted is stopped everywhere by a signal to one runner, as both reports say."""
    runs = start("echo up; sleep 600")
    for run in runs:
        run.wait_for("up", times=2)
    runs[1].send(signal.SIGTERM)

    assert [143, 143] == [run.finish() for run in runs]
    assert "node 1 received SIGTERM" in runs[0].screen
    check_stopped_by_node_1(program, runs)


@pytest.mark.deep
@pytest.mark.parametrize("options", [(), ("--max-restarts", "1")])
@pytest.mark.parametrize("node", [0, 1])
def test_command_that_one_node_lacks_stops_all(
    program: Program, start: START, node: int, options: tuple[str, ...]
) -> None:
    """A node that cannot start its ranks tells the others so: they stop theirs, and nothing is restarted."""
    (well,) = start("echo up; sleep 600", *options, "--link", "auto", nodes=(1 - node,))
    well.wait_for("up", times=2)
    (ill,) = start("trian", *options, "--link", "auto", nodes=(node,))

    assert [127, 127] == [run.finish() for run in (ill, well)]
    assert "ERROR command not found: 'trian'" in ill.screen
    assert f"INFO node {node} failed (command not found: 'trian'); stopping" in well.screen
    assert f"ERROR node {node}: command not found: 'trian'" in well.screen
    verdict = program.report(f"-node-{1 - node}")["verdict"]
    assert (node, 127) == (verdict["node"], verdict["status"])


@pytest.mark.deep
@pytest.mark.parametrize("options", [("--rank-table", "table.json"), ("--log-dir", "/proc/nowhere")])
def test_settings_that_one_node_cannot_use_stop_all(program: Program, start: START, options: tuple[str, ...]) -> None:
    """A rank table that is none, or a directory that cannot be made, is told as well."""
    (program.folder / "table.json").write_text('{"status": "completed"}')
    (well,) = start("echo up; sleep 600", "--link", "auto", nodes=(0,))
    well.wait_for("up", times=2)
    (ill,) = start("echo up", "--link", "auto", *options, nodes=(1,))

    assert [125, 125] == [run.finish() for run in (ill, well)]
    assert f"INFO node 1 failed ({ill.lines[-1].partition(' ERROR ')[2].strip()}); stopping" in well.screen


@pytest.mark.deep
def test_stop_signal_between_two_attempts(program: Program, start: START) -> None:
    """The same while the nodes wait for a restart."""
    runs = start(FAIL_ON_RANK_3, "--max-restarts", "1", "--restart-delay", "600")
    for run in runs:
        run.wait_for("restarting in 10 min")
    runs[1].send(signal.SIGTERM)

    assert [143, 143] == [run.finish() for run in runs]
    check_stopped_by_node_1(program, runs)


def check_stopped_by_node_1(program: Program, runs: list[Run]) -> None:
    """Check that the screens and reports of both nodes name the one that has received SIGTERM."""
    assert all("ERROR stopped by SIGTERM on node 1" in run.screen for run in runs)
    reports = [program.report(f"-node-{node}") for node in (0, 1)]
    assert ["stopped"] * 2 == [report["state"] for report in reports]
    assert ["stopped by SIGTERM on node 1"] * 2 == [report["cause"]["sentence"].partition(";")[0] for report in reports]
    assert [(1, 143)] * 2 == [(report["verdict"]["node"], report["status"]) for report in reports]


def test_nodes_restart_together(program: Program, start: START) -> None:
    """After a failure on one node, all nodes start the next attempt, and both succeed."""
    command = f"[ $ASCEND_RUNNER_ATTEMPT -eq 1 ] && echo again && exit; {FAIL_ON_RANK_3}"
    runs = start(command, "--max-restarts", "1")

    assert [0, 0] == [run.finish() for run in runs]
    assert [2, 2] == [run.screen.count("again") for run in runs]
    assert "restarting" in program.states("-node-0")


@pytest.mark.deep
@pytest.mark.parametrize(("link", "node", "status"), [("auto", 1, 137), ("require", 1, 137), ("auto", 0, 137)])
def test_node_that_is_replaced_joins_the_restart(start: START, link: str, node: int, status: int) -> None:
    """A runner that takes the place of one that was ended starts the next attempt with the others, not the first."""
    command = "echo attempt $ASCEND_RUNNER_ATTEMPT; [ $ASCEND_RUNNER_ATTEMPT -eq 1 ] || sleep 600"
    runs = start(command, "--max-restarts", "1", "--link", link)
    for run in runs:
        run.wait_for("attempt 0", times=2)
    ended, other = runs[node], runs[1 - node]
    os.kill(ended.runner_pid, status - 128)
    other.wait_for("restarting (restart 1 of at most 1)")
    assert status == ended.finish()
    (replacing,) = start(command, "--max-restarts", "1", "--link", link, nodes=(node,))

    assert [0, 0] == [run.finish() for run in (other, replacing)]
    assert [2, 2] == [run.screen.count("attempt 1\n") for run in (other, replacing)]
    assert "attempt 0" not in replacing.screen


@pytest.mark.deep
def test_stop_signal_before_a_restart_ends_all_nodes(start: START) -> None:
    """If one of the nodes that wait for another one is stopped, no rank is started again on any of them."""
    runs = start("echo up; sleep 600", "--max-restarts", "1", "--grace", "1", nodes=(0, 1, 2), of=3)
    for run in runs:
        run.wait_for("up", times=2)
    os.kill(runs[1].runner_pid, signal.SIGKILL)
    for run in (runs[0], runs[2]):
        run.wait_for("waiting for node 1 to be ready for the restart")
    runs[0].send(signal.SIGTERM)

    assert [143, 143] == [run.finish() for run in (runs[0], runs[2])]
    assert [2, 2] == [run.screen.count("up\n") for run in (runs[0], runs[2])]
    assert "restarting ranks" not in runs[2].screen


@pytest.mark.deep
def test_node_that_loses_power_is_replaced(start: START) -> None:
    """Its new runner waits for the lease of the first one, which nobody has seen die, and joins the others."""
    command = "[ $ASCEND_RUNNER_ATTEMPT -eq 1 ] && echo again && exit; echo up; sleep 600"
    options = ("--max-restarts", "1", "--grace", "1", "--link-timeout", "5", "--node-timeout", "3")
    runs = start(command, *options)
    for run in runs:
        run.wait_for("up", times=2)
    pids = [runs[1].popen.pid, *(found.pid for found in process_tree.descendants(runs[1].popen.pid))]
    for signum in (signal.SIGSTOP, signal.SIGKILL):
        for pid in pids:
            os.kill(pid, signum)
    (another,) = start(command, *options, nodes=(1,))

    assert [0, 0] == [run.finish() for run in (runs[0], another)]
    assert "waiting until the first one is gone" in another.screen
    assert (0, 2) == (another.screen.count("up\n"), another.screen.count("again\n"))


@pytest.mark.deep
@pytest.mark.parametrize("link", ["require", "auto"])
def test_second_runner_of_node_0(start: START, program: Program, link: str) -> None:
    """It is refused, with both hosts, although its machine may have another port for it; the first one goes on."""
    (first,) = start("echo up; sleep 600", "--link", link, nodes=(0,))
    first.wait_for("waiting for the other nodes" if link == "require" else "up")
    (second,) = start("echo up; sleep 600", "--link", link, "--log-dir", f"{program.folder}/second", nodes=(0,))
    status = second.finish()
    first.send(signal.SIGTERM)

    assert (125, 143) == (status, first.finish())
    assert "node 0 is already running on " in second.screen
    assert ("up" in second.screen) == (link == "auto")


def test_missing_node_is_named(start: START) -> None:
    """With --link require, no rank starts while a node is missing."""
    (run,) = start("echo up", "--link-timeout", "1", nodes=(0,))

    assert 125 == run.finish()
    assert "node 1 has not joined within 1 s (--link require)" in run.screen
    assert "up" not in run.screen


@pytest.mark.deep
def test_settings_that_differ_are_warned_of(start: START) -> None:
    """A variable of CANN that differs between the nodes is a warning of node 0 while the ranks run."""
    runs = start("sleep 600", variable="ASCEND_GLOBAL_LOG_LEVEL")
    runs[0].wait_for("WARNING node 0 has ASCEND_GLOBAL_LOG_LEVEL 0, node 1 1")
    runs[1].send(signal.SIGTERM)

    assert [143, 143] == [run.finish() for run in runs]
    assert 1 == runs[0].screen.count("WARNING")


def table(address: str) -> str:
    """Return a rank table of two nodes with one device each; the address of the last device is given."""
    addresses = enumerate(("10.1.0.1", address))
    devices = [{"device_id": "0", "device_ip": ip, "rank_id": str(rank)} for rank, ip in addresses]
    servers = [{"server_id": f"10.0.0.{rank + 1}", "device": [device]} for rank, device in enumerate(devices)]
    return json.dumps({"status": "completed", "version": "1.0", "server_count": "2", "server_list": servers})


@pytest.fixture
def start_with_tables(program: Program) -> Callable[..., list[Run]]:
    """Return a function that starts a shell command on two nodes with a rank table each."""
    with bound_to_free_port() as bound:
        port = str(bound.getsockname()[1])

    def start(command: str, *options: str, addresses: tuple[str, str]) -> list[Run]:
        runs = []
        for node, address in enumerate(addresses):
            path = program.folder / f"table-{node}.json"
            path.write_text(table(address))
            place = ("--node-rank", str(node), "--nnodes", "2", "--master-addr", "127.0.0.1", "--rank-table", str(path))
            linked = (*place, "--no-table-checks", "--link-port", port, "--link", "require", *options)
            runs.append(program.start(*linked, "sh", "-c", command, env=SECRET))
        return runs

    return start


@pytest.mark.deep
def test_differing_rank_table_is_read_again(program: Program, start_with_tables: Callable[..., list[Run]]) -> None:
    """No rank starts while the tables of the nodes differ; the one that changes is the one that the ranks read."""
    runs = start_with_tables("grep -o '10[.]1[.]0[.].' $RANK_TABLE_FILE", addresses=("10.1.0.3", "10.1.0.2"))
    runs[1].wait_for("the rank tables of the nodes differ")
    (program.folder / "table-1.json").write_text(table("10.1.0.3")[:-9])
    (program.folder / "table-1.json").write_text(table("10.1.0.3"))

    assert [0, 0] == [run.finish() for run in runs]
    assert [b"10.1.0.1\n10.1.0.3\n"] * 2 == [program.log(rank, 0) for rank in (0, 1)]


@pytest.mark.deep
def test_rank_table_is_not_needed_for_a_restart(start_with_tables: Callable[..., list[Run]]) -> None:
    """If all runners live on, they start the next attempt with the table of the first, even if its file is gone."""
    fail = "rm table-$RANK_ID.json; until [ ! -e table-0.json -a ! -e table-1.json ]; do sleep 0.01; done; exit 7"
    command = f"[ $ASCEND_RUNNER_ATTEMPT -eq 1 ] && grep -c 10.1.0.3 $RANK_TABLE_FILE && exit; {fail}"
    runs = start_with_tables(command, "--max-restarts", "1", addresses=("10.1.0.3", "10.1.0.3"))

    assert [0, 0] == [run.finish() for run in runs]
    assert [1, 1] == [run.screen.count("] 1\n") for run in runs]


WITH_A_NAME_SERVER = """ip link set lo up
    echo nameserver 127.0.0.1 > resolv.conf; mount --bind resolv.conf $(realpath /etc/resolv.conf)
    echo hosts: files dns > nsswitch.conf; mount --bind nsswitch.conf /etc/nsswitch.conf
    exec "$@"
"""


@pytest.fixture
def behind(program: Program) -> Callable[[float], tuple[str, ...]]:
    """Return a function that starts a slow name server in namespaces of its own, and returns what enters them."""
    own = permitted("unshare", "--net", "--mount")
    permitted("ip", "-V")

    def begin(seconds: float) -> tuple[str, ...]:
        server = (sys.executable, "-S", str(WORKERS / "name_server.py"), str(seconds))
        run = program.run([*own, "sh", "-c", WITH_A_NAME_SERVER, "sh", *server], {})
        run.wait_for("up")
        return permitted("nsenter", f"--target={run.popen.pid}", "--net", "--mount", f"--wd={program.folder}")

    return begin


@pytest.mark.deep
@pytest.mark.parametrize("seconds", [1.0, 0.0])
def test_slow_name_server(behind: Callable[[float], tuple[str, ...]], start: START, seconds: float) -> None:
    """A name server that takes a second for each answer delays the link by little more; one without any, no end."""
    under = behind(seconds)
    options = ("--master-addr", "node-0.test", "--link-timeout", "6")
    runs = start("echo up", *options, under=under)

    assert ([0, 0] if seconds else [125, 125]) == [run.finish() for run in runs]
    assert not any("WARNING" in run.screen for run in runs)


@pytest.mark.deep
def test_unknown_versions_delay_nothing(program: Program, start: START) -> None:
    """A disk that hangs while versions are read delays neither the ranks nor the end of the runner."""
    (program.folder / "0").mkdir()
    os.mkfifo(program.folder / "0" / "ascend_toolkit_install.info")
    runs = start("echo up", variable="ASCEND_HOME_PATH")

    assert [0, 0] == [run.finish() for run in runs]
    assert [2, 2] == [run.screen.count("up\n") for run in runs]


def test_ranks_do_not_see_the_secret(start: START) -> None:
    """The secret is the runners' own."""
    runs = start("env; exit 0")

    assert [0, 0] == [run.finish() for run in runs]
    assert not any("a secret of the test" in run.screen for run in runs)
