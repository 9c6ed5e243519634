"""Writes the files of a job in the background, so that a disk that is full or hangs does not hold up the ranks.

The thread ends after a moment without anything to write, so an idle job has no such thread. The report of a job that
has ended or is held is written to the run directory instead if it cannot be written beside the logs. Otherwise the job
would look as if its runner had been killed, or could not be released.
"""

from __future__ import annotations

import os
import stat
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import cache, partial
from typing import Final

import orjson

from ascend_runner import files
from ascend_runner.errors import AscendRunnerError, OutputError, reason
from ascend_runner.members import iso
from ascend_runner.node import bounded
from ascend_runner.node.bounded import Patience
from ascend_runner.plan.spec import JobSpec
from ascend_runner.record.job_record import JobRecord
from ascend_runner.secrets import Masker
from ascend_runner.supervision import cloud_events
from ascend_runner.supervision.job_machine import Event, Job

TERMINATION_LOG: Final = "/dev/termination-log"  # shown by `kubectl describe pod` in Kubernetes
LONGEST_CAUSE: Final = 4096  # bytes of the last cause that Kubernetes reads
LINGER: Final = 1.0  # seconds without a write until the thread ends. An attempt that fails writes several times
# Seconds before a write, and others that follow it, unless they are waited for: a restart, which takes less, is not
# delayed by this thread, and of its reports only the last is written.
PAUSE: Final = 0.1
MOST_WAITING: Final = 64  # writes; only a disk that hangs has more, and those are discarded
Compose = Callable[[], Mapping[str, object]]
NO_RESPONSE: Final = "no response from its disk"
# The members of a report that keep their secrets: others open or compare them; ranks are masked already.
_KEPT: Final = frozenset({"job_id", "log_dir", "rank_table", "ranks"})


class WriteQueue:
    """Carries out writes in order. A file that cannot be written causes one warning."""

    def __init__(self, patience: Patience) -> None:
        self._patience = patience
        self._waiting: deque[tuple[str, Callable[[], None]]] = deque()  # each path, and what writes it
        self._changed = threading.Condition()
        self._path = ""  # the path that is being written; "": none
        self._began = 0.0  # when that write began, on the monotonic clock
        self._has_thread = False
        self._due = 0.0  # when the writes that are waiting are carried out, on the monotonic clock
        self._awaited = 0  # the number of threads that wait
        self.is_closed = False
        self.has_lost_disk = False  # which was reported
        self._reported: set[str] = set()

    def put(self, path: str, write: Callable[[], None]) -> None:
        """Queue the write of a file. `write` may raise OutputError."""
        with self._changed:
            if len(self._waiting) >= MOST_WAITING:
                return
            is_first = not (self._path or self._waiting)
            self._waiting.append((path, write))
            if is_first:
                self._due = time.monotonic() + PAUSE
            if is_first or self._is_urgent():
                self._changed.notify_all()
            if self._has_thread:
                return
            self._has_thread = True
        try:
            bounded.start_thread(self._work)
        except AscendRunnerError:  # the limit of processes: then the job has to wait for the disk
            self._due = 0.0
            self._work(linger=0.0)

    def close(self) -> None:
        """Let the thread end as soon as everything has been written. Does not wait for it."""
        with self._changed:
            self.is_closed = True
            self._changed.notify_all()

    def flush(self, seconds: float) -> bool:
        """Wait as `wait` does, and warn if not everything was written."""
        if self.wait(seconds):
            return True
        with self._changed:
            # On a busy machine the thread may not have taken the first write yet, or have ended the last one by now.
            path = self._path or next((path for path, _write in self._waiting), "")
        if path:
            self._report("", f"cannot write {path!r}: no response from its disk within {seconds:g} s")
        return not path

    def wait(self, seconds: float) -> bool:
        """Wait at most `seconds` until everything has been written; return whether it has.

        If a write has already taken that long, its disk hangs, and it gets only a last chance.
        """
        now = time.monotonic()
        deadline = now + seconds
        if self._path and now - self._began >= seconds:
            deadline = min(deadline, now + bounded.LAST_CHANCE)
        while not self._is_idle(min(bounded.POLL_INTERVAL, deadline - time.monotonic())):
            if self._patience.is_hurried():
                deadline = min(deadline, time.monotonic() + bounded.LAST_CHANCE)
                self._is_idle(deadline - time.monotonic())
            if time.monotonic() >= deadline:
                return False
        return True

    def _is_idle(self, seconds: float) -> bool:
        """Wait at most `seconds`; return whether everything was written."""
        with self._changed:
            self._awaited += 1
            self._changed.notify_all()
            try:
                return self._changed.wait_for(lambda: not (self._path or self._waiting), max(0.0, seconds))
            finally:
                self._awaited -= 1

    def _is_urgent(self) -> bool:
        return self._awaited > 0 or self.is_closed or len(self._waiting) > MOST_WAITING // 2

    def _work(self, linger: float = LINGER) -> None:
        while True:
            with self._changed:
                self._path = ""
                self._changed.notify_all()
                self._changed.wait_for(lambda: self._waiting or self.is_closed, linger)
                if not self._waiting:
                    self._has_thread = False
                    return
                self._changed.wait_for(self._is_urgent, self._due - time.monotonic())
                self._path, write = self._waiting.popleft()
                self._began = time.monotonic()
            try:
                write()
            except OutputError as error:
                lost = files.lost_disk(self._path, error)
                self.has_lost_disk |= bool(lost)
                self._report(self._path, lost or str(error))

    def _report(self, path: str, sentence: str) -> None:
        if path not in self._reported:
            self._reported.add(path)
            self._patience.warn(sentence)


