"""Writes one line about the running job at intervals, for logs that nobody can follow with `ascend-job` (--summary).

The line is made from the board of the attempt, like everything that `ascend-job` shows. A thread sleeps between two
lines; without --summary there is none.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import Final, Protocol

from ascend_runner.board import reader
from ascend_runner.board.board import Board
from ascend_runner.board.reader import View
from ascend_runner.node import bounded
from ascend_runner.observations.rank_record import RankState
from ascend_runner.plan.spec import JobSpec
from ascend_runner.supervision import outliers
from ascend_runner.supervision.state import Phase
from ascend_runner.text import all_ranks, duration, rank_list

# The other phases have messages of their own.
SHOWN_IN: Final = frozenset({Phase.STARTING, Phase.RUNNING, Phase.CHECKPOINTING})


class Steps(Protocol):
    """The steps in the output of the ranks, see `services.pace`."""

    def last_step(self) -> Mapping[str, object] | None:
        """Return the last figures of the training as the report has them, or None before the first ones."""

    def behind_others(self, running: Collection[int]) -> str:
        """Name the running ranks that are behind: "rank 5 is 18 steps behind the others"; "" without any."""


@contextmanager
def writing(spec: JobSpec, board: Board, steps: Steps, write: Callable[[str], None]) -> Iterator[None]:
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
            text = sentence(reader.decode(board.content, time.monotonic()), steps, interval)
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
    some = all_ranks(len(ranks)) if len(running) == len(ranks) else f"{len(running)} of {len(ranks)} ranks"
    count = rank_list(running) if len(ranks) == 1 else some
    silences = {
        rank_id: max(0.0, view.seconds - (rank.last_output_after or rank.started_after))
        for rank_id, rank in running.items()
    }
    succeeded = [view.seconds - rank.ended_after for rank in ranks if rank.state is RankState.SUCCEEDED]
    parts = (
        f"{count} {verb} been running for {duration(view.seconds)}",
        _training(view, steps.last_step() or {}, interval),
        steps.behind_others(running),
        outliers.quiet_sentence(silences, succeeded, interval),
    )
    return "; ".join(filter(None, parts))


def _training(view: View, last_step: Mapping[str, object], interval: float) -> str:
    """Return the last step with its loss: "step 1204 of 1563, loss 2.31", or "" if no step is known."""
    step = view.last_step
    if step is None or step["step"] is None:
        return ""
    number = f"step {step['step']} of {step['steps']}" if step["steps"] else f"step {step['step']}"
    loss = last_step.get("loss")
    age = view.began + view.seconds - float(str(step["at"]))
    parts = (
        number,
        f"loss {loss:g}" if isinstance(loss, float) else "",
        f"{duration(age)} ago" if age > interval else "",
    )
    return ", ".join(filter(None, parts))
