"""Programs and functions that may never return are given up in time."""

from __future__ import annotations

import signal
import sys
import threading
import time

import pytest

from ascend_runner.errors import AscendRunnerError
from ascend_runner.node import bounded
from tests.helpers.waiting import LIMIT, wait_until


def test_run() -> None:
    """The result holds both outputs and the exit status."""
    completed = bounded.run(["/bin/sh", "-c", "echo out; echo err >&2; exit 3"], LIMIT, {})

    assert completed
    assert (3, "out\n", "err\n") == (completed.returncode, completed.stdout, completed.stderr)


def test_run_takes_too_long() -> None:
    """A program that does not end is killed and given up, long before it would have ended."""
    start = time.monotonic()

    assert bounded.run(["/bin/sleep", "1000"], 0.05) is None
    assert time.monotonic() - start < LIMIT


def test_program_that_cannot_be_started() -> None:
    """A program that cannot be started is an error of the caller's."""
    with pytest.raises(FileNotFoundError):
        bounded.run(["/nowhere/tool"], LIMIT, {})


def test_call_returns_in_time() -> None:
    """A function that returns in time has been called."""
    calls: list[int] = []

    assert bounded.call(LIMIT, lambda: calls.append(1))
    assert [1] == calls


@pytest.mark.parametrize("seconds", [-1, 0.01])
def test_call_does_not_return_in_time(seconds: float) -> None:
    """A function that does not return is given up; a negative limit is none left."""
    end = threading.Event()

    assert not bounded.call(seconds, lambda: end.wait(LIMIT))
    end.set()


@pytest.mark.parametrize("returns", [True, False])
def test_call_that_is_cut(*, returns: bool) -> None:
    """Once it is cut, a function has a last chance to return, and is given up then whatever its limit."""
    has_begun, end = threading.Event(), threading.Event()

    def work() -> None:
        has_begun.set()
        if not returns:
            end.wait(LIMIT)

    assert returns == bounded.call(1e9, work, lambda: has_begun.wait(LIMIT))
    end.set()


def test_signals_stay_with_the_main_thread() -> None:
    """The function runs with all signals blocked."""
    masks: list[object] = []
    bounded.call(LIMIT, lambda: masks.append(signal.pthread_sigmask(signal.SIG_BLOCK, ())))

    assert [signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}] == masks


def test_call_without_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """If no more threads can be started, the function is called without a limit."""
    calls: list[int] = []
    monkeypatch.setattr(threading.Thread, "start", _refuse)  # RLIMIT_NPROC does not bind root, whom tests may run as

    assert bounded.call(0, lambda: calls.append(1))
    assert [1] == calls
    with pytest.raises(AscendRunnerError, match="RLIMIT_NPROC"):
        bounded.call_each([1], str, LIMIT)


def _refuse(_thread: object) -> None:
    raise RuntimeError("can't start new thread")


def test_call_each() -> None:
    """Every key has its result, with many more keys than workers."""
    assert {number: number * 2 for number in range(200)} == bounded.call_each(range(200), lambda key: key * 2, LIMIT)
    assert {} == bounded.call_each([], str, LIMIT)


def test_workers_are_limited() -> None:
    """No more than `workers` threads call the function at once."""
    seen = bounded.call_each(range(50), lambda _key: threading.get_ident(), LIMIT, workers=2)

    assert len({*seen.values()}) <= 2


def test_a_call_that_hangs_does_not_delay_the_others() -> None:
    """A key whose call does not return in time is left out."""
    end = threading.Event()

    def answer(name: str) -> bool:
        return end.wait(LIMIT) if name == "slow" else True

    # A busy machine may take longer than the limit for the others, too.
    wait_until(lambda: {"a": True, "b": True} == bounded.call_each(["a", "slow", "b"], answer, 0.2))
    end.set()


def test_the_interpreter_does_not_wait() -> None:
    """A program ends although a call that it has given up has not returned."""
    script = "import time; from ascend_runner.node import bounded; bounded.call(0, lambda: time.sleep(1000))"

    completed = bounded.run([sys.executable, "-c", script], LIMIT)

    assert completed
    assert (0, "", "") == (completed.returncode, completed.stdout, completed.stderr)
