"""Writes the report of a job through a queue of writes.

The report of a job that has ended or is held is written to the run directory instead if it cannot be written there.
Otherwise the job would look as if its runner had been killed, or could not be released.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import cached_property, partial
from typing import Final

from ascend_runner import files
from ascend_runner.errors import OutputError, reason
from ascend_runner.node import bounded
from ascend_runner.report import document
from ascend_runner.report.write_queue import WriteQueue

NO_RESPONSE: Final = "no response from its disk"


class Draft:
    """A report that is composed when it is first read: most are replaced before, while ranks are restarted."""

    def __init__(self, compose: Callable[[], Mapping[str, object]]) -> None:
        self._compose = compose

    @cached_property
    def report(self) -> Mapping[str, object]:
        """The report."""
        return self._compose()


class ReportWriter:
    """Writes the report of one job.

    `spare_path` is where the report of a job that has ended or is held is written if it cannot be written to its file,
    or "" if there is none.
    """

    def __init__(self, writes: WriteQueue) -> None:
        self._writes = writes
        self._newest = Draft(dict)
        # The newest report that has been written, and its path.
        self._kept = self._newest, ""
        # The newest report whose write has ended, and why it failed, "" if it did not.
        self._tried = self._newest, ""
        self.spare_path = ""

    @property
    def newest(self) -> Mapping[str, object]:
        """The newest report."""
        return self._newest.report

    @property
    def place(self) -> str:
        """The path of the newest report, "" if it has not been written."""
        draft, path = self._kept
        return path if draft is self._newest else ""

    @property
    def problem(self) -> str:
        """Why the newest report is not in its file, "" if it is."""
        draft, problem = self._tried
        return problem if draft is self._newest else NO_RESPONSE

    def put(self, path: str, compose: Callable[[], Mapping[str, object]]) -> None:
        """Queue a write of the report that `compose` returns, in any thread and always the same.

        Of several that wait for the disk, only the newest is composed and written.
        """
        self._newest = draft = Draft(compose)
        self._writes.put(path, partial(self._write, path, draft))

    def write_spare(self, limit: float) -> None:
        """Write the newest report to the spare path, within `limit` seconds, if it is not in its file."""
        path, draft = self.spare_path, self._newest

        def write() -> None:
            with suppress(OutputError):  # the disk has already caused a warning
                files.write_atomically(path, document.encode(draft.report))
                self._kept = draft, path

        if self.problem and path:
            bounded.call(limit, write)

    def _write(self, path: str, draft: Draft) -> None:
        if draft is not self._newest:
            return  # a newer one follows, after its event
        try:
            files.write_atomically(path, document.encode(draft.report))
        except OutputError as error:
            self._tried = draft, reason(error.__cause__) if isinstance(error.__cause__, OSError) else str(error)
            raise
        self._kept = draft, path
        self._tried = draft, ""
