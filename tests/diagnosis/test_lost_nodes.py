"""A node whose ranks only lost a peer does not blame itself, but names the node in the rank table that they lost."""

from __future__ import annotations

import json
from signal import SIGTERM
from typing import Final

import pytest

from ascend_runner.diagnosis import log_evidence, root_cause
from ascend_runner.diagnosis.endings import Circumstances
from ascend_runner.diagnosis.finding import RootCause
from ascend_runner.diagnosis.root_cause import Death, NodePlace
from ascend_runner.rank_table import codec
from ascend_runner.supervision.causes import Ending

FAILED: Final = Ending(exit_code=1)
# Three nodes with two ranks each: server_id, host_ip, container_ip, pod and device addresses all differ.
TABLE: Final = {
    "status": "completed",
    "version": "1.0",
    "server_count": "3",
    "server_list": [
        {
            "server_id": f"10.99.0.{node + 1}",
            "host_ip": f"10.98.0.{node + 1}",
            "container_ip": f"172.16.0.{node + 1}",
            "device": [
                {"device_id": str(device), "device_ip": f"192.{node}.0.{device + 1}", "rank_id": str(2 * node + device)}
                for device in range(2)
            ],
        }
        for node in range(3)
    ],
}
PODS: Final = {
    "status": "completed",
    "group_count": "1",
    "group_list": [
        {
            "group_name": "job-trainjob",
            "device_count": "6",
            "instance_count": "3",
            "instance_list": [
                {
                    "pod_name": f"ma-job-trainjob-{node}",
                    "server_id": f"10.99.0.{server}",
                    "devices": [
                        {"device_id": str(device), "device_ip": f"192.{node}.0.{device}"} for device in devices
                    ],
                }
                for node, (server, devices) in enumerate([(1, (0, 1)), (2, (0, 1)), (2, (2, 3))])
            ],
        }
    ],
}
NODE_1: Final = "node 1 (10.99.0.2), ranks 2, 3"
OTHERS: Final = "the other nodes"


def raised(message: str) -> str:
    """Return the traceback of a collective that raised a message."""
    return f'Traceback (most recent call last):\n  File "train.py", line 7, in f\n    dist.all_reduce(t)\n{message}\n'


NOTIFY: Final = "EI0002: [PID: 7] Notify Wait times out\n"
GLOO: Final = "RuntimeError: [../third_party/gloo/gloo/transport/tcp/pair.cc:598] Connection closed by peer [{}]:23456"


def failed(rank_id: int, log: str) -> Death:
    """Make a rank that ended by itself."""
    return Death(rank_id=rank_id, ending=FAILED, evidence=log_evidence.read(log.encode(), FAILED))


def stopped(rank_id: int, log: str) -> Death:
    """Make a rank that the runner stopped after it had written `log`."""
    evidence = log_evidence.read(log.encode(), is_stopped=True)
    return Death(rank_id=rank_id, ending=Ending(signum=SIGTERM), evidence=evidence, is_stopped=True)


def nodes(document: object = TABLE) -> tuple[NodePlace, ...]:
    """Return the nodes of a table."""
    return root_cause.nodes(codec.loads(json.dumps(document).encode()))


def cause(*deaths: Death, document: object = TABLE, is_alone: bool = False) -> RootCause:
    """Return the root cause of a job on several nodes, the first of which has these ranks."""
    table = codec.loads(json.dumps(document).encode())
    several = None if is_alone else root_cause.nodes(table)
    found = root_cause.diagnose(deaths, Circumstances(), root_cause.places(table), deaths[0].rank_id, several).root
    assert found is not None
    return found


@pytest.mark.parametrize(
    "log",
    [
        raised(GLOO.format("10.99.0.2")),
        raised(GLOO.format("::ffff:10.98.0.2")),
        GLOO.format("10.99.0.2"),
        "2026-05-06 09:30:01 ERROR train: training failed: " + GLOO.format("10.99.0.2"),
        "terminate called after throwing an instance of 'gloo::IoException'\n  what():  "
        + GLOO.format("10.99.0.2").removeprefix("RuntimeError: "),
        raised("RuntimeError: [/gloo/transport/tcp/pair.cc:144] Read error [172.16.0.2]:9: Connection reset by peer"),
        raised("RuntimeError: [/gloo/gloo/transport/tcp/pair.cc:1] SO_ERROR: Connection refused, remote=[10.99.0.2]:4"),
        raised(
            "torch.distributed.DistNetworkError: recvValue failed on SocketImpl(fd=44, addr=[10.99.0.1]:47352,"
            " remote=[10.99.0.2]:29500): Connection reset by peer"
        ),
        raised(
            "torch.distributed.DistNetworkError: The client socket has timed out after 60000ms while trying to connect"
            " to (10.99.0.2, 29500)."
        ),
        raised(
            "torch.distributed.DistBackendError: NCCL error in: x.cpp:1, remote process exited or there was a network"
            " error\nncclRemoteError: A call failed possibly due to a network error or a remote process exiting.\n"
            "Last error:\nsocketProgress: Connection closed by remote peer 10.99.0.2<46312>"
        ),
        raised("RuntimeError: Failed to connect to the meta server node url: 10.99.0.2:8118"),
        "EI0006: [PID: 7] Getting socket times out.\n  |  192.1.0.2(3)  |  9  |  192.0.0.1(0)  | 9 |  x  | time out\n",
        "EI0002: [PID: 7] The Notify register has not received the Notify record from remote rank [3].base\n",
        f"{NOTIFY} Cluster Exception Location[IP/ID]:[10.99.0.2/1], Arrival Time:[x]\n",
        f"{NOTIFY}local rank [10.99.0.1/0]: crimer rank [10.99.0.2/1] status[LOST] by informer rank [x]\n",
        raised("RuntimeError: [Rank 0]: Ranks 2, 3 failed to pass monitoredBarrier in 30000 ms"),
    ],
)
def test_node_that_an_error_names(log: str) -> None:
    """Addresses of every kind, host names and rank numbers name a node of the table, in the forms of each library."""
    found = cause(failed(0, log), failed(1, log))

    assert (NODE_1, (2, 3)) == (found.look_at, found.candidates)


