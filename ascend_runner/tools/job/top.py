"""Observes a job for `ascend-job top`: records, the ends of logs, processes and NPUs become one view.

Expensive work is limited in each round, and done only for the ranks on the screen, and for some of the others in turn.

The CPU usage of ranks is averaged over the last minute. Of ranks that wait for each other in each step, the one that
computes for longer uses more CPU, or less if the others poll while they wait. In a single second, a step of several
seconds looks like such a difference.
"""

from __future__ import annotations

import itertools
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from typing import Final

import attrs

from ascend_runner.errors import UnreadableError
from ascend_runner.frameworks import env_patch
from ascend_runner.node import bounded, npus
from ascend_runner.node.host import Host
from ascend_runner.node.npu_smi import Figures, NpuSampler
from ascend_runner.record.rank_record import RankRecord
from ascend_runner.secrets import Masker
from ascend_runner.supervision import cloud_events
from ascend_runner.text import counted, printable
from ascend_runner.tools.job import jobs, logs, screens
from ascend_runner.tools.job.jobs import Condition, FoundJob, Snapshot, UnknownJobError
from ascend_runner.tools.job.processes import ProcessMeter, Usage
from ascend_runner.tools.job.top_frame import JobView, RankView, State, judged
from ascend_runner.training import steps
from ascend_runner.training.steps import Step
from ascend_runner.views import facts

WINDOW: Final = 60.0  # seconds
LEAST: Final = 30.0  # seconds until there are averages
LOOKS: Final = 120  # the looks of a history; there is one every second


class CpuWindow:
    """The CPU time of each rank at some moments of the last minute."""

    def __init__(self) -> None:
        self._seen: deque[tuple[float, Mapping[int, float]]] = deque()

    def look(self, seconds: Mapping[int, float], now: float) -> dict[int, float]:
        """Return the average usage of each rank in percent of a core; `seconds` is its CPU time until now.

        A rank with a smaller time than before is left out: it was restarted, or one of its processes has ended.
        """
        self._seen.append((now, dict(seconds)))
        while len(self._seen) > 1 and now - self._seen[1][0] >= WINDOW:
            self._seen.popleft()
        began, before = self._seen[0]
        if now - began < LEAST:
            return {}
        used = {rank_id: after - before[rank_id] for rank_id, after in seconds.items() if rank_id in before}
        return {rank_id: 100 * more / (now - began) for rank_id, more in used.items() if more >= 0}


class Histories:
    """The figures of ranks in the last looks: CPU usage in percent, memory in bytes, and steps between two looks."""

    def __init__(self) -> None:
        self._seen: dict[int, deque[tuple[float | None, int | None, int | None]]] = {}

    def look(self, rank: RankView) -> RankView:
        """Return a rank with its history until now."""
        seen = self._seen.setdefault(rank.rank_id, deque(maxlen=LOOKS))
        seen.append((rank.cpu, rank.memory, rank.step))
        cpus = tuple(int(cpu) for cpu, _memory, _step in seen if cpu is not None)
        memories = tuple(memory for _cpu, memory, _step in seen if memory is not None)
        reached = [step for _cpu, _memory, step in seen if step is not None]
        paces = tuple(max(0, later - step) for step, later in zip(reached, reached[1:]))
        found = {"CPU": cpus, "memory": memories, "steps": paces}
        return attrs.evolve(rank, history={name: values for name, values in found.items() if any(values)})


MOST_EXAMINED: Final = 256  # logs each time, besides the visible ones
MOST_READ: Final = 32  # likewise
FIRST_TAIL: Final = 1 << 16  # bytes of a log that is read for the first time, and at most at any time


@attrs.frozen(kw_only=True)
class Tail:
    """The end of a log. `at` is when it was written, in seconds since the epoch; the lines are without secrets."""

    size: int
    at: float
    lines: tuple[str, ...] = ()
    step: Step = steps.NO_STEP
    is_read: bool = False


