"""What is asked about a failure: the places of the ranks that peers may name."""

from __future__ import annotations

from ascend_runner.diagnosis.root_cause import Place
from ascend_runner.plan.spec import TableFile
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
