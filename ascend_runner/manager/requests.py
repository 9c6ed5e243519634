"""Handles requests to a running attempt: from users, the time limit, and findings."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import attrs

from ascend_runner.guardian.signal_sets import ONE_SIGNAL, STOP_SIGNALS
from ascend_runner.manager.node import ManagedNode
from ascend_runner.plan.spec import Attempt
from ascend_runner.record.facts import (
    CheckpointAsked,
    CheckpointEnded,
    CheckpointPostponed,
    CheckpointRefused,
    Fact,
    HangSeen,
    LimitChanged,
    SignalsSent,
)
from ascend_runner.supervision.causes import (
    Ending,
    FindingKind,
    InspectAction,
    LimitReached,
    NodeFinding,
    PeerFailed,
    SignalReceived,
    Slowdown,
    WatchAction,
)
from ascend_runner.supervision.events import AskedToSave, CheckpointRequested, DeadlineReached, Event, Saved
from ascend_runner.supervision.job_machine import is_last
from ascend_runner.supervision.machine import ANSWER_LIMIT
from ascend_runner.supervision.state import Phase, State
from ascend_runner.training.agreement import COPIES

RETRY_EVERY: Final = 0.5  # seconds between two signals to ranks that do not handle it so far
# The stacks of ranks that have not saved are read in the last tenth of the time for a checkpoint, so that this does not
# delay the stop, and within at most this many seconds.
STACKS_SHARE: Final = 0.1
STACKS_LIMIT: Final = 6.0
ASKABLE: Final = frozenset({Phase.STARTING, Phase.RUNNING, Phase.CHECKPOINTING})  # there are ranks to ask
NO_STACKS: Final = HangSeen(())


@attrs.define
class _Pending:
    """A request for a checkpoint in progress: when it was made, the ranks that it has reached, and their stacks."""

    asked_at: float
    stacks_at: float | None  # when the stacks of ranks that have not saved are due; None: they have been read
    reached: frozenset[int] = frozenset()
    stacks: HangSeen = NO_STACKS


class RequestWatch:
    """Watches one attempt for requests, findings about this node and the training, and the time limit of the job."""

    def __init__(self, attempt: Attempt, node: ManagedNode, tell: Callable[[Fact], None]) -> None:
        self._job, self._attempt = attempt.job, attempt.number
        self._node = node
        self._tell = tell
        self._near: float | None = None  # the deadline of the job before which a checkpoint was asked for
        self._pending: _Pending | None = None
        self._retry_at = 0.0
        self._signalled_at = float("-inf")  # when the last request came that was no copy
        self._again_at = 0.0  # until then, ranks take a request for a repetition of the last one
        self._is_postponed = False  # whether a request is to be made at `_again_at`
        self._is_refused = False  # whether the last request has reached no rank, and is not to be repeated

    def note(self, state: State) -> None:
        """Note the state. While there are no ranks to ask, requests for a checkpoint are refused or dropped."""
        self._node.requests.is_running = state.phase in ASKABLE
        self._node.requests.is_tearing_down = state.phase not in {*ASKABLE, Phase.DONE}
        is_ending = is_last(state, self._job.restarts, self._attempt)
        self._node.requests.is_ending = is_ending or self._job.watching.stops_for(state.cause)
        if state.phase not in ASKABLE:
            self._is_postponed = False
            self._node.requests.take_checkpoint_request()
            self._node.requests.answer(None)

    def next_check(self, state: State) -> float | None:
        """Return the time of the next check in seconds of the clock, or None to wait for a wake-up."""
        if state.phase not in ASKABLE:
            return None
        moments = [self._limit_moment, self._retry_at if state.late_ranks else None]
        moments.append(self._again_at if self._is_postponed else None)
        if state.phase is Phase.CHECKPOINTING and self._pending:
            moments.append(self._pending.stacks_at)
        return min((moment for moment in moments if moment is not None), default=None)

    @property
    def _limit_moment(self) -> float | None:
        deadline, grace = self._node.requests.deadline, self._job.stopping.checkpoint_grace
        return deadline if deadline is None or deadline == self._near else deadline - grace

    def read(self, signum: int, phase: Phase) -> list[Event]:
        """Return the events that follow from a signal to the runner."""
        if signum != self._job.stopping.checkpoint_signum or signum in STOP_SIGNALS:
            return [self._node.clock.received(signum)]
        now = self._node.clock.now()
        if now - self._signalled_at < ONE_SIGNAL:
            return []
        self._signalled_at = now
        if phase not in ASKABLE:
            self._tell(CheckpointRefused(signum))
            return []
        if phase is not Phase.CHECKPOINTING and self._node.requests.ask_all_nodes():
            return []  # the request comes back as one of the whole job
        return self._request(phase)

    def _request(self, phase: Phase) -> list[Event]:
        """Request a checkpoint; a save in progress counts as one. Wait while ranks would take it for a repetition."""
        seconds = self._again_at - self._node.clock.now()
        if phase is not Phase.RUNNING or seconds <= 0:
            return [CheckpointRequested()]
        postponed = CheckpointPostponed(seconds)
        if not self._is_postponed:
            self._tell(postponed)
        self._is_postponed = True
        self._node.requests.answer(postponed)
        return []

    def check(self, state: State) -> list[Event]:
        """Return the events that follow from the requests and answers so far."""
        now = self._node.clock.now()
        events: list[Event] = []
        if self._node.requests.take_limit_change():
            self._tell(LimitChanged(self._node.requests.limit))
        if self._node.requests.take_checkpoint_request() and self._job.stopping.checkpoint_signum:
            events += self._request(state.phase)
            if state.cause:  # the ranks are saving before a stop, and are not asked again
                reached = self._pending.reached if self._pending else frozenset()
                self._node.requests.answer(self._asked(reached, state.checkpoint.unreached))
        events += self._findings(state)
        if state.phase in ASKABLE:
            events += self._limits(now)
        if self._is_postponed and now >= self._again_at:
            events.append(CheckpointRequested())
        if state.phase is Phase.CHECKPOINTING and self._pending:
            events += self._answers(state, now, self._pending)
        saved = {event.rank_id for event in events if isinstance(event, Saved)}
        if state.late_ranks and self._is_refused:
            events.append(DeadlineReached())
        elif state.late_ranks - saved and now >= self._retry_at:
            events += self._ask_late(state.late_ranks - saved)
        return events

    def _findings(self, state: State) -> list[Event]:
        events: list[Event] = []
        for finding in self._node.requests.take_findings():
            if isinstance(finding, NodeFinding):
                self._tell(finding)
                events += self._consequences(finding, state.phase)
            elif isinstance(finding, PeerFailed):
                events += [finding] if finding.attempt == self._attempt else []
            elif isinstance(finding, SignalReceived):
                events.append(finding)
            elif not (state.cause or state.is_tearing_down):  # ranks that are stopped are slow
                self._tell(finding)
                events += [] if isinstance(finding, Slowdown) and self._only_warns(finding) else [finding]
        return events

    def _only_warns(self, slow: Slowdown) -> bool:
        return slow.is_over or self._job.watching.perf_action is WatchAction.WARN

    def _consequences(self, finding: NodeFinding, phase: Phase) -> list[Event]:
        if phase not in ASKABLE or finding.kind is not FindingKind.UNHEALTHY or not finding.is_error:
            return []
        if self._job.watching.inspect is InspectAction.STOP:
            return [finding]
        return self._request(phase) if self._job.watching.inspect is InspectAction.CHECKPOINT else []

    def _limits(self, now: float) -> list[Event]:
        moment, deadline = self._limit_moment, self._node.requests.deadline
        if moment is None or deadline is None or now < moment:
            return []
        limit = LimitReached(self._node.requests.limit or 0.0)
        if now >= deadline:
            return [limit]
        self._near = deadline
        return [CheckpointRequested(limit)]

    def _answers(self, state: State, now: float, pending: _Pending) -> list[Event]:
        request = state.checkpoint
        saved = self._node.heartbeats.saved_since(pending.asked_at).keys() & (request.unsaved | request.unreached)
        if pending.stacks_at is not None and now >= pending.stacks_at:
            pending.stacks_at = None
            missing = self._expected(state, request.unsaved - saved)
            if missing:
                pids = self._node.processes.pids()
                own = {rank_id: pids[rank_id] for rank_id in missing & pids.keys()}
                pending.stacks = self._node.evidence().find_stacks_while_saving(own, self._stacks_limit)
        return [*map(Saved, sorted(saved))]

    def ask(self, rank_ids: frozenset[int], state: State) -> AskedToSave:
        """Ask ranks for a checkpoint, and answer the requests for it.

        On linked nodes, a request that reaches no rank here is over, unless the time limit is near: asked later, the
        ranks of this node alone would wait for the others in the middle of their save.
        """
        self._is_postponed = False
        pending = self._pending = self._pending_request()
        pending.stacks_at = self._node.clock.now() + self._time - self._stacks_limit
        reached = self._send(rank_ids)
        pending.reached |= reached
        self._is_refused = not (pending.reached or state.checkpoint.before_limit) and self._node.requests.is_linked
        asked = self._asked(reached, rank_ids - reached)
        self._tell(asked)
        self._node.requests.answer(asked)
        return AskedToSave(reached, can_report=self._can_report())

    def _ask_late(self, rank_ids: frozenset[int]) -> list[Event]:
        """Ask the ranks that handle the signal."""
        pending = self._pending_request()
        reached = self._send(rank_ids)
        if not reached:
            return []
        self._pending = pending
        pending.reached |= reached
        self._tell(self._asked(reached, rank_ids - reached))
        is_limit_moved = self._node.requests.deadline != self._near
        return [AskedToSave(reached, is_limit_moved, self._can_report())]

    def _pending_request(self) -> _Pending:
        """Return the request in progress, or else a new one."""
        if self._pending:
            return self._pending
        self._node.heartbeats.read()  # so that an earlier checkpoint does not answer this request
        now = self._node.clock.now()
        return _Pending(asked_at=now, stacks_at=now + self._time - self._stacks_limit)

    def _can_report(self) -> frozenset[int]:
        """Return the ranks that report checkpoints. They announce it before they handle the signal."""
        self._node.heartbeats.read()
        return frozenset(self._node.heartbeats.saving_ranks)

    def _asked(self, reached: frozenset[int], unreached: frozenset[int]) -> CheckpointAsked:
        return CheckpointAsked(
            signum=self._job.stopping.checkpoint_signum,
            reached=reached,
            unreached=unreached & {rank.rank_id for rank in self._job.ranks},
            seconds=0.0 if self._is_refused else self._time,
        )

    @property
    def _time(self) -> float:
        """The seconds that the ranks have to answer."""
        return self._job.stopping.checkpoint_grace or ANSWER_LIMIT

    @property
    def _stacks_limit(self) -> float:
        """The seconds to read the stacks of ranks that have not saved."""
        return min(STACKS_LIMIT, STACKS_SHARE * self._time)

    def _send(self, rank_ids: frozenset[int]) -> frozenset[int]:
        """Send ranks the signal for a checkpoint; return those with a process that handles it."""
        reached = frozenset(self._node.processes.notify(dict.fromkeys(rank_ids, self._job.stopping.checkpoint_signum)))
        self._retry_at = self._node.clock.now() + RETRY_EVERY
        if reached:
            self._tell(SignalsSent(dict.fromkeys(reached, self._job.stopping.checkpoint_signum)))
        return reached

    def end(self, state: State) -> None:
        """Report the result of the request in progress. Ranks that handle the signal later can still be asked."""
        pending, self._pending = self._pending, None
        if pending is None:
            return
        request, endings = state.checkpoint, state.endings
        self._node.heartbeats.read()  # including heartbeats of ranks that have ended
        saved = self._node.heartbeats.saved_since(pending.asked_at)
        self._again_at = max((report.at + COPIES for report in saved.values()), default=self._again_at)
        missing = tuple(sorted(self._expected(state, request.unsaved - saved.keys() - endings.keys())))
        ended = {rank: endings[rank] for rank in sorted((pending.reached - saved.keys()) & endings.keys())}
        can_report = frozenset(self._node.heartbeats.saving_ranks)
        unasked = request.unreached & {rank.rank_id for rank in self._job.ranks} - saved.keys() - endings.keys()
        seconds = self._node.clock.now() - pending.asked_at
        self._tell(
            CheckpointEnded(
                asked_at=pending.asked_at,
                seconds=seconds,
                is_cut=seconds < self._time,
                saved=saved,
                missing=missing,
                stacks=pending.stacks,
                failed={rank: end for rank, end in ended.items() if rank in can_report and not end.is_success},
                failed_since={
                    rank: end for rank, end in ended.items() if rank not in can_report and not self._is_answer(end)
                },
                unasked=tuple(sorted(unasked)),
            )
        )

    def _is_answer(self, ending: Ending) -> bool:
        """Return whether a rank may have ended this way because it was asked, such as a shell with 128 + the signal."""
        return ending.is_success or ending.exit_status - 128 in {*STOP_SIGNALS, self._job.stopping.checkpoint_signum}

    def _expected(self, state: State, rank_ids: frozenset[int]) -> frozenset[int]:
        """Return the ranks that should have answered: without time before a stop, only ranks that can report."""
        if self._job.stopping.checkpoint_grace and state.cause and state.cause.saves_first:
            return rank_ids
        return rank_ids & frozenset(self._node.heartbeats.saving_ranks)
