"""Finds the jobs of this machine and of log directories: where they run, where their files are, whether they are alive.

Reads what runners have written, and trusts it no more than its owner.
"""

from __future__ import annotations

import fcntl
import glob
import json
import os
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

import attrs

from ascend_runner import files
from ascend_runner.board.reader import LARGEST_PID
from ascend_runner.errors import AscendRunnerError, SettingsError
from ascend_runner.guardian import process_tree
from ascend_runner.members import LATEST
from ascend_runner.services import run_folder
from ascend_runner.text import abbreviated, is_whole_number, number_within

LARGEST: Final = 1 << 20  # bytes of a run file
NEWEST_LINK: Final = os.path.join("logs", "latest")  # below the working directory of a job without a platform
PID_DIGITS: Final = 9  # no pid has more digits


class UnknownJobError(AscendRunnerError):
    """There is no such job."""

    exit_status = 4


@attrs.frozen(kw_only=True)
class FoundJob:
    """A job, or the part of one on this node, as its runner has described it (see `run_folder.write_job_file`).

    `owner` is the user who has written the description, and `log_dir` the directory in which it was found, if it was
    found beside the logs. `began` is in seconds since the epoch.
    """

    job_id: str
    part: str
    command: tuple[str, ...]
    host: str
    pid_namespace: str
    pid: int
    started: int
    runner_pid: int
    began: float
    log_dir: str
    run_folder: str
    owner: int

    @property
    def name(self) -> str:
        """The job id, with the part of the job where there are several."""
        return f"{self.job_id}{self.part}"

    def path(self, kind: str, extension: str) -> str:
        """Return the path of one of its files beside the logs."""
        return os.path.join(self.log_dir, f"{self.job_id}-{kind}{self.part}.{extension}")

    def is_alive(self) -> bool | None:
        """Whether the runner is alive, or None if that cannot be determined from here."""
        try:
            fd = os.open(self.run_folder, files.FOLDER_FLAGS)
        except OSError:
            return self.has_guardian() if self.is_of_this_machine else None
        try:
            return not files.try_lock(fd, fcntl.LOCK_SH)
        finally:
            os.close(fd)

    @property
    def is_of_this_machine(self) -> bool:
        """Whether the job's pids are valid in the PID namespace of this process."""
        return (self.host, self.pid_namespace) == (os.uname().nodename, run_folder.pid_namespace())

    def has_guardian(self) -> bool:
        """Whether the first process is alive, and its pid is not that of a later process or of another user."""
        found = process_tree.look(self.pid)
        try:
            owner = os.stat(f"/proc/{self.pid}").st_uid
        except OSError:
            return False
        return found is not None and found.started == self.started and owner == self.owner


def find(word: str | None, environ: Mapping[str, str], *, may_be_any_part: bool = False) -> FoundJob:
    """Return the job that a word means: a job id or its beginning, a pid, a directory with logs, or its file there.

    Without a word it is the running one, or else the most recent one. Of several parts of a job in one directory, any
    is returned if it `may_be_any_part`.

    Raises:
        SettingsError: It could be several jobs.
        UnknownJobError: There is none.
    """
    named = _meant(word, environ)
    return named[0] if may_be_any_part and _are_of_one_job(named) else _chosen(named, word)


def find_parts(word: str | None, environ: Mapping[str, str]) -> list[FoundJob]:
    """Return the job that a word means, or all parts that it means of a job with its logs in one directory.

    Raises:
        SettingsError: It could be several jobs.
        UnknownJobError: There is none.
    """
    named = _meant(word, environ)
    newest = {job.name: job for job in sorted(named, key=lambda job: job.began)}
    if _are_of_one_job(named) and len(newest) > 1:
        return sorted(newest.values(), key=lambda job: (len(job.part), job.part))
    return [_chosen(named, word)]


