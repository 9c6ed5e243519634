"""The contracts of what the manager works with: the same tests for the real node and for the fake of tests/fakes.py."""

from __future__ import annotations

import enum
import errno
import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from signal import SIGCHLD, SIGCONT, SIGINT, SIGKILL, SIGSTOP, SIGTERM, SIGUSR1, raise_signal
from typing import Protocol, Union

import pytest

from ascend_runner.activity import Activity
from ascend_runner.manager.node import Clock, Output, Processes
from ascend_runner.plan.spec import Attempt, RankSpec
from ascend_runner.ranks.console import Console
from ascend_runner.ranks.output import RankOutputs
from ascend_runner.ranks.processes import RankProcesses
from ascend_runner.ranks.signals import Signals
from ascend_runner.supervision.causes import Ending, Exited
from ascend_runner.supervision.events import Emptied
from tests.fakes import Behaviour, FakeNode
from tests.helpers.plans import job_spec, rank_spec
from tests.helpers.waiting import LIMIT, is_gone, wait_until


class Does(enum.Enum):
    """The behaviour of a rank, as a shell script."""

    SLEEP = "exec sleep 1000"
    EXIT_7 = "exit 7"
    LEAVE_CHILD = "sleep 1000 & exit 7"
    RUN_ENGINE = "exec bash -c 'exec -a torchrun sleep 1000'"
    RUN_WORKERS = "export TORCHELASTIC_RUN_ID=a; exec sleep 1000"
    LET_CHILD_ESCAPE = "setsid sleep 1000 & until pgrep -s $! sleep >/dev/null; do :; done; exit 7"


FAKED = {
    Does.SLEEP: Behaviour(),
    Does.EXIT_7: Behaviour(exits=(0.0, Ending(exit_code=7))),
    Does.LEAVE_CHILD: Behaviour(exits=(0.0, Ending(exit_code=7)), has_child=True),
    Does.RUN_ENGINE: Behaviour(),
    Does.RUN_WORKERS: Behaviour(),
    Does.LET_CHILD_ESCAPE: Behaviour(exits=(0.0, Ending(exit_code=7))),
}


class Bench(Protocol):
    """A node to test, real or fake."""

    processes: Processes
    output: Output
    clock: Clock

    def start(self, rank_id: int, does: Does) -> int:
        """Start a rank that does this; return its pid."""

    def start_missing_program(self) -> None:
        """Try to start a program that does not exist."""

    def await_end_of(self, pid: int) -> None:
        """Wait until a process has ended, without looking through `processes`."""

    def send(self, *signums: int) -> None:
        """Send signals to the runner."""

    def write(self, rank_id: int, data: bytes) -> None:
        """Write as a rank does, and end its output."""


class RealBench:
    """Processes and files of this machine."""

    def __init__(self, folder: Path, signals: Signals, processes: RankProcesses) -> None:
        ranks = [rank_spec(rank_id, log_path=str(folder / f"{rank_id}.txt"), prefix=None) for rank_id in range(3)]
        self.clock: Clock = signals
        self.processes: Processes = processes
        console = Console(lambda _lines: b"", lambda _error: b"")
        activities = {rank.rank_id: Activity(0.0) for rank in ranks}
        self.output: Output = RankOutputs(Attempt(job_spec(ranks)), console, lambda _sentence: None, activities)

    def start(self, rank_id: int, does: Does) -> int:
        """Start a rank."""
        argv = ("/bin/sh", "-c", does.value)
        return self._spawn(rank_spec(rank_id, executable=argv[0], argv=argv, env={"PATH": os.defpath}))

    def start_missing_program(self) -> None:
        """Spawn what does not exist."""
        self._spawn(rank_spec(executable="/missing/program"))

    def _spawn(self, spec: RankSpec) -> int:
        with open(os.devnull, "wb") as output:
            return self.processes.spawn(spec, output.fileno())

    def await_end_of(self, pid: int) -> None:
        """Wait until the process has ended."""
        wait_until(lambda: is_gone(pid))

    def send(self, *signums: int) -> None:
        """Send signals."""
        for signum in signums:
            raise_signal(signum)

    def write(self, rank_id: int, data: bytes) -> None:
        """Write, and end the output."""
        with self.output.open(rank_id) as fd:
            os.write(fd, data)


class FakeBench:
    """A node in virtual time."""

    def __init__(self) -> None:
        self._node = FakeNode()
        self.clock: Clock = self._node.clock
        self.processes: Processes = self._node.processes
        self.output: Output = self._node.output

    def start(self, rank_id: int, does: Does) -> int:
        """Start a rank."""
        self._node.processes.behaviours[rank_id] = FAKED[does]
        if does in {Does.RUN_ENGINE, Does.RUN_WORKERS}:
            self._node.processes.engines[rank_id] = ("torchrun", 0.0)
        if does is Does.LET_CHILD_ESCAPE:
            self._node.processes.escaped[99] = ("sleep", False)
        return self.processes.spawn(rank_spec(rank_id), 0)

    def start_missing_program(self) -> None:
        """Spawn what does not exist."""
        self._node.processes.spawn_errors[0] = FileNotFoundError(errno.ENOENT, "", "/missing/program")
        self.processes.spawn(rank_spec(), 0)

    def await_end_of(self, pid: int) -> None:
        """Wait until the process has ended."""
        while any(f"{pid} (" in alive for alive in self.processes.survivors()):
            self.clock.wait(LIMIT)

    def send(self, *signums: int) -> None:
        """Send signals."""
        self._node.clock.receive(*signums)

    def write(self, rank_id: int, data: bytes) -> None:
        """Write, and end the output."""
        with self.output.open(rank_id):
            self._node.output.write(rank_id, data)


