"""Records the observations of each rank while a job runs, and determines at the end why ranks failed.

An observer of the manager's facts that decides nothing. It gives the manager an investigation of the facts so far.
"""

from __future__ import annotations

import gc
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Final

import attrs

from ascend_runner.node import memory
from ascend_runner.node.bounded import PATIENT, Patience
from ascend_runner.node.host import Host
from ascend_runner.plan.spec import JobSpec, RankSpec
from ascend_runner.record.facts import Fact, HangSeen, RankOutput, RankReaped, SignalsSent, StoppedRanks, Swept
from ascend_runner.record.rank_record import Outcome, RankRecord, RankState
from ascend_runner.report import html_page
from ascend_runner.secrets import Masker
from ascend_runner.supervision.causes import Cause, Exited, SignalReceived, named
from ascend_runner.supervision.events import Spawned
from ascend_runner.supervision.job_machine import JobState
from ascend_runner.supervision.state import Phase, State
from ascend_runner.text import last_lines

if TYPE_CHECKING:
    from ascend_runner.diagnosis.finding import Finding
    from ascend_runner.diagnosis.root_cause import Diagnosis
    from ascend_runner.report.investigation import Investigation

# Seconds between the start of the last rank and the import of the modules that judge a failure. Imported only after a
# failure, they would delay SIGTERM for the other ranks; and by then the disk may hang, the package may have been
# upgraded, or no file descriptor be left. Ranks that end at once do without them.
LOAD_AFTER: Final = 0.05
SHOWN_END: Final = 16 * 1024  # bytes of the output of a rank that has not failed


