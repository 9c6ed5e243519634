"""The story in one function: await the table, find this node, plan, manage."""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING, Final

from ascend_runner import errors
from ascend_runner.job import this_node
from ascend_runner.job.plan import Request, Surroundings, plan, with_table_at
from ascend_runner.linux import files
from ascend_runner.manager import Manager
from ascend_runner.supervision.events import signal_name
from ascend_runner.supervision.machine import STOP_SIGNALS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ascend_runner.job.plan import JobSpec, TableFile
    from ascend_runner.job.settings import Settings
    from ascend_runner.linux.console import Console
    from ascend_runner.linux.signals import Signals
    from ascend_runner.rank_table import RankTable
    from ascend_runner.rank_table.source import Snapshot
    from ascend_runner.reporter import Reporter
    from ascend_runner.supervision.outcome import Outcome

# Where platforms put the table when no variable says so: ModelArts and CCE, then MindCluster.
USUAL_PLACES: Final = ("/user/config/jobstart_hccl.json", "/user/serverid/devindex/config/hccl.json")


INTERPRETERS: Final = ("python", "pypy", "bash", "sh", "dash", "zsh", "perl")  # how their names begin


class Launcher:
    """Takes a command from the settings to its outcome. Needs the signals from the start: a wait can be interrupted."""

    def __init__(self, settings: Settings, environ: Mapping[str, str], signals: Signals, reporter: Reporter) -> None:
        self._settings = settings
        self._environ = environ
        self._signals = signals
        self._reporter = reporter
        self._cwd = _current_folder()
        self._host = this_node.Host(os.uname().nodename, _own_addresses)

    def prepare(self, command: Sequence[str]) -> JobSpec:
        """Decide everything and touch nothing. Waits for the rank table.

        Errors: AscendRunnerError of every kind; StopRequestedError for a signal during the wait.
        """
        executable = command[0] if _is_relative(command[0]) else self._find_executable(command[0], self._cwd)
        snapshot = table = None
        if self._settings.nproc_per_node is not None and self._settings.rank_table is None:
            share = this_node.without_table(self._settings.nproc_per_node, self._host)
        else:
            snapshot = self._await_table()
            for warning in snapshot.table.warnings:
                self._reporter.warn(warning)
            share = this_node.find_share(snapshot.table, self._environ, self._host)
            table = _handed_on(snapshot)

        surroundings = Surroundings(self._environ, self._cwd, self._host.name, os.path.isdir)
        job = plan(Request(executable, tuple(command), table), self._settings, share, surroundings)
        if snapshot and job.table and not self._settings.no_table_checks:
            self._check_table(snapshot.table, job.table)
        self._refuse_missing_script(job)
        return job

    def run(self, job: JobSpec, console: Console) -> Outcome:
        """Make what the plan needs on disk, and run it. Errors: OutputError, with nothing started."""
        for folder in job.folders:
            files.make_folder(folder)
        if job.table:
            path = write_table(job.table, warn=self._reporter.warn)
            job = with_table_at(job, path) if path != job.table.path else job
        self._check_for_signals()

        manager = Manager(job, self._signals, console, self._reporter)
        outcome = manager.run()

        from ascend_runner import report  # the job is over: time for imports

        document = report.encode(report.make(outcome, job, manager.seen(outcome, self._environ)))
        self._write_report(os.path.join(job.log_dir, report.file_name(job)), document)
        return outcome._replace(report=document)

    def _write_report(self, path: str, document: Mapping[str, object]) -> None:
        import json

        try:
            files.write_whole(path, json.dumps(document, indent=1).encode())
        except errors.OutputError as error:  # the job's own status must not be lost for that
            self._reporter.warn(str(error))

    def _await_table(self) -> Snapshot:
        from ascend_runner.rank_table import source  # attrs and orjson, 50 ms that a run without a table does not pay

        return source.await_snapshot(
            table_place(self._settings.rank_table, self._environ, self._cwd),
            timeout=self._settings.rank_table_timeout,
            pause=self._check_for_signals,
            say=self._reporter.info,
        )

    def _check_table(self, table: RankTable, file: TableFile) -> None:
        """Say now what HCCL would refuse half an hour later. Errors: RankTableError with all of it."""
        from ascend_runner.rank_table import checks
        from ascend_runner.rank_table.findings import ERROR
        from ascend_runner.text import printable

        chip = self._settings.chip or checks.chip_of(self._environ)
        findings = checks.check(table, file.path, chip, size=len(file.data))
        refusals = [finding for finding in findings if finding.severity == ERROR]
        for finding in findings:
            if finding not in refusals:
                self._reporter.warn(str(finding))
        if refusals:
            told = [printable(f"{finding} ({finding.code})" if finding.code else str(finding)) for finding in refusals]
            hint = "--no-table-checks launches all the same"
            raise errors.RankTableError("\n  ".join([f"HCCL would refuse the rank table; {hint}:", *told]))

    def _check_for_signals(self, seconds: float = 0.0) -> None:
        for signum in self._signals.wait(seconds):
            if signum in STOP_SIGNALS:
                raise errors.StopRequestedError(signum, signal_name(signum))

    def _refuse_missing_script(self, job: JobSpec) -> None:
        """Refuse a relative script that is here, but not in the ranks' working directory."""
        first = job.ranks[0]
        if first.cwd == self._cwd:
            if _is_relative(first.executable):
                self._find_executable(first.executable, first.cwd)
            return

        candidates = _scripts(first.argv)
        for word in candidates:
            if os.path.isabs(word) or not os.path.isfile(os.path.join(self._cwd, word)):
                continue
            for rank in job.ranks:
                if not os.path.exists(os.path.join(rank.cwd, word)):
                    raise errors.SettingsError(
                        f"{word!r} is in {self._cwd}, but not in the working directory of rank {rank.rank_id},"
                        f" {rank.cwd}: name it by its full path, or use --workdir inherit"
                    )
        if _is_relative(first.executable):
            self._find_executable(first.executable, first.cwd)

    def _find_executable(self, name: str, cwd: str) -> str:
        """Find what the kernel would be given. Errors: CommandError with 127 (not found) or 126 (not executable)."""
        if not name:
            raise errors.CommandError("the command is an empty word", exit_status=errors.COMMAND_NOT_FOUND)
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
    named = named or environ.get("RANK_TABLE_FILE_V_1_0") or environ.get("RANK_TABLE_FILE")
    if named:
        return os.path.join(cwd, named)
    for place in USUAL_PLACES:
        if os.path.isdir(os.path.dirname(place)):
            return place

    raise errors.RankTableError(
        "no rank table: neither --rank-table, RANK_TABLE_FILE_V_1_0 nor RANK_TABLE_FILE is set, and there is no folder"
        f" for {' or '.join(USUAL_PLACES)}; --nproc-per-node N runs N ranks without one"
    )


