"""Shows the events of a job as lines for people, and follows them until the job ends."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from typing import Callable, Final

from ascend_runner import files
from ascend_runner.errors import UnreadableError, reason
from ascend_runner.job_tool.jobs import FoundJob, with_its_logs
from ascend_runner.job_tool.snapshot import STATES
from ascend_runner.lifecycle import event_text
from ascend_runner.text import shown

INTERVAL: Final = 0.5  # seconds between two looks at a file that is followed
STATE_WIDTH: Final = max(map(len, STATES))


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
        at, state, text = event_text.described(json.loads(line))
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return "", "(a line that is not an event)"
    return state, shown(f"{at}  {state:{STATE_WIDTH}}  {text}")
