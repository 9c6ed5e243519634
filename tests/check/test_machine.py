"""What is said of ports, names, room, limits and the time to end, from trees of files and from real ones."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from ascend_runner.check import machine
from ascend_runner.job.settings import Settings
from tests.check.scenes import advice, job_of, said, scene
from tests.conftest import LIMIT
from tests.linux.trees import tree

if TYPE_CHECKING:
    from pathlib import Path

HEAD = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"


def row(port: int, state: str, inode: int, address: str = "0100007F") -> str:
    """Give a socket as /proc/net/tcp shows it."""
    return f"   0: {address}:{port:04X} 00000000:0000 {state} 00000000:00000000 00:00000000 00000000  0  0 {inode} 1\n"


def sockets(folder: Path, tcp: str = "", tcp6: str = "", **holders: int) -> str:
    """Lay out /proc/net, and processes (p4711=...) that each hold the socket with an inode; the root."""
    root = tree(folder, {"proc/net/tcp": HEAD + tcp, "proc/net/tcp6": HEAD + tcp6})
    for name, inode in holders.items():
        fds = folder / "proc" / name[1:] / "fd"
        fds.mkdir(parents=True)
        os.symlink(f"socket:[{inode}]", fds / "3")
        tree(folder, {f"proc/{name[1:]}/comm": "python\n"})
    return root


# --- Ports ------------------------------------------------------------------------------------------------------------


def test_ports_are_free(tmp_path: Path) -> None:
    """Others' ports, sockets that only wait for last packets, and other numbers do not matter."""
    root = sockets(tmp_path, row(8080, "0A", 5) + row(60001, "06", 0) + row(29500, "05", 0))

    assert [("ok", "free: 60000-60031 (HCCL), 29500 (MASTER_PORT)")] == said(machine.ports, scene(root, nproc=8))


def test_master_port_is_taken(tmp_path: Path) -> None:
    """Who listens on it is named, once, whatever connections it has."""
    root = sockets(tmp_path, row(29500, "01", 6), row(29500, "0A", 7, "0" * 32), p4711=7)
    given = scene(root)

    assert [("error", "port 29500 (MASTER_PORT) is taken: process 4711 (python) listens there")] == said(
        machine.ports, given
    )
    assert ["end it if it is an earlier job's, or set another MASTER_PORT on all nodes"] == advice(machine.ports, given)


def test_master_port_of_who_started_this(tmp_path: Path) -> None:
    """A rank that torchrun has started by itself finds torchrun on that port."""
    given = scene(sockets(tmp_path, row(29500, "0A", 7)), {"HCCL_HOST_SOCKET_PORT_RANGE": "auto"}, nproc=1)

    assert given.job
    assert [] == said(machine.ports, given._replace(job=given.job._replace(is_passed_through=True)))


def test_master_port_of_another_node(tmp_path: Path) -> None:
    """Only node 0's is taken."""
    environ = {"PET_NNODES": "2", "PET_NODE_RANK": "1", "PET_MASTER_ADDR": "other"}

    assert [] == said(machine.ports, scene(sockets(tmp_path, row(29500, "0A", 7)), environ))


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({}, ["error"]),
        ({"HCCL_IF_BASE_PORT": "61000"}, ["ok"]),
        ({"HCCL_HOST_SOCKET_PORT_RANGE": "auto"}, ["ok"]),
    ],
)
def test_ports_of_hccl(tmp_path: Path, environ: dict[str, str], expected: list[str]) -> None:
    """HCCL's ports are those of its variables."""
    root = sockets(tmp_path, row(60031, "0A", 7))

    assert expected == [verdict for verdict, _ in said(machine.ports, scene(root, environ, nproc=1))]


def test_port_of_a_connection(tmp_path: Path) -> None:
    """A connection that the kernel gave one of HCCL's ports may be gone at the start."""
    root = sockets(tmp_path, row(60003, "01", 7))

    assert [("warning", "port 60003 (HCCL) is taken by a connection of a process")] == said(
        machine.ports, scene(root, nproc=1)
    )


