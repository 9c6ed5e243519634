"""The loop that runs a job: wait, make events of what was seen, ask the state machine, perform what it answers.

It holds what the machine must not know (pids, pipes, clocks) and decides nothing.
"""

from __future__ import annotations

import os
import time

from ascend_runner import errors, reporter, text
from ascend_runner.annotations import TYPE_CHECKING, Final
from ascend_runner.ledger import Ledger
from ascend_runner.linux import descendants
from ascend_runner.linux.death_order import DeathOrder
from ascend_runner.linux.lines import LineCutter
from ascend_runner.linux.log_file import LogFile, Rotation
from ascend_runner.linux.process import Leader
from ascend_runner.linux.pump import Pump, Stream
from ascend_runner.plain_signal import SIGCHLD, SIGCONT, SIGKILL, SIGTSTP
from ascend_runner.supervision import machine
from ascend_runner.supervision.actions import SetDeadline, SignalGroup, Spawn
from ascend_runner.supervision.events import (
    DeadlineReached,
    Emptied,
    Exited,
    HangDetected,
    SignalReceived,
    Spawned,
    SpawnFailed,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ascend_runner.job.plan import JobSpec, RankSpec
    from ascend_runner.linux.console import Console
    from ascend_runner.linux.signals import Signals
    from ascend_runner.report import Seen
    from ascend_runner.reporter import Reporter
    from ascend_runner.supervision.actions import Action
    from ascend_runner.supervision.events import Event
    from ascend_runner.supervision.outcome import Outcome

SWEEP_LIMIT: Final = 5.0  # seconds for what had left its rank's session to die of SIGKILL
DRAIN_LIMIT: Final = 5.0  # seconds for the last bytes to reach the log files; a healthy disk needs milliseconds
GIVEN_UP_LIMIT: Final = 0.5  # seconds for both, where SIGKILL had its time already and a process is still there


class Manager:
    """Runs one job, once."""

    def __init__(self, job: JobSpec, signals: Signals, console: Console, reporter: Reporter) -> None:
        self._job = job
        self._signals = signals
        self._reporter = reporter
        self._specs = {spec.rank_id: spec for spec in job.processes}
        self._ledger = Ledger(job)
        self._pump = Pump(console)
        self._leaders: dict[int, Leader] = {}  # not reaped: their numbers are still theirs
        self._death_order = DeathOrder()
        self._with_stragglers: set[int] = set()  # ranks whose leader has ended, but not their session
        self._deadline: float | None = None  # the machine's
        self._hang_at: float | None = None  # when silence becomes a hang
        self._events: list[Event] = []  # in the order in which they are told to the machine
        self._state = machine.State(grace=job.grace, waiting=())

    def run(self) -> Outcome:
        """Run the job to its end. Nothing of it is alive afterwards, and all it wrote is in its log files.

        Errors: OutputError where a log file cannot be made; nothing is started then.
        """
        self._open_logs()
        self._pump.start()
        if not descendants.is_proc_ours():
            self._reporter.warn(
                "/proc is another PID namespace's: what leaves its rank's session will not be found and ended"
                " (unshare --mount-proc)"
            )
        self._reporter.info(reporter.starting(self._job))

        if self._job.hang_timeout is not None:
            self._hang_at = time.monotonic() + self._job.hang_timeout
        rank_ids = tuple(self._specs)
        self._state, actions = machine.start(rank_ids, self._job.grace)
        self._perform(actions)
        while self._state.phase != machine.DONE:
            self._events.extend(self._observe())
            event = self._events.pop(0)
            self._state, actions = machine.transition(self._state, event)
            self._perform(actions)  # the living are told before the dead is buried
            self._get_ready_to_report()
            self._reap_if_gone(event)

        for signum in set(self._signals.wait(0.0)) & machine.STOP_SIGNALS:  # it may tell what the last death was
            self._state, _ = machine.transition(self._state, SignalReceived(signum))
        self._death_order.close()
        has_survivors = self._sweep()
        is_drained = self._pump.finish(GIVEN_UP_LIMIT if has_survivors else DRAIN_LIMIT)
        if self._pump.failure:
            raise errors.AscendRunnerError(
                f"the ranks' output could not be read any more ({self._pump.failure!r}), and all was stopped"
            ) from self._pump.failure
        if not is_drained and not has_survivors:
            self._reporter.warn(
                "some output was still unread when the time for it was over: the last lines may be missing"
            )
        lost = self._ledger.lost()
        if lost:
            ranks = text.rank_list(list(lost))
            self._reporter.warn(f"the logs lack {sum(lost.values())} bytes (of {ranks}); the report says from where on")
        return self._ledger.describe(machine.outcome(self._state, rank_ids))

    def seen(self, outcome: Outcome, environ: Mapping[str, str]) -> Seen:
        """Tell, after the job, what the report wants beside the outcome; `environ` is the caller's environment."""
        return self._ledger.seen(outcome, environ, self._reporter)

    # --- Performing ---------------------------------------------------------------------------------------------------

    def _perform(self, actions: tuple[Action, ...]) -> None:
        signalled: dict[int, int] = {}  # what was sent, by session
        for action in actions:
            if isinstance(action, Spawn):
                self._events.append(self._spawn(self._specs[action.rank_id]))
            elif isinstance(action, SignalGroup):
                leader = self._leaders[action.rank_id]
                leader.signal_group(action.signum)
                signalled[leader.pid] = action.signum
            elif isinstance(action, SetDeadline):
                self._deadline = time.monotonic() + action.seconds
        if signalled:
            self._signal_own_groups(signalled)

    def _signal_own_groups(self, signalled: dict[int, int]) -> None:
        """Reach those who made a process group of their own inside a rank's session (a shell's jobs, timeout(1))."""
        for found in descendants.descendants(os.getpid()):
            if found.session in signalled and found.pgid != found.session and not found.is_zombie:
                descendants.send(found.pid, signalled[found.session])

    def _spawn(self, spec: RankSpec) -> Event:
        try:
            output = self._pump.add(self._ledger.streams[spec.rank_id])
            try:
                leader = Leader(spec, output)
            finally:
                os.close(output)
        except OSError as error:
            return SpawnFailed(spec.rank_id, *_spawn_failure(error, spec))

        self._leaders[spec.rank_id] = leader
        self._death_order.add(spec.rank_id, leader.pid)
        self._ledger.note_start(spec.rank_id, leader.pid)
        self._reporter.debug(f"{spec.title} has pid {leader.pid}, working directory {spec.cwd}")
        return Spawned(spec.rank_id)

    # --- Observing ----------------------------------------------------------------------------------------------------

    def _observe(self) -> list[Event]:
        """Give what has happened; block until something has, unless events are waiting already."""
        while True:
            signums = self._signals.wait(0.0 if self._events else self._next_look())
            is_over = self._deadline is not None and time.monotonic() >= self._deadline
            events: list[Event] = [SignalReceived(signum) for signum in signums if signum != SIGCHLD]
            if SIGCHLD in signums or is_over:
                events = self._in_order(events, self._deaths())
            if is_over and not events:
                self._deadline = None
                events.append(DeadlineReached())
            events += self._hangs(signums, is_quiet=not (events or self._events))
            if events or self._events:
                return events

    def _next_look(self) -> float | None:
        """Give the seconds until a time is reached that somebody asked for; None: wait for ever."""
        times = [moment for moment in (self._deadline, self._hang_at) if moment is not None]
        return min(times) - time.monotonic() if times else None

    def _hangs(self, signums: list[int], *, is_quiet: bool) -> list[Event]:
        """Tell when no rank has written for too long. Ranks that were stopped by a Ctrl-Z do not hang.

        Nor do those that are told to end: to look at their stacks would only delay SIGKILL. So whatever else has
        happened, unless it `is_quiet`, goes first.
        """
        limit, now = self._job.hang_timeout, time.monotonic()
        if SIGTSTP in signums or machine.is_tearing_down(self._state):
            self._hang_at = None
        elif SIGCONT in signums and limit is not None:
            self._hang_at = now + limit
        if self._hang_at is None or limit is None or now < self._hang_at or not is_quiet:
            return []

        self._hang_at = self._pump.last_activity + limit
        if now < self._hang_at:
            return []
        self._hang_at = None
        self._look_at_stacks()
        return [HangDetected(limit)]

    def _deaths(self) -> list[Event]:
        """Look at every leader, and at who is left of the sessions whose leader has ended."""
        endings = {
            rank_id: ending
            for rank_id in dict.fromkeys((*self._death_order.ended(), *self._leaders))
            if rank_id not in self._ledger.ended_at and (ending := self._leaders[rank_id].peek())
        }
        now = time.monotonic()
        leader_pids = frozenset(leader.pid for leader in self._leaders.values())
        adopted = descendants.reap_adopted(keep=leader_pids)

        # A leader that ends leaves its children to this process, their subreaper: no adopted child, no straggler.
        sessions: set[int] = set()
        if adopted and (endings or self._with_stragglers):
            living = (found for found in descendants.descendants(os.getpid()) if not found.is_zombie)
            sessions = {found.session for found in living}

        events: list[Event] = []
        for rank_id in self._with_stragglers - {rank for rank in self._leaders if self._leaders[rank].pid in sessions}:
            self._with_stragglers.discard(rank_id)
            events.append(Emptied(rank_id))
        for rank_id, ending in endings.items():
            self._ledger.ended_at[rank_id] = now
            has_stragglers = self._leaders[rank_id].pid in sessions
            if has_stragglers:
                self._with_stragglers.add(rank_id)
            self._reporter.debug(f"{self._specs[rank_id].title} has ended: {ending}")
            events.append(Exited(rank_id, ending, has_stragglers))
        return events

    def _in_order(self, signals: list[Event], deaths: list[Event]) -> list[Event]:
        """Order what one wake-up has brought, where the order of observation says nothing.

        Ranks that failed by themselves go first; then signals, for whoever stops a whole container at once means the
        runner first; then ranks that something else may have ended.
        """
        if machine.is_tearing_down(self._state):
            return [*signals, *deaths]

        failures = [event for event in deaths if isinstance(event, Exited) and not event.ending.is_success]
        if len(failures) > 1:
            self._pump.settle()
            is_ordered = set(self._death_order.ended()).issuperset(event.rank_id for event in failures)
            failures = self._ledger.by_suspicion(failures, is_ordered=is_ordered)
        own = [event for event in failures if event.ending.exit_status - 128 not in machine.STOP_SIGNALS | {SIGKILL}]
        others = [event for event in (*failures, *deaths) if event not in own]
        return [*own, *signals, *dict.fromkeys(others)]

    def _look_at_stacks(self) -> None:
        """Find out where the ranks of a job that hangs stand, and say it."""
        from ascend_runner.diagnosis import stack_groups  # only at a hang
        from ascend_runner.linux.stacks import Looker

        looker = Looker(self._job.processes[0].env.get("PATH", os.defpath))
        pids = {
            rank_id: leader.pid for rank_id, leader in self._leaders.items() if rank_id not in self._ledger.ended_at
        }
        self._ledger.hang = stack_groups.group(looker.look(pids))
        lines = stack_groups.lines(self._ledger.hang)
        if looker.refusal:
            lines.append(f"({looker.refusal}: this is the kernel's view)")
        self._reporter.error("\n  ".join(["the ranks stand here, the odd one first:", *lines]))

    def _get_ready_to_report(self) -> None:
        """Import what the end will need while the ranks are busy: nobody waits for these milliseconds now."""
        if self._events or self._state.phase in {machine.STARTING, machine.DONE}:
            return
        if machine.is_tearing_down(self._state):
            from ascend_runner import autopsy  # noqa: F401
        else:
            from ascend_runner import report  # noqa: F401

    def _reap_if_gone(self, event: Event) -> None:
        """Give a rank's number back, only now that the machine knows: until then it may signal the group."""
        if isinstance(event, Emptied) or (isinstance(event, Exited) and not event.has_stragglers):
            self._death_order.discard(event.rank_id)
            self._ledger.usages[event.rank_id] = self._leaders.pop(event.rank_id).reap()

    # --- Before and after ---------------------------------------------------------------------------------------------

    def _open_logs(self) -> None:
        told: set[str] = set()
        for spec in self._job.processes:
            cutter = None if spec.prefix is None else LineCutter(spec.prefix)
            log = LogFile(spec.log_path, Rotation(*self._job.rotation), self._reporter.warn, told)
            self._ledger.streams[spec.rank_id] = Stream(spec.rank_id, log, cutter)

    def _sweep(self) -> bool:
        """End what has left its rank's session: nothing that this job started may outlive it.

        Whom not even SIGKILL ends is named; whether there is anybody.
        """
        keep = frozenset(leader.pid for leader in self._leaders.values())
        deadline = time.monotonic() + (GIVEN_UP_LIMIT if self._state.alive else SWEEP_LIMIT)
        escaped: dict[int, str] = {}
        while descendants.reap_adopted(keep):
            escaped.update((found.pid, found.name) for found in descendants.kill_all(keep))
            if time.monotonic() >= deadline:
                break
            self._signals.wait(deadline - time.monotonic())
        if escaped:
            names = ", ".join(f"{pid} ({name})" for pid, name in escaped.items())
            self._reporter.warn(f"ended what had left its rank's session: {names}")

        living = [found for found in descendants.descendants(os.getpid()) if not found.is_zombie]
        rank_of = {leader.pid: f"rank {rank_id}: " for rank_id, leader in self._leaders.items()}
        told = [rank_of.get(found.session, "") + descendants.describe(found) for found in living]
        if told:
            self._reporter.warn(f"not even SIGKILL has ended {', '.join(told)}")
        return bool(told)


def _spawn_failure(error: OSError, spec: RankSpec) -> tuple[str, int]:
    """Say why a rank could not be started, and what exit status that means."""
    reason = errors.reason(error)
    if error.filename == spec.cwd and spec.cwd != spec.executable:
        return f"working directory {spec.cwd!r}: {reason}", errors.RUNNER_FAILED
    if isinstance(error, FileNotFoundError) and os.path.exists(os.path.join(spec.cwd, spec.executable)):
        return (
            f"{spec.executable!r} is there, but not the interpreter of its first line",
            errors.COMMAND_NOT_FOUND,
        )
    if isinstance(error, FileNotFoundError):
        return f"{spec.executable!r}: {reason}", errors.COMMAND_NOT_FOUND
    if error.errno == NOT_EXECUTABLE:
        hint = "a script begins with #! and its interpreter, a program must be built for this machine"
        return f"{spec.executable!r}: {reason} ({hint})", errors.COMMAND_NOT_EXECUTABLE
    if isinstance(error, PermissionError):
        return f"{spec.executable!r}: {reason}", errors.COMMAND_NOT_EXECUTABLE
    return reason, errors.RUNNER_FAILED


NOT_EXECUTABLE: Final = 8  # ENOEXEC, without an import of errno for one number
