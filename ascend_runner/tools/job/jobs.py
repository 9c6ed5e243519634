"""Finds the jobs of this machine and of log directories, and what is known of one at a moment.

Reads what runners have written, and trusts it no more than its owner. What a runner shows, the ends of logs and the
processes of ranks complete the record in its report. Waits for changes of files by inotify(7), and for the end of a job
by the lock of its runner; where the kernel cannot tell, as on a disk that other machines write to, for `INTERVAL`.
"""

from __future__ import annotations

import ctypes
import enum
import fcntl
import glob
import json
import os
import select
import stat
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Final

import attrs

from ascend_runner import files, programs, report_file
from ascend_runner.errors import AscendRunnerError, SettingsError, UnreadableError
from ascend_runner.guardian import process_tree
from ascend_runner.members import LATEST, Members
from ascend_runner.node import bounded
from ascend_runner.node.terminal import STDOUT
from ascend_runner.record.job_record import CauseRecord, JobRecord, StepRecord
from ascend_runner.record.nodes import NodeRecord
from ascend_runner.report import history
from ascend_runner.services import control, live, run_folder
from ascend_runner.services.live import LARGEST_PID, View
from ascend_runner.settings.parsing import did_you_mean
from ascend_runner.supervision.job_machine import OF_AN_ATTEMPT, JobState
from ascend_runner.text import abbreviated, is_whole_number, number_within
from ascend_runner.training import steps
from ascend_runner.training.steps import Step

LARGEST: Final = 1 << 20  # bytes of a run file
NEWEST_LINK: Final = os.path.join("logs", "latest")  # below the working directory of a job without a platform
HISTORY_LIMIT: Final = 2.0  # seconds for the disk with the home directory
PID_DIGITS: Final = 9  # no pid has more digits


class UnknownJobError(AscendRunnerError):
    """There is no such job."""

    exit_status = 4


@attrs.frozen(kw_only=True)
class FoundJob:
    """A job, or the part of one on this node, as its runner has described it (see `run_folder.write_job_file`).

    `owner` is the owner of the description, and `log_dir` the directory in which it was found, if it was
    found beside the logs. `began` is in seconds since the epoch. `cwd` is where the runner was started, "" if that is
    unknown, and `end` what the history has of the end of the job.
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
    cwd: str = ""
    end: JobRecord | None = None

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
    def is_from_here(self) -> bool:
        """Whether the job was started in the current directory or below."""
        here = os.path.realpath(os.curdir)
        return os.path.isabs(self.cwd) and os.path.commonpath([here, self.cwd]) == here

    @property
    def is_of_this_machine(self) -> bool:
        """Whether the job's pids are valid in the PID namespace of this process."""
        return (self.host, self.pid_namespace) == (os.uname().nodename, run_folder.pid_namespace())

    def has_guardian(self) -> bool:
        """Whether the first process is alive, and its pid was not reused by a later process or another user."""
        found = process_tree.look(self.pid)
        try:
            owner = os.stat(f"/proc/{self.pid}").st_uid
        except OSError:
            return False
        return found is not None and found.started == self.started and owner == self.owner


def find(word: str | None, environ: Mapping[str, str], *, may_be_any_part: bool = False) -> FoundJob:
    """Return the job that a word means: a job id or its beginning, a pid, a directory with logs, or its file there.

    Without a word, it is one that was started in the current directory or below, or else one that runs elsewhere: the
    running one, or else the most recent one. Of several nodes of a job it is the first then, and also if it
    `may_be_any_part`.

    Raises:
        SettingsError: It could be several jobs.
        UnknownJobError: There is none.
    """
    named = _meant(word, environ)
    running = [job for job in named if job.is_alive()]
    if may_be_any_part and (_are_of_one_job(named) or _are_nodes_of_one_job(running)):
        return min(running or named, key=_number)
    return _chosen(named, word)