@pytest.fixture(params=["real", "fake"])
def bench(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Bench]:
    """Return a node, and see that nothing of it is left."""
    with ExitStack() as stack:
        if request.param == "fake":
            yield FakeBench()
        else:
            signals = stack.enter_context(Signals())
            processes = stack.enter_context(closing(RankProcesses()))
            yield RealBench(tmp_path, signals, processes)


Death = Union[Exited, Emptied]


def await_deaths(bench: Bench, count: int = 1) -> Sequence[Death]:
    """Wait as the manager does until so many ends were seen."""
    deaths: list[Death] = []
    while True:
        deaths += [event for event in bench.processes.look()[0] if isinstance(event, (Exited, Emptied))]
        if len(deaths) >= count:
            return deaths
        assert bench.clock.wait(LIMIT), f"nothing has ended in {LIMIT:g} s"


def kill(bench: Bench, *rank_ids: int) -> None:
    """End ranks and reap them."""
    bench.processes.signal(dict.fromkeys(rank_ids, SIGKILL))
    await_deaths(bench, len(rank_ids))
    for rank_id in rank_ids:
        bench.processes.reap(rank_id)


# --- Processes --------------------------------------------------------------------------------------------------------


def test_living_rank_has_a_pid_and_no_end(bench: Bench) -> None:
    """A rank that was started is alive until it is seen to end."""
    pid = bench.start(0, Does.SLEEP)

    assert {0: pid} == bench.processes.pids()
    assert [] == list(bench.processes.look()[0])
    (alive,) = bench.processes.survivors()
    assert alive.startswith(f"rank 0: {pid} (")
    kill(bench, 0)
    assert () == bench.processes.survivors()


def test_end_is_seen_once_and_before_reaping(bench: Bench) -> None:
    """`look` returns each end once; the rank can still be signalled then, until it is reaped."""
    bench.start(0, Does.EXIT_7)

    assert [Exited(0, Ending(exit_code=7))] == list(await_deaths(bench))
    assert [] == list(bench.processes.look()[0])
    assert {} == bench.processes.pids()
    bench.processes.signal({0: SIGTERM})
    assert 0 == bench.processes.reap(0).rank_id


def test_missing_program_is_an_oserror(bench: Bench) -> None:
    """Nothing is left of a failed start."""
    with pytest.raises(FileNotFoundError):
        bench.start_missing_program()

    assert {} == bench.processes.pids()


def test_each_rank_gets_its_signal(bench: Bench) -> None:
    """Ranks that are not named get none."""
    for rank_id in range(3):
        bench.start(rank_id, Does.SLEEP)
    bench.processes.signal({0: SIGTERM, 2: SIGKILL})

    ended = {event.rank_id: event for event in await_deaths(bench, 2)}
    assert {0: Exited(0, Ending(signum=SIGTERM)), 2: Exited(2, Ending(signum=SIGKILL))} == ended
    assert [1] == list(bench.processes.pids())
    bench.processes.reap(0)
    bench.processes.reap(2)
    kill(bench, 1)


def test_rank_that_has_ended_was_not_stopped(bench: Bench) -> None:
    """Nobody has seen the end of rank 0 yet, and rank 1 is alive; when it has been seen, there is nothing to report."""
    pids = [bench.start(0, Does.EXIT_7), bench.start(1, Does.SLEEP)]
    bench.await_end_of(pids[0])

    assert {0} == set(bench.processes.ask_to_stop({0: SIGTERM, 1: SIGTERM}))
    assert {Exited(0, Ending(exit_code=7)), Exited(1, Ending(signum=SIGTERM))} == set(await_deaths(bench, 2))
    assert set() == set(bench.processes.ask_to_stop({0: SIGTERM, 1: SIGTERM}))
    bench.processes.reap(0)
    bench.processes.reap(1)


def test_deaths_come_in_the_order_of_the_kernel(bench: Bench) -> None:
    """The order of exits is known however late it is asked for, if the kernel has pidfds."""
    pids = [bench.start(rank_id, Does.SLEEP) for rank_id in range(3)]
    for rank_id in (2, 0, 1):
        bench.processes.signal({rank_id: SIGTERM})
        bench.await_end_of(pids[rank_id])
    bench.clock.wait(LIMIT)
    deaths, is_ordered = bench.processes.look()

    assert [Exited(rank_id, Ending(signum=SIGTERM)) for rank_id in (2, 0, 1)] == list(deaths) or not is_ordered
    assert 3 == len(deaths)
    for rank_id in range(3):
        bench.processes.reap(rank_id)