def write_table(table: TableFile, warn: Callable[[str], None]) -> str:
    """Write the table where it belongs, else where it can be; the path. Errors: OutputError."""
    from ascend_runner.rank_table import source

    try:
        files.make_folder(os.path.dirname(table.path))
        source.write(table.path, table.data)
    except (OSError, errors.OutputError) as error:
        reason = _reason(error) if isinstance(error, OSError) else str(error)
        warn(f"cannot write the rank table {table.path!r} ({reason}), using {table.fallback_path!r}")
    else:
        return table.path

    files.make_folder(os.path.dirname(table.fallback_path))
    try:
        source.write(table.fallback_path, table.data)
    except OSError as error:
        raise errors.OutputError(f"cannot write the rank table {table.fallback_path!r}: {_reason(error)}") from error
    return table.fallback_path


def _current_folder() -> str:
    try:
        return os.getcwd()
    except OSError as error:
        raise errors.SettingsError(f"the current folder cannot be used: {_reason(error)}; change to another") from error


def _reason(error: OSError) -> str:
    return (error.strerror or str(error)).lower()


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
    import socket

    import psutil  # 20 ms, only where a table with several servers is not answered by a variable

    families = {socket.AF_INET, socket.AF_INET6}
    found = [address for addresses in psutil.net_if_addrs().values() for address in addresses]
    plain = [address.address.partition("%")[0] for address in found if address.family in families]
    return [address for address in plain if not address.startswith("127.") and address != "::1"]