def find_parts(word: str | None, environ: Mapping[str, str]) -> list[FoundJob]:
    """Return the job that a word means, or all nodes of one: those with their logs in one directory, or that run.

    Raises:
        SettingsError: It could be several jobs.
        UnknownJobError: There is none.
    """
    named = _meant(word, environ)
    nodes = _newest_of_each_name(named if _are_of_one_job(named) else [job for job in named if job.is_alive()])
    return nodes if len(nodes) > 1 and _are_nodes_of_one_job(nodes) else [_chosen(named, word)]


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
    named = _of_one_run(named or [job for job in found if job.name.startswith(word)])
    if not named:
        listed, meant = programs.command("ascend-job list"), did_you_mean(word, [job.name for job in found])
        raise UnknownJobError(f"no job {word!r} on this machine{meant}; see {listed}, or specify its log directory")
    return named


def _newest(found: Sequence[FoundJob]) -> FoundJob:
    """Return the job of this directory, or else one started elsewhere; of several nodes, the first.

    Raises:
        SettingsError: Several jobs are running.
        UnknownJobError: There are no jobs.
    """
    if not found:
        raise UnknownJobError("no jobs of this user on this machine; specify the log directory of the job")
    jobs = [job for job in found if job.is_from_here] or found
    running = [job for job in jobs if job.is_alive()]
    if len(running) > 1 and not _are_nodes_of_one_job(running):
        names = abbreviated([f"{job.name} (pid {job.pid})" for job in running])
        raise SettingsError(f"{len(running)} jobs are running; specify one of them: {names}")
    return min(running, key=_number) if running else jobs[0]


def at_path(path: str) -> list[FoundJob]:
    """Return the jobs with their logs in a directory, or the job of a run file, a report or a name in a directory."""
    # In a directory with logs, the one for CANN's logs has the name of the job, too.
    if os.path.isdir(path) and (jobs := in_directory(path)):
        return jobs
    job = _read(path)
    folder, name = os.path.split(path)
    beside = in_directory(folder or ".")
    return [job] if job else [job for job in beside if name in {job.name, os.path.basename(job.path("report", "json"))}]


def _are_of_one_job(jobs: Sequence[FoundJob]) -> bool:
    """Whether jobs are parts or runs of one, with their logs in one directory."""
    return len({(job.job_id, job.log_dir) for job in jobs}) == 1


def _are_nodes_of_one_job(jobs: Sequence[FoundJob]) -> bool:
    return len({job.job_id for job in jobs}) == 1 and len({job.name for job in jobs}) == len(jobs)


def _number(job: FoundJob) -> tuple[int, str]:
    """Return what sorts the nodes of a job by their numbers."""
    return len(job.part), job.part


def _in_order(jobs: Iterable[FoundJob]) -> list[FoundJob]:
    """Return jobs in their order, the newest first; nodes with their logs in one directory by their numbers."""
    newest_first = sorted(jobs, key=lambda job: -job.began)
    began = _began(newest_first)
    return sorted(newest_first, key=lambda job: (-began[job.job_id, job.log_dir], _number(job)))


def _began(jobs: Sequence[FoundJob]) -> dict[tuple[str, str], float]:
    """Return the start times of the newest runs, by job id and log directory."""
    return {(job.job_id, job.log_dir): job.began for job in sorted(jobs, key=lambda job: job.began)}


def listed(found: Sequence[FoundJob], most: int | None) -> list[list[FoundJob]]:
    """Return the jobs started in the current directory or below, and the others, both with the newest last.

    If there are more than `most`, running jobs are preferred, then those of the directory, then the newest.
    """
    if most is not None and len(found) > most:
        found = sorted(found, key=lambda job: (job.is_alive() is not True, not job.is_from_here))[:most]
    began = _began(found)
    found = sorted(found, key=lambda job: (began[job.job_id, job.log_dir], _number(job), job.began))
    return [[job for job in found if job.is_from_here is here] for here in (True, False)]


def _newest_of_each_name(jobs: Iterable[FoundJob]) -> list[FoundJob]:
    newest = {job.name: job for job in sorted(jobs, key=lambda job: job.began)}
    return sorted(newest.values(), key=_number)


def _of_one_run(named: Sequence[FoundJob]) -> list[FoundJob]:
    """Leave out the earlier runs of a job in other directories."""
    if len({job.job_id for job in named}) != 1:
        return [*named]
    last = [job for job in named if job.is_alive()] or _newest_of_each_name(named)
    return [job for job in named if any(_are_of_one_job([job, one]) for one in last)]


