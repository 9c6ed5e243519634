"""Sets up a job: prepares it, and holds its directories, its port and its time limit until it ends."""

from __future__ import annotations

import os
import shutil
import socket
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack, closing
from datetime import datetime
from typing import TYPE_CHECKING, Final

import attrs

from ascend_runner import errors, files
from ascend_runner.errors import SettingsError, reason
from ascend_runner.job.preparation import Preparation, Preparer
from ascend_runner.node import cores, disks, network, terminal
from ascend_runner.node.bounded import Patience
from ascend_runner.node.host import Host
from ascend_runner.plan.ranks import PlanContext
from ascend_runner.plan.spec import JobSpec, TableFile
from ascend_runner.problems import Severity, without_repeated_remedies
from ascend_runner.ranks import log_folder
from ascend_runner.ranks.messages import Messages
from ascend_runner.ranks.signals import Signals
from ascend_runner.record.facts import LimitChanged
from ascend_runner.report import history
from ascend_runner.report.history import History
from ascend_runner.report.job_writer import JobWriter
from ascend_runner.report.writing import WriteQueue
from ascend_runner.services import control, run_folder
from ascend_runner.services.control import Requests
from ascend_runner.settings.model import Settings
from ascend_runner.settings.options import COLOR_ALWAYS, COLOR_AUTO
from ascend_runner.settings.parsing import NONE
from ascend_runner.supervision import cloud_events
from ascend_runner.supervision.causes import InspectAction, LimitReached
from ascend_runner.text import printable, signal_name
from ascend_runner.views.progress import show_finding

if TYPE_CHECKING:
    from ascend_runner.job.precheck import Precheck
    from ascend_runner.record.job_record import Staged
    from ascend_runner.services.staging import Staging

CACHE: Final = "/cache"  # where ModelArts mounts a node's local disk


def of_logs(cwd: str) -> str:
    """Return the directory for the log directories of runs: ./logs, unless this user cannot write there."""
    logs = os.path.join(cwd, "logs")
    is_writable = os.access(logs if os.path.isdir(logs) else cwd, os.W_OK | os.X_OK)
    return logs if is_writable else os.path.join(own_temporary(), "logs")


def own_temporary() -> str:
    """Return a directory that no other user has, for what cannot be written elsewhere."""
    return os.path.join(tempfile.gettempdir(), f"ascend-runner-{os.geteuid()}")


def current() -> str:
    """Return the current directory.

    Raises:
        SettingsError: It was removed, or is not accessible to this user.
    """
    try:
        return os.getcwd()
    except OSError as error:
        raise SettingsError(f"cannot use the current directory: {reason(error)}; change to another one") from error


def write(job: JobSpec, warn: Callable[[str], None], *, checks_table: bool) -> tuple[TableFile, int] | None:
    """Create the directories and files of a plan; return its rank table with the actual path, and a lock on it.

    Raises:
        OutputError: A directory or file cannot be made.
        RankTableError: HCCL would not read the rank table where it had to be written (with `checks_table`).
    """
    for folder in job.files.folders:
        files.make_folder(folder)
    for path, content in job.files.host_files.items():
        files.make_folder(os.path.dirname(path))
        files.write_atomically(path, content)
    if not job.files.table:
        return None

    from ascend_runner.job import table as tables  # noqa: PLC0415  many jobs have no rank table

    return tables.write(job.files.table, warn, is_checked=checks_table)


