"""The peers that HCCL's messages name, in their old and new wording."""

from __future__ import annotations

import pytest

from ascend_runner.diagnosis.finding import Peer
from ascend_runner.diagnosis.log_evidence import peers_in

NOTIFY = (
    "EI0002: The wait execution of the Notify register times out. Reason: The Notify register has not received the"
    " Notify record from remote rank [0].base information: [streamID:[27], taskID[10], taskType[Notify Wait]]"
)
DETECTED = (
    "This node (server 192.168.200.100, device ID 1) detects that srcRank (server 192.168.200.100, device ID 1) fails"
    " to connect to dstRank (server 192.168.200.100, device ID 0). Continue to analyze"
)
HEARTBEAT = (
    "    Cluster Exception Location[IP/ID]:[90.90.92.240/1], Arrival Time:[Thu Nov 28 11:56:34 2024],"
    " Discoverer:[90.90.92.240/0], ExceptionType:[Heartbeat Lost Occurred], Possible Reason:1. Process has exited"
)


@pytest.mark.parametrize(
    ("peers", "line"),
    [
        ((Peer(rank_id=0),), NOTIFY),
        ((Peer(rank_id=3),), "A timeout occurs when the Notify register waits for execution. Waiting peer rank: 3; t"),
        ((Peer(rank_id=5),), "has not received the Notify record from remote rank: [5]. base information: [x]"),
        ((Peer(server_id="90.90.92.240", device_id=1),), HEARTBEAT),
        ((Peer(server_id="10.90.55.95", device_id=0),), "serverId[10.90.55.95], deviceId[0], Heartbeat Lost Occurred"),
        (
            (Peer(server_id="192.168.200.100", device_id=0),),
            DETECTED,
        ),
        ((Peer(server_id="192.168.0.192", device_id=0),), "srcRank[192.168.0.125/0] connect destRank[192.168.0.192/0]"),
        (
            (Peer(rank_id=0, device_ip="192.0.2.199"),),
            "[18744]   |  192.0.2.199(0)   |  16666  |   192.0.3.198(1)   |  3234403008  |  client  | time out |   DIS",
        ),
        (
            (Peer(rank_id=0, server_id="192.168.200.100", device_id=0),),
            "localIpAddr[192.168.200.100/1], remoteRank[0]-remoteUserrank[0]-remoteIpAddr[192.168.200.100/0], mach",
        ),
        ((Peer(rank_id=1),), 'within the timeout period. List of unconnected ranks: "[1,]".'),
        ((Peer(rank_id=1), Peer(rank_id=7)), 'fault_info["Failed to connect agent[1,7,]"]'),
        ((Peer(server_id="10.0.0.9"),), "from the root node timed out. Check whether node 10.0.0.9 reports an error"),
        ((Peer(server_id="node-9"),), "  Peer host:  node-9"),
        (
            (Peer(server_id="10.0.0.9", device_id=4),),
            "server 10.0.0.8, device ID 1, device IP 29.1. Peer information: server 10.0.0.9, device ID 4",
        ),
        ((), "Reason: The Notify register has not received the Notify record from remote rank [unknown].base"),
        ((), "EI0006: Getting socket times out. Reason: Remote Rank did not send the data in time."),
    ],
)
def test_forms(peers: tuple[Peer, ...], line: str) -> None:
    """A peer is found in every form of message, and none is invented."""
    assert peers == peers_in(["noise", line])


def test_most_specific_form() -> None:
    """If the heartbeat names the lost peer, the peer that was waited for does not count."""
    assert (Peer(server_id="90.90.92.240", device_id=1),) == peers_in([NOTIFY, HEARTBEAT])


def test_each_peer_once() -> None:
    """A repeated message names each peer once."""
    assert (Peer(rank_id=0),) == peers_in([NOTIFY, NOTIFY])


def test_no_message() -> None:
    """A log without such messages names no peer."""
    assert () == peers_in(["loss [0.25] (step 3)", ""])


def test_minus_one_is_no_rank() -> None:
    """HCCL prints -1 as an unsigned number, of which no part is a rank."""
    assert () == peers_in(["has not received the Notify record from remote rank [4294967295].base information"])
