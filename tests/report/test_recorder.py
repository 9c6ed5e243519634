"""The record of the facts of a job."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Sequence
from signal import SIGKILL, SIGTERM

import attrs
import pytest

from ascend_runner.diagnosis.finding import Peer
from ascend_runner.node.bounded import Patience
from ascend_runner.plan.ranks import HTML_STATES
from ascend_runner.plan.spec import RankSpec
from ascend_runner.record.facts import RankOutput, RankReaped, SignalsSent
from ascend_runner.record.rank_record import Outcome, RankState
from ascend_runner.report.recorder import Recorder
from ascend_runner.supervision.causes import Cause, Ending, Exited, HangDetected, SignalReceived, SpawnFailed
from ascend_runner.supervision.events import Spawned
from ascend_runner.supervision.job_machine import JobState
from ascend_runner.supervision.state import Phase, State
from tests.helpers.plans import job_spec, rank_spec
from tests.helpers.waiting import LIMIT

FAILED = Ending(exit_code=1)
NAN = b'Traceback (most recent call last):\n  File "train.py", line 5, in step\nValueError: loss is nan\n'
REPORT = b"EI0006: [PID: 7] Getting socket times out. connect destRank[10.0.0.5/1] fail.\n"


def spec(rank_id: int, name: str = "") -> RankSpec:
    """Make the plan of a rank."""
    return rank_spec(rank_id, local_rank=max(rank_id, 0), env={"A": "1"}, log_path=f"/log/{rank_id}", name=name)


JOB = job_spec([spec(0), spec(1)], server_id="10.0.0.4", has_own_process_logs=True, beside=(spec(-1, "scheduler"),))


def play(
    recorder: Recorder, cause: Cause | None, *exits: Exited, stopped: Sequence[int] = (), output: bytes = b""
) -> Outcome:
    """Pass a recorder the facts of a job that started at 100 s and ran for 50 s; return its outcome.

    `stopped` are the ranks that were asked to stop; `output` is that of rank 0.
    """
    recorder.observe(State(grace=15.0), 100.0)
    started = {*stopped, *(exited.rank_id for exited in exits)}
    for rank_id in sorted(started):
        recorder.observe(Spawned(rank_id, 4711 + rank_id), 101.0 + rank_id)
    for exited in sorted(exits, key=lambda exited: exited.rank_id in stopped):
        if exited.rank_id in stopped:
            recorder.observe(State(grace=15.0, phase=Phase.TERMINATING, stopped=frozenset(stopped)), 141.0)
            recorder.observe(SignalsSent(dict.fromkeys(stopped, SIGTERM)), 141.0)
        recorder.observe(exited, 141.0)
        recorder.observe(
            RankReaped(rank_id=exited.rank_id, max_rss=1 << 20, user_seconds=1.5, system_seconds=0.5), 141.0
        )
    for spec in JOB.processes:
        tail = output if spec.rank_id == 0 else b""
        recorder.observe(RankOutput(rank_id=spec.rank_id, size=len(tail), tail=tail), 150.0)
    recorder.observe(State(grace=15.0, phase=Phase.DONE, cause=cause, stopped=frozenset(stopped)), 150.0)
    return recorder.finish()


@pytest.fixture
def recorder() -> Recorder:
    """Make the recorder of a job of two ranks and a scheduler."""
    return Recorder(JOB, Patience(warn=pytest.fail))


def test_records_of_ranks(recorder: Recorder) -> None:
    """Each record has the times, resources and output of its rank; only a rank that failed has a finding."""
    before = time.time()
    stopped = Exited(1, Ending(signum=15))
    outcome = play(recorder, Exited(0, FAILED), Exited(0, FAILED), stopped, stopped=[1], output=NAN)
    _scheduler, failed, stopped_rank = outcome.ranks

    assert (50.0, 1) == (outcome.seconds, outcome.status)
    assert before <= outcome.started_at <= time.time()
    assert (4711, 1.0, 40.0) == (failed.pid, failed.started_after, failed.seconds)
    assert (1 << 20, 1.5, 0.5) == (failed.max_rss, failed.user_seconds, failed.system_seconds)
    assert ("/log/0", len(NAN)) == (failed.log_path, failed.log_size)
    assert failed.finding
    assert "ValueError: loss is nan" == failed.finding.exception
    assert "ValueError: loss is nan" == failed.last_lines[-1]
    assert (RankState.STOPPED, None) == (stopped_rank.state, stopped_rank.finding)


def test_record_has_the_plan_of_its_rank() -> None:
    """It has the device, the directories and the variables that the runner changed, without secrets."""
    env = {"PATH": "/bin", "OBS_SK": "hunter2", "ASCEND_PROCESS_LOG_PATH": "/log/rank_0"}
    planned = job_spec([rank_spec(0, env=env, cwd="/job", device_id=6)])
    recorder = Recorder(planned, Patience(warn=pytest.fail), environ={"PATH": "/bin", "HOME": "/root"})
    recorder.observe(RankOutput(rank_id=0), 0.0)
    outcome = recorder.finish()
    (rank,) = outcome.ranks

    assert (0, 6, "/job", "/log/rank_0") == (rank.local_rank, rank.device_id, rank.cwd, rank.process_log_path)
    assert {"OBS_SK": "***", "ASCEND_PROCESS_LOG_PATH": "/log/rank_0"} == rank.variables
    assert 1 == outcome.secrets_masked


def test_times_of_output_and_signals(recorder: Recorder) -> None:
    """A record has when its rank has written, and the first time of each signal that it was sent."""
    for at, signum in ((141.0, 15), (142.0, 15), (150.0, 9)):
        recorder.observe(SignalsSent({1: signum}), at)
    written = RankOutput(rank_id=1, first_at=103.0, last_at=139.0, activity=(7, 0, 5), cell_seconds=16.0)
    recorder.observe(State(grace=15.0), 100.0)
    recorder.observe(Spawned(1, 4711), 101.0)
    for output in (RankOutput(rank_id=-1), RankOutput(rank_id=0), written):
        recorder.observe(output, 150.0)
    _scheduler, silent, rank = recorder.finish().ranks

    assert (3.0, 39.0, (7, 0, 5), 16.0) == (
        rank.first_output_after,
        rank.last_output_after,
        rank.activity,
        rank.cell_seconds,
    )
    assert ((15, 41.0), (9, 50.0)) == rank.signals
    assert (None, None, (), ()) == (
        silent.first_output_after,
        silent.last_output_after,
        silent.activity,
        silent.signals,
    )


@pytest.mark.parametrize("exit_code", [0, 1])
def test_secrets_in_output(recorder: Recorder, exit_code: int) -> None:
    """The end of a log is masked, whether its rank has failed or not, and each secret is counted once."""
    output = NAN.replace(b"nan", b"nan with --token hidden")
    exited = Exited(0, Ending(exit_code=exit_code))
    outcome = play(recorder, exited if exit_code else None, exited, output=output)

    assert "ValueError: loss is nan with --token ***" == outcome.ranks[1].last_lines[-1]
    assert 1 == outcome.secrets_masked
    assert "hidden" not in repr(outcome)


def test_hung_disk_is_not_read(recorder: Recorder) -> None:
    """If the disk of a log did not respond at the end, the diagnosis uses what is in memory."""
    recorder.observe(Spawned(0, 4711), 101.0)
    recorder.observe(Exited(0, FAILED), 141.0)
    for rank_id in (-1, 0, 1):
        hung = RankOutput(rank_id=rank_id, size=1 << 30, tail=NAN, lost=7, lost_from=9, is_disk_hung=True)
        recorder.observe(hung, 150.0)
    was_hung = recorder.is_disk_hung
    failed = recorder.finish().ranks[1]

    assert was_hung
    assert (7, 9) == (failed.log_lost, failed.log_lost_from)
    assert failed.finding
    assert "ValueError: loss is nan" == failed.finding.exception


def test_rank_that_was_not_started(recorder: Recorder) -> None:
    """A rank that was not started has no pid and no times; an auxiliary process is the cause by its name."""
    cause = SpawnFailed(-1, "no memory", 125)
    outcome = play(recorder, cause)
    rank = outcome.ranks[0]

    assert attrs.evolve(cause, name="scheduler") == outcome.cause
    assert (RankState.NOT_STARTED, "scheduler", 0, 0.0, None) == (
        rank.state,
        rank.name,
        rank.pid,
        rank.seconds,
        rank.max_rss,
    )


def test_rank_that_survived_sigkill(recorder: Recorder) -> None:
    """A rank that is still alive ran until the end of the job."""
    rank = play(recorder, HangDetected(1.0), stopped=[0]).ranks[1]

    assert (RankState.NOT_KILLED, 49.0) == (rank.state, rank.seconds)


def test_suspected_peer(recorder: Recorder) -> None:
    """If all failed ranks only report a peer, that peer is suspected."""
    outcome = play(recorder, Exited(0, FAILED), Exited(0, FAILED), output=REPORT)

    assert Peer(server_id="10.0.0.5", device_id=1, reported_by=(0,)) == outcome.suspected_peer


def test_cause_of_a_rank_that_was_stopped(recorder: Recorder) -> None:
    """A rank that had printed an error when it was asked to stop is named, and has a finding."""
    first, stopped = Exited(0, FAILED), Exited(1, Ending(signum=15))
    recorder.observe(RankOutput(rank_id=1, size=len(NAN), tail=NAN), 141.0)
    outcome = play(recorder, first, first, stopped, stopped=[1], output=REPORT)

    assert outcome.root
    assert (1, 1) == (outcome.root.rank_id, outcome.status)
    assert outcome.ranks[2].finding
    assert "ValueError: loss is nan" == outcome.ranks[2].finding.exception


@pytest.mark.parametrize(("is_ours", "root"), [(False, 1), (True, 0)])
def test_rank_that_something_else_killed(recorder: Recorder, is_ours: bool, root: int) -> None:  # noqa: FBT001  a parameter
    """A rank that died of a SIGKILL that the runner had not sent was killed before its peers noticed."""
    first, killed = Exited(0, FAILED), Exited(1, Ending(signum=SIGKILL))
    recorder.observe(SignalsSent({1: SIGTERM}), 141.0)
    if is_ours:
        recorder.observe(SignalsSent({1: SIGKILL}), 141.0)
    outcome = play(recorder, first, first, killed, stopped=[1], output=REPORT)

    assert outcome.root
    assert (root, not is_ours) == (outcome.root.rank_id, outcome.ranks[2].state is RankState.FAILED)


def test_ranks_that_failed_in_the_same_moment(recorder: Recorder) -> None:
    """A rank whose end was seen before any rank was asked to stop has failed by itself, in whatever way."""
    first, second = Exited(0, FAILED), Exited(1, Ending(exit_code=3))
    for rank_id in (0, 1):
        recorder.observe(Spawned(rank_id, 4711), 101.0)
    for exited in (first, second):
        recorder.observe(exited, 141.0)
    outcome = play(recorder, first, stopped=[1])

    assert [RankState.NOT_STARTED, RankState.FAILED, RankState.FAILED] == [rank.state for rank in outcome.ranks]
    assert outcome.ranks[2].finding


def test_rank_that_dies_of_what_the_runner_is_sent_was_stopped(recorder: Recorder) -> None:
    """If a signal stops the job, a rank that has died of it before it was asked has not failed."""
    for rank_id in (0, 1):
        recorder.observe(Spawned(rank_id, 4711), 101.0)
    recorder.observe(Exited(1, Ending(signum=15)), 141.0)
    outcome = play(recorder, SignalReceived(15), stopped=[0, 1])

    assert RankState.STOPPED is outcome.ranks[2].state


@pytest.mark.parametrize("cause", [SignalReceived(9, node=3), SignalReceived(15)])
def test_signal_to_another_node_stays_the_cause(recorder: Recorder, cause: SignalReceived) -> None:
    """A stop signal that arrives when another node's has stopped the job already does not replace it."""
    play(recorder, cause)
    own = SignalReceived(15, guardian=4711)

    assert (own if cause.node is None else cause) == recorder.finish(lambda: own).cause


