"""The log directory of a job: locked while the job runs, and cleared of what earlier runs have left.

A run's logs, report and scripts belong together: they move to a `run-<n>` directory, of which the newest few are kept,
and the newest one of a success: after many vain tries, its logs are those that somebody wants to compare with.
Without the lock nothing is moved or written, so that a second start of a running job leaves its files alone.

In ./logs, where each run has a directory of its own, all but the newest are removed. Only files that runs of this job
have made are: a directory with anything else in it, such as a checkpoint that a rank saved there, stays as it is. A run
locks its directory before it writes its report, so a directory with a report and a free lock belongs to a run that has
ended. Of two runners that start at the same time one skips the directories that the other removes.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import stat
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from typing import Final

from ascend_runner import files, report_file
from ascend_runner.errors import OutputError, UnreadableError, reason
from ascend_runner.files import NEIGHBOUR
from ascend_runner.node import disks
from ascend_runner.plan.ranks import TABLE_NAME
from ascend_runner.plan.spec import FLIGHT_RECORDER, JobSpec
from ascend_runner.settings.parsing import HOOKS
from ascend_runner.supervision.job_machine import JobState
from ascend_runner.text import abbreviated, counted

REMOVE_LIMIT: Final = 2.0  # seconds; a later run removes the rest

_TIME: Final = r"-\d{8}-\d{6}\.\d{6}"  # as in `PlanContext.started_at`
_LOCK_FLAGS: Final = os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class _TimeIsOverError(Exception):
    pass


def remove_old(
    job: JobSpec, warn: Callable[[str], None], clock: Callable[[], float] = time.monotonic
) -> tuple[str, ...]:
    """Remove earlier runs, except the newest `log_runs` and the newest success; return the directories removed.

    These are the directories beside a job's log directory if each run has its own, else the `run-<n>` in it. It takes
    at most REMOVE_LIMIT seconds. A failure causes a warning.
    """

    def check_time() -> None:
        if clock() >= deadline:
            raise _TimeIsOverError

    removed, folder = [], job.files.log_dir
    is_ours, deadline = _is_file_of(job), clock() + REMOVE_LIMIT
    try:
        if job.files.newest_link:
            folder = os.path.dirname(folder)
            runs = [path for _ended_at, path in sorted(_earlier(job), reverse=True)]
        else:
            runs = [_folder(folder, number) for number in sorted(_numbers(folder, is_ours), reverse=True)]
        with suppress(_TimeIsOverError):
            for run in _superfluous(runs, job, check_time):
                with suppress(FileNotFoundError):  # another runner is removing it
                    if job.files.newest_link:
                        is_removed = _remove_run(run, job, check_time)
                    else:
                        is_removed = _remove(run, is_ours, check_time)
                    removed += [run] if is_removed else []
    except OSError as error:
        warn(f"cannot remove an earlier run from {folder!r}: {reason(error)}")
    return tuple(removed)


def _superfluous(runs: Sequence[str], job: JobSpec, check_time: Callable[[], None]) -> Iterator[str]:
    """Yield the runs to remove: all but the newest ones and the newest success. `runs` begins with the newest."""
    is_report = _matcher(rf"{re.escape(job.job_id)}-report.*\.json")
    keep = job.files.log_runs

    def is_success(run: str) -> bool:
        check_time()
        return _has_succeeded(run, is_report)

    newest_success: str | None = None  # looked for only if a run that might be it could be removed
    for run in runs[keep:]:
        if newest_success is None and _has_succeeded(run, is_report):
            newest_success = next(filter(is_success, runs[:keep]), run)
        if run != newest_success:
            yield run


def _has_succeeded(run: str, is_report: Callable[[str], bool]) -> bool:
    """Return whether each report in a run's directory says that the job succeeded; nodes may share the directory."""
    reports = [os.path.join(run, name) for name in _ours(run, is_report)]
    try:
        return {report_file.read(path).text("state") for path in reports} == {JobState.SUCCEEDED.value}
    except UnreadableError:
        return False