def parts(job: FoundJob) -> list[FoundJob]:
    """Return all parts of a job, such as several nodes, that have their logs in the same directory.

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
    """Return the jobs of this user on this machine, for root of all users, in order; if none, NEWEST_LINK's."""
    paths = {path for base in _bases(environ) for path in glob.glob(f"{glob.escape(base)}/*/{run_folder.JOB_FILE}")}
    known: dict[tuple[str, str, int, float], FoundJob] = {}
    for job in (*filter(None, map(_read, sorted(paths))), *_of_history(environ)):
        key = job.name, job.host, job.pid, job.began
        here = known.setdefault(key, job)
        known[key] = attrs.evolve(here, end=here.end or job.end)
    return _in_order(known.values() or in_directory(NEWEST_LINK))


def _of_history(environ: Mapping[str, str]) -> list[FoundJob]:
    """Return the jobs of this user, including those before a reboot; none if the disk does not respond."""
    found: list[FoundJob] = []

    def read() -> None:
        names = glob.glob(f"{glob.escape(history.folder(environ))}/*.json")
        found.extend(filter(None, map(_read, sorted(names))))

    bounded.call(HISTORY_LIMIT, read)
    return [*found]


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
    is_beside_logs = os.path.basename(path) != run_folder.JOB_FILE and history.END not in members
    return attrs.evolve(job, log_dir=os.path.dirname(path) or ".") if is_beside_logs else job


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
    cwd, end = members.get("cwd"), members.get(history.END)
    more = {
        "cwd": cwd if isinstance(cwd, str) and "\0" not in cwd else "",
        "end": JobRecord.decode(Members(end)) if isinstance(end, dict) and end else None,
    }
    words = tuple(map(str, command))
    return FoundJob(**texts, **numbers, **more, began=began, command=words, owner=owner)  # type: ignore[arg-type]  # checked above


LINE: Final = 4096  # bytes at the end of a log that are searched for its last lines


def read(path: str, size: int) -> bytes:
    """Return the last `size` bytes of a log without a line that is cut off; of a longer line, its last words.

    Raises:
        ValueError: The path has a NUL or half of a surrogate pair.
    """
    end = files.read_end(path, size)
    return end if len(end) < size else end.partition(b"\n")[2] or live.after_secret(end)


def last_lines(end: bytes) -> tuple[str, ...]:
    """Return the last lines of the end of a log, about a screen of them at most."""
    return live.end_lines(end[-LINE:], len(end))


DISK_LIMIT: Final = 5.0  # seconds for the disk with the logs
LOG_ENDS: Final = 1 << 18  # bytes of all logs that are read for their last steps
# The fields of a rank that only the report has.
OF_REPORT: Final = (
    *("device_id", "max_rss", "user_seconds", "system_seconds", "log_path", "log_start", "log_lost_from"),
    *("process_log_path", "cwd", "variables", "rerun", "finding"),
)
STATES: Final = {state.value: state for state in (*OF_AN_ATTEMPT, *JobState)}


class Condition(enum.Enum):
    """Whether a job runs."""

    RUNNING = "running"
    SUCCEEDED = "succeeded"
    ENDED_BADLY = "ended badly"
    RUNNER_KILLED = "runner killed"  # so it could not report an end
    UNKNOWN = "unknown"  # it cannot be determined from here


