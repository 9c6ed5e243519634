"""The story in one function: await the table, find this node, plan, manage."""

from __future__ import annotations

import os
import stat

import ascend_runner
from ascend_runner import errors
from ascend_runner.annotations import TYPE_CHECKING, Final
from ascend_runner.job import command_line, this_node
from ascend_runner.job.plan import Request, Surroundings, plan, with_cores, with_table_at
from ascend_runner.job.settings import DIRECT
from ascend_runner.linux import cores, files, threads
from ascend_runner.manager import Manager
from ascend_runner.platforms import find
from ascend_runner.supervision.events import signal_name
from ascend_runner.supervision.machine import STOP_SIGNALS
from ascend_runner.text import printable

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ascend_runner.job.plan import JobSpec, TableFile
    from ascend_runner.job.settings import Settings
    from ascend_runner.job.this_node import NodeShare
    from ascend_runner.linux.console import Console
    from ascend_runner.linux.signals import Signals
    from ascend_runner.platforms.node import Node
    from ascend_runner.platforms.single import Single
    from ascend_runner.rank_table import RankTable
    from ascend_runner.rank_table.source import Snapshot
    from ascend_runner.reporter import Reporter
    from ascend_runner.supervision.outcome import Outcome

# Where platforms put the table when no variable says so: ModelArts and CCE, then MindCluster.
USUAL_PLACES: Final = ("/user/config/jobstart_hccl.json", "/user/serverid/devindex/config/hccl.json")

REPORT_LIMIT: Final = 2.0  # seconds for a disk to take the report; nobody reads the cause before that, so not for ever
INTERPRETERS: Final = ("python", "pypy", "bash", "sh", "dash", "zsh", "perl")  # how their names begin