class Recorder:
    """Records one job."""

    def __init__(
        self,
        job: JobSpec,
        patience: Patience = PATIENT,
        environ: Mapping[str, str] = {},
        processes: Sequence[RankSpec] = (),
    ) -> None:
        """`environ` is the environment that the runner was started with, `processes` belong to this attempt."""
        self.has_survivors = False  # whether processes of the job are alive after SIGKILL
        self.running: Sequence[RankSpec] = ()  # the processes as they are started
        self._job, self._environ = job, environ
        self._patience = patience
        self._specs = {spec.rank_id: spec for spec in processes or job.processes}
        # What a record was made from, and the record.
        self._so_far: dict[int, tuple[object, RankRecord]] = {
            rank_id: (None, planned(self._specs[rank_id])) for rank_id in sorted(self._specs)
        }
        self._spawned: dict[int, tuple[Spawned, float]] = {}  # the event and its time, by rank
        self._exited: dict[int, tuple[Exited, float]] = {}
        self._stopped = StoppedRanks()
        self._reaped: dict[int, RankReaped] = {}
        self._outputs: dict[int, RankOutput] = {}
        self._written: dict[int, RankOutput] = {}  # output of the ranks that were asked to stop, before that
        self._signals: dict[int, dict[int, float]] = {}  # the first time of each signal, by rank
        self._hang = HangSeen(())
        self._began = (time.time(), time.monotonic())  # on the wall clock and on the manager's
        self._state, self._state_since = State(grace=job.stopping.grace), 0.0
        self._memory = memory.sample(Host())
        has_page = JobState.FAILED in job.files.html_states
        self._loading = threading.Timer(LOAD_AFTER, _load_ahead, kwargs={"has_page": has_page})
        self._loading.daemon = True

    def observe(self, fact: Fact, at: float) -> None:
        """Record one fact."""
        self._stopped.observe(fact)
        if isinstance(fact, State):
            self._follow(fact, at)
        elif isinstance(fact, Spawned):
            self._spawned[fact.rank_id] = fact, at
        elif isinstance(fact, Exited):
            self._exited[fact.rank_id] = fact, at
        elif isinstance(fact, RankReaped):
            self._reaped[fact.rank_id] = fact
        elif isinstance(fact, RankOutput):
            self._outputs[fact.rank_id] = fact
            self._written.setdefault(fact.rank_id, fact)
        elif isinstance(fact, SignalsSent):
            for rank_id, signum in fact.signums.items():
                self._signals.setdefault(rank_id, {}).setdefault(signum, at)
        elif isinstance(fact, HangSeen):
            self._hang = fact
        elif isinstance(fact, Swept):
            self.has_survivors = bool(fact.survivors)

    def _follow(self, state: State, at: float) -> None:
        self._state, self._state_since = state, at
        if state.phase is Phase.STARTING:
            self._began = (time.time(), at)
        elif state.phase is Phase.RUNNING and not self._loading.ident:
            with suppress(RuntimeError):  # no thread can be started here: it is only a precaution
                self._loading.start()
        elif state.phase is Phase.DONE:
            self._loading.cancel()

    def investigation(self) -> Investigation:
        """Return an investigation of why ranks fail or hang, with the facts that are known so far."""
        return _load()(
            job=self._job,
            began=self._began[0],
            memory=self._memory,
            pids={rank_id: spawned.pid for rank_id, (spawned, _at) in self._spawned.items()},
            patience=self._patience,
            running=self.running,
        )

    def _has_failed(self, rank_id: int) -> bool:
        """Return whether a rank that had reported an error also ended with one, even if just asked to stop."""
        return self._exited[rank_id][0].ending.exit_code != 0

    @property
    def is_disk_hung(self) -> bool:
        """Whether the disk with the logs did not respond at the end of the job."""
        return any(output.is_disk_hung for output in self._outputs.values())

    def finish(self, stopped_by: Callable[[], Cause] | None = None) -> Outcome:
        """Diagnose the ranks that failed, and return everything that is known about the job after its end.

        `stopped_by` returns all that is known of a signal to this runner, which may have ended it.
        """
        cause, masker = self._state.cause, Masker()
        is_passed_on = isinstance(cause, SignalReceived) and cause.node is not None
        if cause and cause.stop_signal is not None and stopped_by and not is_passed_on:
            cause = stopped_by()
        cause = cause and named(cause, {rank_id: spec.name for rank_id, spec in self._specs.items()})
        diagnosis = self._diagnose(masker)
        findings = diagnosis.findings if diagnosis else {}

        is_from_outside = cause is not None and cause.is_from_outside
        root = diagnosis.root if diagnosis and not is_from_outside else None
        failed = {*(root.alike if root else ()), *(rank_id for rank_id in findings if self._has_failed(rank_id))}
        stopped = self._stopped.rank_ids - failed
        ranks = [
            self._record(rank_id, findings.get(rank_id), masker, is_stopped=rank_id in stopped)
            for rank_id in sorted(self._specs)
        ]
        return Outcome(
            cause=cause,
            ranks=tuple(ranks),
            started_at=self._began[0],
            seconds=self._state_since - self._began[1],
            suspected_peer=diagnosis.suspected_peer if diagnosis and not is_from_outside else None,
            root=root,
            unsaved=self._stopped.unsaved,
            hang=self._hang.stacks,
            collectives=self._hang.collectives,
            secrets_masked=masker.count,
        )

    def _diagnose(self, masker: Masker) -> Diagnosis | None:
        """Explain the ranks that failed by themselves; the output of stopped ranks may have the cause."""
        exited = sorted(self._exited.values(), key=lambda entry: entry[1])
        stopped_ranks = self._stopped.rank_ids
        failures = [
            (event, self._outputs[event.rank_id])
            for event, _at in exited
            if not event.ending.is_success and event.rank_id not in stopped_ranks
        ]
        if not failures:
            return None

        stopped = [
            (event, self._written[event.rank_id], self._outputs[event.rank_id])
            for event, _at in exited
            if event.rank_id in stopped_ranks
        ]
        cause = self._state.cause
        first = cause.first_exit if cause and cause.ending else None
        investigation = attrs.evolve(self.investigation(), masker=masker)
        return investigation.diagnose(failures, stopped, first, is_disk_hung=self.is_disk_hung)

    def _record(self, rank_id: int, finding: Finding | None, masker: Masker, *, is_stopped: bool) -> RankRecord:
        spec, output, reaped = self._specs[rank_id], self._outputs[rank_id], self._reaped.get(rank_id)
        spawned, started_at = self._spawned.get(rank_id, (None, self._began[1]))
        exited, ended_at = self._exited.get(rank_id, (None, self._state_since))

        return attrs.evolve(
            planned(spec),
            ending=exited.ending if exited else None,
            state=_state(exited, is_started=spawned is not None, is_stopped=is_stopped),
            pid=spawned.pid if spawned else 0,
            started_after=started_at - self._began[1],
            seconds=ended_at - started_at if spawned else 0.0,
            max_rss=reaped.max_rss if reaped else None,
            user_seconds=reaped.user_seconds if reaped else None,
            system_seconds=reaped.system_seconds if reaped else None,
            first_output_after=self._after(output.first_at),
            last_output_after=self._after(output.last_at),
            signals=tuple((signum, at - self._began[1]) for signum, at in self._signals.get(rank_id, {}).items()),
            activity=output.activity,
            cell_seconds=output.cell_seconds,
            log_start=output.start,
            log_size=output.size,
            log_lost=output.lost,
            log_lost_from=output.lost_from,
            last_lines=finding.last_lines if finding else tuple(last_lines(masker.data(output.tail[-SHOWN_END:]))),
            variables=masker.variables(spec.changes(self._environ)),
            finding=finding,
        )

    def so_far(self) -> list[RankRecord]:
        """Return what is known of each rank while it runs, without its output. May be called in any thread.

        The record of a rank stays the same object until a further fact is known.
        """
        stopped = self._stopped.rank_ids
        for rank_id in self._specs:
            key = rank_id in stopped, len(self._signals.get(rank_id, ())), rank_id in self._exited
            if rank_id in self._spawned and self._so_far[rank_id][0] != key:
                self._so_far[rank_id] = key, self._running(rank_id, is_stopped=key[0])
        return [record for _key, record in self._so_far.values()]

    def _running(self, rank_id: int, *, is_stopped: bool) -> RankRecord:
        spawned, started_at = self._spawned[rank_id]
        exited, ended_at = self._exited.get(rank_id, (None, started_at))
        signals = dict(self._signals.get(rank_id, {}))
        return attrs.evolve(
            self._so_far[rank_id][1],
            ending=exited.ending if exited else None,
            state=_state(exited, is_started=True, is_stopped=is_stopped) if exited else RankState.RUNNING,
            pid=spawned.pid,
            started_after=started_at - self._began[1],
            seconds=ended_at - started_at,
            signals=tuple((signum, at - self._began[1]) for signum, at in signals.items()),
        )

    def _after(self, at: float | None) -> float | None:
        """Convert a time to seconds since the start of the job."""
        return None if at is None else max(0.0, at - self._began[1])


