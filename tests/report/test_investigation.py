"""What is asked about a failure: the places of the ranks that peers may name."""

from __future__ import annotations

import pytest

from ascend_runner.diagnosis.root_cause import Place
from ascend_runner.node import memory
from ascend_runner.node.host import Host
from ascend_runner.plan.spec import TableFile
from ascend_runner.record.facts import RankOutput
from ascend_runner.report import investigation
from tests.helpers.plans import changed, job_spec, rank_spec

TABLE = """{"status": "completed", "version": "1.0", "server_count": "2", "server_list": [
  {"server_id": "10.0.0.4", "device": [{"device_id": "4", "device_ip": "29.0.0.4", "rank_id": "0"}]},
  {"server_id": "10.0.0.5", "device": [{"device_id": "5", "device_ip": "29.0.0.5", "rank_id": "1"}]}]}"""


def test_places() -> None:
    """The rank table gives the places of the ranks of all nodes; without one, this node's ranks are known."""
    table = TableFile("/t", "/f", TABLE.encode())
    job = job_spec([rank_spec()], rank_size=2, server_id="10.0.0.4", table=table)

    assert {0: Place("10.0.0.4", 4), 1: Place("10.0.0.5", 5)} == investigation.places_of(job)
    assert {0: Place("10.0.0.4", 0)} == investigation.places_of(changed(job, table=None))


@pytest.mark.parametrize(
    ("tail", "config", "expected"),
    [
        (b"RuntimeError: EI0006: Getting socket times out.", "", True),
        (b"RuntimeError: EI0006: Getting socket times out.", "connection_fault_detection_time:30", True),
        (b"RuntimeError: EI0006: x", "task_exception:on, connection_fault_detection_time: 0", False),
        (b"ConnectionResetError: [Errno 104] Connection reset by peer", "", False),
    ],
)
def test_report_that_hccl_will_give(tail: bytes, config: str, *, expected: bool) -> None:
    """HCCL detects where a connection is broken after EI0006, unless its configuration turns that off."""
    job = job_spec([rank_spec(env={"HCCL_DFS_CONFIG": config})])
    found = investigation.Investigation(job=job, began=0.0, memory=memory.sample(Host()), pids={0: 1})

    assert expected is found.has_report(RankOutput(rank_id=0, size=len(tail), tail=tail))