class Launcher:
    """Takes a command from the settings to its outcome. Needs the signals from the start: a wait can be interrupted."""

    def __init__(self, settings: Settings, environ: Mapping[str, str], signals: Signals, reporter: Reporter) -> None:
        self._settings = settings
        self._environ = environ
        self._signals = signals
        self._reporter = reporter
        self._cwd = current_folder()
        self._host = this_node.Host(os.uname().nodename, _own_addresses)

    def prepare(self, command: Sequence[str]) -> JobSpec:
        """Decide everything and touch nothing. Waits for the rank table.

        Errors: AscendRunnerError of every kind; StopRequestedError for a signal during the wait.
        """
        settings = self._settings
        command_line.check(command)
        self._enter_conda(command[0])
        said = settings.said
        alone = None if said.is_complete else self._find_single()
        if settings.launcher != DIRECT and not alone:
            return self._told(self._prepare_handover(command, find.find(self._environ, said)))

        executable = command[0] if _is_relative(command[0]) else self._find_executable(command[0], self._cwd)
        request = Request(executable, tuple(command))
        if alone:
            from ascend_runner.job.plan_once import plan_single  # only here: most start a process per device

            self._reporter.info(f"{alone.why} (--nnodes 1 starts a process per device of this node all the same)")
            job = plan_single(request, alone, settings, self._surroundings())
        else:
            job = self._prepare_ranks(request, find.find(self._environ, said))
        self._refuse_what_is_missing(job)
        return self._told(job)

    def _find_single(self) -> Single | None:
        """See whether somebody else has started a process per card already."""
        if find.SINGLE_WITNESSES.isdisjoint(self._environ):
            return None
        from ascend_runner.platforms import single  # only where a variable speaks for it

        return single.find(self._environ, names_the_ranks=self._settings.names_the_ranks)

    def _prepare_ranks(self, request: Request, node: Node) -> JobSpec:
        """Plan one process per device of this node."""
        snapshot, share = self._find_share(node)
        table = _handed_on(snapshot) if snapshot else None
        job = plan(request._replace(table=table), self._settings, share, self._surroundings())
        if snapshot and job.table and not self._settings.no_table_checks:
            self._check_table(snapshot.table, job.table)
        return self._bound(job) if self._settings.bind else job

    def _prepare_handover(self, command: Sequence[str], node: Node) -> JobSpec:
        """Plan one process that starts this node's ranks by itself."""
        from ascend_runner.job import plan_once  # only here: most start a process per device

        plan_once.refuse_options_of_ranks(self._settings)
        _, share = self._find_share(node)
        surroundings = self._surroundings()
        handover = plan_once.hand_over(tuple(command), share, self._settings, surroundings)
        executable = self._find_executable(handover.argv[0], self._cwd)
        self._reporter.info(f"--launcher {self._settings.launcher}: {handover.note}")
        return plan_once.plan_handover((executable, handover), share, self._settings, surroundings)

    def _find_share(self, node: Node) -> tuple[Snapshot | None, NodeShare]:
        """Find this node's ranks: by the rank table where it counts, else as many as the user or the platform says."""
        self._reporter.debug(node.why)
        nproc = self._settings.nproc_per_node or node.devices_per_node or 1
        if not self._needs_table(node):
            return None, this_node.without_table(nproc, node, self._host)

        snapshot = self._await_table()
        for warning in snapshot.table.warnings:
            self._reporter.warn(warning)
        if not snapshot.table.devices:  # a job on CPUs still gets a table, and none of it is handed on
            return snapshot, this_node.without_table(self._settings.nproc_per_node or 1, node, self._host)
        share = this_node.find_share(snapshot.table, self._environ, self._host)
        return snapshot, this_node.agreed(share, snapshot.table, node)

    def _needs_table(self, node: Node) -> bool:
        """Whether a rank table decides: one that was asked for, that is announced and of use, or if none else does."""
        settings = self._settings
        if settings.rank_table is not None or settings.nproc_per_node is not None:
            return settings.rank_table is not None
        if not node.devices_per_node:
            return True

        # These number their ranks without one.
        is_of_use = settings.launcher == DIRECT and settings.framework != "mindspore-cluster"
        return is_of_use and bool(announced_table(self._environ))

    def _told(self, job: JobSpec) -> JobSpec:
        for note in job.notes:
            self._reporter.debug(note)
        for warning in job.warnings:
            self._reporter.warn(warning)
        return job

    def _surroundings(self) -> Surroundings:
        count = cores.available()
        return Surroundings(self._environ, self._cwd, self._host.name, os.path.isdir, count, self._resolve)

    def _enter_conda(self, command: str) -> None:
        if self._settings.conda_env or self._environ.get("ANACONDA_DIR"):
            from ascend_runner import inquiries  # only in an image with conda

            variables = inquiries.conda_variables(command, self._environ, self._settings, self._reporter)
            self._environ = {**self._environ, **variables}

    def _resolve(self, name: str) -> str:
        from ascend_runner import inquiries  # most frameworks take names

        return inquiries.address_of(name, self._settings, self._reporter, self._check_for_signals)

    def run(self, job: JobSpec, console: Console) -> Outcome:
        """Make what the plan needs on disk, and run it. Errors: OutputError, with nothing started."""
        for folder in job.folders:
            files.make_folder(folder)
        for file in job.host_files:
            files.make_folder(os.path.dirname(file.path))
            files.write_whole(file.path, file.content)
        if job.table:
            path = write_table(job.table, warn=self._reporter.warn)
            if path != job.table.path:
                self._check_name(path)
                job = with_table_at(job, path)
        self._check_for_signals()

        manager = Manager(job, self._signals, console, self._reporter)
        outcome = manager.run()

        from ascend_runner import report  # the job is over: time for imports

        document = report.encode(
            report.make(outcome, job, manager.seen(outcome, self._environ), ascend_runner.__version__)
        )
        self._write_report(os.path.join(job.log_dir, report.file_name(job)), document)
        return outcome._replace(report=document)

    def _write_report(self, path: str, document: Mapping[str, object]) -> None:
        from ascend_runner import report  # as above

        failures: list[errors.OutputError] = []

        def write() -> None:
            try:
                files.write_whole(path, report.text(document).encode())
            except errors.OutputError as error:  # the job's own status must not be lost for that
                failures.append(error)

        if not threads.within(REPORT_LIMIT, write):
            self._reporter.warn(f"cannot write {path!r}: its disk has not answered for {REPORT_LIMIT:g} s")
        for error in failures:
            self._reporter.warn(str(error))

    def _await_table(self) -> Snapshot:
        from ascend_runner.rank_table import source  # attrs and orjson, 50 ms that a run without a table does not pay

        return source.await_snapshot(
            table_place(self._settings.rank_table, self._environ, self._cwd),
            timeout=self._settings.rank_table_timeout,
            lists_decide=self._settings.no_table_checks,
            pause=self._check_for_signals,
            say=self._reporter.info,
        )

    def _check_table(self, table: RankTable, file: TableFile) -> None:
        """Say now what HCCL would refuse half an hour later. Errors: RankTableError with all of it."""
        from ascend_runner.rank_table import checks
        from ascend_runner.rank_table.findings import ERROR

        chip = self._settings.chip or checks.chip_of(self._environ)
        path = os.path.realpath(file.path)  # as HCCL does before it looks at the name
        is_roce_wanted = checks.wants_roce(self._environ)
        findings = checks.check(table, path, chip, size=len(file.data), is_roce_wanted=is_roce_wanted)
        refusals = [finding for finding in findings if finding.severity == ERROR]
        for finding in findings:
            if finding not in refusals:
                self._reporter.warn(str(finding))
        if refusals:
            told = [printable(f"{finding} ({finding.code})" if finding.code else str(finding)) for finding in refusals]
            hint = "--no-table-checks launches all the same"
            raise errors.RankTableError("\n  ".join([f"HCCL would refuse the rank table; {hint}:", *told]))

    def _check_name(self, path: str) -> None:
        """Look at the place that nobody has named. Errors: RankTableError where HCCL would not read a file there."""
        from ascend_runner.rank_table import checks  # only where the first place cannot be written

        problem = checks.name_problem(os.path.realpath(path))
        if problem and not self._settings.no_table_checks:
            raise errors.RankTableError(f"{problem}; --no-table-checks launches all the same")

    def _bound(self, job: JobSpec) -> JobSpec:
        """Give each rank cores next to its NPU, as --bind asks for."""
        from ascend_runner.frameworks import hccl  # these two only with --bind
        from ascend_runner.linux import npu

        nproc = len(job.ranks)
        devices = npu.of_ranks(nproc, hccl.visible_devices(self._environ))
        placement = cores.place(self._settings.bind or cores.CORES, nproc, devices)
        if not placement.is_near:
            self._reporter.info("--bind splits the cores evenly: it is not known which of them are next to which NPU")
        return with_cores(job, placement.cores)

    def _check_for_signals(self, seconds: float = 0.0) -> None:
        for signum in self._signals.wait(seconds):
            if signum in STOP_SIGNALS:
                raise errors.StopRequestedError(signum, signal_name(signum))

    def _refuse_what_is_missing(self, job: JobSpec) -> None:
        """Refuse a working directory that is not there, and a relative script that is here, but not there."""
        first = job.processes[0]
        if not os.path.isdir(first.cwd) and first.cwd not in job.folders:
            raise errors.SettingsError(
                f"--workdir is {first.cwd!r}, expected 'device', 'inherit' or a folder that exists"
            )
        if first.cwd == self._cwd:
            if _is_relative(first.executable):
                self._find_executable(first.executable, first.cwd)
            return

        candidates = _scripts(first.argv)
        for word in candidates:
            if os.path.isabs(word) or not os.path.isfile(os.path.join(self._cwd, word)):
                continue
            for rank in job.processes:
                if not os.path.exists(os.path.join(rank.cwd, word)):
                    raise errors.SettingsError(
                        f"{word!r} is in {self._cwd}, but not in the working directory of {rank.title},"
                        f" {rank.cwd}: name it by its full path, or use --workdir inherit"
                    )
        if _is_relative(first.executable):
            self._find_executable(first.executable, first.cwd)

    def _find_executable(self, name: str, cwd: str) -> str:
        """Find what the kernel would be given. Errors: CommandError with 127 (not found) or 126 (not executable)."""
        folders = [""] if "/" in name else self._environ.get("PATH", os.defpath).split(os.pathsep)
        found_at = ""
        for folder in folders:
            path = os.path.join(cwd, folder, name)
            if os.path.isfile(path) and os.access(path, os.X_OK):
                return name if "/" in name else path  # a relative folder of PATH is the caller's, not the ranks'
            if os.path.exists(path):
                found_at = found_at or path

        if found_at:
            what = "is a folder" if stat.S_ISDIR(os.stat(found_at).st_mode) else "is not executable"
            raise errors.CommandError(f"{found_at!r} {what}", exit_status=errors.COMMAND_NOT_EXECUTABLE)
        where = f"in {cwd}" if "/" in name else "in any folder of PATH"
        raise errors.CommandError(f"there is no command {name!r} {where}", exit_status=errors.COMMAND_NOT_FOUND)


