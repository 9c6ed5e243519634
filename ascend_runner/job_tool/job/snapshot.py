"""The facts about a job at a moment: its description, whether its runner is alive, and its report."""

from __future__ import annotations

import enum
import os
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Final

import attrs

from ascend_runner import files, report_file
from ascend_runner.board import layout, reader
from ascend_runner.board.reader import LARGEST_PID, View
from ascend_runner.errors import UnreadableError
from ascend_runner.guardian import process_tree
from ascend_runner.host import bounded
from ascend_runner.job_tool.job import log_end
from ascend_runner.job_tool.job.jobs import FoundJob, UnknownJobError, with_its_logs
from ascend_runner.lifecycle.machine import OF_AN_ATTEMPT
from ascend_runner.lifecycle.state import JobState
from ascend_runner.members import Members
from ascend_runner.observations import cause_text
from ascend_runner.report import rank_member
from ascend_runner.services import run_folder
from ascend_runner.training import steps
from ascend_runner.training.steps import Step

DISK_LIMIT: Final = 5.0  # seconds for the disk with the logs
LOG_ENDS: Final = 1 << 18  # bytes of all logs that are read for their last steps
RUNNING: Final = "running"  # the state of a rank
SUCCEEDED: Final = "succeeded"  # likewise
ENDED: Final = "ended"  # likewise, if its process has ended since the report was written
STATES: Final = {state.value: state for state in JobState}


class Condition(enum.Enum):
    """Whether a job runs."""

    RUNNING = "running"
    SUCCEEDED = "succeeded"
    ENDED_BADLY = "ended badly"
    RUNNER_KILLED = "runner killed"  # so it could not report an end
    UNKNOWN = "unknown"  # it cannot be determined from here