BARE: Final = [
    "2026-05-06 09:30:01 ERROR train: send failed, remote ip[10.99.0.2]\n",
    "step 17 loss 2\nexchange failed: remote ip: 10.99.0.2\n",
    "lost peer 10.99.0.2:29500\n",
    "[ERROR] connection reset by peer, remote_ip=10.99.0.2\n",
]


@pytest.mark.parametrize("log", BARE)
def test_node_that_a_bare_line_names(log: str) -> None:
    """The last words of a program's own name a node if all failed ranks name another one than theirs."""
    found = cause(failed(0, log), failed(1, log))

    assert (NODE_1, (2, 3)) == (found.look_at, found.candidates)


@pytest.mark.parametrize(
    "log",
    [
        "connected to peer 10.99.0.2:29500\n",
        "closed cleanly, no error from peer 10.99.0.2:29500\nbye\n",
        "ERROR send failed, remote ip[10.99.0.1]\n",
        "ERROR send failed, remote ip[10.99.0.22]\n",
        "ERROR send failed, remote ip[10.99.0.2]\nstep 17 loss 2\n",
        "ERROR send failed, local ip[10.99.0.2]\n",
        "ERROR send failed, remote ip[10.99.0.2.1]\n",
        "ERROR data missing, server 10.99.0.2\n",
        "ERROR send failed, remote ip[10.99.0.2], forwarded by peer 10.99.0.1\n",
        raised("ValueError: bad value from peer 10.99.0.2"),
        "",
    ],
)
def test_bare_lines_that_name_no_lost_node(log: str) -> None:
    """Another sentence, an address of this node or of no node, or an exception of its own leaves the cause here."""
    assert "" == cause(failed(0, log), failed(1, log)).look_at
    assert "" == cause(failed(0, log), failed(1, BARE[0])).look_at


@pytest.mark.parametrize("name", ["ma-job-trainjob-1", "ma-job-trainjob-1.job.default.svc.cluster.local", "192.1.0.1"])
def test_pod_that_an_error_names(name: str) -> None:
    """A pod is a node; its name may be followed by its domain."""
    found = cause(failed(0, raised(GLOO.format(name))), document=PODS)

    assert "node 1 (pod ma-job-trainjob-1, 10.99.0.2), ranks 2, 3" == found.look_at


@pytest.mark.parametrize(
    ("look_at", "deaths"),
    [
        (OTHERS, [failed(0, raised("RuntimeError: gloo: Connection closed by peer"))]),
        (OTHERS, [failed(0, raised(GLOO.format("10.1.2.3"))), stopped(1, "step 17 loss 2\n")]),
        ("", [failed(0, raised(GLOO.format("10.99.0.1"))), failed(1, raised(GLOO.format("10.99.0.1")))]),
        (NODE_1, [failed(0, raised(GLOO.format("10.99.0.1"))), failed(1, raised(GLOO.format("10.99.0.2")))]),
        (
            f"{NODE_1} or node 2 (10.99.0.3), ranks 4, 5",
            [failed(0, raised(GLOO.format("10.99.0.3"))), failed(1, raised(GLOO.format("10.99.0.2")))],
        ),
        ("", [failed(0, raised(GLOO.format("10.99.0.2"))), failed(1, raised("ValueError: loss is nan"))]),
        ("", [failed(0, raised(GLOO.format("10.99.0.2"))), failed(1, "")]),
        ("", [failed(0, raised(GLOO.format("10.99.0.2"))), stopped(1, raised("ValueError: loss is nan"))]),
        (OTHERS, [failed(0, NOTIFY)]),
    ],
)
def test_when_the_other_nodes_are_to_be_looked_at(look_at: str, deaths: list[Death]) -> None:
    """Only where no rank of this node may be the cause: no error of its own, nothing unknown, no peer on this node."""
    assert look_at == cause(*deaths).look_at


def test_server_of_two_pods_is_no_name() -> None:
    """The address of a server on which two pods run names neither of them."""
    assert OTHERS == cause(failed(0, raised(GLOO.format("10.99.0.2"))), document=PODS).look_at


def test_job_on_a_single_node() -> None:
    """A job on a single node has no other nodes, so the cause is among its ranks."""
    assert "" == cause(failed(0, raised(GLOO.format("10.99.0.2"))), is_alone=True).look_at


def test_rank_that_did_something_else_may_be_the_cause() -> None:
    """If no peer is named, a stopped rank whose last line differs from the others may have closed the connection."""
    lost = failed(0, raised("RuntimeError: gloo: Connection closed by peer"))
    others = [stopped(1, "step 17\ncleaning up\n"), stopped(2, "step 17\n"), stopped(3, "step 17\n")]

    assert "" == cause(lost, *others).look_at


def test_nodes_of_a_table() -> None:
    """Nodes are numbered by their first ranks, and pods on one server are nodes of their own."""
    assert [(0, (0, 1)), (1, (2, 3)), (2, (4, 5))] == [(node.number, node.rank_ids) for node in nodes()]
    assert ["ma-job-trainjob-1", "ma-job-trainjob-2"] == [node.pod_name for node in nodes(PODS)[1:]]
    assert {"10.99.0.1", "10.98.0.1", "172.16.0.1", "192.0.0.1", "192.0.0.2"} == nodes()[0].names
