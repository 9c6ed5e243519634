"""The events of a job as lines of a file: CloudEvents 1.0 in JSON, one for each change of the job's state.

Each line holds the event of the state machine, so that the events, passed through the machine again, give the job as it
was at the last line; lines that change no state are skipped. The last line has the exit status of the job as `status`;
if that is not the one of the attempt that has ended, that one is `attempt_status`.
"""

from __future__ import annotations

import enum
import json
from collections.abc import Mapping
from typing import Final

import attrs

from ascend_runner.lifecycle.state import Event, Job

LONGEST_LINE: Final = 4096  # bytes, with its newline: what a pipe takes in one piece (pipe(7), PIPE_BUF)
TYPE: Final = "io.ascend-runner.job.%s.v1"  # % the state
BEGUN: Final = "begun"  # in place of an event's kind, with the policy of the job
# Likewise, and in place of the state in the type. These change no state.
RESIZED: Final = "resized"
LIMIT_CHANGED: Final = "limit-changed"
SLOW: Final = "slow"
HANGING: Final = "hanging"
OVER: Final = "%s-over"  # % a condition that has ended
STOP_PENDING: Final = "stop-pending"  # the ranks are stopped once they have saved, as they were already asked to


@attrs.frozen(kw_only=True)
class Origin:
    """The members that all events of a job share: the URI reference of their source, and the beginning of their ids."""

    source: str
    run_id: str


def origin(job_id: str, part: str, run_id: str) -> Origin:
    """Return the members that all events of this part of a job share; `run_id` differs between its runs."""
    path = "".join(
        char if char.isascii() and (char.isalnum() or char in "-._~") else _percent(char) for char in f"{job_id}{part}"
    )
    return Origin(source=f"/ascend-runner/{path}", run_id=run_id)


def _percent(char: str) -> str:
    return "".join(f"%{byte:02X}" for byte in char.encode(errors="surrogateescape"))


def encode(job: Job, event: Event | None, origin: Origin, *, number: int, at: str) -> bytes:
    """Encode the change that has led to `job` as a line; the event is None for the begin of the job.

    `number` tells the events of a job apart, and `at` is the time in ISO 8601. A sentence that is too long is cut.
    """
    data: dict[str, object] = {"state": job.state.value, "attempt": job.attempt}
    if event is None:
        data |= {"event": BEGUN, "policy": attrs.asdict(job.policy, value_serializer=_plain)}
    else:
        data |= {"event": event.kind.value, **_changed(event)}
    if job.state.is_final and event:
        data |= {"status": job.status}
        if event.restart and event.status != job.status:  # the job was stopped, or reached its limit, afterwards
            data |= {"attempt_status": event.status}
    if event and event.restart and job.verdict:
        data |= {"verdict": job.verdict.value, "delay": job.delay}
    document = _document(job.state.value, data, origin, number=number, at=at)
    line = _line(document)
    while len(line) > LONGEST_LINE:
        data["sentence"] = str(data["sentence"])[: -(len(line) - LONGEST_LINE) // 4 - 1]
        line = _line(document)
    return line


def encode_note(name: str, data: Mapping[str, object], origin: Origin, *, number: int, at: str) -> bytes:
    """Encode something that changes no state, such as RESIZED or the kind of a finding, as a line."""
    return _line(_document(name, {**data, "event": name}, origin, number=number, at=at))


def _document(name: str, data: object, origin: Origin, *, number: int, at: str) -> Mapping[str, object]:
    return {
        "specversion": "1.0",
        "id": f"{origin.run_id}-{number}",
        "source": origin.source,
        "type": TYPE % name,
        "time": at,
        "datacontenttype": "application/json",
        "data": data,
    }


def _line(document: Mapping[str, object]) -> bytes:
    # Names that are not UTF-8 are escaped: JSON has none of them.
    return json.dumps(document, ensure_ascii=False).encode(errors="backslashreplace") + b"\n"


def _changed(event: Event) -> dict[str, object]:
    """Return the members of an event that do not have their default, but for its kind."""
    values = attrs.asdict(event, value_serializer=_plain)
    defaults = attrs.asdict(Event(kind=event.kind), value_serializer=_plain)
    return {name: value for name, value in values.items() if value != defaults[name]}


def _plain(_owner: object, _field: object, value: object) -> object:
    if isinstance(value, enum.Enum):
        return value.value
    return sorted(value) if isinstance(value, frozenset) else value
