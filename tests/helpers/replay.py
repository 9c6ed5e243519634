"""Passes the events of a job through its state machine again."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, Final

import attrs

from ascend_runner.supervision import job_machine
from ascend_runner.supervision.causes import FindingKind, Restart
from ascend_runner.supervision.cloud_events import (
    BEGUN,
    HANGING,
    LIMIT_CHANGED,
    NAMES,
    OVER,
    RESIZED,
    SLOW,
    STOP_PENDING,
    VERDICT,
)
from ascend_runner.supervision.job_machine import Ended, Event, Failed, Job, Policy

WITHOUT_STATE: Final = {
    *(RESIZED, LIMIT_CHANGED, SLOW, OVER % SLOW, HANGING, OVER % HANGING, STOP_PENDING, VERDICT),
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
    kinds = {name: kind for kind, name in NAMES.items()} | {"ended": Failed if data.get("restart") else Ended}
    kind: Any = kinds[data["event"]]
    values = {field.name: data[field.name] for field in attrs.fields(kind) if field.name in data}
    if "status" in values:
        values["status"] = data.get("attempt_status", data["status"])
    if "restart" in values:
        values["restart"] = Restart(data["restart"])
    event: Event = kind(**values)
    return event
