"""Takes a command from the settings to its outcome: prepare the job, create its files, run it."""

from __future__ import annotations

import os
import socket
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing
from datetime import datetime

import attrs

from ascend_runner import errors, files
from ascend_runner.facts import Observer
from ascend_runner.guardian import process_tree
from ascend_runner.guardian.signal_sets import STOP_SIGNALS
from ascend_runner.host import cores, executables, network, terminal
from ascend_runner.host.host import Host
from ascend_runner.managed_node import ManagedNode
from ascend_runner.manager import Manager
from ascend_runner.output import log_folder
from ascend_runner.output.console import STDOUT, Console
from ascend_runner.output.messages import Messages
from ascend_runner.output.rank_output import HUNG_DISK_LIMIT, RankOutputs
from ascend_runner.plan.context import PlanContext
from ascend_runner.plan.job import JobSpec, TableFile, with_table_at
from ascend_runner.platforms.variables import HIGHEST_PORT, hccl_ports
from ascend_runner.preparation.prepare import Preparer
from ascend_runner.preparation.record import Preparation
from ascend_runner.problems import Severity, without_repeated_remedies
from ascend_runner.processes.rank_processes import RankProcesses
from ascend_runner.processes.signals import Signals
from ascend_runner.rank_record import Outcome
from ascend_runner.rank_table import source
from ascend_runner.rank_table.checks import entry as checks
from ascend_runner.report import build
from ascend_runner.report.progress import Progress
from ascend_runner.report.recorder import Recorder
from ascend_runner.report.report_file import REPORT_LIMIT, ReportFile
from ascend_runner.services import run_folder
from ascend_runner.services.heartbeats import listening
from ascend_runner.settings.model import Settings
from ascend_runner.settings.options import COLOR_ALWAYS, COLOR_AUTO
from ascend_runner.supervision.events import ORPHANED, SignalReceived, signal_name
from ascend_runner.text import printable


