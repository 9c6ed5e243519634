"""Detects hangs: the part of the manager's loop that watches for silence.

When a silence has lasted for half of the limit, the stacks of the ranks are read once, without stopping the ranks. The
stacks at the limit are compared with these: a rank that was elsewhere then is slow, or in an endless loop.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING

import attrs

from ascend_runner.manager.managed_node import ManagedNode
from ascend_runner.observations.facts import Beat, Fact
from ascend_runner.plan.job import JobSpec
from ascend_runner.supervision.events import HangDetected
from ascend_runner.supervision.findings import WatchAction
from ascend_runner.supervision.silence import Silence

if TYPE_CHECKING:
    from ascend_runner.diagnosis.stack_groups import RankStack


class HangWatch:
    """Watches the ranks of one job while they run."""

    def __init__(self, job: JobSpec, node: ManagedNode, tell: Callable[[Fact], None]) -> None:
        self._job = job
        self._node = node
        self._tell = tell
        self._silence: Silence | None = None  # while it can become a hang
        self._read_in: float | None = None  # the start of the silence in which stacks were read
        self._earlier: tuple[RankStack, ...] = ()  # these stacks
        self._hang: HangDetected | None = None  # a hang that has not ended the job, as long as it lasts
        self._hung_since = 0.0  # the last activity before it

    @property
    def next_check(self) -> float | None:
        """The time of the next check, in seconds of the clock, or None if there is none."""
        return None if self._silence is None else self._silence.next_check

    def begin(self) -> None:
        """Watch from now on, if there is a limit."""
        limit = self._job.hang_timeout
        if limit is not None:
            self._silence = Silence(limit if isinstance(limit, float) else None, since=self._node.clock.now())

    def end(self) -> None:
        """Stop watching. Ranks that are being stopped do not hang: reading their stacks would only delay SIGKILL."""
        self._silence = None
        if self._hang:
            rank_ids = {spec.rank_id for spec in self._job.processes}
            self._tell_end(self._last_activity(self._node.heartbeats.of(rank_ids)))
            self._hang = None

    def look(self, living: Collection[int], *, is_quiet: bool) -> list[HangDetected]:
        """Detect that no rank has written for too long, or has sent a heartbeat where any of the living ones has.

        A hang is reported to the observers, and returned if it ends the job. Anything else that has happened (not
        `is_quiet`) is handled first.
        """
        silence, now = self._silence, self._node.clock.now()
        if silence is None or now < silence.next_check:
            return []
        self._node.heartbeats.read()
        beats = self._node.heartbeats.of(living)
        last_activity = self._last_activity(beats)
        self._tell_end(last_activity)
        is_held = last_activity <= silence.since and self._node.processes.is_held()
        announced_until = self._node.heartbeats.announced_until
        is_hang = silence.check(now, last_activity, is_held=is_held, announced_until=announced_until)
        if not is_quiet:
            return []
        if not is_hang:
            self._read_stacks_once(silence)
            return []
        return self._report_hang(silence, beats, last_activity)

    def _report_hang(self, silence: Silence, beats: Mapping[int, Beat], last_activity: float) -> list[HangDetected]:
        """Report a hang, then the stacks of the ranks, which takes a while. Return it if it ends the job."""
        hang = HangDetected(silence.limit, has_heartbeats=bool(beats))
        self._tell(hang)
        earlier = self._earlier if self._read_in == silence.since else ()
        seen = self._node.evidence().find_stacks(self._node.processes.pids(), earlier)
        self._tell(attrs.evolve(seen, beats=beats))
        if self._job.hang_action is WatchAction.WARN:
            silence.go_on()
            self._hang, self._hung_since = hang, last_activity
            return []
        self._silence = None
        return [hang]

    def _last_activity(self, beats: Mapping[int, Beat]) -> float:
        return max((beat.at for beat in beats.values()), default=self._node.output.last_activity)

    def _tell_end(self, last_activity: float) -> None:
        """Report the end of the hang if any rank has been active since it began."""
        if self._hang and last_activity > self._hung_since:
            self._tell(attrs.evolve(self._hang, is_over=True))
            self._hang = None

    def _read_stacks_once(self, silence: Silence) -> None:
        if silence.is_half_over and self._read_in != silence.since:
            self._read_in = silence.since
            self._earlier = self._node.evidence().note_stacks(self._node.processes.pids(), silence.interval)
            # Reading may have taken longer than an interval, which must not look as if this process was suspended.
            silence.next_check = max(silence.next_check, self._node.clock.now())
