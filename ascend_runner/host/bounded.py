"""Run what may never return (a tool that hangs in a driver, a dead name server or disk), and give up after a time.

What is given up goes on in the background: nothing can end a thread or a process that hangs in the kernel.
"""

from __future__ import annotations

import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Final, TypeVar

from ascend_runner.errors import LIMIT_OF_PROCESSES, AscendRunnerError

Key = TypeVar("Key")
Value = TypeVar("Value")

WORKERS: Final = 32  # threads at once
KILL_LIMIT: Final = 0.5  # seconds


def run(
    argv: Sequence[str], seconds: float, env: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str] | None:
    """Run a program to its end; None if that takes longer than `seconds`. Without `env` it inherits ours.

    A program that takes longer is killed, and waited for only briefly: inside a driver even SIGKILL may not end it.

    Raises:
        OSError: the program cannot be started.
    """
    process = subprocess.Popen(
        argv,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    try:
        stdout, stderr = process.communicate(timeout=max(0.0, seconds))
    except subprocess.TimeoutExpired:
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


def call(seconds: float, work: Callable[[], object]) -> bool:
    """Call a function; return whether it has returned within `seconds`. Without a free thread there is no limit."""
    try:
        thread = start_thread(work)
    except AscendRunnerError:
        work()
        return True

    thread.join(max(0.0, seconds))
    return not thread.is_alive()


def call_each(
    keys: Sequence[Key], function: Callable[[Key], Value], seconds: float, *, workers: int = WORKERS
) -> dict[Key, Value]:
    """Call a function with each key, several at once; return what it has returned for each key within `seconds`.

    Raises:
        AscendRunnerError: no thread can be started.
    """
    results: dict[Key, Value] = {}
    waiting = list(reversed(keys))
    deadline = time.monotonic() + seconds

    def work_off() -> None:
        while time.monotonic() < deadline:
            try:
                key = waiting.pop()
            except IndexError:
                return
            results[key] = function(key)

    for thread in _start_threads(work_off, min(workers, len(keys))):
        thread.join(max(0.0, deadline - time.monotonic()))
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


def start_thread(work: Callable[[], object]) -> threading.Thread:
    """Start a thread that the process does not wait for at its end, and that handles no signals.

    Raises:
        AscendRunnerError: The limit of processes is reached.
    """

    def run_without_signals() -> None:
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        work()

    thread = threading.Thread(target=run_without_signals, daemon=True)
    try:
        thread.start()
    except RuntimeError as error:
        raise AscendRunnerError(f"cannot start a thread: too many processes {LIMIT_OF_PROCESSES}") from error
    return thread