@attrs.frozen(kw_only=True)
class Snapshot:
    """A job at a moment."""

    job: FoundJob
    is_alive: bool | None
    # What its report says; of the ranks also what the runner shows, or else their logs and processes.
    record: JobRecord = attrs.Factory(JobRecord)
    why: str = ""  # why the report cannot be read
    note: str = ""  # on a runner that does not answer
    live: View | None = None  # what the runner shows of its newest attempt
    nodes: tuple[NodeRecord, ...] = ()  # of the job, that the runner knows of; none if it has only one
    steps: Mapping[int, Step] = {}  # the figures of the training in the logs of an attempt that runs
    html: str = ""  # the path of the HTML report; "": there is none
    limit_at: float | None = None  # the end of the time limit of a running job, in seconds since the epoch
    spare_report: str = ""  # the path of the report if it could not be written beside the logs

    @property
    def condition(self) -> Condition:
        """Whether it runs."""
        state = self.record.state
        if state and state.is_final:
            return Condition.SUCCEEDED if state is JobState.SUCCEEDED else Condition.ENDED_BADLY
        if self.is_alive is None or not (self.is_alive or state or self.live):
            return Condition.UNKNOWN
        return Condition.RUNNING if self.is_alive else Condition.RUNNER_KILLED

    @property
    def is_over(self) -> bool:
        """Whether it has ended."""
        return self.condition in {Condition.SUCCEEDED, Condition.ENDED_BADLY, Condition.RUNNER_KILLED}

    @property
    def all_nodes(self) -> tuple[NodeRecord, ...]:
        """The nodes of the job as its runner knows them, or has known them at the end of an attempt."""
        return self.nodes or self.record.nodes

    @property
    def state(self) -> str:
        """The state of the job in its report, "" if that is unknown."""
        return self.record.state.value if self.record.state else ""

    @property
    def cause(self) -> CauseRecord | None:
        """Why it failed, None if it did not."""
        if self.record.cause or self.condition is not Condition.RUNNER_KILLED:
            return self.record.cause
        return CauseRecord(sentence=f"the runner ({self.pids}) was killed")

    @property
    def sentence(self) -> str:
        """Why it failed, with a note on the certainty; "" if it did not."""
        return self.cause.with_certainty(len(self.record.ranks)) if self.cause else ""

    @property
    def pids(self) -> str:
        """The pids of the runner: the process that takes signals, and its child, which supervises the ranks."""
        return f"pid {self.job.pid}, child pid {self.job.runner_pid}"

    @property
    def running_pids(self) -> Mapping[int, int]:
        """The pids of the running ranks by their numbers, according to the runner or its report."""
        return {rank.rank_id: rank.pid for rank in self.record.ranks if rank.is_running and rank.pid}

    @property
    def last_step(self) -> StepRecord | None:
        """The last step that the runner shows, or its report, or the logs; the runner shows no loss."""
        furthest = steps.furthest(self.steps.values())
        in_logs = StepRecord(**furthest.figures()) if furthest else None
        if self.live and self.live.last_step:
            return attrs.evolve(self.live.last_step, loss=in_logs.loss if in_logs else None)
        return self.record.last_step or in_logs


def take(job: FoundJob, *, asks: bool = True) -> Snapshot:
    """Take a snapshot; unless it `asks` the runner, without what changes in an attempt.

    The lock is checked before the report is read, so that a job that ends never looks killed.
    """
    is_alive = job.is_alive()
    seen = Snapshot(job=job, is_alive=is_alive)
    if is_alive and asks:
        seen = ask_runner(seen)
    found = [attrs.evolve(seen, why=f"cannot read the report: no response from its disk within {DISK_LIMIT:g} s")]

    def read() -> None:
        try:
            here = with_its_logs(job)
            record, spare = _read_report(here)
            record = job.end if job.end and not record.state else record
        except (UnreadableError, UnknownJobError) as error:
            found.append(attrs.evolve(seen, why=str(error), record=job.end or seen.record))
        else:
            is_shown = record.state in OF_AN_ATTEMPT
            complete = attrs.evolve(seen, job=here, record=record, spare_report=spare)
            complete = attrs.evolve(complete, live=seen.live if is_shown else None)
            complete = with_view(complete, complete.live) if complete.live else _with_logs(complete)
            complete = attrs.evolve(complete, html=_existing(here.path("report", "html")))
            found.append(complete)
            if is_shown:
                found.append(_with_log_ends(complete))

    bounded.call(DISK_LIMIT, read)
    seen = found[-1]
    return _with_gone(with_view(seen, seen.live) if seen.live and not seen.record.ranks else seen)


def take_briefly(job: FoundJob) -> Snapshot:
    """Take a snapshot for a list, without asking the runner. The report is read only if the history has no end."""
    is_over = job.end is not None and job.is_alive() is not True
    return Snapshot(job=job, is_alive=False, record=job.end or JobRecord()) if is_over else take(job, asks=False)


def _read_report(job: FoundJob) -> tuple[JobRecord, str]:
    """Return the report of a job, and its path if it is the spare one in the run directory, else "".

    Raises:
        UnreadableError: There is none, or it cannot be read.
    """
    spare = run_folder.spare_report(job.run_folder)
    try:
        report = report_file.read(job.path("report", "json"))
    except UnreadableError:
        if not os.path.isfile(spare):
            raise
        report = Members()
    if os.path.isfile(spare) and not is_final(report.text("state")):
        return JobRecord.decode(report_file.read(spare)), spare
    return JobRecord.decode(report), ""