def table_place(named: str | None, environ: Mapping[str, str], cwd: str) -> str:
    """Tell where the rank table is, or will be. Errors: RankTableError, with all places that were looked at."""
    place = named or announced_table(environ)
    if place:
        return os.path.join(cwd, place)

    raise errors.RankTableError(
        "no rank table: neither --rank-table, RANK_TABLE_FILE_V_1_0 nor RANK_TABLE_FILE is set, and there is no folder"
        f" for {' or '.join(USUAL_PLACES)}; --nproc-per-node N runs N ranks without one"
    )


def announced_table(environ: Mapping[str, str]) -> str:
    """Tell where the platform says that a rank table is, or will be; empty where it says nothing."""
    named = environ.get("RANK_TABLE_FILE_V_1_0") or environ.get("RANK_TABLE_FILE")
    return named or next((place for place in USUAL_PLACES if os.path.isdir(os.path.dirname(place))), "")


def write_table(table: TableFile, warn: Callable[[str], None]) -> str:
    """Write the table where it belongs, else where it can be; the path. Errors: OutputError."""
    from ascend_runner.rank_table import source

    try:
        files.make_folder(os.path.dirname(table.path))
        source.write(table.path, table.data)
    except (OSError, errors.OutputError) as error:
        reason = errors.reason(error) if isinstance(error, OSError) else str(error)
        warn(f"cannot write the rank table {table.path!r} ({reason}), using {table.fallback_path!r}")
    else:
        return table.path

    files.make_folder(os.path.dirname(table.fallback_path))
    try:
        source.write(table.fallback_path, table.data)
    except OSError as error:
        raise errors.OutputError(
            f"cannot write the rank table {table.fallback_path!r}: {errors.reason(error)}"
        ) from error
    return table.fallback_path


def current_folder() -> str:
    """Give the folder that the caller is in. Errors: SettingsError where it is gone, or closed to this user."""
    try:
        return os.getcwd()
    except OSError as error:
        raise errors.SettingsError(
            f"the current folder cannot be used: {errors.reason(error)}; change to another"
        ) from error


def _handed_on(snapshot: Snapshot) -> bytes | None:
    from ascend_runner.rank_table import codec

    return codec.hand_on(snapshot.table, snapshot.data) if snapshot.table.devices else None


def _scripts(argv: Sequence[str]) -> list[str]:
    """Give the words that name a program to run: the command itself, or what an interpreter is to read."""
    if _is_relative(argv[0]):
        return [argv[0]]
    if not os.path.basename(argv[0]).startswith(INTERPRETERS):
        return []

    words = iter(argv[1:])
    for word in words:
        if word in {"-m", "-c"}:
            return []
        if word in {"-W", "-X", "-O", "-o"}:
            next(words, None)
        elif not word.startswith("-"):
            return [word]
    return []


def _is_relative(name: str) -> bool:
    return "/" in name and not os.path.isabs(name)


def _own_addresses() -> list[str]:
    from ascend_runner import inquiries  # only where a table with several servers is not answered by a variable

    return inquiries.own_addresses()