class JobSetup:
    """Sets up the job of a command. It needs the signals from the start, because a wait can be interrupted."""

    def __init__(self, settings: Settings, environ: Mapping[str, str], signals: Signals, messages: Messages) -> None:
        self.environ = environ
        self.signals = signals
        self.messages = messages
        self.patience = Patience(signals.is_stopped, signals.is_hurried, messages.warn_once)
        self.requests = Requests(
            signals,
            None if settings.check else settings.time_limit,
            has_checkpoint_signal=settings.checkpoint_signal != NONE,
            checkpoint_grace=settings.checkpoint_grace,
        )
        self.resources = ExitStack()  # the log directory, the run directory and what works in them
        self.run_folder = ""  # its path, once the job has begun
        self.precheck: Precheck | None = None
        self.writer: JobWriter | None = None  # set once the job has begun
        self.check_nodes: Callable[[], None] = lambda: None  # raises if the other nodes of the job end it
        signals.refuse = self._refuse
        self._settings = settings
        self._context: PlanContext | None = None
        self._prepared: Preparation | None = None
        self._of_attempt = self.resources.enter_context(ExitStack())  # the claim on the rank table, and a directory
        self._port: tuple[int, socket.socket] | None = None  # the port of node 0, and what reserves it
        self._staging: Staging | None = None
        self._history = History(history.folder(environ), WriteQueue(self.patience))

    def prepare(self, command: Sequence[str], version: str = "") -> Preparation:
        """Plan the job, or find all problems. Waits for the rank table, except for a check.

        The port of node 0 is reserved from now on, except for a dry run, which shows the default. Nothing is written,
        except that a job that has to wait writes its report first. `version` is the runner's, for the report.

        Raises:
            SettingsError: The current directory cannot be used.
            StopRequestedError: A stop signal arrived during a wait.
        """
        context = self._context = self._gather(command, version)
        begin, stage = (None, None) if self._settings.dry_run else (self.begin, self.stage)
        prepared = Preparer(context, self.messages, self.pause, begin=begin, stage=stage).prepare()
        self._context = attrs.evolve(context, stages=prepared.context.stages)
        self._prepared = prepared
        return prepared

    def _gather(self, command: Sequence[str], version: str) -> PlanContext:
        cwd = current()
        context = PlanContext(
            settings=self._settings,
            command=tuple(command),
            environ=self.environ,
            cwd=cwd,
            logs=of_logs(cwd),
            version=version,
            started_at=datetime.now().strftime("%Y%m%d-%H%M%S.%f"),  # noqa: DTZ005  local time, as in all messages
            host_name=os.uname().nodename,
            is_folder=os.path.isdir,
            real_path=os.path.realpath,
            cache=CACHE if os.access(CACHE, os.W_OK | os.X_OK) else "",
            read_text=Host().read_text,
            own_addresses=network.own_addresses,
            cores=cores.available(Host()),
            columns=terminal.columns(terminal.STDOUT),
            has_colors=self._has_colors(),
            is_in_background=self._is_in_background,
        )
        return context if self._settings.dry_run else attrs.evolve(context, reserve_port=self._reserve_port)

    def _is_in_background(self) -> bool:
        is_plan_only = self._settings.dry_run or self._settings.check
        return not is_plan_only and terminal.is_in_background(os.getpgid(os.getppid()))

    def prepare_again(self, *, awaits_table: bool = True) -> JobSpec:
        """Plan the job again, with its rank table as it is now. If that is not awaited, the former one may hold.

        Raises:
            AscendRunnerError: It can no longer be started.
            StopRequestedError: A stop signal arrived during a wait.
        """
        if not (self._context and self._prepared):
            raise ValueError("prepare() must be called first")
        former = None if awaits_table else self._prepared.table
        self._prepared = Preparer(self._context, self.messages, self.pause, former=former).prepare()
        return self._prepared.job()

    def is_table_changed(self) -> bool:
        """Whether the rank table is completed, and is not the one of the plan."""
        before = self._prepared.table if self._prepared else None
        if not (self._context and before):
            return False
        from ascend_runner.job import table as tables  # noqa: PLC0415  as above

        found = tables.newest(self._context)
        return found is not None and found.data != before.data

    def _has_colors(self) -> bool:
        color = self._settings.color
        return terminal.has_colors(terminal.STDOUT, self.environ) if color == COLOR_AUTO else color == COLOR_ALWAYS

    def show(self, prepared: Preparation) -> None:
        """Show the problems of a job, and notes on its plan."""
        for note in prepared.plan.notes if prepared.plan else ():
            self.messages.debug(note)
        for problem in without_repeated_remedies(prepared.problems):
            show = self.messages.warning if problem.severity is Severity.WARNING else self.messages.error
            show(printable(str(problem)))

    def begin(self, job: JobSpec) -> JobWriter:
        """Hold the directories of a job until `resources` are released, and report that it is being prepared.

        If it is called again with a more complete plan, the files of the job are renamed.

        Raises:
            OutputError: Another job uses the log directory, or it cannot be made.
        """
        begun, command = self.writer, self._context.command if self._context else ()
        if begun and begun.spec.part == job.part:
            return begun
        removal = self.resources.enter_context(log_folder.entered(job, self.messages.warning))
        if begun:
            lock = log_folder.lock_path(begun.spec)
            run_file = run_folder.write_job_file(job, self.run_folder, command)
            begun.rename(job, run_file)
            self._history.begin(run_file)
            files.remove(lock)
            self._tell_removal(begun, removal)
            return begun
        self.run_folder = self.resources.enter_context(run_folder.opened(self.environ, self.messages.warning))
        run_file = run_folder.write_job_file(job, self.run_folder, command)
        self.resources.enter_context(control.listening(self.run_folder, self.requests, self.messages))
        self.resources.callback(self._end_history)
        self.writer = self.resources.enter_context(closing(JobWriter(job, self.patience)))
        self.writer.begin(run_file, run_folder.spare_report(self.run_folder))
        self._history.begin(run_file)
        self._tell_removal(self.writer, removal)
        return self.writer

    def _end_history(self) -> None:
        if self.writer and self.writer.record.state and self.writer.record.state.is_final:
            self._history.finish(self.writer.reports.newest)

    def _tell_removal(self, writer: JobWriter, sentence: str) -> None:
        """Report that earlier runs were removed, if any were."""
        if sentence:
            self.messages.info(sentence)
            writer.note(cloud_events.RUNS_REMOVED, {"sentence": sentence})

    def stage(self, context: PlanContext) -> None:
        """Begin to copy the datasets of a job, unless that has begun. It ends when `resources` are released."""
        if context.stages and not self._staging:
            from ascend_runner.services import staging  # noqa: PLC0415  only --stage needs it

            copying = staging.Staging(context.stages, self.messages.info, self.messages.warning)
            self._staging = self.resources.enter_context(closing(copying))
            copying.start()

    def await_staging(self) -> tuple[Staged, ...]:
        """Wait until the datasets of the job that was prepared are copied.

        Raises:
            OutputError: One cannot be copied.
            StopRequestedError: A stop signal arrived.
        """
        if self._context:
            self.stage(self._context)
        return self._staging.results(self.pause) if self._staging else ()

    def make(self, job: JobSpec) -> JobSpec:
        """Create the files of a plan; return the plan, with the rank table where it was written.

        Raises:
            AscendRunnerError: The pre-check found an error that prevents the start.
            OutputError: A directory or file cannot be made.
            RankTableError: HCCL would not read the rank table where it had to be written.
            StopRequestedError: A stop signal arrived.
        """
        if self.precheck:
            self.precheck.end(self.pause)
        self._of_attempt.close()
        if job.files.scratch:
            self._of_attempt.callback(shutil.rmtree, job.files.scratch, ignore_errors=True)
        written = write(job, self.messages.warning, checks_table=not self._settings.no_table_checks)
        if written:
            table, lock = written
            self._of_attempt.callback(disks.release, lock)
            job = self._prepared.job(table) if self._prepared and table != job.files.table else job
        self.pause(0.0)
        return job

    def pause(self, seconds: float) -> None:
        """Wait for `seconds`.

        Raises:
            OutputError: A dataset cannot be staged.
            StopRequestedError: A stop signal arrived.
            LimitReachedError: The time limit of the job is reached.
        """
        if self._staging:
            self._staging.check()
        if self.precheck and seconds:
            self.precheck.begin()
        end = self.signals.now() + seconds
        while True:
            self.wait_in_time(max(0.0, end - self.signals.now()))
            if self.signals.now() >= end:
                return

    def wait_in_time(self, seconds: float) -> None:
        """Wait like `Signals.wait_unless_stopped`, but not longer than the time limit of the job permits.

        Raises:
            AscendRunnerError: The other nodes of the job end it.
            StopRequestedError: A stop signal arrived.
            LimitReachedError: The time limit is reached.
        """
        deadline = self.requests.deadline
        self.signals.wait_unless_stopped(
            seconds if deadline is None else max(0.0, min(seconds, deadline - self.signals.now()))
        )
        self.record_requests()
        self._check_limit()
        self.check_nodes()

    def record_requests(self) -> None:
        """Record a change of the time limit and findings, as an attempt does while it runs.

        Findings that may end an attempt are left to the next one.
        """
        if not self.writer:
            return
        if self.requests.take_limit_change():
            self.writer.observe(LimitChanged(self.requests.limit), self.signals.now())
        is_for_attempt = self.writer.spec.watching.inspect in {InspectAction.CHECKPOINT, InspectAction.STOP}
        for finding in self.requests.take_between_attempts(only_precheck=is_for_attempt):
            self.writer.observe(finding, self.signals.now())
            show_finding(finding, self.messages)

    def end_precheck(self) -> None:
        """End the pre-check, which may go on beside the ranks."""
        if self.precheck:
            self.precheck.close()

    def end_requests(self) -> None:
        """Record the last change of the time limit: the job is ending."""
        self.requests.is_ending = True
        self.record_requests()

    def _refuse(self, signum: int) -> None:
        self.messages.note(f"{signal_name(signum)} has no effect because no rank is running")

    def _check_limit(self) -> None:
        limit, deadline = self.requests.limit, self.requests.deadline
        if limit is not None and deadline is not None and self.signals.now() >= deadline:
            self.requests.is_ending = True
            raise errors.LimitReachedError(str(LimitReached(limit)))

    def _reserve_port(self, ports: Iterable[int]) -> int | None:
        """Reserve a port until the end of the job; all of its attempts have the same."""
        if not self._port:
            self._port = network.reserve_port(ports)
        return self._port[0] if self._port else None