def test_rank_that_fails_alike_while_it_is_asked_to_stop(recorder: Recorder) -> None:
    """A rank that had printed the error of the first one when it was asked to stop has failed as well."""
    first, second = Exited(0, FAILED), Exited(1, FAILED)
    recorder.observe(RankOutput(rank_id=1, size=len(NAN), tail=NAN), 141.0)
    outcome = play(recorder, first, first, second, stopped=[1], output=NAN)

    assert outcome.root
    assert (0, 1) == outcome.root.alike
    assert RankState.FAILED is outcome.ranks[2].state


@pytest.mark.parametrize(
    ("ending", "state"), [(Ending(exit_code=1), RankState.FAILED), (Ending(signum=15), RankState.STOPPED)]
)
def test_rank_with_an_error_of_its_own_while_it_is_asked_to_stop(
    recorder: Recorder, ending: Ending, state: RankState
) -> None:
    """A rank that had printed another error has failed if it ended with an exit status, not if it was killed."""
    first, second = Exited(0, FAILED), Exited(1, ending)
    other = NAN.replace(b"ValueError: loss is nan", b"KeyError: 'weight'")
    recorder.observe(RankOutput(rank_id=1, size=len(other), tail=other), 141.0)
    outcome = play(recorder, first, first, second, stopped=[1], output=NAN)

    assert state is outcome.ranks[2].state