@attrs.frozen(kw_only=True)
class Snapshot:
    """A job at a moment. `report` is empty if it cannot be read, for the reason in `why`.

    `board` is what the runner shows of an attempt that is running, or was when the runner was killed. `logs` has the
    size in bytes and the time of the last output, in seconds since the epoch, of each rank's log.
    `gone` are the ranks that were running when the report was written, and whose first process has ended since.
    `last_lines` are those of the logs of an attempt that is running: a board has only the end of a long line. `steps`
    has the figures of the training in these logs. `html` is the path of the HTML report, "" if there is none.
    `limit_at` is the end of the time limit of a running job, in seconds since the epoch. `spare_report` is the path of
    the report if it could not be written beside the logs, "" if it was.
    """

    job: FoundJob
    is_alive: bool | None
    report: Members = attrs.Factory(Members)
    why: str = ""
    board: View | None = None
    logs: Mapping[int, tuple[int, float]] = {}
    last_lines: Mapping[int, str] = {}
    steps: Mapping[int, Step] = {}
    html: str = ""
    gone: frozenset[int] = frozenset()
    limit_at: float | None = None
    spare_report: str = ""

    @property
    def condition(self) -> Condition:
        """Whether it runs."""
        state = STATES.get(self.report.text("state"))
        if state and state.is_final:
            return Condition.SUCCEEDED if state is JobState.SUCCEEDED else Condition.ENDED_BADLY
        if self.is_alive is None or not (self.is_alive or state or self.board):
            return Condition.UNKNOWN
        return Condition.RUNNING if self.is_alive else Condition.RUNNER_KILLED

    @property
    def cause(self) -> str:
        """The sentence on why it failed, or "" if it did not."""
        cause = self.report.child("cause")
        if cause.members:
            return cause.text("sentence")
        return f"the runner ({self.pids}) was killed" if self.condition is Condition.RUNNER_KILLED else ""

    @property
    def certainty_note(self) -> str:
        """A note on the certainty of the cause, "" if it is certain."""
        return cause_text.certainty_note_of(self.report.child("cause"), len(self.report.children("ranks")))

    @property
    def pids(self) -> str:
        """The pids of the runner: the one that takes signals, and that of its child, which supervises the ranks."""
        return f"pid {self.job.pid}, child pid {self.job.runner_pid}"

    @property
    def culprit(self) -> int | None:
        """The rank whose failure ended the job, or None if there is none."""
        return self.report.child("cause").whole("rank_id")

    @property
    def failed(self) -> Members:
        """The record of that rank, empty if there is none."""
        return self.report.child_with("ranks", "rank_id", self.culprit)

    @property
    def ranks(self) -> Mapping[int, Members]:
        """The records of the ranks by their numbers, as many as the report has, or else the board."""
        numbered = ((rank.whole("rank_id"), rank.members) for rank in self.report.children("ranks"))
        known = {rank_id: members for rank_id, members in numbered if rank_id is not None}
        if self.board:
            on_board = dict(self._on_board(self.board))
            known = {rank_id: {**known.get(rank_id, {}), **members} for rank_id, members in on_board.items()}
        else:
            known = {rank_id: {**members, **self._of_log(rank_id)} for rank_id, members in known.items()}
        return {
            rank_id: Members({**members, "state": ENDED} if rank_id in self.gone else members)
            for rank_id, members in known.items()
        }

    @property
    def running_pids(self) -> Mapping[int, int]:
        """The pids of the running ranks by their numbers, according to the board or the report."""
        pids = {rank_id: rank.whole("pid") for rank_id, rank in self.ranks.items() if rank.text("state") == RUNNING}
        return {rank_id: pid for rank_id, pid in pids.items() if pid is not None}

    def _on_board(self, view: View) -> Iterator[tuple[int, Mapping[str, object]]]:
        for rank in view.ranks:
            last_line = self.last_lines.get(rank.rank_id) or "".join(rank.last_lines)
            members = {"local_rank": view.local_ranks[rank.rank_id], "last_line": last_line}
            yield rank.rank_id, {**rank_member.of_record(rank, view.began), **members}

    def _of_log(self, rank_id: int) -> Mapping[str, object]:
        """Return what the log of a running rank shows of it; the report of one that has ended says more."""
        if rank_id not in self.last_lines:
            return {}
        return {"log_size": self.logs.get(rank_id, (None,))[0], "last_line": self.last_lines[rank_id]}

    @property
    def complete_report(self) -> Members:
        """The report with the ranks as the board shows them; if the runner was killed, up to the last activity.

        The end of the ranks was not observed then, so their times stop at their start or their last output.
        """
        if self.condition is not Condition.RUNNER_KILLED:
            return self._with_ranks(self.ranks.values()) if self.board else self.report
        ranks = [self._until_last_sign(rank_id, rank) for rank_id, rank in self.ranks.items()]
        signs = (rank.moment(name) for rank in ranks for name in ("started_at", "ended_at"))
        began = self.report.moment("started_at") or self.job.began
        return self._with_ranks(ranks, seconds=max([0.0, *(at - began for at in signs if at)]))

    def _with_ranks(self, ranks: Iterable[Members], **members: object) -> Members:
        return Members({**self.report.members, "ranks": [rank.members for rank in ranks], **members})

    def _until_last_sign(self, rank_id: int, rank: Members) -> Members:
        began = rank.moment("started_at")
        log_size, last = self.logs.get(rank_id, (None, 0.0))
        if rank.text("state") != ENDED or began is None:
            return rank
        output = {} if self.board else {"log_size": log_size}
        return Members({**rank.members, **output, **rank_member.end(began, max(0.0, (last or began) - began))})