def test_real_port() -> None:
    """A process that really listens is found."""
    listen = "import socket; s = socket.create_server(('127.0.0.1', 0)); print(s.getsockname()[1], flush=True); input()"
    command = [sys.executable, "-c", listen]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as listener:
        assert listener.stdout
        port = listener.stdout.readline().strip()
        ((verdict, found),) = said(machine.ports, scene("", {"MASTER_PORT": port}))
        listener.communicate("\n")

    assert "error" == verdict
    assert found.startswith(f"port {port} (MASTER_PORT) is taken: process {listener.pid} (")


# --- Names ------------------------------------------------------------------------------------------------------------


def nodes(*hosts: str) -> dict[str, str]:
    """Give the variables of an Octopus job on some hosts."""
    return {"VC_WORKER_HOSTS": ",".join(hosts), "MA_NUM_HOSTS": str(len(hosts)), "VC_TASK_INDEX": "0"}


def test_names_are_known() -> None:
    """All nodes are asked for, node 0 too."""
    assert [("ok", "2 known")] == said(machine.names, scene("", nodes("localhost", "127.0.0.1")))


def test_unknown_names_are_listed() -> None:
    """Names that cannot be resolved are told, and what may be the reason."""
    given = scene("", nodes("localhost", "bad..name", "worse..name"))  # no server is asked for names like these

    assert [("error", "bad..name, worse..name of 3 nodes are not known by name")] == said(machine.names, given)
    assert ["their pods may not run yet, or the job has no headless service (Volcano: the svc plugin)"] == advice(
        machine.names, given
    )


def test_many_unknown_names_are_counted() -> None:
    """A job of thousands of nodes does not fill the screen."""
    hosts = [f"node-{number}" for number in range(1000)]
    (line,) = machine.judge_names(hosts, dict.fromkeys(hosts, False), 10.0)

    assert line.found.endswith("node-6, node-7 and 992 more of 1000 nodes are not known by name")


def test_no_answer() -> None:
    """Who has got no answer in time is told apart from who is not known."""
    lines = machine.judge_names(["a", "b", "c"], {"a": True, "b": False}, 10.0)

    assert [
        "b of 3 nodes is not known by name",
        "no answer within 10 s to where c of 3 nodes are",
    ] == [line.found for line in lines]
    assert ["a of 1 node is not known by name"] == [
        line.found for line in machine.judge_names(["a"], {"a": False}, 10.0)
    ]


def test_one_node_has_no_others() -> None:
    """A job of one node needs no name."""
    assert [] == said(machine.names, scene())


# --- Room -------------------------------------------------------------------------------------------------------------


def test_room(tmp_path: Path) -> None:
    """A folder that is not there yet is measured where it would be made."""
    given = scene(nproc=1)._replace(job=job_of([0], folder=str(tmp_path / "not" / "yet")))
    verdicts = {found.split()[0]: verdict for verdict, found in said(machine.room, given)}

    assert "error" not in verdicts.values()
    assert not (tmp_path / "not").exists()


def test_no_room_on_a_full_disk(tmp_path: Path) -> None:
    """A folder that is full is an error, one that soon is a warning; both are told with what to do."""
    few = machine.Room(str(tmp_path), is_writable=True, free=900 << 20, size=2 << 30, files=10**6)
    none, locked = few._replace(free=1 << 20), few._replace(is_writable=False)
    no_files = few._replace(free=2 << 30, files=3)

    assert [
        ("warning", "log folder /x has 900 MiB left of 2.0 GiB"),
        ("error", "log folder /x has 1 MiB left of 2.0 GiB"),
        ("error", f"log folder /x: user {os.geteuid()} must not write to {tmp_path}"),
        ("warning", "log folder /x has room for 3 more files only (inodes)"),
        ("error", "log folder /x gave no answer within 10 s"),
    ] == [
        (line.verdict.value, line.found)
        for room in (few, none, locked, no_files, None)
        for line in [machine.judge_room("log folder", "/x", room, 10.0)]
        if line
    ]
    assert machine.judge_room("shared memory", "/x", few._replace(free=2 << 30), 10.0) is None


