"""`--launcher ray` on two nodes of this machine, with a fake of `ray start`; the real one is in tests/clients."""

from __future__ import annotations

import hashlib
import json
import os
import re
import signal
import socket
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.helpers import fake_ray
from tests.helpers.program import Program, Run
from tests.helpers.surroundings import bound_to_free_port
from tests.helpers.waiting import LIMIT, is_gone, wait_until

SECRET = {"ASCEND_RUNNER_LINK_SECRET": "a secret of the test"}
WAITS = "import time; print('up', flush=True); time.sleep(600)"
ALONE = ("--link", "off")
START = Callable[..., list[Run]]


@pytest.fixture
def ports() -> tuple[str, str]:
    """Return a free port for the nodes to meet at, and one for their link."""
    with bound_to_free_port() as first, bound_to_free_port() as second:
        return str(first.getsockname()[1]), str(second.getsockname()[1])


@pytest.fixture
def temporary() -> Iterator[str]:
    """Yield a directory with a path that is short enough for Ray's sockets."""
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        yield folder


@pytest.fixture
def start(program: Program, ports: tuple[str, str], temporary: str, tmp_path: Path) -> START:
    """Return a function that starts a line of Python on a cluster of two nodes, each with four NPUs."""

    def start(
        line: str,
        *options: str,
        nodes: tuple[int, ...] = (0, 1),
        env: dict[str, str] | None = None,
        command: tuple[str, ...] = (sys.executable, "-c"),
    ) -> list[Run]:
        place = ("--nproc-per-node", "4", "--nnodes", "2", "--master-addr", "127.0.0.1", "--master-port", ports[0])
        words = (*place, "--link-port", ports[1], "--launcher", "ray", *options)
        if not (tmp_path / "fake").exists():
            fake_ray.install(tmp_path / "fake")
        variables = {"PYTHONPATH": str(tmp_path / "fake"), "TMPDIR": temporary, **SECRET, **(env or {})}
        return [program.start(*words, "--node-rank", str(node), *command, line, env=variables) for node in nodes]

    return start


def fake(program: Program, node: int) -> dict[str, Any]:
    """Return what the fake of Ray on a node has been given, and the pids of its processes."""
    found = [*program.log_dir.glob(f"job/ray/node-{node}/session_*/fake.json")]

    assert 1 == len(found)
    content: dict[str, Any] = json.loads(found[0].read_bytes())
    return content


def test_command_runs_once_on_a_complete_cluster(program: Program, start: START, temporary: str) -> None:
    """Node 0 runs the command with the cluster's address; all nodes end with it, and only logs are left."""
    runs = start("import os; print('command', os.environ['RAY_ADDRESS'])", env={"RAY_ADDRESS": "a.cluster.of.others:1"})

    assert [0, 0] == [run.finish() for run in runs]
    assert "command 127" not in runs[1].screen
    head, worker = (fake(program, node)["arguments"] for node in (0, 1))
    assert [{"NPU": 4}] * 2 == [json.loads(one["resources"]) for one in (head, worker)]
    assert 1 == runs[0].screen.count(f"command {worker['address']}\n")
    assert ["job-node-0", "job-node-1"] == [one["node-name"] for one in (head, worker)]
    assert [None, None] == [fake(program, node)["address"] for node in (0, 1)]
    assert [] == os.listdir(temporary)


@pytest.mark.deep
def test_actors_see_all_npus_unless_the_user_says_otherwise(start: START) -> None:
    """RAY_EXPERIMENTAL_NOSET_ASCEND_RT_VISIBLE_DEVICES is set, but a value of the user's stays."""
    name = "RAY_EXPERIMENTAL_NOSET_ASCEND_RT_VISIBLE_DEVICES"
    line = f"import os; print('value', repr(os.environ['{name}']))"
    shown = []
    for env in ({}, {name: ""}):
        runs = start(line, env=env)
        assert [0, 0] == [run.finish() for run in runs]
        shown += [text for text in runs[0].lines if "value" in text]

    assert ["value '1'\n", "value ''\n"] == [text.partition("] ")[2] for text in shown]


@pytest.mark.deep
def test_strangers_cannot_write_logs(program: Program, start: START) -> None:
    """Ray makes its logs writable by everyone, so their directory is private until the end, and as usual then."""
    runs = start("import os; print('mode', oct(os.stat('log/job/ray/node-0').st_mode & 0o777))")

    assert [0, 0] == [run.finish() for run in runs]
    assert 1 == runs[0].screen.count("mode 0o700\n")
    folders = [path for path in program.log_dir.glob("job/ray/node-*/**/") if path.is_dir()]
    assert {program.log_dir.joinpath("job").stat().st_mode} == {path.stat().st_mode for path in folders}
    assert 2 == sum(path.name == "nsight" for path in folders)


