"""What a running attempt shows to observers: to `ascend-job` through the control socket, and to `--summary`.

Nothing is computed or kept for viewers: a view is made from facts that the runner holds anyway, when somebody asks. The
bytes of a view that came from a socket may be anything, so values out of range count as unknown.

`--summary` writes one line from the same records at intervals, in a thread, for logs that nobody can follow with
`ascend-job`.
"""

from __future__ import annotations

import fcntl
import json
import os
import stat
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, Protocol

import attrs
import orjson

from ascend_runner.activity import Activity
from ascend_runner.members import LATEST, Members, iso, plain
from ascend_runner.node import bounded
from ascend_runner.record.facts import Fact
from ascend_runner.record.job_record import StepRecord
from ascend_runner.record.rank_record import RankRecord, RankState, silences
from ascend_runner.secrets import Masker
from ascend_runner.supervision import outliers
from ascend_runner.supervision.state import Phase, State
from ascend_runner.text import all_of, duration, last_lines, number_within, printable, rank_list
from ascend_runner.views import facts

if TYPE_CHECKING:
    from ascend_runner.plan.spec import JobSpec
    from ascend_runner.record.nodes import NodeRecord

LARGEST: Final = 1 << 24  # bytes of a view, enough for 10,000 ranks
LARGEST_PID: Final = 1 << 22  # the kernel's limit (proc(5), pid_max)
LARGEST_SIGNAL: Final = 64
CUT_WORDS: Final = 3  # as in "password = x"
# The members of a rank that change without a fact.
OF_OUTPUT: Final = (
    *("seconds", "first_output_at", "last_output_at", "activity", "cell_seconds", "log_size", "log_lost"),
    "end",  # of its output
)
SEALS: Final = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE


class Records(Protocol):
    """The records of the ranks, see `report.recorder`."""

    def so_far(self) -> list[RankRecord]:
        """Return the records as of now, without the output. May be called in any thread."""


@attrs.frozen(kw_only=True)
class View:
    """An attempt at a moment."""

    phase: Phase
    began: float  # of the attempt, in seconds since the epoch
    seconds: float  # since then
    limit_at: float | None = None  # the end of the time limit, in seconds since the epoch
    last_step: StepRecord | None = None
    ranks: tuple[RankRecord, ...] = ()
    nodes: tuple[NodeRecord, ...] = ()  # of the job, that this one knows of; none if it has only one


class Live:
    """What an attempt shows. An observer of the manager's facts; everything else may be called in any thread."""

    def __init__(self, spec: JobSpec, records: Records, deadline: Callable[[], float | None]) -> None:
        """`deadline` returns the end of the time limit on the monotonic clock."""
        self._records, self._deadline = records, deadline
        self._began = time.time(), time.monotonic()
        self._phase = Phase.STARTING
        self._step: StepRecord | None = None
        self._encoded: dict[int, tuple[RankRecord, bytes]] = {}
        self.activities = {rank.rank_id: Activity(self._began[1]) for rank in spec.processes}

    def observe(self, fact: Fact, at: float) -> None:
        """Follow the phase."""
        if isinstance(fact, State):
            self._phase = fact.phase
            if fact.phase is Phase.STARTING:
                self._began = time.time(), at

    def note_step(self, at: float, step: int | None, steps: int | None = None, seconds: float | None = None) -> None:
        """Note the last step of the training, the number of steps and the seconds of one; None leaves one as it is."""
        given: dict[str, Any] = {
            "step": step,
            "steps": steps,
            "seconds": seconds,
            "at": at - self._began[1] + self._began[0],
        }
        known = {name: value for name, value in given.items() if value is not None}
        self._step = attrs.evolve(self._step or StepRecord(), **known)

    def view(self) -> View:
        """Return the attempt as it is now."""
        view = self._view()
        return attrs.evolve(view, ranks=tuple(self._with_output(rank, view.seconds) for rank in self._records.so_far()))

    def _view(self) -> View:
        deadline, (began, start) = self._deadline(), self._began
        return View(
            phase=self._phase,
            began=began,
            seconds=max(0.0, time.monotonic() - start),
            limit_at=None if deadline is None else began + deadline - start,
            last_step=self._step,
        )

    def _with_output(self, rank: RankRecord, now: float) -> RankRecord:
        output = self.activities[rank.rank_id]
        return attrs.evolve(
            rank,
            seconds=max(0.0, now - rank.started_after) if rank.is_running else rank.seconds,
            first_output_after=self._after(output.first_at),
            last_output_after=self._after(output.last_at),
            activity=output.counts,
            cell_seconds=output.seconds,
            log_size=output.size,
            log_lost=output.lost,
            last_lines=end_lines(output.end, output.size)[-1:],
        )

    def _after(self, at: float | None) -> float | None:
        return None if at is None else max(0.0, at - self._began[1])

    def encode(self) -> bytes:
        """Return the view as JSON, with the end of the output of each rank, in which secrets are not masked.

        What seldom changes of a rank is encoded once, so that the records of 1,024 ranks take less than 10 ms.
        """
        view = self._view()
        members = orjson.dumps({**attrs.asdict(view), "phase": view.phase.value, "ranks": None, "nodes": []})
        ranks = b",".join([self._encode(rank, view) for rank in self._records.so_far()])
        return members.replace(b'"ranks":null', b'"ranks":[%s]' % ranks)

    def _encode(self, rank: RankRecord, view: View) -> bytes:
        known, encoded = self._encoded.get(rank.rank_id, (None, b""))
        if known is not rank:
            kept = {name: value for name, value in rank.encode(view.began).items() if name not in OF_OUTPUT}
            encoded = orjson.dumps(plain(kept))[:-1]
            self._encoded[rank.rank_id] = rank, encoded
        output, clock = self.activities[rank.rank_id], self._began[0] - self._began[1]
        changing = (
            max(0.0, view.seconds - rank.started_after) if rank.is_running else rank.seconds,
            None if output.first_at is None else iso(output.first_at + clock),
            None if output.last_at is None else iso(output.last_at + clock),
            output.counts,
            output.seconds,
            output.size,
            output.lost,
            output.end.decode("latin-1"),
        )
        return encoded + b"," + orjson.dumps(dict(zip(OF_OUTPUT, changing)))[1:]


