"""What is known of a job at a moment: its description, whether its runner lives, and its report."""

from __future__ import annotations

import enum
import json
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Final, Optional

import attrs

from ascend_runner import files
from ascend_runner.errors import reason
from ascend_runner.guardian import process_tree
from ascend_runner.host import bounded
from ascend_runner.job_tool.jobs import LARGEST_PID, FoundJob, UnknownJobError, number, with_its_logs
from ascend_runner.lifecycle.machine import JobState

DISK_LIMIT: Final = 5.0  # seconds for the disk with the logs
LARGEST: Final = 1 << 28  # bytes of a report
RUNNING: Final = "running"  # the state of a rank
STATES: Final = {state.value: state for state in JobState}


class Condition(enum.Enum):
    """Whether a job runs."""

    RUNNING = "running"
    SUCCEEDED = "succeeded"
    ENDED_BADLY = "ended badly"
    DIED = "died"  # the runner was killed, and could not report an end
    UNKNOWN = "unknown"  # it cannot be determined from here


@attrs.frozen(kw_only=True)
class Snapshot:
    """A job at a moment. `report` is {} if it cannot be read; `why` says why.

    `logs` has the size in bytes and the time of the last output, in seconds since the epoch, of each rank's log.
    `gone` are the ranks that were running when the report was written, and whose first process has ended since.
    `limit_at` is the end of the time limit of a running job, in seconds since the epoch, as its runner has told.
    """

    job: FoundJob
    is_alive: Optional[bool]
    report: Mapping[str, object] = {}
    why: str = ""
    logs: Mapping[int, tuple[int, float]] = {}
    gone: frozenset[int] = frozenset()
    limit_at: Optional[float] = None

    @property
    def condition(self) -> Condition:
        """Whether it runs."""
        state = STATES.get(self.text("state"))
        if state and state.is_final:
            return Condition.SUCCEEDED if state is JobState.SUCCEEDED else Condition.ENDED_BADLY
        if self.is_alive is None or (not self.is_alive and not state):
            return Condition.UNKNOWN
        return Condition.RUNNING if self.is_alive else Condition.DIED

    @property
    def cause(self) -> str:
        """The sentence on why it failed; "" if it did not."""
        cause = self.report.get("cause")
        return str(cause.get("sentence", "")) if isinstance(cause, Mapping) else ""

    @property
    def ranks(self) -> Sequence[Mapping[str, object]]:
        """The records of the ranks that have a number, as many as the report has."""
        ranks = self.report.get("ranks")
        found = [rank for rank in ranks if isinstance(rank, Mapping)] if isinstance(ranks, list) else []
        return [rank for rank in found if type(rank.get("rank_id")) is int]

    def text(self, member: str) -> str:
        """Return a member of the report, "" if it is missing or no text."""
        value = self.report.get(member)
        return value if isinstance(value, str) else ""

    def number(self, member: str) -> Optional[float]:
        """Return a member of the report, None if it is missing, no number or out of range."""
        return number(self.report.get(member))


def take(job: FoundJob) -> Snapshot:
    """Look at a job. Its report is read after its lock, so that the end of a job is never taken for a death."""
    is_alive = job.is_alive()
    found = [Snapshot(job=job, is_alive=is_alive, why=f"no response from its disk within {DISK_LIMIT:g} s")]

    def read() -> None:
        try:
            here = with_its_logs(job)
            report = _read(here.path("report", "json"))
        except (OSError, ValueError, RecursionError, UnknownJobError) as error:
            why = "it is not valid JSON"
            if isinstance(error, (OSError, UnknownJobError)):
                why = reason(error) if isinstance(error, OSError) else str(error)
            found.append(Snapshot(job=job, is_alive=is_alive, why=why))
        else:
            seen = Snapshot(job=here, is_alive=is_alive, report=report)
            found.append(attrs.evolve(seen, logs=_logs(seen.ranks), gone=_gone(seen)))

    bounded.call(DISK_LIMIT, read)
    return found[-1]


def _read(path: str) -> Mapping[str, object]:
    """Read a report.

    Raises:
        OSError: It cannot be read.
        ValueError: It is not a JSON object.
    """
    with open(os.open(path, files.READ_FLAGS), "rb") as file:
        document = json.loads(file.read(LARGEST))
    if not isinstance(document, dict):
        raise ValueError("not an object")  # noqa: TRY004  as for other files that are no reports
    return document


def _logs(ranks: Sequence[Mapping[str, object]]) -> dict[int, tuple[int, float]]:
    found: dict[int, tuple[int, float]] = {}
    for rank in ranks:
        rank_id, path = rank.get("rank_id"), rank.get("log_path")
        if isinstance(rank_id, int) and isinstance(path, str):
            with suppress(OSError, ValueError):
                status = os.stat(path)
                found[rank_id] = status.st_size, status.st_mtime
    return found


def _gone(seen: Snapshot) -> frozenset[int]:
    """Return the ranks whose process has ended, if they can be seen from here."""
    if not seen.job.is_of_this_machine:
        return frozenset()
    running = {rank.get("rank_id"): rank.get("pid") for rank in seen.ranks if rank.get("state") == RUNNING}
    return frozenset(
        rank_id
        for rank_id, pid in running.items()
        if isinstance(rank_id, int) and isinstance(pid, int) and 0 < pid <= LARGEST_PID and not _is_running(pid)
    )


def _is_running(pid: int) -> bool:
    found = process_tree.look(pid)
    return found is not None and not found.is_zombie


def epoch(text: str) -> Optional[float]:
    """Return a time of the report in seconds since the epoch; None if there is none."""
    try:
        return number(datetime.fromisoformat(text).timestamp())
    except (ValueError, OverflowError, OSError):
        return None
