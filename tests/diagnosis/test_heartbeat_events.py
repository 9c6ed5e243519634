"""What HCCL's heartbeats report, in its old and new wording, and lines that only look like it."""

from __future__ import annotations

import json

import pytest

from ascend_runner.diagnosis.heartbeat_events import PeerEvent, Status, events_in, nodes_with_lost_ranks, sentences
from ascend_runner.diagnosis.root_cause import Place

HEAD = "[INFO] HCCL(686,python):2025-10-23-07:52:59.191.363 [heartbeat.cc:951] [8970]"
LINE = (
    f"{HEAD}[TaskExecStage][HeartbeatAbnormal]local rank [127.10.0.1/1]: crimer rank [127.10.0.2/2] status[LOST]"
    " by informer rank [127.10.0.3/3]"
)
AT = "2025-10-23-07:52:59"
LOST = PeerEvent(Place("127.10.0.2", 2), Status.LOST, Place("127.10.0.3", 3), AT)


@pytest.mark.parametrize(
    ("event", "line"),
    [
        (LOST, LINE),
        (LOST, LINE.replace("rank [", "rank[").replace("]: ", "]\uff1a").replace("] by", "]by")),
        (
            PeerEvent(Place("127.10.0.2", 2), Status.STUCK, Place("127.10.0.2", 2), AT),
            LINE.replace("LOST", "STUCK").replace("0.3/3", "0.2/2"),
        ),
        (LOST, f"{HEAD}[HCCL_TRACE]rank [127.10.0.1/1]: rank [127.10.0.2/2] status[LOST] by rank [127.10.0.3/3]"),
        (
            PeerEvent(Place("fd00::2", 15), Status.LOST, Place("pod-3", 3), AT),
            LINE.replace("127.10.0.2/2", "fd00::2/15").replace("127.10.0.3/3", "pod-3/3").replace("(686,", "(7,a (b):"),
        ),
    ],
)
def test_event(event: PeerEvent, line: str) -> None:
    """A rank is named by its server and device, in each form that HCCL has used."""
    assert [event] == events_in(["", line, "x"])


@pytest.mark.parametrize(
    "line",
    [
        LINE.replace("LOST", "OK"),
        LINE.replace("LOST", "ERROR CQE"),
        LINE.replace("LOST", "NOTIFY"),
        LINE.replace("status[LOST] ", ""),
        f"print: {LINE}",
        LINE[len(HEAD) :],
        LINE.replace("heartbeat.cc", "train.py"),
        LINE.replace("127.10.0.2/2", "127.10.0.2"),
        LINE[: LINE.index("by informer")],
    ],
)
def test_other_lines_are_no_events(line: str) -> None:
    """Neither a rank that is well, nor another kind of event, nor a program that quotes a line."""
    assert [] == events_in([line])


TABLE = {
    "status": "completed",
    "group_count": "1",
    "group_list": [
        {
            "group_name": "job",
            "device_count": "6",
            "instance_count": "3",
            "instance_list": [
                {
                    "pod_name": f"job-{node}",
                    "server_id": server,
                    "devices": [
                        {"device_id": str(device), "device_ip": f"192.{node}.0.{device}"} for device in devices
                    ],
                }
                for node, (server, devices) in enumerate(
                    [("10.0.0.25", (0, 1)), ("10.0.0.26", (0, 1)), ("10.0.0.26", (2, 3))]
                )
            ],
        }
    ],
}


def test_sentence_names_all_lost_ranks_of_a_node() -> None:
    """Ranks and nodes are those of the rank table, also of two pods on a server; others keep the names of HCCL."""
    data = json.dumps(TABLE).encode()
    by = Place("10.0.0.25", 1)
    events = [PeerEvent(Place("10.0.0.26", device), Status.LOST, by, AT) for device in (0, 1, 2)]
    events.append(PeerEvent(Place("10.0.0.9", 2), Status.STUCK, Place("10.0.0.9", 2), AT))

    assert [
        "HCCL reports that ranks 2, 3 on node 1 (pod job-1, 10.0.0.26) are lost (no heartbeat for 30 s), by rank 1",
        "HCCL reports that rank 4 on node 2 (pod job-2, 10.0.0.26) is lost (no heartbeat for 30 s), by rank 1",
        f"HCCL reports that device 2 on server 10.0.0.9 is {Status.STUCK.value}, by device 2 of 10.0.0.9",
    ] == sentences(events, {}, (data, data))


def test_nodes_of_lost_ranks() -> None:
    """A node counts if HCCL has lost a rank of it in the rank table, not if one is only stuck."""
    data, by = json.dumps(TABLE).encode(), Place("10.0.0.25", 1)
    events = [PeerEvent(Place("10.0.0.26", device), Status.LOST, by, AT) for device in (0, 1)]
    events += [PeerEvent(Place("10.0.0.26", 2), Status.STUCK, by, AT), LOST]

    assert (1,) == nodes_with_lost_ranks(events, (data, data))
    assert () == nodes_with_lost_ranks(events, None)


def test_sentence_without_a_rank_table() -> None:
    """The ranks of this node are known without one."""
    events = [PeerEvent(Place("10.0.0.26", 0), Status.LOST, Place("10.0.0.25", 1), AT)]

    assert ["HCCL reports that device 0 on server 10.0.0.26 is lost (no heartbeat for 30 s), by rank 9"] == sentences(
        events, {("10.0.0.25", 1): 9}, None
    )