class LogTails:
    """Reads the ends of the logs of a job whenever `look` is called."""

    def __init__(self) -> None:
        self.tails: dict[int, Tail] = {}
        self._turn = 0

    def look(self, paths: Mapping[int, str], shown: Collection[int]) -> None:
        """Examine logs, by rank: the visible ones, and in turn some of the others."""
        others = [rank_id for rank_id in paths if rank_id not in shown]
        ends = range(self._turn, self._turn + min(MOST_EXAMINED, len(others)))
        in_turn = [others[index % len(others)] for index in ends]
        self._turn = ends.stop % len(others) if others else 0
        read = itertools.count()

        def may_read(rank_id: int) -> bool:
            return rank_id in shown or next(read) < MOST_READ

        for rank_id in itertools.chain(shown, in_turn):
            path = paths.get(rank_id)
            if path:
                self._examine(rank_id, path, may_read)

    def _examine(self, rank_id: int, path: str, may_read: Callable[[int], bool]) -> None:
        """Read the end of a log if it has changed."""
        with suppress(OSError, ValueError):
            status = os.stat(path)
            old = self.tails.get(rank_id)
            if old and (old.size, old.at) == (status.st_size, status.st_mtime) and old.is_read:
                return
            tail = Tail(size=status.st_size, at=status.st_mtime)
            if old:
                tail = attrs.evolve(tail, lines=old.lines, step=old.step)
            if may_read(rank_id):
                tail = _read(path, tail, old.size if old and old.is_read else None)
            self.tails[rank_id] = tail


def _read(path: str, tail: Tail, old_size: int | None) -> Tail:
    """Return a tail with what was written since the log had the old size, if the log can be read."""
    grown = FIRST_TAIL if old_size is None or old_size > tail.size else tail.size - old_size + jobs.LINE
    end = jobs.read(path, min(grown, FIRST_TAIL))
    lines = jobs.last_lines(end) or tail.lines
    return attrs.evolve(tail, lines=lines, step=steps.newest(end, tail.step), is_read=bool(end) or not tail.size)


MOST_CELLS: Final = 96  # cells of the output over time


def ranks_of(seen: Snapshot) -> list[RankView]:
    """Return the ranks of a part of a job, with their output if its runner shows them."""
    marks, why_silent = facts.singled_out(seen.record), facts.why_silent(seen.record)
    return [
        _of_record(rank, seen, marks.get(rank.rank_id, ""), why_silent if rank.is_silent else "")
        for rank in seen.record.ranks
    ]


def _of_record(rank: RankRecord, seen: Snapshot, mark: str, why_silent: str) -> RankView:
    now = (seen.live.began + seen.live.seconds if seen.live else time.time()) - seen.record.started_at
    state = State.__members__.get(rank.state.name, State.ENDED)
    if state is State.RUNNING:
        state = State.STOPPING if rank.signals else State(mark) if mark else state
    return RankView(
        rank_id=rank.rank_id,
        state=state,
        ending=rank.words if rank.ending else "",
        is_culprit=bool(seen.cause and rank.rank_id == seen.cause.rank_id),
        name=printable(rank.name).replace("\t", " "),
        node="" if seen.live or seen.job.is_of_this_machine else printable(seen.job.host),
        pid=rank.pid,
        npu=rank.local_rank if rank.rank_id >= 0 else None,
        quiet=max(0.0, now - rank.last_sign_after) if seen.live and rank.is_running and not why_silent else None,
        why_silent=why_silent,
        over=max(0.0, now - rank.ended_after) if rank.ending else None,
        output=_output(rank) if seen.live else (),
        last_lines=rank.last_lines,
    )


def _output(rank: RankRecord) -> tuple[int, ...]:
    """Return the cells until now. Those of a rank that is quiet end with its last output."""
    if not rank.is_started or rank.cell_seconds <= 0:
        return ()
    cells, seconds, length = list(rank.activity), rank.cell_seconds, rank.started_after + rank.seconds
    while length / seconds > MOST_CELLS:
        cells = [sum(cells[index : index + 2]) for index in range(0, len(cells), 2)]
        seconds *= 2
    count = max(1, int(length / seconds))
    return tuple(cells[:count]) + (0,) * (count - len(cells))


MOST_NPUS: Final = 1024  # NPUs of a machine


