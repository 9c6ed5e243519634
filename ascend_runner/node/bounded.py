"""Runs programs and functions that may never return (a hung driver, a dead name server or disk), with a time limit.

Abandoned work continues in the background: nothing can end a thread or a process that hangs in the kernel.
"""

from __future__ import annotations

import resource
import signal
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Final, TypeVar

import attrs

from ascend_runner.errors import LIMIT_OF_MEMORY, LIMIT_OF_PROCESSES, AscendRunnerError

if TYPE_CHECKING:
    import subprocess

Key = TypeVar("Key")
Value = TypeVar("Value")

WORKERS: Final = 32  # threads at once
KILL_LIMIT: Final = 0.5  # seconds
POLL_INTERVAL: Final = 0.1  # seconds between two checks of `is_cut`
LAST_CHANCE: Final = 0.5  # seconds for work that is cut short: enough for anything that does not hang
ALL_SIGNALS: Final = frozenset(signal.valid_signals())  # once, because each call makes 64 members of an enum


def never() -> bool:
    """Cut nothing short."""
    return False


@attrs.frozen(eq=False, repr=False)
class Patience:
    """How long to wait for something that may not respond, and where to report that. Handed down from the signals."""

    is_stopped: Callable[[], bool] = never  # a stop signal has arrived: whatever can be left out is
    is_hurried: Callable[[], bool] = never  # a second one has: nothing that does not respond is waited for
    warn: Callable[[str], object] = attrs.field(default=lambda _sentence: None)


PATIENT: Final = Patience()


def run(
    argv: Sequence[str], seconds: float, env: Mapping[str, str] | None = None, is_cut: Callable[[], bool] = never
) -> subprocess.CompletedProcess[str] | None:
    """Run a program to its end. Return None if it takes longer than `seconds`, or once `is_cut` returns true.

    Without `env` it inherits ours. A program that takes longer is killed, and waited for only briefly: inside a driver
    even SIGKILL may not end it.

    Raises:
        OSError: The program cannot be started.
    """
    import subprocess  # noqa: PLC0415  5 ms, and most callers only start threads

    process = subprocess.Popen(
        argv,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    deadline = time.monotonic() + seconds
    while (left := deadline - time.monotonic()) > 0 and not is_cut():
        with suppress(subprocess.TimeoutExpired):
            stdout, stderr = process.communicate(timeout=min(left, POLL_INTERVAL))
            break
    else:
        process.kill()
        with suppress(subprocess.TimeoutExpired):
            process.wait(KILL_LIMIT)
        for pipe in (process.stdout, process.stderr):
            if pipe:
                pipe.close()
        return None

    return subprocess.CompletedProcess(
        argv, process.returncode, stdout.decode(errors="replace"), stderr.decode(errors="replace")
    )


def call(seconds: float, work: Callable[[], object], is_cut: Callable[[], bool] = never) -> bool:
    """Call a function; return whether it has returned within `seconds`, or soon after `is_cut` has returned true.

    If no thread can be started, there is no limit.
    """
    try:
        thread = start_thread(work)
    except AscendRunnerError:
        work()
        return True

    return join(thread, time.monotonic() + seconds, is_cut)


def on_disk(seconds: float, work: Callable[[], Value]) -> Value | None:
    """Return the result of a function, or None if its disk fails or does not respond within `seconds`."""
    found: list[Value] = []

    def work_on() -> None:
        with suppress(OSError):
            found.append(work())

    call(seconds, work_on)
    return found[0] if found else None


def call_each(
    keys: Sequence[Key],
    function: Callable[[Key], Value],
    seconds: float,
    *,
    workers: int = WORKERS,
    is_cut: Callable[[], bool] = never,
) -> dict[Key, Value]:
    """Call a function with each key, several at once; return its results by key. The limits are the same as for `call`.

    Raises:
        AscendRunnerError: No thread can be started.
    """
    results: dict[Key, Value] = {}
    waiting = list(reversed(keys))
    deadline = time.monotonic() + seconds

    def work_off() -> None:
        while time.monotonic() < deadline and not is_cut():
            try:
                key = waiting.pop()
            except IndexError:
                return
            results[key] = function(key)

    ends = deadline
    for thread in _start_threads(work_off, min(workers, len(keys))):
        if not join(thread, ends, is_cut):
            ends = 0.0  # the others had as much time
    return dict(results)  # a thread that returns late must not change what the caller reads


def _start_threads(work: Callable[[], object], count: int) -> list[threading.Thread]:
    """Start at most `count` threads, and at least one."""
    threads: list[threading.Thread] = []
    for _ in range(count):
        try:
            threads.append(start_thread(work))
        except AscendRunnerError:
            if not threads:
                raise
            break
    return threads


def join(thread: threading.Thread, deadline: float, is_cut: Callable[[], bool]) -> bool:
    """Wait for a thread until the deadline, or briefly once `is_cut`; return whether it has ended."""
    while thread.is_alive() and (left := deadline - time.monotonic()) > 0:
        if is_cut():
            thread.join(min(left, LAST_CHANCE))
            break
        thread.join(min(left, POLL_INTERVAL))
    return not thread.is_alive()


def start_thread(work: Callable[[], object]) -> threading.Thread:
    """Start a thread that the process does not wait for at its end, and that handles no signals.

    Raises:
        AscendRunnerError: The limit of processes or of memory is reached.
    """

    def run_without_signals() -> None:
        signal.pthread_sigmask(signal.SIG_BLOCK, ALL_SIGNALS)
        work()

    thread = threading.Thread(target=run_without_signals, daemon=True)
    try:
        thread.start()
    except RuntimeError as error:
        limit = f"too many processes {LIMIT_OF_PROCESSES}"
        if resource.getrlimit(resource.RLIMIT_AS)[0] != resource.RLIM_INFINITY:
            limit = f"not enough memory {LIMIT_OF_MEMORY} or {limit}"
        raise AscendRunnerError(f"cannot start a thread: {limit}") from error
    return thread