def planned(spec: RankSpec) -> RankRecord:
    """Return the record of a rank that was not started."""
    return RankRecord(
        rank_id=spec.rank_id,
        state=RankState.NOT_STARTED,
        name=spec.name,
        local_rank=spec.local_rank,
        device_id=spec.device_id,
        log_path=spec.log_path,
        process_log_path=spec.env.get("ASCEND_PROCESS_LOG_PATH", ""),
        cwd=spec.cwd,
    )


def _state(exited: Exited | None, *, is_started: bool, is_stopped: bool) -> RankState:
    if exited is None:
        return RankState.NOT_KILLED if is_started else RankState.NOT_STARTED
    if is_stopped:
        return RankState.STOPPED
    return RankState.SUCCEEDED if exited.ending.is_success else RankState.FAILED


def _load() -> type[Investigation]:
    from ascend_runner.report.investigation import Investigation  # noqa: PLC0415  60 ms that only a failure needs

    return Investigation


def _load_ahead(*, has_page: bool) -> None:
    loaded = len(sys.modules)
    with suppress(ImportError, OSError):  # a failure will try again, and report it
        _load().load_catalogue()
        if has_page:
            html_page.load_own_modules()
    if len(sys.modules) > loaded:  # in the first attempt: later there would be garbage of attempts that have ended
        # These modules stay. A collection that searches them costs as much as half a minute of other work.
        gc.freeze()
