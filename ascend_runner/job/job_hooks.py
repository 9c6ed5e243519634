"""The hooks of a job: those for a checkpoint or a condition run beside the ranks, the others while no rank runs."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Final

import attrs

from ascend_runner.errors import AscendRunnerError, StopRequestedError
from ascend_runner.job.setup import JobSetup
from ascend_runner.node import bounded
from ascend_runner.node.bounded import Patience
from ascend_runner.record.facts import CheckpointEnded, Fact
from ascend_runner.report.job_writer import JobWriter
from ascend_runner.services import hooks
from ascend_runner.services.hooks import BackgroundHooks
from ascend_runner.supervision.causes import FindingKind, HangDetected, NodeFinding, Slowdown
from ascend_runner.supervision.job_machine import JobState
from ascend_runner.supervision.state import Phase, State
from ascend_runner.views import wording

if TYPE_CHECKING:
    from ascend_runner.training.checkpoints import Checkpoints

LOOK_LIMITS: Final = (12.0, 3.0)  # seconds; a search takes at most 10 s if the disk responds


class JobHooks:
    """The hooks of one job. An observer of the manager's facts."""

    def __init__(self, setup: JobSetup, writer: JobWriter) -> None:
        self._setup, self._writer = setup, writer
        self._due = {hooks.BEFORE_START, hooks.BEFORE_EXIT}  # events whose hooks may run
        self._beside: dict[str, BackgroundHooks] = {}  # by event, while an attempt lasts
        self._why = ""  # the reason of the newest request for a checkpoint

    def begin_attempt(self) -> Collection[int]:
        """Prepare for an attempt. Return a live collection with the pids of the parent processes of hooks."""
        self._due.add(hooks.AFTER_ATTEMPT)
        pids: set[int] = set()
        named = dict(self._writer.spec.hooks)
        self._beside = {event: BackgroundHooks(self._of(event), pids) for event in hooks.BESIDE if event in named}
        return pids

    def observe(self, fact: Fact, _at: float) -> None:
        """Run hooks beside the ranks when a checkpoint was saved on request, and when a condition begins."""
        if isinstance(fact, State) and fact.phase is Phase.CHECKPOINTING:
            self._why = wording.why(fact)
        elif isinstance(fact, CheckpointEnded) and fact.parts:
            saved = wording.checkpoint_record(fact, 0.0)
            self._start(hooks.CHECKPOINT, saved.path, hooks.of_checkpoint(attrs.asdict(saved), self._why))
        elif isinstance(fact, (HangDetected, Slowdown)) and not fact.is_over:
            event = hooks.HANGING if isinstance(fact, HangDetected) else hooks.SLOW
            self._start(event, "", hooks.of_condition(str(fact)))
        elif isinstance(fact, NodeFinding) and fact.kind is FindingKind.UNHEALTHY:
            self._start(hooks.UNHEALTHY, "", hooks.of_condition(fact.sentence))

    def _start(self, event: str, checkpoint: str, about: Mapping[str, str]) -> None:
        if event in self._beside:
            variables = hooks.variables(self._writer.spec, self._writer.reports.newest, checkpoint)
            self._beside[event].start({**variables, **about})

    def run(self, event: str, found: Checkpoints | None = None) -> None:
        """Run the hooks of an event: those of an end only once, and none after a second stop signal.

        `found` are the checkpoints before a start; later, they are looked for. At the end of an attempt, hooks that run
        beside the ranks are waited for first.

        Raises:
            AscendRunnerError: A hook before the start has failed.
            StopRequestedError: A stop signal has arrived, and ended a hook.
        """
        if event == hooks.AFTER_ATTEMPT:
            self._end_beside()
        spec = self._writer.spec
        if event not in self._due & dict(spec.hooks).keys() or self._setup.signals.is_hurried():
            return
        if event != hooks.BEFORE_START:
            self._due.discard(event)
            found = look_for_checkpoints(spec.files.checkpoint_dir, self._setup.patience)
        newest = found.newest.path if found and found.newest else ""
        variables = hooks.variables(spec, self._writer.reports.newest, newest)
        self._writer.flush()  # a hook may read the report and the events
        for problem in self._of(event).run(variables, self._wait):
            if event == hooks.BEFORE_START:
                again = "further attempt" if self._writer.record.attempt else "rank"
                raise AscendRunnerError(f"{problem}; no {again} was started")
            self._setup.messages.warning(problem)

    def run_last(self) -> None:
        """Run the hooks for the end of a job that have not been run. A stop signal ends one of them, not the next."""
        for event in (hooks.AFTER_ATTEMPT, hooks.BEFORE_EXIT):
            with suppress(StopRequestedError):
                self.run(event)

    def _end_beside(self) -> None:
        """Wait for the hooks beside the ranks, unless a second stop signal has arrived."""
        while self._beside:
            _event, running = self._beside.popitem()
            if self._setup.signals.is_hurried():
                running.close()
            else:
                running.finish(self._wait)

    def _of(self, event: str) -> hooks.Hooks:
        spec, environ, messages = self._writer.spec, self._setup.environ, self._setup.messages
        return hooks.Hooks(job=spec, event=event, environ=environ, info=messages.info, warn=messages.warning)

    def _wait(self, seconds: float) -> None:
        is_running_on = self._writer.record.state in {JobState.PREPARING, JobState.RESTARTING}
        wait = self._setup.wait_in_time if is_running_on else self._setup.signals.wait_unless_stopped
        wait(seconds)


def look_for_checkpoints(
    folder: str, patience: Patience, limits: tuple[float, float] = LOOK_LIMITS
) -> Checkpoints | None:
    """Return the checkpoints in a directory, or None if there is no directory or its disk does not respond.

    The next stop signal cuts that short. The second of the `limits` holds once the job was stopped.
    """
    if not folder:
        return None
    from ascend_runner.training import checkpoints  # noqa: PLC0415  only --checkpoint-dir needs it

    found: list[Checkpoints] = []
    is_stopped = patience.is_stopped()
    is_cut = patience.is_hurried if is_stopped else patience.is_stopped
    limit = limits[is_stopped]
    if not bounded.call(limit, lambda: found.append(checkpoints.look(folder)), is_cut) and not is_cut():
        patience.warn(
            f"no response from the disk of --checkpoint-dir {folder!r} within {limit:g} s: the progress of the training"
            " is unknown, and ASCEND_RUNNER_CHECKPOINT is empty"
        )
    return found[0] if found else None