def test_traceback_that_was_being_printed(recorder: Recorder) -> None:
    """A traceback that had begun when the rank was asked to stop is read to its end."""
    first, stopped = Exited(0, FAILED), Exited(1, Ending(signum=15))
    recorder.observe(RankOutput(rank_id=1, size=60, tail=NAN[:60]), 141.0)
    recorder.observe(RankOutput(rank_id=1, size=len(NAN), tail=NAN), 141.5)
    recorder.observe(State(grace=15.0), 100.0)
    for rank_id in (0, 1):
        recorder.observe(Spawned(rank_id, 4711), 101.0)
    recorder.observe(first, 141.0)
    recorder.observe(State(grace=15.0, phase=Phase.TERMINATING, cause=first, stopped=frozenset({1})), 141.0)
    recorder.observe(SignalsSent({1: SIGTERM}), 141.0)
    recorder.observe(stopped, 142.0)
    for rank_id, tail in ((-1, b""), (0, REPORT)):
        recorder.observe(RankOutput(rank_id=rank_id, size=len(tail), tail=tail), 150.0)
    recorder.observe(State(grace=15.0, phase=Phase.DONE, cause=first, stopped=frozenset({1})), 150.0)
    root = recorder.finish().root

    assert root
    assert (1, "ValueError: loss is nan") == (root.rank_id, root.summary)


