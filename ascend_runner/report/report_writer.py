"""Writes the report of a job through its disk.

The report of a job that has ended or is held is written to the run directory instead if it cannot be written there.
Otherwise the job would look as if its runner had been killed, or could not be released.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from typing import Final

from ascend_runner import files
from ascend_runner.errors import OutputError, reason
from ascend_runner.host import bounded
from ascend_runner.report import document
from ascend_runner.report.disk import Disk

NO_RESPONSE: Final = "no response from its disk"


class ReportWriter:
    """Writes the report of one job. `newest` is the newest one.

    `spare_path` is where the report of a job that has ended or is held is written if it cannot be written to its file,
    "" if there is no such place.
    """

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self.newest: Mapping[str, object] = {}
        # The newest report that has been written, and its path.
        self._kept: tuple[Mapping[str, object], str] = self.newest, ""
        # The newest report whose write has ended, and why it failed, "" if it did not.
        self._tried: tuple[Mapping[str, object], str] = self.newest, ""
        self.spare_path = ""

    @property
    def place(self) -> str:
        """The path of the newest report, "" if it has not been written."""
        report, path = self._kept
        return path if report is self.newest else ""

    @property
    def problem(self) -> str:
        """Why the newest report is not in its file, "" if it is."""
        report, problem = self._tried
        return problem if report is self.newest else NO_RESPONSE

    def put(self, path: str, report: Mapping[str, object]) -> None:
        """Queue a write of the report; of several that wait for the disk, only the newest is written."""
        self.newest = report
        self._disk.put(path, partial(self._write, path, report))

    def write_spare(self, limit: float) -> None:
        """Write the newest report to the spare path, within `limit` seconds, if it is not in its file."""
        path, report = self.spare_path, self.newest

        def write() -> None:
            with suppress(OutputError):  # the disk has already caused a warning
                files.write_atomically(path, document.encode(report))
                self._kept = report, path

        if self.problem and path:
            bounded.call(limit, write)

    def _write(self, path: str, report: Mapping[str, object]) -> None:
        if report is not self.newest:
            return  # a newer one follows, after its event
        try:
            files.write_atomically(path, document.encode(report))
        except OutputError as error:
            self._tried = report, reason(error.__cause__) if isinstance(error.__cause__, OSError) else str(error)
            raise
        self._kept = report, path
        self._tried = report, ""
