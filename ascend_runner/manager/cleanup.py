"""Cleans up after the last rank: processes that have left their rank's session are stopped, and output is completed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from ascend_runner.errors import AscendRunnerError
from ascend_runner.guardian.signal_sets import IMPATIENT_SIGNALS, STOP_SIGNALS
from ascend_runner.guardian.sweep import POLL_INTERVAL, SWEEP_LIMIT
from ascend_runner.manager.managed_node import ManagedNode
from ascend_runner.manager.request_watch import RequestWatch
from ascend_runner.observations.facts import Escaped, Fact, Swept
from ascend_runner.plan.job import JobSpec
from ascend_runner.supervision.state import Phase, State

DRAIN_LIMIT: Final = 1.0  # seconds without a byte stored, at the end, after which the log disk counts as hung
TELL_AFTER: Final = 1.0  # seconds; most processes that have left their rank's session end within moments
GIVEN_UP_LIMIT: Final = 0.5  # seconds; replaces SWEEP_LIMIT and DRAIN_LIMIT once a rank has survived SIGKILL


class Cleanup:
    """Cleans up after the ranks of one attempt, once."""

    def __init__(self, job: JobSpec, node: ManagedNode, requests: RequestWatch, tell: Callable[[Fact], None]) -> None:
        self._job = job
        self._processes, self._output, self._clock = node.processes, node.output, node.clock
        self._requests = requests
        self._tell = tell
        self._stop_signals = 0  # SIGTERM and SIGINT that have arrived; of those before the ranks ended, only one counts

    def run(self, state: State, grace_ends: float | None) -> None:
        """Clean up in the final state of the machine. `grace_ends` is the end of the grace if a teardown has begun.

        Raises:
            AscendRunnerError: The output of the ranks could no longer be read.
        """
        self._stop_signals += state.is_interrupted
        grace_ends = self._clock.now() + self._job.grace if grace_ends is None else grace_ends
        self._wait_for_escaped(state.stop_signum, grace_ends)
        has_survivors = self._sweep(GIVEN_UP_LIMIT if state.alive else SWEEP_LIMIT)
        self._finish_output(GIVEN_UP_LIMIT if has_survivors else DRAIN_LIMIT)

    def _wait_for_escaped(self, stop_signum: int, grace_ends: float) -> None:
        """Ask processes outside their rank's session to stop; wait until the grace ends or a stop signal arrives."""
        told_at = self._clock.now() + TELL_AFTER
        while self._processes.has_escaped():
            now = self._clock.now()
            if now >= grace_ends:
                return
            if now >= told_at:
                told_at = grace_ends
                self._tell(Escaped(grace_ends - now))
            self._processes.ask_escaped(stop_signum)
            if STOP_SIGNALS.intersection(self._wait(min(told_at, grace_ends) - now)):
                return

    def _sweep(self, limit: float) -> bool:
        """Kill them: nothing started by this job may outlive it. Return whether any process is still alive.

        After a second SIGTERM or SIGINT, the guardian ends what is left.
        """
        deadline = self._clock.now() + limit
        killed: dict[int, str] = {}
        while self._processes.has_escaped():
            found = self._processes.kill_escaped()
            if self._is_hurried():
                deadline = min(deadline, self._clock.now() + GIVEN_UP_LIMIT)
            elif found.keys() - killed.keys():  # some that fork and exit: it makes a difference to go on
                deadline = self._clock.now() + limit
            killed.update(found)
            if self._clock.now() >= deadline:
                break
            self._wait(min(deadline - self._clock.now(), POLL_INTERVAL))
        survivors = self._processes.survivors()
        if killed or survivors:
            self._tell(Swept(killed=killed, survivors=survivors))
        return bool(survivors)

    def _finish_output(self, limit: float) -> None:
        """Wait for the last output. No process of the job is alive, except those that survived SIGKILL."""
        self._output.finish(limit, self._is_cut)
        failure = self._output.failure
        if failure:
            raise AscendRunnerError(
                f"stopped all ranks because their output could no longer be read: {failure!r}"
            ) from failure
        for spec in self._job.processes:
            self._tell(self._output.read_so_far(spec.rank_id))

    def _is_cut(self) -> bool:
        """Whether a second SIGTERM or SIGINT has arrived: nothing is waited for any longer (law 4)."""
        self._wait(0.0)
        return self._is_hurried()

    def _is_hurried(self) -> bool:
        return self._stop_signals > 1

    def _wait(self, seconds: float) -> Sequence[int]:
        """Wait, count the stop signals that arrive, and refuse requests for a checkpoint."""
        signums = self._clock.wait(seconds)
        for signum in signums:
            self._requests.read(signum, Phase.DONE)
        self._stop_signals += sum(signum in IMPATIENT_SIGNALS for signum in signums)
        return signums
