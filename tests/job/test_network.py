"""Findings about ports and names, from trees of files and from real ones."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import attrs
import pytest

from ascend_runner.node import probes
from ascend_runner.node.findings import Defect
from tests.helpers.surroundings import bound_to_free_port
from tests.helpers.trees import tree
from tests.job.contexts import context, job_of, look_at, prepared, remedies

HEAD = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"


def row(port: int, state: str, inode: int, address: str = "0100007F") -> str:
    """Return a socket as /proc/net/tcp shows it."""
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
    """Other ports and sockets that only wait for their last packets do not matter."""
    root = sockets(tmp_path, row(8080, "0A", 5) + row(60001, "06", 0) + row(29500, "05", 0))

    assert [("ok", "free: 60000-60031 (HCCL), 29500 (MASTER_PORT)")] == look_at("ports", context(root, nproc=8))


def test_master_port_is_taken(tmp_path: Path) -> None:
    """The process that listens on the port is named once; as a start takes the port as it is, this is a warning."""
    root = sockets(tmp_path, row(29500, "01", 6), row(29500, "0A", 7, "0" * 32), p4711=7)
    given = context(root)

    assert [("warning", "port 29500 (MASTER_PORT) is in use: process 4711 (python) listens on it")] == look_at(
        "ports", given
    )
    assert ["kill it if it belongs to an earlier job, or use another MASTER_PORT on all nodes"] == remedies(
        "ports", given
    )


def test_master_port_of_who_started_this(tmp_path: Path) -> None:
    """A rank that torchrun started finds torchrun on that port, which is no problem."""
    given = context(sockets(tmp_path, row(29500, "0A", 7)), {"HCCL_HOST_SOCKET_PORT_RANGE": "auto"}, nproc=1)

    passed_through = prepared(given, plan=attrs.evolve(job_of([0]), is_passed_through=True))

    assert [] == look_at("ports", passed_through)


def test_master_port_of_another_node(tmp_path: Path) -> None:
    """Only node 0 listens on MASTER_PORT."""
    environ = {"PET_NNODES": "2", "PET_NODE_RANK": "1", "PET_MASTER_ADDR": "other"}

    assert [] == look_at("ports", context(sockets(tmp_path, row(29500, "0A", 7)), environ))


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({}, ["error"]),
        ({"HCCL_IF_BASE_PORT": "61000"}, ["ok"]),
        ({"HCCL_HOST_SOCKET_PORT_RANGE": "auto"}, ["ok"]),
    ],
)
def test_ports_of_hccl(tmp_path: Path, environ: dict[str, str], expected: list[str]) -> None:
    """HCCL's variables decide which ports it uses."""
    root = sockets(tmp_path, row(60031, "0A", 7))

    assert expected == [verdict for verdict, _ in look_at("ports", context(root, environ, nproc=1))]


def test_port_of_a_connection(tmp_path: Path) -> None:
    """An outgoing connection on one of HCCL's ports is a warning: it may be gone when the job starts."""
    root = sockets(tmp_path, row(60003, "01", 7))

    assert [("warning", "port 60003 (HCCL) is in use by a connection of a process")] == look_at(
        "ports", context(root, nproc=1)
    )


def test_real_port() -> None:
    """A real listening process is found."""
    pipe = subprocess.PIPE
    with bound_to_free_port() as bound:
        port, fd = bound.getsockname()[1], bound.fileno()
        listen = f"import socket; s = socket.socket(fileno={fd}); s.listen(); print(flush=True); input()"
        command = [sys.executable, "-c", listen]
        listener = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, pass_fds=(fd,))
    with listener:
        assert listener.stdout
        listener.stdout.readline()
        ((verdict, sentence),) = look_at("ports", context("/", {"MASTER_PORT": str(port)}))
        listener.communicate("\n")

    assert "warning" == verdict
    assert sentence.startswith(f"port {port} (MASTER_PORT) is in use: process {listener.pid} (")


# --- Names ------------------------------------------------------------------------------------------------------------


def nodes(*hosts: str) -> dict[str, str]:
    """Return the variables of an Octopus job on some hosts."""
    return {"VC_WORKER_HOSTS": ",".join(hosts), "MA_NUM_HOSTS": str(len(hosts)), "VC_TASK_INDEX": "0"}


def test_names_are_known() -> None:
    """The names of all nodes are looked up, including node 0's."""
    assert [("ok", "2 names resolved")] == look_at("other nodes", context("/", nodes("localhost", "127.0.0.1")))


def test_unknown_names_are_listed() -> None:
    """Names that cannot be resolved are listed, with possible reasons."""
    given = context("/", nodes("localhost", "bad..name", "worse..name"))  # no server is asked for names like these

    assert [("error", "cannot resolve 2 of 3 nodes: bad..name, worse..name")] == look_at("other nodes", given)
    assert [
        "make sure that their pods are running and that the job has a headless service (Volcano: the svc plugin)"
    ] == remedies("other nodes", given)


def test_many_unknown_names_are_counted() -> None:
    """A job of thousands of nodes does not fill the screen."""
    hosts = [f"node-{number}" for number in range(1000)]
    (defect,) = probes.of_names(hosts, dict.fromkeys(hosts, False), 10.0)

    assert isinstance(defect, Defect)
    assert defect.sentence.endswith("node-6, node-7 and 992 more")


def test_no_answer() -> None:
    """A name without an answer in time is not reported as unknown."""
    found = probes.of_names(["a", "b", "c"], {"a": True, "b": False}, 10.0)

    assert [
        ("cannot resolve 1 of 3 nodes: b", True),
        ("the name server did not respond within 10 s for 1 of 3 nodes: c", True),
    ] == [(one.sentence, one.is_error) for one in found if isinstance(one, Defect)]


def test_one_node_has_no_others() -> None:
    """A job of one node needs no names."""
    assert [] == look_at("other nodes", context())
