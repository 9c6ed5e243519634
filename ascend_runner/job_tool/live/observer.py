"""Observes a job for `ascend-job top`: boards, reports, logs, processes and NPUs become one view.

Observing wakes no process of the job. Expensive work is limited in each round, and done only for the ranks on the
screen, and for some of the others in turn.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Collection, Mapping
from contextlib import suppress
from typing import Final

import attrs

from ascend_runner.errors import UnreadableError
from ascend_runner.host import bounded, npu
from ascend_runner.host.host import Host
from ascend_runner.host.npu_watch import Figures, NpuSampler
from ascend_runner.job_tool.job import jobs
from ascend_runner.job_tool.job.jobs import FoundJob, UnknownJobError
from ascend_runner.job_tool.live.cpu_window import CpuWindow
from ascend_runner.job_tool.live.log_tails import LogTails, Tail
from ascend_runner.job_tool.live.part import Part
from ascend_runner.job_tool.live.view import JobView, RankView, judged
from ascend_runner.job_tool.logs import log_files
from ascend_runner.job_tool.processes.process_meter import Usage
from ascend_runner.job_tool.status import screens
from ascend_runner.observations import cause_text
from ascend_runner.secrets import Masker
from ascend_runner.text import counted
from ascend_runner.training import steps

DISK_PATIENCE: Final = 1.0  # seconds for the disk with the logs; until it responds, the boards are shown alone
LIST_INTERVAL: Final = 10.0  # seconds between two lists of the logs
FEW: Final = 64  # ranks, whose logs are all read


class Observer:
    """Observes one job, which may have parts on several nodes."""

    def __init__(self, job: FoundJob, environ: Mapping[str, str]) -> None:
        self._job, self._host = job, Host()
        try:
            found = jobs.parts(job)
        except UnknownJobError:  # its logs were removed
            found = [job]
        self._parts = [Part(one, self._host) for one in found]
        self._tails = LogTails()
        self._tail_thread: threading.Thread | None = None
        self._listed_at: float | None = None
        self._log_paths: dict[int, str] = {}
        self._cpu = CpuWindow()
        self._npus = NpuSampler(self._host, environ)
        self._has_started_npu_smi = False
        self._has_npus = any(one.is_of_this_machine for one in found) and bool(npu.devices(self._host))

    def close(self) -> None:
        """Kill npu-smi. Closing it again has no effect."""
        self._npus.close()

    def log_path(self, rank_id: int) -> str:
        """Return the path of the log of a rank, or "" if it is unknown."""
        return self._log_paths.get(rank_id, "")

    def look(self, shown: Collection[int]) -> JobView:
        """Return the job as it is now; of the ranks that are shown, everything is read."""
        now = time.monotonic()
        by_part = [(part, part.look()) for part in self._parts]
        ranks = [rank for _part, found in by_part for rank in found]
        wanted = [rank.rank_id for rank in ranks] if len(ranks) <= FEW else shown
        self._look_at_logs(now, wanted)
        usages = {
            rank_id: usage
            for part, found in by_part
            for rank_id, usage in part.usages([rank for rank in found if rank.rank_id in set(wanted)], now).items()
        }
        averages = self._cpu.look({rank_id: usage.cpu_seconds for rank_id, usage in usages.items()}, now)
        devices = self._look_at_npus(now)
        tails = dict(self._tails.tails)
        views = []
        for part, found in by_part:
            figures = devices if part.is_here else {}
            for rank in found:
                device = None if rank.npu is None else figures.get(rank.npu)
                view = _complete(rank, tails.get(rank.rank_id), usages.get(rank.rank_id), device)
                views.append(attrs.evolve(view, average_cpu=averages.get(rank.rank_id)))
        return self._view(judged(views), tails, now)

    def _view(self, ranks: tuple[RankView, ...], tails: Mapping[int, Tail], now: float) -> JobView:
        worst = min(self._parts, key=lambda part: (not part.seen.cause, part.is_over))
        return JobView(
            name=Masker().text(self._job.job_id if len(self._parts) > 1 else self._job.name),
            headline=worst.headline(),
            brief=worst.headline(is_brief=True),
            ranks=ranks,
            now=now,
            place=self._place(),
            cause=cause_text.with_certainty(worst.seen.cause, worst.seen.certainty_note),
            outlook=screens.outlook(worst.seen),
            step=steps.furthest(tail.step for tail in tails.values()) or steps.NO_STEP,
            is_over=all(part.is_over for part in self._parts),
            has_npus=self._has_npus,
            has_stacks=any(part.is_here for part in self._parts),
        )

    def _place(self) -> str:
        if len(self._parts) > 1:
            return f"{counted(len(self._parts), 'node')}, logs in {self._job.log_dir}"
        return screens.place(self._parts[0].seen)

    def _look_at_logs(self, now: float, shown: Collection[int]) -> None:
        """Examine the logs, unless the disk has not responded since the last round."""
        if self._tail_thread and self._tail_thread.is_alive():
            return

        def look() -> None:
            if self._listed_at is None or now - self._listed_at > LIST_INTERVAL:
                with suppress(UnreadableError):
                    found = log_files.find_logs(self._job.log_dir, self._job.job_id)
                    self._log_paths = {log.rank_id: log.path for log in found if log.rank_id >= 0}
                self._listed_at = now
            self._tails.look(self._log_paths, shown)

        self._tail_thread = bounded.start_thread(look)
        self._tail_thread.join(DISK_PATIENCE)

    def _look_at_npus(self, now: float) -> Mapping[int, Figures]:
        if not self._has_started_npu_smi and any(part.is_here for part in self._parts):
            self._has_started_npu_smi = True
            self._npus.start(now)
        return self._npus.look(now)


def _complete(rank: RankView, tail: Tail | None, usage: Usage | None, device: Figures | None) -> RankView:
    """Return a rank with the figures of its log, its processes and its NPU."""
    quiet = rank.quiet
    if tail and quiet is None and rank.state.is_running:
        quiet = max(0.0, time.time() - tail.at)
    return attrs.evolve(
        rank,
        step=tail.step.step if tail else None,
        last_lines=(tail.lines if tail else ()) or rank.last_lines,
        quiet=quiet,
        cpu=usage.cpu if usage else None,
        memory=usage.resident if usage else None,
        device=device if rank.state.is_running else None,
    )