def test_failure_of_the_command_ends_all_nodes(start: START) -> None:
    """Every node tells of the exception of the command, and exits with its status."""
    runs = start("raise ValueError('loss is nan')")

    assert [1, 1] == [run.finish() for run in runs]
    assert all("ray-node-0 failed: ValueError: loss is nan (exit status 1)" in run.screen for run in runs)


@pytest.mark.deep(quick=1)
@pytest.mark.parametrize(("node", "name"), [(0, "gcs_server"), (0, "raylet"), (1, "raylet")])
def test_death_of_a_vital_process_ends_all_nodes(program: Program, start: START, node: int, name: str) -> None:
    """The cause is the process that was killed, by its name and pid, and the command does not outlive its cluster."""
    runs = start(WAITS)
    runs[0].wait_for("up")
    pid = fake(program, node)["pids"][name]
    os.kill(pid, signal.SIGKILL)

    assert [1, 1] == [run.finish() for run in runs]
    cause = f"ray-node-{node} failed: ClusterError: Ray died on node {node}: {name} (pid {pid}) was killed by SIGKILL"
    assert all(cause in run.screen for run in runs)
    assert not any("grace period" in run.screen for run in runs)


@pytest.mark.deep
def test_command_that_notices_the_death_of_ray_first(start: START) -> None:
    """Ray is the cause, not the exception, also if both have ended before this node's process looks."""
    runs = start(
        "import glob, json, os, signal\n"
        "(found,) = glob.glob('log/job/ray/node-0/*/fake.json')\n"
        "raylet, node, command = json.load(open(found))['pids']['raylet'], os.getppid(), os.getpid()\n"
        "os.kill(node, signal.SIGSTOP)\n"
        "os.kill(raylet, signal.SIGKILL)\n"
        "while os.path.exists(f'/proc/{raylet}'): signal.sigtimedwait([], 0.01)\n"
        "if not os.fork():\n"
        "    while os.getppid() == command: signal.sigtimedwait([], 0.01)\n"
        "    os._exit(os.kill(node, signal.SIGCONT) or 0)\n"
        "raise OSError('broken pipe')"
    )

    assert [1, 1] == [run.finish() for run in runs]
    assert all("ray-node-0 failed: ClusterError: Ray died on node 0: raylet" in run.screen for run in runs)


@pytest.mark.deep
def test_restart(start: START) -> None:
    """All nodes start again together, with a new cluster."""
    line = "import os, sys; n = os.environ['ASCEND_RUNNER_ATTEMPT']; print('attempt', n); sys.exit(n == '0')"
    runs = start(line, "--max-restarts", "1", "--restart-on", "1", "--restart-delay", "0")

    assert [0, 0] == [run.finish() for run in runs]
    assert ["attempt 0", "attempt 1"] == [text.split("] ")[1].strip() for text in runs[0].lines if "] attempt" in text]


@pytest.mark.deep
def test_death_of_the_command_by_a_signal(start: START) -> None:
    """A command that is killed ends the job as a rank that is killed does."""
    runs = start("import os; os.kill(os.getpid(), 9)")

    assert [137, 137] == [run.finish() for run in runs]
    assert "ray-node-0 failed: killed by SIGKILL" in runs[0].screen


@pytest.mark.deep
@pytest.mark.parametrize(("signum", "node"), [(signal.SIGTERM, 1), (signal.SIGINT, 0)])
def test_command_can_save_before_it_is_stopped(start: START, signum: signal.Signals, node: int) -> None:
    """SIGTERM to one runner, or Ctrl-C on node 0, reaches the command, whose cluster lives until it has ended."""
    runs = start(
        "import os, signal, sys, glob, json\n"
        "def save(*_):\n"
        "    print('saving', flush=True)\n"
        "    signal.sigtimedwait([], 0.3)\n"
        "    for path in glob.glob('log/job/ray/node-*/*/fake.json'):\n"
        "        [os.kill(pid, 0) for pid in json.load(open(path))['pids'].values()]\n"
        "    print('saved', flush=True)\n"
        "    sys.exit(1)\n"
        f"signal.signal({signum:d}, save)\n"
        "print('up', flush=True)\n"
        "while True: signal.pause()"
    )
    runs[0].wait_for("up")
    runs[node].send(signum)

    assert [128 + signum] * 2 == [run.finish() for run in runs]
    assert 1 == runs[0].screen.count("saved")
    assert all(f"stopped by {signum.name} on node {node}" in run.screen for run in runs)


@pytest.mark.deep
def test_directories_of_others_stay(start: START, temporary: str) -> None:
    """Directories of ended clusters are removed, but none that only has a similar name."""
    for name in ("ascend-ray-demo", "ascend-ray-0123456789", "ascend-ray-01234567"):
        os.makedirs(os.path.join(temporary, name, "t"))

    assert [0, 0] == [run.finish() for run in start("pass")]
    assert {"ascend-ray-demo", "ascend-ray-0123456789"} == {*os.listdir(temporary)}


