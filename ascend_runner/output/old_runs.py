"""Removes all but the newest log directories of earlier runs from ./logs, where each run has a directory of its own.

Only files that runs of this job have made are removed: a directory with anything else in it, such as a checkpoint that
a rank saved there, stays as it is. A run locks its directory before it writes its report, so a directory with a
report and a free lock belongs to a run that has ended. Of two runners that start at the same time one skips the
directories that the other removes.
"""

from __future__ import annotations

import fcntl
import os
import re
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from typing import Final

from ascend_runner.errors import reason
from ascend_runner.files import NEIGHBOUR
from ascend_runner.plan.context import TABLE_NAME
from ascend_runner.plan.job import JobSpec
from ascend_runner.settings.parsing import HOOKS

REMOVE_LIMIT: Final = 2.0  # seconds; a later run removes the rest

_TIME: Final = r"-\d{8}-\d{6}\.\d{6}"  # as in `PlanContext.started_at`
_LOCK_FLAGS: Final = os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class _TimeIsOverError(Exception):
    pass


def remove_old(job: JobSpec, warn: Callable[[str], None], clock: Callable[[], float] = time.monotonic) -> None:
    """Remove the directories of earlier runs beside a job's log directory, except the `log_runs` that ended last.

    It takes at most REMOVE_LIMIT seconds. A failure causes a warning.
    """

    def check_time() -> None:
        if clock() >= deadline:
            raise _TimeIsOverError

    try:
        old = sorted(_earlier(job), reverse=True)[job.log_runs :]
        deadline = clock() + REMOVE_LIMIT
        with suppress(_TimeIsOverError):
            for _ended_at, folder in old:
                with suppress(FileNotFoundError):  # another runner is removing it
                    _remove(folder, job, check_time)
    except OSError as error:
        warn(f"cannot remove an earlier run from {os.path.dirname(job.log_dir)!r}: {reason(error)}")


def _earlier(job: JobSpec) -> Iterator[tuple[int, str]]:
    """Yield the directories of other runs with the time when the report was last written, in nanoseconds."""
    is_name = re.compile(re.escape(job.job_id) + _TIME).fullmatch
    logs, own = os.path.split(job.log_dir)
    with os.scandir(logs) as entries:
        for entry in entries:
            if entry.name == own or not is_name(entry.name):
                continue
            with suppress(FileNotFoundError):  # belongs to another part of the job, or has no report yet
                folder = entry.stat(follow_symlinks=False)
                report = os.lstat(os.path.join(entry.path, os.path.basename(job.report_path)))
                if stat.S_ISDIR(folder.st_mode) and folder.st_uid == os.geteuid():
                    yield report.st_mtime_ns, entry.path


def _remove(folder: str, job: JobSpec, check_time: Callable[[], None]) -> None:
    """Remove a run's directory, unless a runner is using it or something else is in it.

    The report and the locks come last: until then the directory is still recognized as that of a run.
    """
    with os.scandir(folder) as scanned:
        entries = list(scanned)
    locks = [entry.path for entry in entries if entry.name.endswith(".lock")]
    if not locks or not all(_is_of_run(entry, job) for entry in entries):
        return
    with ExitStack() as held:
        for path in locks:
            if not _try_lock(path, held):
                return
        last = {os.path.join(folder, os.path.basename(job.report_path)), *locks}
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                _remove_tree(entry.path, check_time)
            elif entry.path not in last:
                check_time()
                os.unlink(entry.path)
        for path in last:
            os.unlink(path)
        os.rmdir(folder)


def _is_of_run(entry: os.DirEntry[str], job: JobSpec) -> bool:
    """Return whether a run makes such an entry: a file, CANN's logs, the rank table, an empty directory."""
    if entry.is_dir(follow_symlinks=False):
        return entry.name == job.job_id or {*os.listdir(entry.path)} <= {TABLE_NAME}
    # A file of another name keeps the directory.
    names = rf"{file_names(job)}|{re.escape(job.job_id)}.*\.lock"
    return entry.name.startswith(NEIGHBOUR) or bool(re.fullmatch(names, entry.name))


def file_names(job: JobSpec, part: str = ".*", processes: str = ".+", reruns: str = ".+") -> str:
    """Return a pattern for the names of files that a job writes to its log directory, by default on any node."""
    return re.escape(job.job_id) + (
        rf"(?:-proc-(?:{processes})(?:\.run-\d+)?\.txt(?:\.\d+)?|-rerun-(?:{reruns})\.sh"
        rf"|-hook-(?:{'|'.join(HOOKS)}){part}\.txt"
        rf"|-report{part}\.(?:json|html)|-events{part}\.jsonl|-run{part}\.json)"
    )


def _try_lock(path: str, held: ExitStack) -> bool:
    """Lock a file until `held` is closed, unless it is locked already, as far as the file system knows locks."""
    try:
        fd = os.open(path, _LOCK_FLAGS)
        held.callback(os.close, fd)
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except FileNotFoundError:
        raise
    except OSError:
        return False
    return True


def _remove_tree(path: str, check_time: Callable[[], None]) -> None:
    for _path, folders, names, fd in os.fwalk(path, topdown=False):
        for name in names:
            check_time()
            os.unlink(name, dir_fd=fd)
        for name in folders:
            try:
                os.rmdir(name, dir_fd=fd)
            except NotADirectoryError:  # a symlink
                os.unlink(name, dir_fd=fd)
    os.rmdir(path)