NOTHING: Final = b'{"phase":"starting","began":0,"seconds":0,"nodes":[]}'  # a view before the first attempt


def with_nodes(view: bytes, nodes: Iterable[NodeRecord]) -> bytes:
    """Return an encoded view with the nodes of the job."""
    return view.replace(b'"nodes":[]', b'"nodes":' + orjson.dumps([node.encode() for node in nodes]), 1)


def sealed(data: bytes) -> int:
    """Return a file in memory with this content, which nobody can change: a receiver cannot be made to wait for it.

    Raises:
        OSError: There is no memory, or no descriptor.
    """
    fd = os.memfd_create("view", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        os.ftruncate(fd, len(data))
        os.pwrite(fd, data, 0)
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, SEALS)
    except OSError:
        os.close(fd)
        raise
    return fd


def read_sealed(fd: int) -> bytes:
    """Return the content of such a file, and close it.

    Raises:
        OSError: It is not one.
        ValueError: Somebody could change it, or it is too large.
    """
    try:
        seals = fcntl.fcntl(fd, fcntl.F_GET_SEALS)
        status = os.fstat(fd)
        if seals & SEALS != SEALS or not stat.S_ISREG(status.st_mode) or status.st_size > LARGEST:
            raise ValueError("not a view of a job")
        return os.pread(fd, status.st_size, 0)
    finally:
        os.close(fd)


def decode(data: bytes) -> View:
    """Decode what `Live.encode` has written.

    Raises:
        ValueError: It is not a view.
    """
    try:
        members = Members(json.loads(data))
    except RecursionError:
        raise ValueError("not a view of a job") from None
    if not isinstance(members.members, dict):
        raise ValueError("not a view of a job")  # noqa: TRY004  as for other data that is no view
    phase, began, seconds = members.choice("phase", Phase), members.seconds("began"), members.seconds("seconds")
    if phase is None or began is None or seconds is None:
        raise ValueError("not a view of a job")
    ranks = {rank.rank_id: rank for rank in _ranks(members.children("ranks"), began)}
    return View(
        phase=phase,
        began=began,
        seconds=seconds,
        limit_at=members.seconds("limit_at"),
        last_step=_step(members.child("last_step")),
        ranks=tuple(rank for _rank_id, rank in sorted(ranks.items())),
        nodes=tuple(map(_node, members.children("nodes"))),
    )


def _node(members: Members) -> NodeRecord:
    from ascend_runner.record.nodes import NodeRecord  # noqa: PLC0415  only viewers decode

    return NodeRecord.decode(members)


