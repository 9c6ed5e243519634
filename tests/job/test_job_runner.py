"""What a runner does between the attempts of its job, in virtual time."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from ascend_runner.job.runner import JobRunner
from ascend_runner.supervision.job_machine import Event, Kind


class Signals:
    """Time that passes only in waits."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def now(self) -> float:
        """Return the virtual time."""
        return self.seconds

    def wait_unless_stopped(self, seconds: float) -> None:
        """Let time pass."""
        self.seconds += seconds


class WithSlowHooks(JobRunner):
    """A runner whose hooks need 25 s for each event."""

    def _run_hooks(self, event: str) -> None:
        self._signals.wait_unless_stopped(25.0 if event else 0.0)

    def hold(self) -> Event:
        """Keep the job."""
        return self._hold()


def test_hold_ends_when_it_was_said_to_end() -> None:
    """The time of the hooks counts: the end of the hold was shown, and is in the report, before they run."""
    signals = Signals()
    setup: Any = SimpleNamespace(signals=signals, messages=SimpleNamespace(warning=print), environ={})
    journal: Any = SimpleNamespace(job=SimpleNamespace(delay=60.0))
    console: Any = None

    event = WithSlowHooks(setup, journal, console).hold()

    assert (Kind.RELEASED, 60.0) == (event.kind, signals.seconds)
