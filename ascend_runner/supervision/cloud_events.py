"""The events of a job, one for each change of its state: as lines of a file (CloudEvents 1.0 in JSON), and in words.

Each line holds the event of the state machine, so that the events, passed through the machine again, give the job as it
was at the last line; lines that change no state are skipped. The last line has the exit status of the job as `status`;
if that is not the one of the attempt that has ended, that one is `attempt_status`.
"""

from __future__ import annotations

import enum
import json
from collections.abc import Mapping
from signal import SIGKILL
from typing import Any, Final

import attrs

from ascend_runner.members import Members
from ascend_runner.supervision.causes import CAUSES, LAUNCHER, HangDetected, Restart, Slowdown
from ascend_runner.supervision.job_machine import (
    AllStarted,
    CheckpointBegun,
    CheckpointOver,
    DelayOver,
    Ended,
    Event,
    Expired,
    Failed,
    Job,
    Prepared,
    Released,
    RunnerFailed,
    StopRequested,
    TeardownBegun,
    Verdict,
)
from ascend_runner.text import LONGEST_DURATION, clock, duration, number_within, signal_name

LONGEST_LINE: Final = 4096  # bytes, with its newline: what a pipe takes in one piece (pipe(7), PIPE_BUF)
TYPE: Final = "io.ascend-runner.job.%s.v1"  # % the state
BEGUN: Final = "begun"  # in place of an event's kind, with the policy of the job
# Likewise, and in place of the state in the type. These change no state.
RESIZED: Final = "resized"
LIMIT_CHANGED: Final = "limit-changed"
RUNS_REMOVED: Final = "runs-removed"  # the logs of earlier runs
SLOW: Final = "slow"
HANGING: Final = "hanging"
STACKS: Final = "stacks"  # of the ranks of a job that hangs
OVER: Final = "%s-over"  # % a condition that has ended
VERDICT: Final = "verdict"  # of the nodes of a job on an attempt that has failed
STOP_PENDING: Final = "stop-pending"  # the ranks are stopped once they have saved, as they were already asked to
NAMES: Final[Mapping[type[Event], str]] = {  # the member `event` of a line
    Prepared: "prepared",
    AllStarted: "all_started",
    CheckpointBegun: "checkpoint",
    CheckpointOver: "checkpoint_over",
    TeardownBegun: "teardown",
    Ended: "ended",
    Failed: "ended",
    DelayOver: "delay_over",
    StopRequested: "stop_requested",
    Expired: "limit_reached",
    Released: "released",
    RunnerFailed: "runner_failed",
}
WORDS: Final = {
    "begun": "job started",
    "prepared": "starting the ranks",
    "all_started": "all ranks have started",
    "checkpoint": "asking the ranks for a checkpoint",
    "checkpoint_over": "the ranks continue",
    "teardown": "stopping the processes that ranks have left behind",  # the only teardown without a cause
    "limit_reached": "the time limit has been reached",
    "resized": "the job runs on fewer nodes",
}
# Members of an event that its text contains, or that only a replay needs.
KNOWN: Final = {
    "state",
    "event",
    "attempt",
    "sentence",
    "verdict",
    "decision",
    "delay",
    "status",
    "attempt_status",
    "signum",
    "policy",
    "restart",
    "fingerprint",
    "has_progressed",
    "is_clear",
    "is_local",
    "time_left",
    "is_orphaned",
    "checkpoint",
    "limit",
    "is_error",
    "condition",
    *("node", "rank_id", "kind", "certainty", "tied", "missing", "restarts"),  # of a verdict
    *(field.name for kind in (HangDetected, Slowdown) for field in attrs.fields(kind)),
}
_NO_RESTART: Final = {  # why a job is not restarted, "" if no reason is needed
    Verdict.RESTART: "",
    Verdict.NOT_WANTED: "",
    Verdict.USED_UP: "the limit of --max-restarts is reached",
    Verdict.SAME_FAILURE: "the same failure occurred too often",
    Verdict.POINTLESS: "a restart cannot fix this failure",
    Verdict.NO_LINK: "not all nodes of the job could be reached; let the platform restart the whole job",
    Verdict.NOT_CLEAR: "processes of the last attempt are still alive",
    Verdict.STOPPED: "the job was stopped",
    Verdict.NO_TIME: "the time limit would end the job before it",
}
# The options that exclude a restart after what a fingerprint (see `diagnosis.failure`) begins with.
_EXCLUDING: Final = {cause.report_kind: cause.excluded_by for cause in CAUSES}


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


def members(job: Job, event: Event | None) -> dict[str, object]:
    """Return the data of the change that has led to `job`; the event is None for the begin of the job."""
    data: dict[str, object] = {"state": job.state.value, "attempt": job.attempt}
    if event is None:
        return {**data, "event": BEGUN, "policy": attrs.asdict(job.policy, value_serializer=_plain)}
    given = attrs.asdict(event, filter=lambda field, value: value != field.default, value_serializer=_plain)
    data |= {"event": NAMES[type(event)], **given}
    failure = event if isinstance(event, Failed) else None
    if job.state.is_final:
        data |= {"status": job.status}
        if failure and failure.status != job.status:  # the job was stopped, or reached its limit, afterwards
            data |= {"attempt_status": failure.status}
    if failure and job.verdict:
        data |= {"verdict": job.verdict.value, "delay": job.delay}
    return data


