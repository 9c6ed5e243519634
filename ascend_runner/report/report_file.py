"""The report on disk: written when the job is prepared, and replaced whenever its state changes.

So a reader always finds the report of the newest run: a runner that is killed leaves a report that says "running".
A job that has failed leaves scripts that run its ranks again beside it.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping
from typing import Final

from ascend_runner import files
from ascend_runner.errors import AscendRunnerError, OutputError
from ascend_runner.facts import Fact
from ascend_runner.host import bounded
from ascend_runner.plan import rerun
from ascend_runner.plan.job import JobSpec
from ascend_runner.report import build
from ascend_runner.report.build import JobState
from ascend_runner.supervision.state import Phase, State
from ascend_runner.text import printable

REPORT_LIMIT: Final = 2.0  # seconds for a disk to take the report; the cause is shown only after that


class ReportFile:
    """Writes the report of one job. A failure is a warning: the job's own exit status must not be lost for that."""

    def __init__(self, job: JobSpec, warn: Callable[[str], None], is_cut: Callable[[], bool] = bounded.never) -> None:
        self.job = job  # without ranks while they are not known
        self._warn = warn
        self._is_cut = is_cut  # whether a disk that does not respond is waited for no longer

    def begin(self) -> None:
        """Write that the job is being prepared."""
        self._write(build.unfinished(self.job, JobState.PREPARING))

    def observe(self, fact: Fact, _at: float) -> None:
        """Write that the job is running, once it is."""
        if isinstance(fact, State) and fact.phase is Phase.STARTING:
            self._write(build.unfinished(self.job, JobState.RUNNING))

    def fail(self, error: AscendRunnerError) -> None:
        """Write that the runner itself has failed."""
        self._write(build.unfinished(self.job, JobState.FAILED, error))

    def finish(self, document: Mapping[str, object], limit: float) -> None:
        """Write the report of a job that has ended; its disk has `limit` seconds."""
        self._write(document, limit)

    def write_reruns(self, job: JobSpec, environ: Mapping[str, str], limit: float) -> Mapping[int, str]:
        """Write a script for each rank that runs it again; return the commands for those that were written, by rank.

        `job` is the plan as it was carried out.
        """
        written: dict[int, str] = {}

        def write() -> None:
            for spec in job.processes:
                path = job.rerun_path(spec)
                files.write_atomically(path, rerun.script(spec, job, environ), files.SCRIPT_MODE)
                written[spec.rank_id] = f"sh {printable(shlex.quote(path))}"

        self._in_time(limit, job.log_dir, write)
        return dict(written)  # a copy, because the thread may still be running

    def _write(self, document: Mapping[str, object], limit: float = REPORT_LIMIT) -> None:
        path = self.job.report_path
        self._in_time(limit, path, lambda: files.write_atomically(path, build.encode(document)))

    def _in_time(self, limit: float, path: str, write: Callable[[], None]) -> None:
        failures: list[OutputError] = []

        def attempt() -> None:
            try:
                write()
            except OutputError as error:
                failures.append(error)

        if not bounded.call(limit, attempt, self._is_cut):
            self._warn(f"cannot write {path!r}: no response from its disk within {limit:g} s")
        for error in failures:
            self._warn(str(error))