def ask_runner(seen: Snapshot) -> Snapshot:
    """Return a running job with what its runner shows, or with a note if it does not answer."""
    try:
        view, answer = control.view(seen.job.run_folder)
        nodes = view.nodes if view else ()
        return attrs.evolve(seen, live=view, nodes=nodes, limit_at=Members(answer).seconds("limit_at"))
    except BlockingIOError:
        note = f"the runner did not respond within {control.VIEW_PATIENCE:g} s; showing its report instead"
        return attrs.evolve(seen, note=note)
    except (OSError, ValueError):
        return seen


def with_view(seen: Snapshot, view: View) -> Snapshot:
    """Return a job with its ranks as the runner shows them, and what only the report has of these."""
    began = seen.record.started_at or view.began
    reported = {rank.rank_id: rank for rank in seen.record.ranks}
    ranks = []
    for rank in view.ranks:
        known = reported.get(rank.rank_id)
        of_report = {name: getattr(known, name) for name in OF_REPORT} if known else {}
        ranks.append(attrs.evolve(rank.later(view.began - began), **of_report))
    return attrs.evolve(seen, live=view, record=attrs.evolve(seen.record, started_at=began, ranks=tuple(ranks)))


def _with_logs(seen: Snapshot) -> Snapshot:
    """Return a job with the size of each rank's log and when it was last written, as far as the report has neither."""
    record = seen.record
    ranks = {rank.rank_id: rank for rank in record.ranks}
    for rank_id, path in _log_paths(seen):
        rank = ranks[rank_id]
        with suppress(OSError, ValueError):
            status = os.stat(path)
            size, at = rank.log_size, rank.last_output_after
            if at is None and status.st_size:
                at = max(rank.started_after, status.st_mtime - record.started_at)
            size = status.st_size if size is None else size
            ranks[rank_id] = attrs.evolve(rank, log_size=size, last_output_after=at)
    return attrs.evolve(seen, record=attrs.evolve(record, ranks=tuple(ranks.values())))


def _log_paths(seen: Snapshot) -> Iterator[tuple[int, str]]:
    """Yield the path of each rank's log. Of a path in a report, only the name counts, in its directory."""
    for rank in seen.record.ranks:
        if rank.log_name:
            yield rank.rank_id, os.path.join(seen.job.log_dir, rank.log_name)


def _with_log_ends(seen: Snapshot) -> Snapshot:
    """Return a job with the last lines, without secrets, and the last steps of its logs.

    The runner has only the end of a long line.
    """
    record, ends = seen.record, dict(_log_ends(seen))
    lines = {rank_id: last_lines(end)[-1:] for rank_id, end in ends.items()}
    ranks = (attrs.evolve(one, last_lines=lines.get(one.rank_id) or one.last_lines) for one in record.ranks)
    return attrs.evolve(
        seen,
        record=attrs.evolve(record, ranks=tuple(ranks)),
        steps={rank_id: step for rank_id, end in ends.items() if (step := steps.newest(end)) != steps.NO_STEP},
    )


