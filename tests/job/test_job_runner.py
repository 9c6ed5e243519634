"""What a runner records while an attempt runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ascend_runner.job.runner import JobRunner
from ascend_runner.supervision.causes import SignalReceived
from ascend_runner.supervision.state import Phase, State
from tests.helpers.waiting import LIMIT
from tests.report.test_job_writer import PREPARED, begun


def test_reason_for_a_last_checkpoint(tmp_path: Path) -> None:
    """The events say that the ranks save first, not that they were stopped, also if they were asked to save before."""
    run = begun(tmp_path, [])
    console: Any = None
    runner = JobRunner(run.setup, run.writer, console)
    runner.change(PREPARED)
    for cause in (None, None, SignalReceived(15)):
        runner.observe(State(grace=1.0, phase=Phase.CHECKPOINTING, cause=cause), 0.0)
    run.writer.flush(LIMIT)
    lines = [json.loads(line)["data"] for line in (tmp_path / "job-events.jsonl").read_bytes().splitlines()]

    assert ["begun", "prepared", "checkpoint", "stop-pending"] == [line["event"] for line in lines]
    assert "received SIGTERM; the ranks save a checkpoint first" == lines[-1]["sentence"]