@pytest.mark.deep
@pytest.mark.parametrize("link", ["require", "off"])
def test_killed_runner_leaves_nothing(program: Program, start: START, temporary: str, link: str) -> None:
    """When the runner of a node is killed, everything ends everywhere; the next cluster removes its directory."""
    runs = start(WAITS, "--link", link)
    runs[0].wait_for("up")
    left = fake(program, 1)
    os.kill(runs[1].runner_pid, signal.SIGKILL)

    assert [137 if link == "require" else 1, 137] == [run.finish() for run in runs]
    cause = "the runner of node 1 died" if link == "require" else "ClusterError: node 1 has left the Ray cluster"
    assert cause in runs[0].screen
    assert all(map(is_gone, left["pids"].values()))
    assert 1 == len(os.listdir(temporary))
    assert [0, 0] == [run.finish() for run in start("pass")]
    assert [] == os.listdir(temporary)


@pytest.mark.deep
def test_failure_ends_nodes_without_a_link(start: START) -> None:
    """Without a link, the other nodes end as well, and name node 0."""
    runs = start("import sys; sys.exit(7)", "--link", "off")

    assert [7, 1] == [run.finish() for run in runs]
    assert "ERROR all failed ranks of this node lost a peer; look at the other nodes" in runs[1].screen
    assert "| ClusterError: the command on node 0 exited with status 7" in runs[1].screen


@pytest.mark.deep
def test_stopped_command_that_exits_with_0_is_no_success_elsewhere(start: START) -> None:
    """Without a link, too, where the other nodes learn only from node 0's process that the command has ended."""
    runs = start(
        "import signal, sys; signal.signal(signal.SIGTERM, lambda *_: sys.exit(0)); print('up', flush=True)\n"
        "while True: signal.pause()",
        *("--link", "off"),
    )
    runs[0].wait_for("up")
    runs[0].send(signal.SIGTERM)

    assert [143, 1] == [run.finish() for run in runs]
    assert "| ClusterError: the command on node 0 was killed by SIGTERM" in runs[1].screen


# --- Bad input --------------------------------------------------------------------------------------------------------


def test_missing_nodes_are_named(start: START) -> None:
    """Node 0 waits for --link-timeout, and then names who is missing and where they should come."""
    (run,) = start(WAITS, "--link-timeout", "1", *ALONE, nodes=(0,))

    assert 1 == run.finish()
    assert "node 1 has not joined the Ray cluster within 1 s: check that ascend-runner is running there" in run.screen


def test_unreachable_node_0(start: START, ports: tuple[str, str]) -> None:
    """A node that does not reach node 0 names its address, and starts nothing of Ray."""
    (run,) = start(WAITS, "--link-timeout", "1", *ALONE, nodes=(1,))

    assert 1 == run.finish()
    assert f"node 1 could not reach node 0 at 127.0.0.1:{ports[0]} within 1 s (Connection refused)" in run.screen


def test_unreachable_head(program: Program, start: START, ports: tuple[str, str]) -> None:
    """A node that reaches node 0, but not the port of Ray's head there, names that, and starts nothing of Ray."""
    with socket.create_server(("127.0.0.1", int(ports[0]))) as server, bound_to_free_port() as closed:
        (run,) = start(WAITS, *ALONE, nodes=(1,))
        address = f"127.0.0.1:{closed.getsockname()[1]}"
        with server.accept()[0] as connection:
            connection.sendall(json.dumps({"address": address, "session": "session"}).encode() + b"\n")

            assert 1 == run.finish()
    assert f"node 1 cannot reach Ray's head on node 0 at {address} (Connection refused)" in run.screen
    assert [] == [*program.log_dir.glob("job/ray/node-1/*")]


def test_taken_port(start: START, ports: tuple[str, str]) -> None:
    """A port that another program listens at is named, with the option that sets another one."""
    with socket.create_server(("", int(ports[0]))):
        (run,) = start(WAITS, *ALONE, nodes=(0,))

        assert 1 == run.finish()
    assert f"node 0 cannot listen on port {ports[0]} of 127.0.0.1" in run.screen
    assert "(Address already in use): stop the program that uses it, or choose another port with --master-port" in (
        run.screen
    )


def test_ray_is_missing(start: START, tmp_path: Path) -> None:
    """A node says so, with the Python that lacks it."""
    (tmp_path / "fake").mkdir()
    (run,) = start(WAITS, *ALONE, nodes=(0,))

    assert 1 == run.finish()
    assert f"node 0 cannot start Ray: {sys.executable} cannot import Ray (No module named 'ray')" in run.screen