# --- Limits -----------------------------------------------------------------------------------------------------------

LIMITED = """
import resource, sys
from ascend_runner.check import machine
from ascend_runner.check.scene import Scene
from ascend_runner.job.settings import Settings
resource.setrlimit(resource.RLIMIT_NOFILE, (1024, 1024))
resource.setrlimit(resource.RLIMIT_MEMLOCK, (65536, 65536))
for line in machine.limits(Scene(Settings(), {}, root=sys.argv[1])):
    print(line.verdict.value, line.found)
"""


@pytest.mark.parametrize(("capabilities", "is_limited"), [("00000000a80425fb", True), ("00000000a80465fb", False)])
def test_limits_of_a_real_process(tmp_path: Path, capabilities: str, *, is_limited: bool) -> None:
    """What a process may have of each is compared with what training takes; CAP_IPC_LOCK makes up for the first."""
    root = tree(tmp_path, {"proc/self/status": f"Name:\tpython\nCapEff:\t{capabilities}\n"})
    printed = subprocess.run(
        [sys.executable, "-c", LIMITED, root], capture_output=True, text=True, check=True, timeout=LIMIT
    ).stdout.splitlines()
    memory = "warning locked memory: 64 KiB, expected 16000 or more (RDMA and HCCL lock host memory)"
    files = "warning open files: 1024, expected 4096 or more (data loaders open many)"

    assert [memory, files] == printed[:2] if is_limited else [files] == printed[:1]
    assert is_limited or "locked memory unlimited (CAP_IPC_LOCK)" in printed[-1]


@pytest.mark.parametrize(
    ("soft", "expected"),
    [(resource.RLIM_INFINITY, "unlimited"), (16_000 << 10, "16000 KiB"), ((16_000 << 10) - 1, None)],
)
def test_limit_is_enough_from_its_threshold_on(soft: int, expected: str | None) -> None:
    """Exactly what is expected is enough, and so is no limit."""
    line = machine.judge_limit(machine.LIMITS[0], soft)

    assert ("ok", f"locked memory {expected}") == (line.verdict.value, line.found) if expected else line.to_do


# --- The time to end --------------------------------------------------------------------------------------------------

VOLCANO = {"VC_TASK_INDEX": "0", "VC_WORKER_HOSTS": "a,b"}
SLURM = {"SLURM_STEP_NUM_NODES": "1", "SLURM_NODEID": "0"}
MPI = {"OMPI_COMM_WORLD_SIZE": "1", "OMPI_COMM_WORLD_RANK": "0"}


@pytest.mark.parametrize(
    ("environ", "grace", "expected"),
    [
        ({}, 600.0, ("ok", "600 s")),
        (MPI, 600.0, ("ok", "600 s")),
        (VOLCANO, 25.0, ("ok", "25 s, less than the 30 s that Kubernetes leaves by default")),
        (VOLCANO, 26.0, ("warning", "--grace is 26 s, and Kubernetes kills all after 30 s, unless set otherwise")),
        ({**MPI, "KUBERNETES_SERVICE_HOST": "10.0.0.1"}, 60.0, None),
        (SLURM, 60.0, ("warning", "--grace is 60 s, and Slurm kills all after 30 s, unless set otherwise")),
    ],
)
def test_grace(environ: dict[str, str], grace: float, expected: tuple[str, str] | None) -> None:
    """It must be shorter than what the platform leaves, with the time that the end itself takes."""
    given = scene("", environ)._replace(settings=Settings(grace=grace))
    wanted = expected or ("warning", "--grace is 60 s, and Kubernetes kills all after 30 s, unless set otherwise")

    assert [wanted] == said(machine.grace, given)


def test_grace_says_what_to_set() -> None:
    """Both sides can be changed."""
    given = scene("", SLURM)._replace(settings=Settings(grace=60.0))

    assert ["let KillWait be 65 or more, or --grace 25 or less"] == advice(machine.grace, given)
