"""Passes the events of a job through its state machine again."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, Final

import attrs

from ascend_runner.supervision import job_machine
from ascend_runner.supervision.causes import FindingKind, Restart
from ascend_runner.supervision.cloud_events import BEGUN, HANGING, LIMIT_CHANGED, OVER, RESIZED, SLOW, STOP_PENDING
from ascend_runner.supervision.job_machine import Event, Job, Kind, Policy

WITHOUT_STATE: Final = {
    *(RESIZED, LIMIT_CHANGED, SLOW, OVER % SLOW, HANGING, OVER % HANGING, STOP_PENDING),
    *(kind.value for kind in FindingKind),
}


def replay(lines: Iterable[bytes]) -> Job | None:
    """Return the job after these lines, or None if there is none. A last line that is cut off does not count."""
    job = None
    for line in lines:
        if not line.endswith(b"\n"):
            break
        data = json.loads(line)["data"]
        if data["event"] == BEGUN:
            job = Job(policy=_policy(data["policy"]))
        elif job and data["event"] not in WITHOUT_STATE:
            job, _actions = job_machine.transition(job, _event(data))
    return job


def _policy(data: Mapping[str, Any]) -> Policy:
    sets = {name: frozenset(data[name]) for name in ("always", "never")}
    return Policy(**{**data, **sets})


def _event(data: Mapping[str, Any]) -> Event:
    names = {field.name for field in attrs.fields(Event)} & data.keys()
    restart: Restart | None = Restart(data["restart"]) if data.get("restart") else None
    values = {name: data[name] for name in names - {"restart"}}
    values["status"] = data.get("attempt_status", data.get("status", 0))
    return Event(kind=Kind(data["event"]), restart=restart, **values)
