"""A directory of a job while it runs, only for this user: small files and sockets of the runner and its ranks.

`job.json` in it tells `ascend-job` where the job is, and stays when the job has ended, until there are newer ones. So
does `job-report.json`, the final report of a job with a full disk.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import stat
import struct
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final

from ascend_runner import files
from ascend_runner.errors import AscendRunnerError
from ascend_runner.guardian import process_tree
from ascend_runner.node import memory
from ascend_runner.secrets import Masker

if TYPE_CHECKING:
    from ascend_runner.plan.spec import JobSpec

RUN_DIR_VARIABLE: Final = "ASCEND_RUNNER_RUN_DIR"
JOB_FILE: Final = "job.json"
REPORT_FILE: Final = "job-report.json"
ROOT: Final = 0  # the user id
CREDENTIALS: Final = struct.Struct("iII")  # pid, uid and gid of the sender on a socket (unix(7))
PREFIX: Final = "run-"  # begins the names of these directories
CONTROL: Final = "control"  # the socket of services.control
JOBS_KEPT: Final = 20  # jobs that have ended
LONGEST: Final = 80  # bytes of the path: the path of a socket in it has at most 107 (unix(7))


@contextmanager
def opened(environ: Mapping[str, str], warn: Callable[[str], None]) -> Iterator[str]:
    """Create a run directory for one job and yield its path, or "" if no location is usable.

    The directory is locked while this process runs. Afterwards only its JSON files are kept. Directories that killed
    runners left behind are cleaned up as well. `warn` is called if the location that the user has chosen is unsuitable.
    """
    for base in filter(_is_usable, bases(environ)):
        _tidy(base)
        try:
            folder, lock = _make(base)
        except OSError:  # the file system is full
            continue
        _check_choice(environ.get(RUN_DIR_VARIABLE, ""), folder, warn)
        try:
            yield folder
        finally:
            _remove_all_but_records(folder)
            os.close(lock)
        return
    _check_choice(environ.get(RUN_DIR_VARIABLE, ""), "", warn)
    yield ""


def write_job_file(job: JobSpec, folder: str, command: Sequence[str]) -> bytes:
    """Write job.json, and return its content: where the job runs, and where its files are.

    A file system that is full is no failure: the job is not listed then.

    `pid` is the guardian, the parent of this process; `started` distinguishes it from a later process with
    this pid. Both are valid only in the same PID namespace of the same machine.
    """
    pid = os.getppid()
    found = process_tree.look(pid)
    record = {
        "job_id": job.job_id,
        "part": job.part,
        "command": Masker().arguments(tuple(command)),
        "cwd": _working_directory(),
        "host": os.uname().nodename,
        "pid_namespace": pid_namespace(),
        "pid": pid,
        "started": found.started if found else 0,
        "runner_pid": os.getpid(),
        "uid": os.getuid(),
        "began": time.time(),
        "log_dir": job.files.log_dir,
        "run_folder": folder,
    }
    content = json.dumps(record).encode() + b"\n"
    if folder:
        with suppress(AscendRunnerError):
            files.write_atomically(os.path.join(folder, JOB_FILE), content)
    return content


def _working_directory() -> str:
    try:
        return os.getcwd()
    except OSError:  # it has been removed
        return ""


def spare_report(folder: str) -> str:
    """Return the path for a report that cannot be written beside the logs, "" without a directory."""
    return os.path.join(folder, REPORT_FILE) if folder else ""


def pid_namespace() -> str:
    """Return the PID namespace of this process, "" if that is unknown."""
    try:
        return os.readlink("/proc/self/ns/pid")
    except OSError:
        return ""


def begin_attempt(folder: str) -> None:
    """Remove what the attempt before has left: the sockets of its ranks."""
    if folder:
        _remove_all_but(folder, {JOB_FILE, CONTROL})


def _make(base: str) -> tuple[str, int]:
    """Make a directory and lock it; return its path and the descriptor that holds the lock."""
    while True:
        folder = tempfile.mkdtemp(prefix=PREFIX, dir=base)
        with suppress(FileNotFoundError):  # another run may take it for abandoned before it is locked
            lock = os.open(folder, files.FOLDER_FLAGS)
            fcntl.flock(lock, fcntl.LOCK_EX)
            if os.fstat(lock).st_nlink:
                return folder, lock
            os.close(lock)


def bases(environ: Mapping[str, str]) -> Iterator[str]:
    """Yield the places for the directories of jobs, the best first: in containers, /run is often on a disk."""
    if environ.get(RUN_DIR_VARIABLE):
        yield environ[RUN_DIR_VARIABLE]
    places = ["/run/ascend-runner", f"/dev/shm/ascend-runner-{os.getuid()}"]  # noqa: S108  only this user's own is used
    if environ.get("XDG_RUNTIME_DIR"):
        places.insert(0, os.path.join(environ["XDG_RUNTIME_DIR"], "ascend-runner"))
    yield from sorted(places, key=lambda place: not memory.is_tmpfs(os.path.dirname(place)))


def _check_choice(chosen: str, folder: str, warn: Callable[[str], None]) -> None:
    """Warn if the run directory is not where the user wants it."""
    if chosen and os.path.normpath(os.path.dirname(folder)) != os.path.normpath(chosen):
        warn(
            f"cannot use {RUN_DIR_VARIABLE}={chosen}: expected the absolute path (at most {LONGEST} bytes) of a"
            " directory with free space that only this user can write to; ascend-job will not find this job there"
        )


def _is_usable(base: str) -> bool:
    """Whether a directory exists or can be made, and no other user can write to it."""
    if not os.path.isabs(base) or len(os.fsencode(base)) > LONGEST:
        return False
    with suppress(OSError):
        os.mkdir(base, 0o700)
    try:
        found = os.lstat(base)
    except OSError:
        return False
    is_ours = found.st_uid == os.getuid() and not found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    return stat.S_ISDIR(found.st_mode) and is_ours and os.access(base, os.W_OK | os.X_OK)


def _tidy(base: str) -> None:
    """Empty the directories of jobs that have ended; only the newest few with a job.json stay.

    Other directories are left alone: ASCEND_RUNNER_RUN_DIR may name a directory with other uses.
    """
    ended: list[tuple[float, str]] = []
    with suppress(OSError):
        for name in os.listdir(base):
            path = os.path.join(base, name)
            with suppress(OSError):
                ended += [(_ended_at(path), path)] if name.startswith(PREFIX) else []
    for _at, path in sorted(ended, reverse=True)[JOBS_KEPT:]:
        shutil.rmtree(path, ignore_errors=True)


def _ended_at(path: str) -> float:
    """Empty the directory of a job that has ended, and return the time when its job.json was written.

    Raises:
        OSError: The job is running, or there is no job.json.
    """
    folder = os.open(path, files.FOLDER_FLAGS)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        _remove_all_but_records(path)
        return os.stat(JOB_FILE, dir_fd=folder, follow_symlinks=False).st_mtime
    finally:
        os.close(folder)


def _remove_all_but_records(folder: str) -> None:
    is_listed = os.path.lexists(os.path.join(folder, JOB_FILE))
    _remove_all_but(folder, {JOB_FILE, REPORT_FILE} if is_listed else set())
    with suppress(OSError):
        os.rmdir(folder)  # without a job.json


def _remove_all_but(folder: str, kept: set[str]) -> None:
    with suppress(OSError):
        for name in set(os.listdir(folder)) - kept:
            path = os.path.join(folder, name)
            if os.path.isdir(path) and not os.path.islink(path):
                shutil.rmtree(path, ignore_errors=True)
            else:
                os.unlink(path)