def test_order_of_failures(recorder: Recorder) -> None:
    """Of failures at the same moment, a rank that reports a peer comes last."""
    for rank_id in (0, 1):
        recorder.observe(Spawned(rank_id, 4711), 1.0)
    tails = {0: REPORT, 1: NAN}
    failures = [(Exited(rank_id, FAILED), RankOutput(rank_id=rank_id, tail=tail)) for rank_id, tail in tails.items()]

    assert [1, 0] == recorder.investigation().order_failures(failures, is_ordered=True)


def test_stacks(recorder: Recorder) -> None:
    """The stacks of a hang become part of the outcome."""
    with subprocess.Popen(["/bin/sleep", "600"]) as sleeping:
        hang = recorder.investigation().find_stacks({0: sleeping.pid}, (), None)
        sleeping.kill()
    recorder.observe(hang, 120.0)
    outcome = play(recorder, HangDetected(1.0), stopped=[0])

    assert [(0,)] == [group.rank_ids for group in outcome.hang]


@pytest.mark.parametrize(
    ("states", "page"), [(HTML_STATES["failure"], "ascend_runner.views.page_content"), (HTML_STATES["never"], "")]
)
def test_running_jobs_load_ahead_what_a_failure_needs(states: frozenset[JobState], page: str) -> None:
    """While its ranks run, a job does not depend on the disk that holds the package to explain a failure.

    A thread of its own loads the modules and the catalogue. Of what the HTML report needs, it loads only modules of
    this package.
    """
    script = f"""
import sys, threading
from ascend_runner.supervision.job_machine import JobState
from ascend_runner.report.recorder import Recorder
from ascend_runner.supervision.state import Phase, State
from tests.helpers.plans import changed
from tests.report.test_recorder import JOB
names = ["ascend_runner.report.investigation", "ascend_runner.views.page_content", "jinja2"]
recorder = Recorder(changed(JOB, html_states={{*map(JobState, {[state.value for state in states]})}}))
print(*(name for name in names if name in sys.modules))
recorder.observe(State(grace=1.0, phase=Phase.RUNNING), 0.0)
for loading in set(threading.enumerate()) - {{threading.main_thread()}}:
    loading.join()
print(*(name for name in names if name in sys.modules))
print(sys.modules["ascend_runner.diagnosis.catalogue"].ours.cache_info().currsize)
"""

    assert f"\nascend_runner.report.investigation {page}".rstrip() + "\n1\n" == _shown_by(script)


def test_jobs_that_end_at_once_load_nothing() -> None:
    """What a failure needs is not loaded if the ranks have ended before."""
    script = """
import sys, threading
from ascend_runner.report.recorder import Recorder
from ascend_runner.supervision.state import Phase, State
from tests.report.test_recorder import JOB
recorder, states = Recorder(JOB), [State(grace=1.0, phase=phase) for phase in (Phase.RUNNING, Phase.DONE)]
for state in states:
    recorder.observe(state, 0.0)
for loading in set(threading.enumerate()) - {threading.main_thread()}:
    loading.join()
print([name for name in sys.modules if name.startswith("ascend_runner.diagnosis.catalogue")])
"""

    assert "[]\n" == _shown_by(script)


def _shown_by(script: str) -> str:
    done = subprocess.run([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True, check=True, timeout=LIMIT)
    return done.stdout


def test_attempts_that_have_ended_become_garbage() -> None:
    """Only the first attempt exempts what it has loaded from garbage collection, and with it all that there is."""
    script = """
import gc, threading
from ascend_runner.report.recorder import Recorder
from ascend_runner.supervision.state import Phase, State
from tests.helpers.plans import changed
from tests.report.test_recorder import JOB
for _ in range(2):
    Recorder(JOB).observe(State(grace=1.0, phase=Phase.RUNNING), 0.0)
    for loading in set(threading.enumerate()) - {threading.main_thread()}:
        loading.join()
    print(gc.get_freeze_count())
"""
    first, second = _shown_by(script).split()

    assert 0 < int(first)
    assert int(first) >= int(second)