def _earlier(job: JobSpec) -> Iterator[tuple[int, str]]:
    """Yield the directories of other runs with the time when the report was last written, in nanoseconds."""
    is_name = re.compile(re.escape(job.job_id) + _TIME).fullmatch
    logs, own = os.path.split(job.files.log_dir)
    with os.scandir(logs) as entries:
        for entry in entries:
            if entry.name == own or not is_name(entry.name):
                continue
            with suppress(FileNotFoundError):  # belongs to another part of the job, or has no report yet
                folder = entry.stat(follow_symlinks=False)
                report = os.lstat(os.path.join(entry.path, os.path.basename(job.report_path)))
                if stat.S_ISDIR(folder.st_mode) and folder.st_uid == os.geteuid():
                    yield report.st_mtime_ns, entry.path


def _remove_run(folder: str, job: JobSpec, check_time: Callable[[], None]) -> bool:
    """Remove a run's directory, unless a runner is using it or something else is in it; return whether it is gone.

    The report and the locks come last: until then the directory is still recognized as a run.
    """
    with os.scandir(folder) as scanned:
        entries = list(scanned)
    locks = [entry.path for entry in entries if entry.name.endswith(".lock")]
    if not locks or not all(_is_of_run(entry, job) for entry in entries):
        return False
    with ExitStack() as held:
        for path in locks:
            if not _try_lock(path, held):
                return False
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
    return True


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
        rf"|-{FLIGHT_RECORDER}-\w+-(?:{reruns})(?:_py_traceback)?"  # the last one is torch_npu's
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


# Seconds. On a disk a rename takes microseconds; on an object store it copies the file.
MOVE_LIMIT: Final = 10.0

CHECK_TIME: Final = 0.05  # seconds; `is_in_use` takes microseconds

_RUN_FOLDER: Final = r"run-([1-9][0-9]{0,8})"


@contextmanager
def entered(job: JobSpec, warn: Callable[[str], None]) -> Iterator[str]:
    """Lock the log directory of a job while the context lasts, with the files of earlier runs moved away.

    The value is a sentence on earlier runs that were removed, or "".

    Raises:
        OutputError: Another job writes to it, or it cannot be used.
    """
    try:
        files.make_folder(job.files.log_dir)
    except OutputError as error:
        raise OutputError(f"{error}; use another --log-dir") from error
    fd = _locked(job)
    try:
        _put_aside(job, warn)
        if job.files.newest_link:
            point_at_newest(job.files.log_dir, job.files.newest_link)
        yield _removal(remove_old(job, warn), job)
    finally:
        disks.release(fd)


def _removal(removed: Sequence[str], job: JobSpec) -> str:
    """Say which directories of earlier runs were removed."""
    if not removed:
        return ""
    names, keep = abbreviated([os.path.basename(run) for run in removed]), job.files.log_runs
    kept = f"the newest {keep} and the newest success are" if keep > 1 else "the newest one and the newest success are"
    folder = os.path.dirname(removed[0])
    return f"removed {counted(len(removed), 'earlier run')} from {folder!r} ({names}): {kept} kept (--log-runs)"


def is_in_use(job: JobSpec) -> bool:
    """Return whether another job writes to the log directory. Creates nothing, and locks only while checking."""
    return _is_locked(lock_path(job))


def _is_locked(path: str) -> bool:
    try:
        fd = os.open(path, files.READ_FLAGS)
    except OSError:
        return False
    try:
        return not files.try_lock(fd, fcntl.LOCK_SH)
    finally:
        os.close(fd)


def busy_sentence(job: JobSpec) -> str:
    """Return the sentence for a log directory in use, with what to do."""
    return f"another job named {job.job_id!r} is writing to {job.files.log_dir!r}; use another --log-dir"


def lock_path(job: JobSpec) -> str:
    """Return the path of the file that is locked while this part of a job runs."""
    return os.path.join(job.files.log_dir, f"{job.job_id}{job.part}.lock")


def _is_file_of(job: JobSpec) -> Callable[[str], bool]:
    """Return a test for the names of files that this part of the job writes to the log directory, in any run.

    A job that is the first to wait for a rank table here does not know its part yet: then the files of all parts count.
    """
    if not (job.is_placed or _is_any_part_running(job)):
        return _matcher(file_names(job))
    parts = [rf"rank-{rank.rank_id}-device-\d+" for rank in job.ranks]
    parts += [re.escape(process.name) for process in job.beside]
    reruns = [rf"rank-{rank.rank_id}" for rank in job.ranks] + [re.escape(process.name) for process in job.beside]
    if job.has_all_ranks:  # an earlier run may have had other ranks
        parts, reruns = [".+"], [".+"]
    return _matcher(file_names(job, re.escape(job.part), "|".join(parts), "|".join(reruns)))


