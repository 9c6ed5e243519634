"""What remains of a user's jobs after a reboot: a small file for each in XDG_STATE_HOME, where `ascend-job` finds it.

The directory may be missing, read-only or full, and its disk may hang. No job fails, warns or waits for long because of
it; such a job is found only through its run directory and its log directory.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from typing import Any, Final

from ascend_runner import files
from ascend_runner.errors import OutputError
from ascend_runner.report.writing import WriteQueue

MOST_JOBS: Final = 200
MOST_BYTES: Final = 1 << 20  # of all files
LONGEST_COMMAND: Final = 1000  # characters
LARGEST_END: Final = 8192  # bytes
LAST_WAIT: Final = 0.5  # seconds for the disk at the end of a job
OF_THE_END: Final = ("state", "status", "exit_verdict", "attempt", "started_at", "ended_at", "seconds", "cause")
END: Final = "end"  # the member that holds these members of the report; empty until the job has ended


def folder(environ: Mapping[str, str]) -> str:
    """Return the directory of the files, "" if the environment names none."""
    home = environ.get("HOME", "")
    base = environ.get("XDG_STATE_HOME") or (os.path.join(home, ".local/state") if home else "")
    return os.path.join(base, "ascend-runner/history") if os.path.isabs(base) else ""


class History:
    """Writes the file of one job, in a separate thread."""

    def __init__(self, folder: str, writes: WriteQueue) -> None:
        self._folder, self._writes = folder, writes
        self._name = ""
        self._job: dict[str, Any] = {}

    def begin(self, run_file: bytes) -> None:
        """Record where a job runs. A second call replaces the first record."""
        job = json.loads(run_file)
        self._name = self._name or f"{job['began']:017.6f}-{job['host']}-{job['pid']}.json"
        self._job = {**job, "command": _shortened(job["command"]), END: {}}
        self._put(self._job)

    def finish(self, report: Mapping[str, Any]) -> None:
        """Record how the job ended, according to its report. Waits for the disk at most LAST_WAIT seconds."""
        end = {name: report[name] for name in OF_THE_END if name in report}
        if len(json.dumps(end)) > LARGEST_END:
            del end["cause"]
        if self._name:
            self._put({**self._job, END: end})
            self._writes.wait(LAST_WAIT)
        self._writes.close()

    def _put(self, record: Mapping[str, Any]) -> None:
        if self._folder:
            path = os.path.join(self._folder, self._name)
            self._writes.put(path, partial(_write, path, json.dumps(record).encode() + b"\n"))


def _shortened(command: list[str]) -> list[str]:
    """Return the beginning of a command within the limit, with "..." for the omitted words."""
    kept: list[str] = []
    size = 0
    for word in command:
        size += len(word) + 1
        if size > LONGEST_COMMAND:
            return [*kept, "..."]
        kept.append(word)
    return kept


def _write(path: str, content: bytes) -> None:
    with suppress(OSError, OutputError):
        folder = os.path.dirname(path)
        if _is_ours(folder):
            os.makedirs(folder, 0o700, exist_ok=True)
            _prune(folder, MOST_JOBS - (not os.path.exists(path)))
            files.write_atomically(path, content, 0o600)


def _is_ours(folder: str) -> bool:
    """Whether a directory, or its nearest existing parent, belongs to this user. With sudo, HOME may not."""
    while not os.path.lexists(folder):
        folder = os.path.dirname(folder)
    return os.stat(folder).st_uid == os.geteuid()


def _prune(folder: str, most: int) -> None:
    """Remove the oldest files beyond the limits; their names begin with the time."""
    size = 0
    for number, name in enumerate(sorted(os.listdir(folder), reverse=True)):
        path = os.path.join(folder, name)
        size += os.lstat(path).st_size
        if number >= most or size > MOST_BYTES:
            os.unlink(path)
