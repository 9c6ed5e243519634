"""Shows the events of a job as lines for people, and follows them until the job ends."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import closing
from typing import Final

from ascend_runner import files
from ascend_runner.errors import UnreadableError, reason
from ascend_runner.job_tool.job import snapshot
from ascend_runner.job_tool.job.jobs import FoundJob, with_its_logs
from ascend_runner.job_tool.job.snapshot import STATES, Condition, is_final
from ascend_runner.job_tool.job.watching import INTERVAL, FileWatch, JobEnd
from ascend_runner.lifecycle import event_text
from ascend_runner.text import shown

STATE_WIDTH: Final = max(map(len, STATES))


def lines(job: FoundJob, *, follows: bool) -> Iterator[str]:
    """Yield the events of a job; with `follows` until it has ended, or its runner is no longer alive.

    Raises:
        UnreadableError: They cannot be read.
        UnknownJobError: They have been removed.
        BrokenPipeError: The reader of standard output has gone.
    """
    path = with_its_logs(job).path("events", "jsonl")
    try:
        fd = os.open(path, files.READ_FLAGS)
    except OSError as error:
        raise UnreadableError(f"cannot read the events in {path!r}: {reason(error)}") from error
    rest, state = b"", ""
    end, watch = JobEnd([job]), FileWatch(path, is_local=follows and bool(job.is_alive()))
    with open(fd, "rb") as file, closing(end), closing(watch):
        while True:
            # Checked before the file is read, because a runner writes its last event just before it ends.
            is_over = follows and end.has_come()
            is_alive = job.is_alive() is not False
            rest += file.read()
            whole, newline, rest = rest.rpartition(b"\n")
            for line in (whole + newline).splitlines():
                state, text = _read(line)
                yield text
            if is_final(state) or is_over or not follows:
                break
            watch.wait(None if end.locks else INTERVAL, *end.locks)
    if not is_alive and not is_final(state):
        is_killed = snapshot.take(job).condition is Condition.RUNNER_KILLED
        lost = "the job has ended; its last events could not be written"
        yield "the runner was killed; no more events" if is_killed else lost


def _read(line: bytes) -> tuple[str, str]:
    """Return the state that an event has led to, and its line for people."""
    try:
        at, state, text = event_text.described(json.loads(line))
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return "", "(malformed event)"
    return state, shown(f"{at}  {state:{STATE_WIDTH}}  {text}")