def _matcher(pattern: str) -> Callable[[str], bool]:
    compiled = re.compile(pattern)
    return lambda name: bool(compiled.fullmatch(name))


def _is_any_part_running(job: JobSpec) -> bool:
    """Return whether another part of a job writes to its log directory."""
    own = os.path.basename(lock_path(job))
    locks = (name for name in _listdir(job.files.log_dir) if name.startswith(job.job_id) and name.endswith(".lock"))
    return any(name != own and _is_locked(os.path.join(job.files.log_dir, name)) for name in locks)


def put_aside(
    log_dir: str, is_ours: Callable[[str], bool], clock: Callable[[], float] = time.monotonic
) -> tuple[str, ...]:
    """Move the files of an earlier run that have our names into a directory of their own.

    The directory's number is one above the highest that has any of ours, so that the nodes of a job that share a log
    directory choose the same one for each run. Returns the names of files that were still in place when the time was
    up.

    Raises:
        OutputError: The directory cannot be created.
        OSError: A file cannot be moved; files moved before stay where they are.
    """
    earlier = sorted(_ours(log_dir, is_ours), key=lambda name: "-proc-" in name)  # the report before large files
    if not earlier:
        return ()

    folder = _folder(log_dir, max(_numbers(log_dir, is_ours), default=0) + 1)
    files.make_folder(folder)
    deadline = clock() + MOVE_LIMIT
    for index, name in enumerate(earlier):
        if clock() >= deadline:
            return tuple(earlier[index:])
        with suppress(FileNotFoundError):  # another node has already moved it
            os.rename(os.path.join(log_dir, name), os.path.join(folder, name))
    return ()


def _locked(job: JobSpec) -> int:
    path = lock_path(job)
    try:
        fd = files.open_lock(path)
    except OSError as error:
        raise OutputError(f"cannot create {path!r}: {reason(error)}; use another --log-dir") from error

    if files.try_lock(fd):
        return fd
    time.sleep(CHECK_TIME)  # another process may hold the lock only to see whether it is free
    if not files.try_lock(fd):
        os.close(fd)
        raise OutputError(busy_sentence(job))
    return fd


def _put_aside(job: JobSpec, warn: Callable[[str], None]) -> None:
    try:
        left = put_aside(job.files.log_dir, _is_file_of(job))
    except OSError as error:
        raise OutputError(
            f"cannot move the files of the earlier run in {job.files.log_dir!r}: {reason(error)}"
        ) from error

    if left:
        warn(
            f"left {counted(len(left), 'file')} of the earlier run in {job.files.log_dir!r}: moving them took too long"
        )


def point_at_newest(log_dir: str, link: str) -> None:
    """Make `link` a symlink to the log directory beside it. Leaves any other file or directory of that name."""
    neighbour = f"{link}-{os.urandom(8).hex()}"
    if os.path.lexists(link) and not os.path.islink(link):
        return
    try:
        os.symlink(os.path.basename(log_dir), neighbour)
        os.replace(neighbour, link)
    except OSError:
        return  # a file system without symlinks


def _remove(folder: str, is_ours: Callable[[str], bool], check_time: Callable[[], None]) -> bool:
    """Remove a run's files, and its directory if that is empty then: files of another node or job stay."""
    for name in sorted(_ours(folder, is_ours), key=lambda name: name.endswith(".json")):  # the report last, as above
        check_time()
        path = os.path.join(folder, name)
        if os.path.isdir(path) and not os.path.islink(path):
            shutil.rmtree(path, ignore_errors=True)
        else:
            os.unlink(path)
    if not _listdir(folder):
        os.rmdir(folder)
    return True


def _ours(folder: str, is_ours: Callable[[str], bool]) -> list[str]:
    return sorted(filter(is_ours, _listdir(folder)))


def _numbers(log_dir: str, is_ours: Callable[[str], bool]) -> list[int]:
    """Return the numbers of the earlier runs that have any of our files."""
    numbers = [int(found[1]) for name in _listdir(log_dir) if (found := re.fullmatch(_RUN_FOLDER, name))]
    return [number for number in numbers if _ours(_folder(log_dir, number), is_ours)]


def _folder(log_dir: str, number: int) -> str:
    return os.path.join(log_dir, f"run-{number}")


def _listdir(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except (FileNotFoundError, NotADirectoryError):
        return []