class Launcher:
    """Launches a command. It needs the signals from the start, because a wait can be interrupted."""

    def __init__(self, settings: Settings, environ: Mapping[str, str], signals: Signals, messages: Messages) -> None:
        self._settings = settings
        self._environ = environ
        self._signals = signals
        self._messages = messages
        self._port: socket.socket | None = None  # of node 0, bound as long as this process lives
        self._log_dir = ExitStack()  # holds the log directory
        self._report: ReportFile | None = None
        self._guardian = os.getppid()

    def prepare(self, command: Sequence[str], version: str = "") -> Preparation:
        """Plan the job, or find all problems. Waits for the rank table, except for a check.

        The port of a job on a single node is held from now on, except for a dry run, which shows the default. Nothing
        is written, except that a job that has to wait writes its report first if the report's name is already known. If
        preparation then fails, the report says so. `version` is the runner's, for the report.

        Raises:
            SettingsError: the current directory cannot be used.
            StopRequestedError: a stop signal arrived during a wait.
        """
        cwd = current_folder()
        context = PlanContext(
            settings=self._settings,
            command=tuple(command),
            environ=self._environ,
            cwd=cwd,
            logs=_logs(cwd),
            version=version,
            started_at=datetime.now().strftime("%Y%m%d-%H%M%S.%f"),  # noqa: DTZ005  local time, as in all messages
            host_name=os.uname().nodename,
            is_folder=os.path.isdir,
            read_text=Host().read_text,
            own_addresses=network.own_addresses,
            hold_port=int if self._settings.dry_run else self._hold_port,
            cores=cores.available(Host()),
            columns=terminal.columns(STDOUT),
            has_colors=self._has_colors(),
        )
        begin = None if self._settings.dry_run else self._begin
        preparer = Preparer(context, self._messages, self._check_for_signals, begin=begin)
        try:
            prepared = preparer.prepare()
        except errors.StopRequestedError as stop:
            self._fail(stop)
            raise
        if prepared.error:
            self._fail(prepared.error)
        return prepared

    def _has_colors(self) -> bool:
        color = self._settings.color
        return terminal.has_colors(STDOUT, self._environ) if color == COLOR_AUTO else color == COLOR_ALWAYS

    def tell(self, prepared: Preparation) -> None:
        """Show the problems of a job, and notes on its plan."""
        for note in prepared.plan.notes if prepared.plan else ():
            self._messages.debug(note)
        for problem in without_repeated_remedies(prepared.problems):
            show = self._messages.warning if problem.severity is Severity.WARNING else self._messages.error
            show(printable(str(problem)))

    def run(self, job: JobSpec, console: Console) -> Outcome:
        """Create the files of the plan, and run it.

        Raises:
            OutputError: a directory or file cannot be made; nothing was started.
            RankTableError: HCCL would not read the rank table where it had to be written; nothing was started.
        """
        with self._log_dir:
            report = self._report or self._begin(job)
            report.job = job
            try:
                job = self._without_stolen_stdin(self._write_files(job))
                self._check_for_signals()
                self._note_missing_py_spy(job)
                recorder = Recorder(job, self._signals.is_hurried)
                progress = Progress(job, self._messages, self._is_orphaned)
                self._manage(job, console, (progress, report), recorder)
            except errors.AscendRunnerError as error:
                report.fail(error)
                raise

            outcome = recorder.finish(self._messages.warning)
            limit = HUNG_DISK_LIMIT if recorder.is_disk_hung else REPORT_LIMIT
            if isinstance(outcome.cause, SignalReceived):
                outcome = attrs.evolve(outcome, cause=attrs.evolve(outcome.cause, is_orphaned=self._is_orphaned()))
            elif outcome.cause:
                reruns = report.write_reruns(job, self._environ, limit)
                ranks = tuple(attrs.evolve(rank, rerun=reruns.get(rank.rank_id, "")) for rank in outcome.ranks)
                outcome = attrs.evolve(outcome, ranks=ranks)
            outcome = attrs.evolve(outcome, warnings=tuple(self._messages.warnings))
            document = build.build(outcome, job, self._environ)
            report.finish(document, limit)
            return attrs.evolve(outcome, report=document)

    def _is_orphaned(self) -> bool:
        return os.getppid() != self._guardian

    def _begin(self, job: JobSpec) -> ReportFile:
        """Hold the log directory of a job, and report that it is being prepared."""
        self._log_dir.enter_context(log_folder.entered(job, self._messages.warning))
        self._report = ReportFile(job, self._messages.warning, self._signals.is_hurried)
        self._report.begin()
        return self._report

    def _fail(self, error: errors.AscendRunnerError) -> None:
        """Report that a job that was waiting will not run, if its report was begun."""
        with self._log_dir:
            if self._report:
                self._report.fail(error)

    def _hold_port(self, first: int) -> int:
        """Hold a port until the end of the job: the first one, or else the next that is free and not HCCL's."""
        own = hccl_ports(self._environ)
        self._port = network.hold_port(port for port in range(first, HIGHEST_PORT + 1) if port not in own)
        return self._port.getsockname()[1] if self._port else first

    def _manage(self, job: JobSpec, console: Console, observers: Sequence[Observer], recorder: Recorder) -> None:
        if not process_tree.is_proc_ours():
            self._messages.warning(
                "/proc belongs to another PID namespace: processes that leave their rank's session cannot be found"
                " and stopped (use unshare --mount-proc)"
            )
        output = RankOutputs(job, console, self._messages.warning)
        with ExitStack() as beside:
            folder = beside.enter_context(run_folder.opened(self._environ))
            job = run_folder.with_requests(job, folder)
            job, heartbeats = beside.enter_context(listening(job, folder, self._messages.warning))
            processes = beside.enter_context(closing(RankProcesses()))
            self._signals.watch(processes.exits)
            node = ManagedNode(
                processes=processes,
                output=output,
                clock=self._signals,
                evidence=recorder.investigation,
                heartbeats=heartbeats,
            )
            try:
                Manager(job, node, observers=(*observers, recorder, heartbeats)).run()
            finally:
                self._signals.unwatch(processes.exits)

    def _note_missing_py_spy(self, job: JobSpec) -> None:
        search_path = job.processes[0].env.get("PATH", os.defpath)
        if job.hang_timeout is not None and not executables.find_py_spy(search_path):
            self._messages.info(f"{executables.NO_PY_SPY}: the stacks of a hang will be the kernel's, not Python's")

    def _without_stolen_stdin(self, job: JobSpec) -> JobSpec:
        """Return the plan without a rank that would take the terminal's input from what runs in the foreground."""
        readers = [process for process in job.processes if process.has_stdin]
        if not readers or not terminal.is_in_background(os.getpgid(os.getppid())):
            return job
        self._messages.warning("--stdin is ignored because the job runs in the background")
        return attrs.evolve(
            job,
            ranks=tuple(attrs.evolve(rank, has_stdin=False) for rank in job.ranks),
            beside=tuple(attrs.evolve(process, has_stdin=False) for process in job.beside),
        )

    def _write_files(self, job: JobSpec) -> JobSpec:
        """Make the directories and files of a plan; returns the plan with the path at which its rank table is."""
        for folder in job.folders:
            files.make_folder(folder)
        for path, content in job.host_files.items():
            files.make_folder(os.path.dirname(path))
            files.write_atomically(path, content)
        if not job.table:
            return job

        path = write_table(job.table, warn=self._messages.warning)
        if path == job.table.path:
            return job
        problem = checks.name_problem(os.path.realpath(path))
        if problem and not self._settings.no_table_checks:
            raise errors.RankTableError(f"{problem}; use --no-table-checks to start the job anyway")
        return with_table_at(job, path)

    def _check_for_signals(self, seconds: float = 0.0) -> None:
        """Wait, and raise StopRequestedError if a stop signal arrives."""
        for signum in self._signals.wait(seconds):
            if signum in STOP_SIGNALS:
                remark = f" ({ORPHANED})" if self._is_orphaned() else ""
                raise errors.StopRequestedError(signum, signal_name(signum) + remark)


def write_table(table: TableFile, warn: Callable[[str], None]) -> str:
    """Write the rank table at its path, or else, with a warning, at its fallback path; return the path.

    Raises:
        OutputError: it can be written at neither.
    """
    try:
        source.write(table.path, table.data)
    except errors.OutputError as error:
        warn(f"{error}; writing the rank table to {table.fallback_path!r} instead")
    else:
        return table.path

    source.write(table.fallback_path, table.data)
    return table.fallback_path


def _logs(cwd: str) -> str:
    """Return the directory for the log directories of runs: ./logs, unless this user cannot write there."""
    logs = os.path.join(cwd, "logs")
    is_writable = os.access(logs if os.path.isdir(logs) else cwd, os.W_OK | os.X_OK)
    return logs if is_writable else os.path.join(own_temporary_folder(), "logs")


def own_temporary_folder() -> str:
    """Return a directory that no other user has, for what cannot be written elsewhere."""
    return os.path.join(tempfile.gettempdir(), f"ascend-runner-{os.geteuid()}")


def current_folder() -> str:
    """Return the current directory.

    Raises:
        SettingsError: it was removed, or is not accessible to this user.
    """
    try:
        return os.getcwd()
    except OSError as error:
        raise errors.SettingsError(
            f"cannot use the current directory: {errors.reason(error)}; change to another one"
        ) from error