class EventLog:
    """Writes the events of one job."""

    def __init__(self, spec: JobSpec, writes: WriteQueue) -> None:
        self._path = spec.events_path
        self._origin = cloud_events.origin(spec.job_id, spec.part, f"{time.time() * 1000:.0f}-{os.getpid()}")
        self._writes = writes
        self._count = 0
        self._written = 0  # changed by the thread that writes to the disk

    def rename(self, spec: JobSpec) -> None:
        """Give the file its final name. Earlier events keep their source, because another process may be reading."""
        before, self._path = self._path, spec.events_path
        self._origin = cloud_events.origin(spec.job_id, spec.part, self._origin.run_id)
        self._writes.put(spec.events_path, lambda: files.move(before, spec.events_path))

    def write_change(self, job: Job, event: Event | None, facts: Mapping[str, object] = {}) -> None:
        """Write the change of the state that has led to `job`, with other `facts`; without an event, its begin."""
        data = {**cloud_events.members(job, event), **facts}
        if "sentence" in data:
            data["sentence"] = Masker().text(str(data["sentence"]))
        self._append(job.state.value, data)

    def write_note(self, name: str, data: Mapping[str, object]) -> None:
        """Write an event that changes no state."""
        self._append(name, {**Masker().members(data), "event": name})

    def loss(self) -> str:
        """Return a sentence on the events that were not written, or "" if none is missing."""
        missing = self._count - self._written
        return f"events missing from {self._path!r}: {missing} of {self._count}" if missing else ""

    def _append(self, name: str, data: dict[str, object]) -> None:
        self._count += 1
        line = cloud_events.encode(name, data, self._origin, number=self._count, at=iso(time.time()))
        self._writes.put(self._path, partial(self._write, self._path, line))

    def _write(self, path: str, line: bytes) -> None:
        files.append(path, line)
        self._written += 1


class ReportWriter:
    """Writes the report of one job.

    `spare_path` is where the report of a job that has ended or is held is written if it cannot be written to its file,
    or "" if there is none.
    """

    def __init__(self, writes: WriteQueue) -> None:
        self._writes = writes
        # Composes the newest report when it is first read: most are replaced before, while ranks are restarted.
        self._newest: Compose = dict
        self._kept: tuple[Compose, str] = self._newest, ""  # the newest report that has been written, and its path
        # The newest report whose write has ended, and why it failed, "" if it did not.
        self._attempted: tuple[Compose, str] = self._newest, ""
        self.spare_path = ""

    @property
    def newest(self) -> Mapping[str, object]:
        """The newest report."""
        return self._newest()

    @property
    def place(self) -> str:
        """The path of the newest report, "" if it has not been written."""
        report, path = self._kept
        return path if report is self._newest else ""

    @property
    def problem(self) -> str:
        """Why the newest report is not in its file, "" if it is."""
        report, problem = self._attempted
        return problem if report is self._newest else NO_RESPONSE

    def put(self, path: str, compose: Compose) -> None:
        """Queue a write of the report that `compose` returns, in any thread and always the same.

        Of several that wait for the disk, only the newest is composed and written.
        """
        self._newest = report = cache(compose)
        self._writes.put(path, partial(self._write, path, report))

    def write_spare(self, limit: float) -> None:
        """Write the newest report to the spare path, within `limit` seconds, if it is not in its file."""
        path, report = self.spare_path, self._newest

        def write() -> None:
            with suppress(OutputError):  # the disk has already caused a warning
                files.write_atomically(path, encode(report()))
                self._kept = report, path

        if self.problem and path:
            bounded.call(limit, write)

    def _write(self, path: str, report: Compose) -> None:
        if report is not self._newest:
            return  # a newer one follows, after its event
        try:
            files.write_atomically(path, encode(report()))
        except OutputError as error:
            self._attempted = report, reason(error.__cause__) if isinstance(error.__cause__, OSError) else str(error)
            raise
        self._kept = report, path
        self._attempted = report, ""


def composed(record: JobRecord) -> Mapping[str, object]:
    """Return the members of a report with masked secrets, which are counted together with the secrets of the ranks."""
    report, masker = record.encode(), Masker(count=record.secrets_masked)
    masked = masker.members({name: value for name, value in report.items() if name not in _KEPT})
    return {**report, **masked, "secrets_masked": masker.count}


def encode(document: Mapping[str, object]) -> bytes:
    """Encode the document for readers, grep and jq alike: a line for each member and each item of an array."""
    lines = []
    for name, value in document.items():
        text = orjson.dumps(value)
        if isinstance(value, (list, tuple)) and value:
            text = b"[\n  " + b",\n  ".join(map(orjson.dumps, value)) + b"\n ]"
        lines.append(b' "%s": %s' % (name.encode(), text))
    return b"{\n" + b",\n".join(lines) + b"\n}\n"


def write_last_cause(path: str, sentence: str) -> None:
    """Replace the content of a file with the cause of a job's end, if the file exists and can be written."""
    content = sentence.encode(errors="backslashreplace")[:LONGEST_CAUSE].decode(errors="ignore").encode()
    with suppress(OSError), open(os.open(path, os.O_WRONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "wb", buffering=0) as file:
        if stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            file.truncate(0)
            file.write(content)