def take(job: FoundJob) -> Snapshot:
    """Take a snapshot. The lock is checked before the report is read, so that a job that ends never looks killed."""
    is_alive = job.is_alive()
    seen = Snapshot(job=job, is_alive=is_alive, board=None if is_alive is None else read_board(job))
    found = [attrs.evolve(seen, why=f"cannot read the report: no response from its disk within {DISK_LIMIT:g} s")]

    def read() -> None:
        try:
            here = with_its_logs(job)
            report, spare = _read_report(here)
        except (UnreadableError, UnknownJobError) as error:
            found.append(attrs.evolve(seen, why=str(error)))
        else:
            is_shown = STATES.get(report.text("state")) in OF_AN_ATTEMPT
            complete = attrs.evolve(seen, job=here, report=report, spare_report=spare)
            complete = attrs.evolve(complete, board=seen.board if is_shown else None)
            complete = attrs.evolve(complete, logs=_logs(complete), html=_existing(here.path("report", "html")))
            found.append(complete)
            if is_shown:
                found.append(_with_log_ends(complete))

    bounded.call(DISK_LIMIT, read)
    seen = found[-1]
    return attrs.evolve(seen, gone=_gone(seen), logs=_outputs(seen.board) if seen.board else seen.logs)


def _read_report(job: FoundJob) -> tuple[Members, str]:
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
        return report_file.read(spare), spare
    return report, ""


def read_board(job: FoundJob) -> View | None:
    """Return the board of a job, or None if it is missing or cannot be read."""
    with suppress(OSError, ValueError):
        fd = os.open(os.path.join(job.run_folder, layout.NAME), files.READ_FLAGS)
        with open(fd, "rb", buffering=0) as file:
            size = os.fstat(fd).st_size
            view = reader.decode(file.read(size) if size <= reader.LARGEST else b"", time.monotonic())
            return view if view.runner_pid == job.runner_pid else None
    return None


def _outputs(view: View) -> dict[int, tuple[int, float]]:
    """Return the bytes that ranks have written, and when they last did so, or else when they started."""
    began = time.time() - view.seconds
    return {
        rank.rank_id: (rank.log_size, began + (rank.last_output_after or rank.started_after))
        for rank in view.ranks
        if rank.is_started
    }


def _logs(seen: Snapshot) -> dict[int, tuple[int, float]]:
    """Return the size of each rank's log, and when it was last written."""
    found: dict[int, tuple[int, float]] = {}
    for rank_id, path in _log_paths(seen):
        with suppress(OSError, ValueError):
            status = os.stat(path)
            found[rank_id] = status.st_size, status.st_mtime
    return found


def _log_paths(seen: Snapshot) -> Iterator[tuple[int, str]]:
    """Yield the path of each rank's log. A path in a report is only that of a file in its directory."""
    for rank_id, rank in seen.ranks.items():
        name = os.path.basename(rank.text("log_path"))
        if name:
            yield rank_id, os.path.join(seen.job.log_dir, name)


def _with_log_ends(seen: Snapshot) -> Snapshot:
    """Return a job with the last lines, without secrets, and the last steps of its logs."""
    ends = dict(_log_ends(seen))
    return attrs.evolve(
        seen,
        last_lines={rank_id: log_end.last_line(end) for rank_id, end in ends.items()},
        steps={rank_id: step for rank_id, end in ends.items() if (step := steps.newest(end)) != steps.NO_STEP},
    )


def _log_ends(seen: Snapshot) -> Iterator[tuple[int, bytes]]:
    """Yield the end of the log of each rank."""
    size = max(log_end.LINE, LOG_ENDS // max(1, len(seen.ranks)))
    for rank_id, path in _log_paths(seen):
        with suppress(ValueError):  # a NUL or half of a surrogate pair in the name
            yield rank_id, log_end.read(path, size)


def _existing(path: str) -> str:
    return path if os.path.exists(path) else ""


def _gone(seen: Snapshot) -> frozenset[int]:
    """Return the ranks whose process has ended, if they can be seen from here."""
    if not seen.job.is_of_this_machine:
        return frozenset()
    return frozenset(
        rank_id
        for rank_id, pid in seen.running_pids.items()
        if 0 < pid <= LARGEST_PID and not process_tree.is_alive(pid)
    )


def is_final(state: str) -> bool:
    """Whether a job in this state has ended."""
    return state in STATES and STATES[state].is_final
