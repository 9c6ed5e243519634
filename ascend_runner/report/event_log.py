"""Writes the events of a job to their file, in the background, and counts those that are missing there."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from functools import partial

import attrs

from ascend_runner import files
from ascend_runner.lifecycle import cloud_events
from ascend_runner.lifecycle.job_machine import Event, Job
from ascend_runner.plan.spec import JobSpec
from ascend_runner.report import document
from ascend_runner.report.write_queue import WriteQueue
from ascend_runner.secrets import Masker


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

    def write_change(self, job: Job, event: Event | None) -> None:
        """Write the change of the state that has led to `job`; without an event, its begin."""
        masked = event and attrs.evolve(event, sentence=Masker().text(event.sentence))
        self._append(partial(cloud_events.encode, job, masked))

    def write_note(self, name: str, data: Mapping[str, object]) -> None:
        """Write an event that changes no state."""
        self._append(partial(cloud_events.encode_note, name, Masker().members(data)))

    def loss(self) -> str:
        """Return a sentence on the events that were not written, or "" if none is missing."""
        missing = self._count - self._written
        return f"events missing from {self._path!r}: {missing} of {self._count}" if missing else ""

    def _append(self, encode: Callable[..., bytes]) -> None:
        self._count += 1
        line = encode(self._origin, number=self._count, at=document.iso(time.time()))
        self._writes.put(self._path, partial(self._write, self._path, line))

    def _write(self, path: str, line: bytes) -> None:
        files.append(path, line)
        self._written += 1