@pytest.mark.parametrize("does", [Does.RUN_ENGINE, Does.RUN_WORKERS])
def test_engine_below_a_rank(bench: Bench, does: Does) -> None:
    """An engine that a rank runs is found by its arguments or by its workers' variables; other processes are none."""
    bench.start(0, Does.SLEEP)
    assert None is bench.processes.find_engine()

    bench.start(1, does)
    wait_until(lambda: bench.processes.find_engine() is not None)
    found = bench.processes.find_engine()
    assert found
    assert (1, "torchrun") == (found.rank_id, found.engine)
    kill(bench, 0, 1)


def test_straggler_is_seen_and_signalled(bench: Bench) -> None:
    """A child that outlives its leader keeps the rank alive; when it has ended, the rank is empty."""
    bench.start(0, Does.LEAVE_CHILD)

    assert [Exited(0, Ending(exit_code=7), has_stragglers=True)] == list(await_deaths(bench))
    bench.processes.signal({0: SIGKILL})
    assert [Emptied(0)] == list(await_deaths(bench))
    bench.processes.reap(0)


def test_escaped_process_is_killed_and_named(bench: Bench) -> None:
    """A child in a session of its own is no straggler, and stays until it is killed."""
    bench.start(0, Does.LET_CHILD_ESCAPE)
    assert [Exited(0, Ending(exit_code=7))] == list(await_deaths(bench))
    bench.processes.reap(0)

    assert bench.processes.has_escaped()
    (alive,) = bench.processes.survivors()
    assert " (sleep" in alive
    assert not alive.startswith("rank")
    assert ["sleep"] == list(bench.processes.kill_escaped().values())
    while bench.processes.has_escaped():
        assert bench.clock.wait(LIMIT)
    assert () == bench.processes.survivors()


def test_stopped_rank_is_held(bench: Bench) -> None:
    """A stopped rank is not allowed to run, until it is continued."""
    bench.start(0, Does.SLEEP)
    assert not bench.processes.is_held()
    bench.processes.signal({0: SIGSTOP})
    wait_until(bench.processes.is_held)
    bench.processes.signal({0: SIGCONT})
    wait_until(lambda: not bench.processes.is_held())
    assert bench.processes.has_killable()

    kill(bench, 0)
    assert not bench.processes.has_killable()


# --- Clock ------------------------------------------------------------------------------------------------------------


def test_wait_ends_at_its_limit(bench: Bench) -> None:
    """Without a signal as much time passes as was asked for, and none for a limit that is over."""
    before = bench.clock.now()

    assert [] == list(bench.clock.wait(0.01))
    assert bench.clock.now() >= before + 0.01
    assert [] == list(bench.clock.wait(-1.0))


def test_signals_come_once_and_stop_signals_first(bench: Bench) -> None:
    """All signals so far come with one wait."""
    bench.send(SIGUSR1, SIGTERM, SIGINT)

    assert [SIGTERM, SIGINT, SIGUSR1] == list(bench.clock.wait(None))
    assert [] == list(bench.clock.wait(0.0))


def test_end_of_a_rank_ends_a_wait(bench: Bench) -> None:
    """SIGCHLD arrives like any other signal."""
    bench.start(0, Does.EXIT_7)

    assert SIGCHLD in bench.clock.wait(LIMIT)
    await_deaths(bench)
    bench.processes.reap(0)


# --- Output -----------------------------------------------------------------------------------------------------------


def test_output_is_read_up_to_its_end(bench: Bench) -> None:
    """Each rank has its own, and nothing is lost."""
    bench.output.start()
    bench.write(0, b"one\n")
    bench.write(1, b"other\n")

    bench.output.finish(LIMIT, lambda: False)
    assert [b"one\n", b"other\n", b""] == [bench.output.read_so_far(rank_id).tail for rank_id in range(3)]
    assert (4, 0) == (bench.output.read_so_far(0).size, bench.output.read_so_far(0).lost)
    assert bench.output.failure is None


def test_settled_output_was_read(bench: Bench) -> None:
    """Output that was written before can be read, and counts as activity."""
    bench.output.start()
    before = bench.clock.now()
    bench.write(0, b"one\n")
    bench.output.settle()

    assert b"one\n" == bench.output.read_so_far(0).tail
    assert bench.output.last_activity >= before
    bench.output.finish(LIMIT, lambda: False)


def test_output_that_is_ignored(bench: Bench) -> None:
    """It is kept like any other, but counts as no activity."""
    bench.output.start()
    bench.write(0, b"one\n")
    bench.output.settle()
    before = bench.output.last_activity
    bench.output.ignore(lambda data: data == b"dumping\n")
    bench.write(0, b"dumping\n")
    bench.output.settle()
    ignored = bench.output.last_activity
    bench.write(0, b"two\n")
    bench.output.settle()

    assert before == ignored
    assert bench.output.last_activity >= before
    assert b"one\ndumping\ntwo\n" == bench.output.read_so_far(0).tail
    bench.output.finish(LIMIT, lambda: False)
