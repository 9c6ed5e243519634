"""Threads, the bell that wakes them, and what may never end being given up."""

from __future__ import annotations

import threading
import time
from signal import SIG_BLOCK, pthread_sigmask, valid_signals

import pytest

from ascend_runner.errors import AscendRunnerError
from ascend_runner.linux import threads
from ascend_runner.linux.threads import Bell, Thread
from tests.conftest import LIMIT, wait_until


@pytest.fixture
def no_thread_to_be_had(monkeypatch: pytest.MonkeyPatch) -> None:
    """Refuse every thread, as the kernel does at a limit of processes."""

    def refuse(*_: object) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threads, "start_new_thread", refuse)


def test_thread_does_its_work_with_all_signals_blocked() -> None:
    """Its end can be waited for, more than once."""
    seen: list[object] = []
    thread = Thread(lambda: seen.append(pthread_sigmask(SIG_BLOCK, ())))
    thread.start()

    assert thread.has_ended(LIMIT)
    assert thread.has_ended(0)
    assert [valid_signals() - {9, 19}] == seen  # SIGKILL and SIGSTOP cannot be


def test_thread_that_has_not_ended() -> None:
    """It is waited for so long and no longer; a negative time is none."""
    go_on = Bell()
    thread = Thread(go_on.wait)  # type: ignore[arg-type]  # what it returns is nobody's
    thread.start()

    assert not thread.has_ended(-1)
    assert not thread.has_ended(0.01)
    go_on.ring()
    assert thread.has_ended(LIMIT)


def test_thread_that_fails_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its error is told, and whoever waits for the thread does not wait for who reads that."""
    told: list[str] = []
    is_read = Bell()

    def tell(_kind: object, error: object, _trace: object) -> None:
        is_read.wait(LIMIT)
        told.append(str(error))

    monkeypatch.setattr("sys.excepthook", tell)

    def fail() -> None:
        raise ValueError("odd")

    thread = Thread(fail)
    thread.start()

    assert thread.has_ended(LIMIT)
    assert [] == told
    is_read.ring()
    wait_until(lambda: told == ["odd"])


@pytest.mark.usefixtures("no_thread_to_be_had")
def test_thread_that_cannot_be_started() -> None:
    """The sentence names the limits; it is not running."""
    thread = Thread(lambda: None)

    with pytest.raises(AscendRunnerError, match=r"can't start new thread: too many processes \(RLIMIT_NPROC"):
        thread.start()
    assert thread.has_ended(0)


def test_bell_is_heard_by_who_waits_and_by_who_comes_later() -> None:
    """One wait hears it once, however often it was rung."""
    bell = Bell()
    assert not bell.wait(0)
    assert not bell.wait(-1)

    bell.ring()
    bell.ring()
    assert bell.wait(0)
    assert not bell.wait(0.01)

    ringer = threading.Timer(0.05, bell.ring)
    ringer.start()
    start = time.monotonic()
    assert bell.wait()
    assert time.monotonic() - start < LIMIT
    ringer.join()


def test_work_in_time() -> None:
    """It is done when this says so."""
    done: list[int] = []

    assert threads.within(60, lambda: done.append(1))
    assert [1] == done


def test_work_that_hangs() -> None:
    """It is not waited for."""
    go_on = threading.Event()

    def hang() -> None:
        go_on.wait()

    assert not threads.within(0.01, hang)
    go_on.set()


@pytest.mark.usefixtures("no_thread_to_be_had")
def test_work_without_a_thread() -> None:
    """Where no more threads may be started it is done all the same."""
    done: list[int] = []

    assert threads.within(0, lambda: done.append(1))
    assert [1] == done