def encode(name: str, data: dict[str, object], origin: Origin, *, number: int, at: str) -> bytes:
    """Encode the state after a change, or anything that changes none, such as RESIZED, with its data as a line.

    `number` tells the events of a job apart, and `at` is the time in ISO 8601. A sentence that is too long is cut.
    """
    document = _document(name, data, origin, number=number, at=at)
    line = _line(document)
    while len(line) > LONGEST_LINE and data.get("sentence"):
        data["sentence"] = str(data["sentence"])[: -(len(line) - LONGEST_LINE) // 4 - 1]
        line = _line(document)
    return line


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


def _plain(_owner: object, _field: object, value: object) -> object:
    if isinstance(value, enum.Enum):
        return value.value
    return sorted(value) if isinstance(value, frozenset) else value


# --- In words ---------------------------------------------------------------------------------------------------------


def described(event: Mapping[str, Any]) -> tuple[str, str, str]:
    """Return the time of an event ("" if it has none), the state of the job after it, and what has happened.

    Raises:
        AttributeError: A member has another type, as for the next two.
        KeyError: A member is missing.
        TypeError: It is not an event.
    """
    data = event["data"]
    return clock(Members(event).moment("time")), str(data["state"]), _text(data)


def released(signum: int, *, is_orphaned: bool = False) -> str:
    """Return what has ended a hold: the signal, or, if that is 0, the time. Only the first process can be killed.

    `is_orphaned`: the signal came because the launcher of the job has ended.
    """
    if signum == SIGKILL:
        return "released because ascend-runner was killed"
    if is_orphaned:
        return f"released because {LAUNCHER} has ended"
    return f"released by {signal_name(signum)}" if signum else "released at the end of its hold"


def _text(data: Mapping[str, object]) -> str:
    kind, text = str(data["event"]), str(data.get("sentence", ""))
    signum, status, attempt = data.get("signum"), data.get("status"), data.get("attempt")
    if kind == "ended":
        text = text or (f"exit status {status}" if status else "all ranks have succeeded")
        text = "; ".join(filter(None, (text, decision(data))))
    elif kind == LIMIT_CHANGED:
        limit = number_within(data.get("limit"), LONGEST_DURATION)
        after = "was removed" if limit is None else f"is now {duration(limit)} after the start"
        text = f"the time limit of the job {after}"
    elif kind == VERDICT:
        text = f"verdict of all nodes: {text}"
    elif kind in {"released", "stop_requested"} and data["state"] == "failed":
        end = released(signum if isinstance(signum, int) else 0, is_orphaned=data.get("is_orphaned") is True)
        text = "; ".join(filter(None, (text, end)))
    else:
        by = f" ({signal_name(signum)})" if isinstance(signum, int) and signum else ""
        text = text or WORDS.get(kind, kind.replace("_", " ")) + by
    if data.get("checkpoint"):
        text += f" ({data['checkpoint']})"
    others = [f"{name} {value}" for name, value in data.items() if name not in KNOWN]
    number = attempt + 1 if isinstance(attempt, int) else 1
    if kind == "delay_over":
        return ", ".join((f"preparing attempt {number}", *others))
    head = f"attempt {number}: " if number > 1 else ""
    return head + ", ".join((text, *others))


def decision(data: Mapping[str, object]) -> str:
    """Return the decision after a failure, "restart in 10 s" or "no restart: ...", or "" if there is nothing to say.

    `data` comes from an event, or is the record of an attempt in a report.
    """
    verdict, delay = str(data.get("verdict")), number_within(data.get("delay"), LONGEST_DURATION)
    if verdict == Verdict.RESTART.value and delay is not None:
        return f"restart in {duration(delay)}" if delay else "restart at once"
    signum = data.get("signum")
    by = f" by {signal_name(signum)}" if verdict == Verdict.STOPPED.value and isinstance(signum, int) and signum else ""
    is_by_status = data.get("restart") != Restart.EXCLUDED.value
    try:
        why = why_no_restart(Verdict(verdict), str(data.get("fingerprint")), is_by_status=is_by_status)
    except ValueError:  # written by another version
        return ""
    return why and f"no restart: {why}{by}"


def why_no_restart(verdict: Verdict, fingerprint: str, *, is_by_status: bool) -> str:
    """Return why a job is not restarted, "" if no reason is needed. `is_by_status`: its exit status excludes it."""
    if verdict is not Verdict.EXCLUDED:
        return _NO_RESTART[verdict]
    option = "--no-restart-on" if is_by_status else _EXCLUDING.get(fingerprint.partition(":")[0], "an option")
    return f"disabled by {option}"