def _step(members: Members) -> StepRecord | None:
    fields = {**members.fields(StepRecord), "at": members.seconds("at") or 0.0}
    return StepRecord(**fields) if members.members else None


def _ranks(ranks: Iterable[Members], began: float) -> Iterable[RankRecord]:
    for members in ranks:
        if members.whole("rank_id") is None:
            continue
        rank = RankRecord.decode(members, began)
        within: dict[str, Any] = {
            "name": printable(rank.name).replace("\t", " "),
            "pid": rank.pid if rank.pid <= LARGEST_PID else 0,
            "seconds": number_within(rank.seconds, LATEST) or 0.0,
            "signals": tuple((signum, at) for signum, at in rank.signals if 0 < signum <= LARGEST_SIGNAL),
            "activity": rank.activity if min(rank.activity, default=0) >= 0 else (),
            "last_lines": end_lines(members.text("end").encode("latin-1", "replace"), rank.log_size or 0)[-1:],
        }
        yield attrs.evolve(rank, **within)


def end_lines(end: bytes, size: int) -> tuple[str, ...]:
    """Return the last lines of an output of `size` bytes from its end, without secrets."""
    end = end[: min(size, len(end))]
    if size > len(end):
        end = end.partition(b"\n")[2] if b"\n" in end.rstrip() else after_secret(end)
    return tuple(line.replace("\t", " ") for line in last_lines(Masker().data(end)))


def after_secret(cut: bytes) -> bytes:
    """Return a line that was cut off, without its first words, which may be the rest of a secret and of its name."""
    return b"".join(cut.split(maxsplit=CUT_WORDS)[CUT_WORDS:])


# The other phases have messages of their own.
SHOWN_IN: Final = frozenset({Phase.STARTING, Phase.RUNNING, Phase.CHECKPOINTING})


class Steps(Protocol):
    """The steps in the output of the ranks, see `services.pace`."""

    def last_step(self) -> Mapping[str, object] | None:
        """Return the last figures of the training as the report has them, or None before the first ones."""

    def behind_others(self, running: Collection[int]) -> str:
        """Name the running ranks that are behind: "rank 5 is 18 steps behind the others"; "" without any."""


@contextmanager
def writing(spec: JobSpec, live: Live, steps: Steps, write: Callable[[str], None]) -> Iterator[None]:
    """Write a line about an attempt every `summary_interval` seconds while the context lasts, unless that is None.

    `steps` is read, and `write` is called, in a thread.

    Raises:
        AscendRunnerError: The limit of processes is reached.
    """
    interval = spec.watching.summary_interval
    if interval is None:
        yield
        return
    closing = threading.Event()

    def run() -> None:
        while not closing.wait(interval):
            text = sentence(live.view(), steps, interval)
            if text:
                write(text)

    bounded.start_thread(run)
    try:
        yield
    finally:
        closing.set()


def sentence(view: View, steps: Steps, interval: float) -> str:
    """Sum up a running attempt: "all 8 ranks have been running for 2 h 0 min; step 1204 of 1563, loss 2.31".

    The age is added to steps and output older than the interval. Return "" if the attempt is being stopped.
    """
    if view.phase not in SHOWN_IN:
        return ""
    ranks = [rank for rank in view.ranks if rank.rank_id >= 0]
    running = {rank.rank_id: rank for rank in ranks if rank.state is RankState.RUNNING}
    verb = "has" if len(running) == 1 else "have"
    some = all_of(len(ranks), "rank") if len(running) == len(ranks) else f"{len(running)} of {len(ranks)} ranks"
    count = rank_list(running) if len(ranks) == 1 else some
    parts = (
        f"{count} {verb} been running for {duration(view.seconds)}",
        _training(view, steps.last_step() or {}, interval),
        steps.behind_others(running),
        outliers.quiet_sentence(*silences(ranks, view.seconds), interval),
    )
    return "; ".join(filter(None, parts))


def _training(view: View, last_step: Mapping[str, object], interval: float) -> str:
    """Return the last step with its loss, or "" if no step is known."""
    if view.last_step is None:
        return ""
    now, loss = view.began + view.seconds, last_step.get("loss")
    last = attrs.evolve(view.last_step, loss=loss if isinstance(loss, float) else None)
    text = facts.step(last, now if now - last.at > interval else None)
    return f"step {text}" if text else ""
