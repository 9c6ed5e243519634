"""Invariants of a job's events and report, which hold at any moment, also after its runner was killed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.helpers.replay import replay


def contradictions(folder: Path) -> list[str]:
    """Return what is wrong with the events and the report in a log directory: nothing, if all is well.

    Every line is whole and leads to the state that it tells of. The report is written behind the event of a change, so
    that it is never ahead of them; one with an exit status is the last.
    """
    path = folder / "job-events.jsonl"
    lines = path.read_bytes().splitlines(keepends=True) if path.exists() else []
    wrong = [f"line {number} is cut off" for number, line in enumerate(lines) if not line.endswith(b"\n")]
    if wrong:
        return wrong
    told: list[tuple[str, int]] = []
    for number, line in enumerate(lines, start=1):
        event: dict[str, Any] = json.loads(line)
        job = replay(lines[:number])
        told.append((event["data"]["state"], event["data"]["attempt"]))
        if not event["id"].endswith(f"-{number}"):
            wrong.append(f"line {number} has the id {event['id']}")
        if job is None or (job.state.value, job.attempt) != told[-1]:
            wrong.append(f"line {number} tells of {told[-1]}, but leads to {job}")
    report = folder / "job-report.json"
    if report.exists():
        document = json.loads(report.read_bytes())
        newest = (document["state"], document["attempt"])
        before = told[-1:] if document["status"] is not None else told
        if newest not in before:
            wrong.append(f"the report tells of {newest}, the events of {before}")
    elif len(lines) > 1:
        wrong.append("there is no report")
    return wrong