def _meant(word: str | None, environ: Mapping[str, str]) -> list[FoundJob]:
    """Return the jobs that a word may mean, at least one.

    Raises:
        SettingsError: It is empty, or several jobs are running.
        UnknownJobError: There is none.
    """
    found = all_jobs(environ)
    if word is None:
        return [_newest(found)]
    if not word:
        raise SettingsError("job name is empty")
    named = [job for job in found if word == job.name] or [job for job in found if word == job.job_id]
    if not named and (os.path.isdir(word) or os.sep in word or word.endswith(".json")):
        named = at_path(word)
        if not named:
            raise UnknownJobError(f"{word!r} is not the log directory of a job")
    if not named and is_whole_number(word, PID_DIGITS):
        named = _of_process(int(word), found)
    named = named or [job for job in found if job.name.startswith(word)]
    if not named:
        raise UnknownJobError(f"no job {word!r} on this machine; see ascend-job list, or specify its log directory")
    return named


def _newest(found: Sequence[FoundJob]) -> FoundJob:
    """Return the running job, or else the most recent one.

    Raises:
        SettingsError: Several are running.
        UnknownJobError: There is none.
    """
    if not found:
        raise UnknownJobError("no jobs of this user on this machine; specify the log directory of the job")
    running = [job for job in found if job.is_alive()]
    if len(running) > 1:
        names = abbreviated([f"{job.name} (pid {job.pid})" for job in running])
        raise SettingsError(f"{len(running)} jobs are running; specify one of them: {names}")
    return (running or found)[0]


def at_path(path: str) -> list[FoundJob]:
    """Return the jobs with their logs in a directory, or that of a run file, a report or a name in a directory."""
    if os.path.isdir(path):
        return in_directory(path)
    job = _read(path)
    folder, name = os.path.split(path)
    beside = in_directory(folder or ".")
    return [job] if job else [job for job in beside if name in {job.name, os.path.basename(job.path("report", "json"))}]


def _are_of_one_job(jobs: Sequence[FoundJob]) -> bool:
    """Whether jobs are parts of one, with their logs in one directory."""
    return len({(job.job_id, job.log_dir) for job in jobs}) == 1


def parts(job: FoundJob) -> list[FoundJob]:
    """Return all parts of a job, such as those of several nodes, that have their logs in the same directory.

    Raises:
        UnknownJobError: The logs have been removed.
    """
    here = with_its_logs(job)
    return [part for part in in_directory(here.log_dir) if part.job_id == here.job_id] or [here]


def with_its_logs(job: FoundJob) -> FoundJob:
    """Return a job with the directory where its logs are now: a later run of it moves them to another directory.

    Raises:
        UnknownJobError: They have been removed.
    """
    name = os.path.basename(job.path("run", "json"))
    newest = _read(os.path.join(job.log_dir, name))
    if newest is None or newest.began == job.began:  # without a run file, there was no room for it
        return job
    for path in glob.glob(f"{glob.escape(job.log_dir)}/run-*/{glob.escape(name)}"):
        earlier = _read(path)
        if earlier and earlier.began == job.began:
            return attrs.evolve(job, log_dir=earlier.log_dir)
    raise UnknownJobError(f"the logs of {job.name} have been removed by a later run")


def all_jobs(environ: Mapping[str, str]) -> list[FoundJob]:
    """Return the jobs of this user on this machine, for root of all users, the newest first; if none, NEWEST_LINK's."""
    paths = {path for base in _bases(environ) for path in glob.glob(f"{glob.escape(base)}/*/{run_folder.JOB_FILE}")}
    found = list(filter(None, map(_read, sorted(paths)))) or in_directory(NEWEST_LINK)
    return sorted(found, key=lambda job: -job.began)


def _bases(environ: Mapping[str, str]) -> Iterator[str]:
    """Yield the places where jobs may have their directories: also jobs that were started with other variables."""
    if environ.get(run_folder.RUN_DIR_VARIABLE):
        yield environ[run_folder.RUN_DIR_VARIABLE]
        return
    yield from run_folder.bases(environ)
    if os.getuid() == run_folder.ROOT:
        yield from glob.glob("/run/user/*/ascend-runner")
        yield from glob.glob("/dev/shm/ascend-runner-*")  # noqa: S108  what others have put there is not believed
    else:
        yield f"/run/user/{os.getuid()}/ascend-runner"