def _log_ends(seen: Snapshot) -> Iterator[tuple[int, bytes]]:
    """Yield the end of the log of each rank."""
    size = max(LINE, LOG_ENDS // max(1, len(seen.record.ranks)))
    for rank_id, path in _log_paths(seen):
        with suppress(ValueError):  # a NUL or half of a surrogate pair in the name
            yield rank_id, read(path, size)


def _existing(path: str) -> str:
    return path if os.path.exists(path) else ""


def _with_gone(seen: Snapshot) -> Snapshot:
    """Return a job with the ranks whose process has ended without its runner, if they can be seen from here.

    Their ends were not observed, so they have lasted until their last output.
    """
    if not seen.job.is_of_this_machine:
        return seen
    gone = {
        rank_id
        for rank_id, pid in seen.running_pids.items()
        if 0 < pid <= LARGEST_PID and not process_tree.is_alive(pid)
    }
    ranks = tuple(rank.gone() if rank.rank_id in gone else rank for rank in seen.record.ranks)
    return attrs.evolve(seen, record=attrs.evolve(seen.record, ranks=ranks)) if gone else seen


def is_final(state: str) -> bool:
    """Whether a job in this state has ended."""
    return state in STATES and STATES[state].is_final


INTERVAL: Final = 1.0  # seconds
IN_MODIFY: Final = 0x2  # sys/inotify.h
IN_MOVED_TO: Final = 0x80
IN_CREATE: Final = 0x100
IN_Q_OVERFLOW: Final = 0x4000
EVENT: Final = struct.Struct("iIII")  # watch, mask, cookie, length of the name
GOING_ON: Final = {Condition.RUNNING, Condition.UNKNOWN}
QUEUE: Final = 64 * 1024  # bytes of events that are read at once


class FileWatch:
    """Waits for changes of a file, or of the files in a directory."""

    def __init__(self, path: str, *, is_local: bool) -> None:
        """The kernel reports all changes if `is_local`: no other machine writes to it."""
        self._fd = _inotify(path) if is_local else -1

    def close(self) -> None:
        """Close the watch. Closing it again has no effect."""
        if self._fd >= 0:
            os.close(self._fd)
        self._fd = -1

    def wait(self, seconds: float | None, *others: int) -> set[str] | None:
        """Return the names of the files that have changed, or None if any may have, at the latest after `seconds`.

        It also returns when the other end of one of the `others` is closed.

        Raises:
            BrokenPipeError: The reader of standard output has gone.
        """
        poll = select.poll()
        for fd in (STDOUT, *others):
            poll.register(fd, 0)  # POLLERR and POLLHUP are always reported
        if self._fd < 0:
            seconds = min(INTERVAL, INTERVAL if seconds is None else seconds)
        else:
            poll.register(self._fd, select.POLLIN)
        ready = dict(poll.poll(None if seconds is None else seconds * 1000))
        if ready.get(STDOUT, 0) & select.POLLERR:
            raise BrokenPipeError
        if self._fd < 0:
            return None
        return _names(os.read(self._fd, QUEUE)) if self._fd in ready else set()


class JobEnd:
    """Detects that all parts of a job have ended: their runners are gone, or their reports say so."""

    def __init__(self, parts: Iterable[FoundJob]) -> None:
        self._running = list(parts)
        self.locks: list[int] = []  # at most one: the end of a pipe that is closed when a runner ends

    def has_come(self) -> bool:
        """Whether the job has ended."""
        while self._running:
            part = self._running[-1]
            is_alive = part.is_alive()
            if is_alive and not self.locks:
                self.locks = _pipe_until_unlocked(part.run_folder)
            if is_alive or (is_alive is None and take(part, asks=False).condition in GOING_ON):
                return False
            self.close()
            self._running.pop()
        return True

    def close(self) -> None:
        """Close the pipe. May be called twice."""
        for fd in self.locks:
            os.close(fd)
        self.locks = []


def _pipe_until_unlocked(folder: str) -> list[int]:
    """Return the end of a pipe that is closed when the lock on a directory is free; none if it cannot be opened."""
    try:
        fd = os.open(folder, files.FOLDER_FLAGS)
    except OSError:
        return []
    reader, writer = os.pipe2(os.O_CLOEXEC)

    def wait() -> None:
        with suppress(OSError):
            fcntl.flock(fd, fcntl.LOCK_SH)
        os.close(fd)
        os.close(writer)

    bounded.start_thread(wait)
    return [reader]


def _inotify(path: str) -> int:
    """Watch a directory; return the file with the events, or -1 if no more watches are allowed."""
    libc = ctypes.CDLL(None)
    fd: int = libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
    if fd >= 0 and libc.inotify_add_watch(fd, os.fsencode(path), IN_MODIFY | IN_MOVED_TO | IN_CREATE) < 0:
        os.close(fd)
        return -1
    return fd


def _names(events: bytes) -> set[str] | None:
    """Return the names in some events, or None if there were too many of them."""
    names: set[str] = set()
    position = 0
    while position < len(events):
        _watch, mask, _cookie, length = EVENT.unpack_from(events, position)
        position += EVENT.size + length
        if mask & IN_Q_OVERFLOW:
            return None
        names.add(os.fsdecode(events[position - length : position].rstrip(b"\0")))
    return names
