"""The part of a job on one node: its board, which is cheap to read, and its report, which is read when it changes."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from typing import Final

import attrs

from ascend_runner.board.reader import View
from ascend_runner.frameworks import hccl
from ascend_runner.host import npu
from ascend_runner.host.host import Host
from ascend_runner.job_tool.job import snapshot
from ascend_runner.job_tool.job.jobs import FoundJob
from ascend_runner.job_tool.job.snapshot import Condition, Snapshot
from ascend_runner.job_tool.live import rank_views
from ascend_runner.job_tool.live.view import RankView
from ascend_runner.job_tool.processes.process_meter import ProcessMeter, Usage
from ascend_runner.job_tool.status import screens

MOST_NPUS: Final = 1024  # NPUs of a machine
FINAL: Final = frozenset({Condition.SUCCEEDED, Condition.ENDED_BADLY, Condition.RUNNER_KILLED})


class Part:
    """The known facts about a part of a job."""

    def __init__(self, job: FoundJob, host: Host) -> None:
        self._job, self._host = job, host
        self._stamp: object = None
        self._npus: tuple[int, ...] | None = None
        self._meter = ProcessMeter(job.pid)
        self.seen: Snapshot = Snapshot(job=job, is_alive=None)
        self.board: View | None = None

    def look(self) -> list[RankView]:
        """Return the ranks as they are now."""
        self.board = snapshot.read_board(self._job) if self.seen.board else None
        stamp = self._new_stamp()
        if (
            stamp != self._stamp
            or (self.seen.board and not self.board)
            or self.seen.condition is Condition.RUNNER_KILLED
        ):
            self._stamp = stamp
            self.seen = snapshot.take(self._job)
            self.board = self.seen.board
        if self.board:
            return [self._with_npu(rank) for rank in rank_views.of_board(self.board, self.seen.gone)]
        return [self._with_npu(rank) for rank in rank_views.of_report(self.seen, time.time())]

    def usages(self, ranks: list[RankView], now: float) -> dict[int, Usage]:
        """Return the resource usage of the processes of ranks."""
        if not self.is_here:
            return {}
        return self._meter.look({rank.rank_id: rank.pid for rank in ranks if rank.state.is_running and rank.pid}, now)

    @property
    def is_here(self) -> bool:
        """Whether its processes can be seen."""
        return self._job.is_of_this_machine and not self.is_over

    @property
    def is_over(self) -> bool:
        """Whether it has ended."""
        return self.seen.condition in FINAL

    def headline(self, *, is_brief: bool = False) -> str:
        """Return its state in a sentence, which is shorter without times of day."""
        return screens.headline(self.seen, time.time(), is_brief=is_brief)

    def _new_stamp(self) -> object:
        """Return a value that changes with the job and with its report."""
        report = None
        with suppress(OSError):
            status = os.stat(self._job.path("report", "json"))
            report = status.st_ino, status.st_size, status.st_mtime_ns
        return self._job.is_alive(), report

    def _with_npu(self, rank: RankView) -> RankView:
        """Return a rank with the id of its NPU in /dev instead of its index on the node, if that is known."""
        if rank.npu is None or not self._job.is_of_this_machine:
            return rank
        if self._npus is None:
            self._npus = _npus_of_ranks(self._host, self._job.runner_pid)
        return attrs.evolve(rank, npu=self._npus[rank.npu]) if rank.npu < len(self._npus) else rank


def _npus_of_ranks(host: Host, runner_pid: int) -> tuple[int, ...]:
    """Return the ids of the NPUs of a node's ranks in local order, or none if they are unknown."""
    try:
        with open(host.path(f"/proc/{runner_pid}/environ"), "rb") as file:
            entries = file.read().split(b"\0")
    except OSError:  # it has ended, or belongs to somebody else
        return ()
    environ = dict(os.fsdecode(entry).partition("=")[::2] for entry in entries if b"=" in entry)
    return npu.of_ranks(host, MOST_NPUS, hccl.visible_devices(environ))