def in_directory(path: str) -> list[FoundJob]:
    """Return the jobs, or parts of one, that have their logs in a directory."""
    return list(filter(None, map(_read, sorted(glob.glob(f"{glob.escape(path)}/*-run*.json")))))


def _chosen(named: Sequence[FoundJob], word: str | None) -> FoundJob:
    """Return the only job that a word means, or the newest one of several runs that have ended.

    Raises:
        SettingsError: There are several with different names, or several are running.
    """
    jobs = [job for job in named if job.is_alive()] or named
    newest = max(jobs, key=lambda job: job.began)
    if len({job.name for job in jobs}) == 1 and (len(jobs) == 1 or not newest.is_alive()):
        return newest
    folder = word if word and os.path.isdir(word) else ""
    raise SettingsError(f"{word!r} is ambiguous: {abbreviated([_with_pid(job, folder) for job in jobs])}")


def _with_pid(job: FoundJob, folder: str) -> str:
    """Return a word that identifies a job, also one that was found in a directory; with its pid while it runs here."""
    name = os.path.join(folder, job.name)
    return f"{name} (pid {job.pid})" if job.is_of_this_machine and job.has_guardian() else name


def _of_process(pid: int, jobs: Iterable[FoundJob]) -> list[FoundJob]:
    """Return the running job that a process belongs to: its guardian, its runner, or a process of a rank."""
    guardians = {job.pid: job for job in jobs if job.is_of_this_machine and job.has_guardian()}
    while pid > 1 and pid not in guardians:
        found = process_tree.look(pid)
        pid = found.parent if found else 0
    return [guardians[pid]] if pid in guardians else []


def _read(path: str) -> FoundJob | None:
    """Read a run file. Return None if it is not one. The run file beside the logs may have been moved with them."""
    try:
        fd = os.open(path, files.READ_FLAGS)
        with open(fd, "rb") as file:
            status = os.fstat(fd)
            if not stat.S_ISREG(status.st_mode) or status.st_size > LARGEST:
                return None
            members = json.loads(file.read(LARGEST))
        job = _decode(members, status.st_uid)
    except (OSError, ValueError, TypeError, KeyError, RecursionError):
        return None
    is_job_file = os.path.basename(path) == run_folder.JOB_FILE
    return job if is_job_file else attrs.evolve(job, log_dir=os.path.dirname(path) or ".")


def _decode(members: Mapping[str, object], owner: int) -> FoundJob:
    """Return the job that a run file describes.

    Raises:
        KeyError: A member is missing.
        TypeError: A member has another type, or is out of range.
        ValueError: A text cannot be part of a path.
    """
    texts = {name: members[name] for name in ("job_id", "part", "host", "pid_namespace", "log_dir", "run_folder")}
    numbers = {name: members[name] for name in ("pid", "started", "runner_pid")}
    began, command = number_within(members["began"], LATEST), members["command"]
    are_texts = all(isinstance(value, str) and "\0" not in value for value in texts.values())
    are_numbers = all(type(value) is int and value >= 0 for value in numbers.values())
    are_pids = are_numbers and max(numbers["pid"], numbers["runner_pid"]) <= LARGEST_PID  # type: ignore[call-overload]
    if not (are_texts and are_pids and began is not None and isinstance(command, list)):
        raise TypeError("not a run file")
    os.fsencode("".join(map(str, texts.values())))
    if "/" in f"{texts['job_id']}{texts['part']}":
        raise TypeError("the name of a job cannot be part of a path")
    words = tuple(map(str, command))
    return FoundJob(**texts, **numbers, began=began, command=words, owner=owner)  # type: ignore[arg-type]  # checked above
