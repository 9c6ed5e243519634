"""The processes of a rank that are asked to stop, and those that a forwarded signal reaches."""

from __future__ import annotations

from collections.abc import Collection
from signal import SIGINT, SIGTERM, SIGUSR1

from ascend_runner.supervision.signal_targets import Identity, RankProcess, to_notify, to_stop

HANDLES = frozenset({SIGTERM})


def process(
    pid: int, *children: RankProcess, name: str = "python", handled: frozenset[int] = frozenset()
) -> RankProcess:
    """Make a process with these children."""
    return RankProcess(pid=pid, started=pid, name=name, handled=handled, children=children)


def background(pid: int, *, handled: frozenset[int] = frozenset()) -> RankProcess:
    """Make a process that a shell has put in the background."""
    return RankProcess(pid=pid, started=pid, name="python", handled=handled, ignored=frozenset({SIGINT}))


def asked_pids(tops: list[RankProcess], signum: int, asked: Collection[Identity] = ()) -> list[int]:
    """Return the pids of the processes that are asked to stop, in order."""
    return [found.pid for found, _ in to_stop(tops, signum, asked)]


def notified_pids(tops: list[RankProcess], signum: int) -> list[int]:
    """Return the pids of the processes that a forwarded signal reaches, in order."""
    return [found.pid for found in to_notify(tops, signum)]


def test_workers_of_a_process_that_handles_the_signal_are_spared() -> None:
    """A training process that saves a checkpoint keeps its data-loading workers, which inherited its handler."""
    training = process(1, process(2, handled=HANDLES), process(3), handled=HANDLES)

    assert [1] == asked_pids([training], SIGTERM)


def test_everybody_is_asked_where_nobody_handles_it() -> None:
    """Without a handler all processes are asked, parents before children."""
    assert [1, 2, 3] == asked_pids([process(1, process(2), process(3))], SIGTERM)


def test_shell_does_not_take_care_of_its_foreground_command() -> None:
    """A shell runs its trap only after the command has ended, so both are asked, the shell first."""
    command = process(2, process(3), handled=HANDLES)

    assert [1, 2] == asked_pids([process(1, command, name="bash")], SIGTERM)
    assert [1, 2] == asked_pids([process(1, command, name="bash", handled=HANDLES)], SIGTERM)


def test_trap_takes_care_of_background_jobs() -> None:
    """A shell with a trap may forward the signal to its background jobs; without one they are asked."""
    jobs = (background(2), background(3, handled=HANDLES))

    assert [1] == asked_pids([process(1, *jobs, name="sh", handled=HANDLES)], SIGTERM)
    assert [1, 2, 3] == asked_pids([process(1, *jobs, name="sh")], SIGTERM)


def test_nobody_is_asked_twice() -> None:
    """A second snapshot has only those that were not asked, and a reused pid is another process."""
    tree = process(1, process(2))

    assert [2] == asked_pids([tree], SIGTERM, {(1, 1)})
    assert [1, 2] == asked_pids([tree], SIGTERM, {(1, 999)})


def test_catcher_protects_while_it_lives() -> None:
    """A process that was spared is asked once the process that took care of it has ended."""
    worker = process(2)

    assert [] == asked_pids([process(1, worker, handled=HANDLES)], SIGTERM, {(1, 1)})
    assert [2] == asked_pids([worker], SIGTERM, {(1, 1)})


def test_interrupt_reaches_every_process() -> None:
    """SIGINT goes to all, as from a terminal, handlers or not."""
    training = process(1, process(2), handled=frozenset({SIGINT, SIGTERM}))

    assert [1, 2] == asked_pids([training], SIGINT)


def test_interrupt_that_is_ignored_becomes_a_request_to_terminate() -> None:
    """A background job of a shell ignores SIGINT; it gets SIGTERM instead."""
    (found,) = to_stop([background(1)], SIGINT, ())

    assert (1, SIGTERM) == (found[0].pid, found[1])


def test_forwarded_signal_reaches_the_topmost_that_handles_it() -> None:
    """A shell or an engine without a handler is passed over; workers below a handler are left alone."""
    handles = frozenset({SIGUSR1})
    training = process(2, process(3, handled=handles), handled=handles)

    assert [2] == notified_pids([process(1, training, name="bash")], SIGUSR1)
    assert [1, 2] == notified_pids([process(1, training, name="bash", handled=handles)], SIGUSR1)


def test_forwarded_signal_reaches_nobody_without_a_handler() -> None:
    """A forwarded signal is not sent to processes without a handler, which it would kill."""
    assert [] == notified_pids([process(1, process(2), name="bash")], SIGUSR1)