@pytest.mark.deep
@pytest.mark.parametrize("node", [0, 1])
def test_ray_is_missing_on_one_node(start: START, temporary: str, tmp_path: Path, node: int) -> None:
    """No half a cluster stays: what has been started on the other node ends, too."""
    runs = [*start(WAITS, nodes=(1 - node,)), *start(WAITS, nodes=(node,), env={"PYTHONPATH": str(tmp_path / "none")})]

    assert [1, 1] == [run.finish() for run in runs]
    assert f"ray-node-{node} failed: ClusterError: node {node} cannot start Ray" in runs[1].screen
    assert [] == os.listdir(temporary)


@pytest.mark.deep
def test_ray_is_too_old(start: START, tmp_path: Path) -> None:
    """The version and the oldest one that works are named."""
    fake_ray.install(tmp_path / "fake", "2.8.1")
    runs = start(WAITS)

    assert [1, 1] == [run.finish() for run in runs]
    assert f"Ray 2.8.1 of {sys.executable} is too old: install at least version 2.9" in runs[0].screen


@pytest.mark.deep
def test_ray_does_not_start(start: START) -> None:
    """What `ray start` has said last is the reason."""
    runs = start(WAITS, env={"FAKE_RAY_FAILS": "1"})

    assert [1, 1] == [run.finish() for run in runs]
    assert "ray-node-0 failed: ClusterError: node 0 cannot start Ray: [ERROR] no room left" in runs[0].screen


@pytest.mark.deep
def test_command_is_missing(start: START) -> None:
    """It is named on every node, and nothing of the cluster stays."""
    runs = start("no-such-command", command=())

    assert [1, 1] == [run.finish() for run in runs]
    assert "ClusterError: cannot run 'no-such-command' on node 0: No such file or directory" in runs[0].screen


def test_directory_cannot_be_made(start: START) -> None:
    """The directory is named, and what prevents it."""
    (run,) = start(WAITS, *ALONE, nodes=(0,), env={"TMPDIR": "/dev/null"})

    assert 1 == run.finish()
    assert re.search(r"cannot create directory /dev/null/ascend-ray-\w+ on node 0: Not a directory", run.screen)


def test_strangers_are_refused(start: START, ports: tuple[str, str]) -> None:
    """A node of another job, or the second one of a number, is told why; garbage is not answered."""
    (run,) = start(WAITS, *ALONE, nodes=(0,))
    wait_until(lambda: _reached(ports[0]))
    cluster = hashlib.sha256(b"job\n" + SECRET["ASCEND_RUNNER_LINK_SECRET"].encode()).hexdigest()[:16]
    hello = {"job": "job", "cluster": cluster, "node": 1, "nodes": 2}
    with _connected(ports[0]) as first:
        first.sendall(json.dumps(hello).encode() + b"\n")

        assert json.loads(first.recv(4096))["address"].startswith("127.0.0.1:")
        for members, why in (
            ({"job": "other"}, "for job 'job' of 2 nodes, not for 'other' of 2"),
            ({"cluster": "other"}, "is for another job 'job': its platform job ID or link secret differs"),
            ({"nodes": 3}, "for job 'job' of 2 nodes, not for 'job' of 3"),
            ({"node": 2}, "a job of 2 nodes has no node 2"),
            ({}, "node 1 has already joined from 127.0.0.1: check --node-rank"),
        ):
            with _connected(ports[0]) as second:
                second.sendall(json.dumps({**hello, **members}).encode() + b"\n")

                assert why in json.loads(second.recv(4096))["refused"]
        with _connected(ports[0]) as third:
            third.sendall(b"GET / HTTP/1.0\r\n\r\n")

            assert b"" == third.recv(4096)
    run.send(signal.SIGTERM)

    assert 143 == run.finish()


@pytest.mark.deep
def test_node_of_another_job_is_refused(start: START) -> None:
    """Two jobs of one name, number of nodes and port do not share a cluster if their secrets differ."""
    options = ("--link-timeout", "5", *ALONE)
    (ours,), (theirs,) = (
        start("pass", *options, nodes=(node,), env={"ASCEND_RUNNER_LINK_SECRET": f"a secret of job {node}"})
        for node in (0, 1)
    )

    assert [1, 1] == [run.finish() for run in (ours, theirs)]
    assert "node 1 cannot join the Ray cluster: 127.0.0.1:" in theirs.screen
    assert "is for another job 'job': its platform job ID or link secret differs" in theirs.screen
    assert "node 1 has not joined the Ray cluster within 5 s" in ours.screen


def _connected(port: str) -> socket.socket:
    return socket.create_connection(("127.0.0.1", int(port)), timeout=LIMIT)


def _reached(port: str) -> bool:
    try:
        _connected(port).close()
    except OSError:
        return False
    return True
