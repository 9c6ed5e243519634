"""Shows the events of a job as lines for people, and follows them until the job ends."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Mapping
from typing import Callable, Final

from ascend_runner import files
from ascend_runner.errors import UnreadableError, reason
from ascend_runner.job_tool.jobs import FoundJob, number, with_its_logs
from ascend_runner.job_tool.snapshot import STATES
from ascend_runner.lifecycle.events import LIMIT_CHANGED, NO_RESTART
from ascend_runner.lifecycle.machine import Verdict
from ascend_runner.supervision.events import signal_name
from ascend_runner.text import duration, shown

INTERVAL: Final = 0.5  # seconds between two looks at a file that is followed
STATE_WIDTH: Final = max(map(len, STATES))

WORDS: Final = {
    "begun": "the job has begun",
    "prepared": "ranks are started",
    "all_started": "every rank was started",
    "delay_over": "the next attempt is prepared",
    "checkpoint": "the ranks are asked for a checkpoint",
    "checkpoint_over": "the ranks go on",
    "limit_reached": "the time limit is reached",
    "resized": "the job runs on fewer nodes",
}
VERDICTS: Final = {verdict.value: why and f"; no restart: {why}" for verdict, why in NO_RESTART.items()}
# Members of an event that its text has, or that only a replay needs.
KNOWN: Final = {"state", "event", "attempt", "sentence", "verdict", "delay", "status", "signum", "policy"} | {
    "restart",
    "fingerprint",
    "has_progressed",
    "is_clear",
    "is_local",
    "checkpoint",
    "limit",
    # Of a slow training.
    "condition",
    "rule",
    "rank_id",
    "own",
    "reference",
    "name",
    "usual",
    "unit",
    "step",
    "device",
    "temperature",
}


def lines(job: FoundJob, *, follows: bool, pause: Callable[[float], None] = time.sleep) -> Iterator[str]:
    """Yield the events of a job; with `follows` until it has ended, or its runner does not live any more.

    Raises:
        UnreadableError: They cannot be read.
        UnknownJobError: They have been removed.
    """
    path = with_its_logs(job).path("events", "jsonl")
    try:
        fd = os.open(path, files.READ_FLAGS)
    except OSError as error:
        raise UnreadableError(f"cannot read the events in {path!r}: {reason(error)}") from error
    rest, state, is_alive = b"", "", True
    with open(fd, "rb") as file:
        while True:
            # Looked at before the file is read: a runner writes its last event just before it ends.
            is_alive = job.is_alive() is not False
            rest += file.read()
            whole, newline, rest = rest.rpartition(b"\n")
            for line in (whole + newline).splitlines():
                state, text = _read(line)
                yield text
            if _is_final(state) or not is_alive or not follows:
                break
            pause(INTERVAL)
    if not is_alive and not _is_final(state):
        yield "the runner was killed; there are no further events"


def _is_final(state: str) -> bool:
    return state in STATES and STATES[state].is_final


def _read(line: bytes) -> tuple[str, str]:
    """Return the state that an event has led to, and its line for people."""
    try:
        event = json.loads(line)
        data = event["data"]
        at, state = str(event["time"]).replace("T", " ")[:19], str(data["state"])
        return state, shown(f"{at}  {state:{STATE_WIDTH}}  {_text(data)}")
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return "", "(a line that is not an event)"


def _text(data: Mapping[str, object]) -> str:
    kind, text = str(data["event"]), str(data.get("sentence", ""))
    signum, status, attempt = data.get("signum"), data.get("status"), data.get("attempt")
    if kind == "ended":
        text = text or (f"exit status {status}" if status else "every rank has succeeded")
        text += _verdict(data)
    elif kind == LIMIT_CHANGED:
        limit = number(data.get("limit"))
        after = "was removed" if limit is None else f"is now {duration(limit)} after the start"
        text = f"the time limit of the job {after}"
    elif kind == "stop_requested" and data["state"] == "failed" and isinstance(signum, int):
        text = f"released by {signal_name(signum)}"
    else:
        text = text or WORDS.get(kind, kind.replace("_", " "))
        text += f" ({signal_name(signum)})" if isinstance(signum, int) and signum else ""
    if data.get("checkpoint"):
        text += f" ({data['checkpoint']})"
    others = [f"{name} {value}" for name, value in data.items() if name not in KNOWN]
    head = f"attempt {attempt + 1}: " if isinstance(attempt, int) and attempt else ""
    return head + ", ".join((text, *others))


def _verdict(data: Mapping[str, object]) -> str:
    verdict, delay = str(data.get("verdict")), number(data.get("delay"))
    if verdict == Verdict.RESTART.value and delay is not None:
        return f"; restart in {duration(delay)}" if delay else "; restart at once"
    return VERDICTS.get(verdict, "")