class Part:
    """The known facts about a part of a job."""

    def __init__(self, job: FoundJob, host: Host) -> None:
        self._job, self._host = job, host
        self._stamp: object = None
        self._npus: tuple[int, ...] | None = None
        self._meter = ProcessMeter(job.pid)
        self.seen: Snapshot = Snapshot(job=job, is_alive=None)

    def look(self) -> list[RankView]:
        """Return the ranks as they are now."""
        had_live = self.seen.live is not None
        if had_live or self.seen.note:
            self.seen = jobs.ask_runner(attrs.evolve(self.seen, live=None, nodes=(), note=""))
        stamp = self._new_stamp()
        is_killed = self.seen.condition is Condition.RUNNER_KILLED
        if stamp != self._stamp or (had_live and not self.seen.live) or is_killed:
            self._stamp = stamp
            self.seen = jobs.take(self._job)
        elif self.seen.live:
            self.seen = jobs.with_view(self.seen, self.seen.live)
        return [self._with_npu(rank) for rank in ranks_of(self.seen)]

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
        return self.seen.is_over

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
    return npus.of_ranks(host, MOST_NPUS, env_patch.visible_devices(environ))


DISK_PATIENCE: Final = 1.0  # seconds for the disk with the logs; until it responds, only the records are shown
LIST_INTERVAL: Final = 10.0  # seconds between two lists of the logs
FEW: Final = 64  # ranks: if there are at most as many, all logs are read


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
        self._histories = Histories()
        self._npus = NpuSampler(self._host, environ)
        self._has_started_npu_smi = False
        self._has_npus = any(one.is_of_this_machine for one in found) and bool(npus.devices(self._host))

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
        wanted_ranks = {*wanted}
        self._look_at_logs(now, wanted)
        usages = {
            rank_id: usage
            for part, found in by_part
            for rank_id, usage in part.usages([rank for rank in found if rank.rank_id in wanted_ranks], now).items()
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
                view = attrs.evolve(view, average_cpu=averages.get(rank.rank_id))
                views.append(self._histories.look(view) if rank.rank_id in wanted_ranks else view)
        return self._view(judged(views), tails, now)

    def _view(self, ranks: tuple[RankView, ...], tails: Mapping[int, Tail], now: float) -> JobView:
        worst = min(self._parts, key=lambda part: (not part.seen.cause, part.is_over))
        notes = (f"{part.seen.job.name}: {part.seen.note}" for part in self._parts if part.seen.note)
        return JobView(
            name=Masker().text(self._job.job_id if len(self._parts) > 1 else self._job.name),
            headline=worst.headline(),
            brief=worst.headline(is_brief=True),
            ranks=ranks,
            now=now,
            place=self._place(),
            cause=worst.seen.sentence,
            outlook="; ".join(filter(None, (*notes, screens.outlook(worst.seen)))),
            nodes=max((part.seen.all_nodes for part in self._parts), key=len),
            step=steps.furthest(tail.step for tail in tails.values()) or steps.NO_STEP,
            is_over=all(part.is_over for part in self._parts),
            has_npus=self._has_npus,
            has_stacks=any(part.is_here for part in self._parts),
            condition="; ".join(_conditions(self._parts)),
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
                    found = logs.find_logs(self._job.log_dir, self._job.job_id)
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


def _conditions(parts: Iterable[Part]) -> Iterable[str]:
    """Return the hangs and slow trainings of parts, those with outliers first. Other conditions are not about ranks."""
    found = [one for part in parts for one in part.seen.record.conditions if not part.is_over]
    about_ranks = [one for one in found if one.condition in {cloud_events.HANGING, cloud_events.SLOW}]
    named = [f"{one.condition}: {one.facts['outlier']}" for one in about_ranks if one.facts.get("outlier")]
    others = [one.sentence for one in about_ranks if not one.facts.get("outlier")]
    return dict.fromkeys([*named, *others])


def _complete(rank: RankView, tail: Tail | None, usage: Usage | None, device: Figures | None) -> RankView:
    """Return a rank with the figures of its log, its processes and its NPU."""
    quiet = rank.quiet
    if tail and quiet is None and rank.state.is_running and not rank.why_silent:
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
