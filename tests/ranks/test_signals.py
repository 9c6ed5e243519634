"""Signals are delivered in order of arrival, and process state is restored afterwards."""

from __future__ import annotations

import os
import signal
import threading

import pytest

from ascend_runner.guardian.signal_sets import ONE_SIGNAL, WATCHED
from ascend_runner.ranks.signals import Signals
from tests.helpers.waiting import LIMIT


def _send(*signums: int) -> None:
    for signum in signums:
        signal.raise_signal(signum)  # to this very thread: others of the test process may block less


@pytest.mark.parametrize("signum", WATCHED)
def test_each_signal_wakes(signum: signal.Signals) -> None:
    """None of these signals ends or interrupts the process; each is reported."""
    with Signals() as signals:
        _send(signum)

        assert [signum] == signals.wait(LIMIT)


def test_stop_signals_come_first_and_in_order() -> None:
    """Stop signals are reported in order of arrival, because the first one determines the cause, then the others."""
    with Signals() as signals:
        _send(signal.SIGUSR1, signal.SIGTERM, signal.SIGINT)

        assert [signal.SIGTERM, signal.SIGINT, signal.SIGUSR1] == signals.wait(LIMIT)
        assert [] == signals.wait(0)


def test_flood_is_one_signal() -> None:
    """Equal signals that arrive before they are read count as one, and the last SIGTSTP or SIGCONT counts."""
    with Signals() as signals:
        _send(*[signal.SIGUSR1, signal.SIGTSTP, signal.SIGCONT, signal.SIGCHLD] * 100, signal.SIGTSTP)

        assert [signal.SIGUSR1, signal.SIGCONT, signal.SIGCHLD, signal.SIGTSTP] == signals.wait(LIMIT)
        assert [] == signals.wait(0)


def test_copies_of_a_stop_signal_are_one() -> None:
    """A signal that reaches guardian and runner arrives twice, but means one request; a later one is another."""
    received = iter((0.0, 0.9 * ONE_SIGNAL, 1.1 * ONE_SIGNAL))
    with Signals(now=lambda: next(received)) as signals:
        _send(signal.SIGTERM, signal.SIGTERM)
        assert [signal.SIGTERM] == signals.wait(LIMIT)
        _send(signal.SIGTERM)

        assert [signal.SIGTERM] == signals.wait(LIMIT)
        assert [] == signals.wait(0)


def test_stop_signal_is_answered() -> None:
    """The guardian learns that a stop signal was taken note of when the reader has got it, and of no other signal."""
    answers: list[str] = []
    with Signals(answers.append) as signals:
        _send(signal.SIGUSR1)
        signals.wait(LIMIT)
        assert [] == answers
        _send(signal.SIGTERM, signal.SIGINT)
        assert [] == answers
        signals.wait(LIMIT)

        assert ["answer"] == answers


def test_wait_ends_without_a_signal_at_its_limit() -> None:
    """Without a signal, wait returns at its limit; a limit in the past is not an error."""
    with Signals() as signals:
        assert [] == signals.wait(0.01)
        assert [] == signals.wait(0)
        assert [] == signals.wait(-1)


def test_signal_ends_a_wait_without_limit() -> None:
    """A blocked wait returns when another process sends a signal."""
    with Signals() as signals:
        sender = threading.Timer(0.02, _send, [signal.SIGTERM])
        sender.start()
        seen = signals.wait(None)
        sender.join()

        assert [signal.SIGTERM] == seen


def test_handler_from_before_python(monkeypatch: pytest.MonkeyPatch) -> None:
    """A preloaded library may have installed one: Python calls it None, and cannot put it back."""
    before = signal.getsignal(signal.SIGUSR1)
    install = signal.signal

    def installed(signum: int, handler: signal._HANDLER) -> signal._HANDLER:
        found = install(signum, handler)
        return None if signum == signal.SIGUSR1 else found

    monkeypatch.setattr(signal, "signal", installed)
    with Signals() as signals:
        _send(signal.SIGUSR1)
        assert [signal.SIGUSR1] == signals.wait(LIMIT)
    signal.signal(signal.SIGUSR1, before)


def test_child_that_ends_wakes() -> None:
    """The exit of a child is reported like other signals."""
    with Signals() as signals:
        pid = os.spawnv(os.P_NOWAIT, "/bin/true", ["true"])
        seen = signals.wait(LIMIT)
        os.waitpid(pid, 0)

        assert [signal.SIGCHLD] == seen


def test_signals_that_were_blocked_before_are_delivered() -> None:
    """A signal between the fork and the first wait is not lost."""
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    try:
        _send(signal.SIGTERM)
        with Signals() as signals:
            assert [signal.SIGTERM] == signals.wait(LIMIT)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


@pytest.mark.parametrize("signum", [signal.SIGHUP, signal.SIGINT, signal.SIGQUIT])
def test_ignored_signal_stays_ignored(signum: signal.Signals) -> None:
    """Signals that nohup(1), or a shell for its background jobs, has ignored are not reported."""
    handler = signal.signal(signum, signal.SIG_IGN)
    try:
        with Signals() as signals:
            _send(signum, signal.SIGUSR1)

            assert [signal.SIGUSR1] == signals.wait(LIMIT)
        assert signal.getsignal(signum) is signal.SIG_IGN
    finally:
        signal.signal(signum, handler)


def test_more_signals_than_the_pipe_holds() -> None:
    """They cause no deadlock or warning, and a stop signal that finds the pipe full is not lost."""
    with Signals() as signals:
        for _ in range(70_000):
            signal.raise_signal(signal.SIGUSR1)
        _send(signal.SIGTERM)

        assert [signal.SIGTERM, signal.SIGUSR1] == signals.wait(LIMIT)


def test_everything_is_put_back() -> None:
    """Handlers, mask, wakeup fd and open files are restored."""
    reader, writer = os.pipe2(os.O_NONBLOCK)
    mine = signal.signal(signal.SIGUSR1, lambda *_: None)
    old_fd = signal.set_wakeup_fd(writer)
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR2})

    def state() -> tuple[object, ...]:
        fd = signal.set_wakeup_fd(-1)
        signal.set_wakeup_fd(fd)
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, ())
        return [signal.getsignal(signum) for signum in WATCHED], mask, fd, len(os.listdir("/proc/self/fd"))

    try:
        before = state()
        with Signals():
            assert before != state()
        assert before == state()
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGUSR2})
        signal.set_wakeup_fd(old_fd)
        signal.signal(signal.SIGUSR1, mine)
        os.close(reader)
        os.close(writer)


def test_python_code_is_not_interrupted() -> None:
    """A signal does not interrupt the code that it arrives in: system calls are resumed."""
    reader, writer = os.pipe()
    with Signals() as signals:
        main = threading.main_thread().ident
        assert main

        def interrupt_and_write() -> None:
            for _ in range(10):
                signal.pthread_kill(main, signal.SIGUSR1)
            os.write(writer, b"data")

        thread = threading.Thread(target=interrupt_and_write)
        thread.start()
        assert b"data" == os.read(reader, 4)
        thread.join()
        assert {signal.SIGUSR1} == set(signals.wait(LIMIT))
    os.close(reader)
    os.close(writer)
