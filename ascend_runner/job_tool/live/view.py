"""The state of a job at a moment for `ascend-job top`, and which of its ranks are outliers. Pure."""

from __future__ import annotations

import enum
import statistics
from collections.abc import Iterable, Sequence
from typing import Final

import attrs

from ascend_runner.host.npu_watch import Figures
from ascend_runner.supervision import outliers
from ascend_runner.training.steps import Step


class State(enum.Enum):
    """The state of a rank as it is shown, the one that needs most attention first."""

    FAILED = "failed"
    NOT_KILLED = "not killed"
    QUIET = "quiet"  # running, but without output for much longer than the others
    BEHIND = "behind"  # running, but some steps behind the others
    ENDED = "ended"  # since the report was written
    NOT_STARTED = "not started"
    STOPPED = "stopped"
    STOPPING = "stopping"
    RUNNING = "running"
    SUCCEEDED = "succeeded"

    @property
    def is_running(self) -> bool:
        """Whether the rank runs."""
        return self in {State.RUNNING, State.STOPPING, State.QUIET, State.BEHIND, State.NOT_KILLED}


OUTLIERS: Final = frozenset({State.FAILED, State.NOT_KILLED, State.QUIET, State.BEHIND, State.ENDED})
INTERRUPTED: Final = frozenset({State.ENDED, State.STOPPED})


@attrs.frozen(kw_only=True)
class RankView:
    """One rank; figures that are unknown are None.

    `npu` is the id of its NPU in /dev, `quiet` is the number of seconds without output, and `over` the number since its
    end. `cpu` is the percent of a core that its processes use, `average_cpu` the same over the last minute, and
    `memory` their bytes. `ending` is how it ended: "failed (SIGSEGV)"; the job failed because of the rank with
    `is_culprit`. `output` are the bytes of equal spans of time from the start of the attempt until now.
    """

    rank_id: int
    state: State
    ending: str = ""
    is_culprit: bool = False
    name: str = ""
    node: str = ""
    pid: int = 0
    npu: int | None = None
    quiet: float | None = None
    over: float | None = None
    step: int | None = None
    cpu: float | None = None
    average_cpu: float | None = None
    memory: int | None = None
    device: Figures | None = None
    output: tuple[int, ...] = ()
    last_lines: tuple[str, ...] = ()

    @property
    def title(self) -> str:
        """The number of the rank, or the name of an auxiliary process."""
        return self.name or str(self.rank_id)

    @property
    def last_line(self) -> str:
        """The last line of its output, without the spaces that align it with others."""
        return " ".join("".join(self.last_lines[-1:]).split())

    @property
    def words(self) -> str:
        """Its state, with how it ended."""
        return self.ending or self.state.value


@attrs.frozen(kw_only=True)
class JobView:
    """A job. `headline` is its state in a sentence, `brief` the same without times of day, `cause` why it failed.

    `outlook` is how long it is held, or which attempt this is. It runs on the node or nodes of `place`. `step` is the
    last one that a rank has printed, with the seconds that a step takes. `now` is the time on the monotonic clock.
    Without `has_npus`, the numbers of NPUs are only those of the devices of the node. With `has_stacks`, the stacks of
    its ranks can be read.
    """

    name: str
    headline: str
    brief: str
    ranks: tuple[RankView, ...]
    now: float
    place: str
    step: Step
    cause: str = ""
    outlook: str = ""
    is_over: bool = False
    has_npus: bool = False
    has_stacks: bool = False


def judged(ranks: Sequence[RankView]) -> tuple[RankView, ...]:
    """Return ranks with the states that show only in comparison: quiet and behind."""
    running = [rank for rank in ranks if rank.state is State.RUNNING]
    long_quiet = outliers.quiet(*silences(ranks))
    far_behind = outliers.behind({rank.rank_id: rank.step for rank in running if rank.step is not None})

    def state(rank: RankView) -> State:
        if rank.state is not State.RUNNING:
            return rank.state
        if rank.rank_id in long_quiet:
            return State.QUIET
        return State.BEHIND if rank.rank_id in far_behind else State.RUNNING

    states = map(state, ranks)
    return tuple(rank if found is rank.state else attrs.evolve(rank, state=found) for rank, found in zip(ranks, states))


def silences(ranks: Iterable[RankView]) -> tuple[dict[int, float], list[float]]:
    """Return the seconds without output of each running rank, and those since each rank that has succeeded did so."""
    compared = {State.RUNNING, State.QUIET, State.BEHIND}
    quiet = {rank.rank_id: rank.quiet for rank in ranks if rank.state in compared and rank.quiet is not None}
    return quiet, [rank.over for rank in ranks if rank.state is State.SUCCEEDED and rank.over is not None]


def middle(values: Iterable[float | None]) -> float | None:
    """Return the median of the known values, or None if there are none."""
    known = [value for value in values if value is not None]
    return statistics.median_low(known) if known else None


_PLACES: Final = {state: place for place, state in enumerate(State)}


def last_steps(ranks: Iterable[RankView]) -> dict[int, int]:
    """Return the last steps of the ranks that have ended with the job, and not by themselves."""
    return {rank.rank_id: rank.step for rank in ranks if rank.step is not None and rank.state in INTERRUPTED}


def in_order(ranks: Sequence[RankView]) -> list[RankView]:
    """Return ranks in the order in which they are shown: the culprit, the outliers, and the others by number.

    Of ranks that have ended with the job, those come first that were behind; those that have succeeded come last.
    """
    were_behind = outliers.behind(last_steps(ranks))

    def key(rank: RankView) -> tuple[bool, int, bool, int]:
        place = _PLACES[rank.state] if rank.state in OUTLIERS else len(_PLACES) + (rank.state is State.SUCCEEDED)
        return not rank.is_culprit, place, rank.rank_id not in were_behind, rank.rank_id

    return sorted(ranks, key=key)
